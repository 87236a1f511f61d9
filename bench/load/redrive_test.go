package load

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/bench"
	millrace "github.com/millrace/millrace/sdk/go"
)

// redriving is the shape of a small redrive under live traffic.
var redriving = bench.Shape{Producers: 1, Pumps: 8, Workers: 1, Slots: 64, Prefill: 2_000, Redrive: 60_000}

func TestDeadTasksAreRedrivenUnderLiveTraffic(t *testing.T) {
	run := on(t, bench.Procs, small(Redrive, redriving))
	clean(t, run)
	wantMetrics(t, run, "redriven_per_s", "redrive_s", "live_p50_ratio", "live_p99_ratio", "alone_p50_us", "alone_p99_us",
		"redriven_p50_us", "redriven_p99_us", "cycles_per_s")
	if n := run.Metrics["tasks"].Value; n != 2_000 {
		t.Errorf("%v tasks died, want 2,000", n)
	}
	if run.Audit.Completed == 0 || run.Audit.Completed != run.Audit.Created {
		t.Errorf("%d live tasks were created and %d completed, want all of some", run.Audit.Created, run.Audit.Completed)
	}
}

// cancelling is Redrive and a job after it that cancels what was redriven, as if the tasks were lost.
func cancelling(ctx context.Context, rig *bench.Rig) error {
	if err := Redrive(ctx, rig); err != nil {
		return err
	}
	return cancelReady(ctx, rig, redriveSuffix)
}

// cancelReady cancels the ready tasks of the queue with that suffix.
func cancelReady(ctx context.Context, rig *bench.Rig, suffix string) error {
	c, err := rig.Dial(ctx, 0)
	if err != nil {
		return err
	}
	defer c.Close() //nolint:errcheck // every call was answered, or an error tells
	filter := millrace.TaskFilter{Queue: rig.Queue + suffix, State: millrace.Ready}
	job, err := c.StartBulk(ctx, millrace.BulkCancel, filter, millrace.BulkRate(60_000))
	if err != nil {
		return err
	}
	return poll(ctx, time.Minute, func() (bool, error) {
		j, err := c.Bulk(ctx, job.ID)
		return err == nil && j.State != millrace.BulkRunning, err
	})
}

func TestRedrivenTasksThatAreNotReadyAfterwardsFailTheAudit(t *testing.T) {
	run := on(t, bench.InProc, small(cancelling, redriving))
	if run.Failed != "" {
		t.Fatalf("failed %q", run.Failed)
	}
	if run.Audit == nil || run.Audit.OK || !strings.Contains(strings.Join(run.Audit.Violations, "\n"), "0 are ready") {
		t.Errorf("audit %+v, want one that misses ready tasks", run.Audit)
	}
}

func TestTheAuditOfARedriveFindsWhatIsLostDoubledOrDifferent(t *testing.T) {
	payload := []byte("{}")
	whole := func() *redriveFound {
		return &redriveFound{
			dead: 1_000, dry: millrace.BulkCount{Count: 1_000, Exact: true},
			job:    millrace.BulkJob{State: millrace.BulkDone, Done: 1_000},
			stats:  millrace.QueueStats{Created: 1_000, Ready: 1_000},
			sample: []*millrace.TaskInfo{{ID: "t", State: millrace.Ready, Redrives: 1, Payload: payload}},
		}
	}
	if wrong := whole().wrong(payload); len(wrong) > 0 {
		t.Errorf("a whole redrive is called wrong: %q", wrong)
	}
	for _, c := range []struct {
		name, want string
		plant      func(f *redriveFound)
	}{
		{"a dry run that counts one too few", "dry run: it counted 999", func(f *redriveFound) { f.dry.Count-- }},
		{"a dry run that is not exact", "exact: false", func(f *redriveFound) { f.dry.Exact = false }},
		{"a job that did one too few", "did 999 tasks", func(f *redriveFound) { f.job.Done-- }},
		{"a job that did one twice", "did 1001 tasks", func(f *redriveFound) { f.job.Done++ }},
		{"a job that was refused", "CHANGED", func(f *redriveFound) { f.job.Refused = map[string]uint64{"CHANGED": 1} }},
		{"a job that was stopped", "the job is stopped", func(f *redriveFound) { f.job.State = millrace.BulkStopped }},
		{"a task that is lost", "999 are ready", func(f *redriveFound) { f.stats.Ready-- }},
		{"a task that is doubled", "has 1001 tasks", func(f *redriveFound) { f.stats.Created++ }},
		{"a task that is dead still", "1 dead", func(f *redriveFound) { f.stats.Dead = 1 }},
		{"a task in another state", "is dead and was", func(f *redriveFound) { f.sample[0].State = millrace.Dead }},
		{"a task that was redriven twice", "redriven 2 times", func(f *redriveFound) { f.sample[0].Redrives = 2 }},
		{"a task with another payload", "different", func(f *redriveFound) { f.sample[0].Payload = []byte("[]") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := whole()
			c.plant(f)
			if wrong := f.wrong(payload); len(wrong) != 1 || !strings.Contains(wrong[0], c.want) {
				t.Errorf("%q, want one sentence with %q", wrong, c.want)
			}
		})
	}
}
