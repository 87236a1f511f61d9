package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	millrace "github.com/millrace/millrace/sdk/go"
)

// A job about many tasks goes on under the next leader: each task is met once, whichever partition has it, and what a dry run counted is
// what was done.
func TestABulkJobGoesOnWithoutTheLeaderThatBeganIt(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3, 2)
	ctx := bounded(t, 120*time.Second)
	for _, partitions := range []int{1, 4} {
		space := fmt.Sprint("of", partitions)
		k := c.client(0, millrace.Namespace(space))
		if _, err := k.CreateNamespace(ctx, partitions); err != nil {
			t.Fatal(err)
		}
		const tasks = 3_000
		job := millrace.Job[int, int]("later").Queue("mail")
		for i := range tasks / 500 {
			if _, err := job.AddMany(ctx, k, make([]int, 500), millrace.In(time.Hour), millrace.Labels(map[string]string{"batch": fmt.Sprint(i % 2)})); err != nil {
				t.Fatal(err)
			}
		}
		n, err := k.CountBulk(ctx, millrace.BulkCancel, millrace.TaskFilter{Queue: "mail"})
		if err != nil || n.Count != tasks || !n.Exact || len(n.Sample) != 10 {
			t.Fatalf("%d partitions: counted %+v, %v", partitions, n, err)
		}
		filter := millrace.TaskFilter{Labels: map[string]string{"batch": "1"}}
		if n, err = k.CountBulk(ctx, millrace.BulkCancel, filter); err != nil || n.Count != tasks/2 || !n.Exact {
			t.Fatalf("%d partitions: counted %+v by a label, %v", partitions, n, err)
		}
		started, err := k.StartBulk(ctx, millrace.BulkCancel, filter, millrace.BulkRate(500), millrace.BulkReason("superseded"))
		if err != nil {
			t.Fatal(err)
		}
		at := func() *millrace.BulkJob {
			j, err := k.Bulk(ctx, started.ID)
			if err != nil {
				t.Fatal(err)
			}
			return j
		}
		eventually(t, "a part is done", func() bool { return at().Done > 0 })
		gone := c.leader()
		c.stop(gone)
		eventually(t, "the job is done", func() bool { return at().State == millrace.BulkDone })
		c.start(gone)
		if j := at(); j.Done != tasks/2 || j.Matched != tasks/2 || len(j.Refused) > 0 || j.By == "" || j.Reason != "superseded" || j.Ended.IsZero() {
			t.Errorf("%d partitions: the job ended as %+v", partitions, j)
		}
		stats, err := k.Queue("mail").Stats(ctx)
		if err != nil || stats.Cancelled != tasks/2 || stats.Scheduled != tasks/2 {
			t.Errorf("%d partitions: %+v, %v", partitions, stats, err)
		}
		if replayed, err := k.StopBulk(ctx, started.ID); err != nil || !replayed {
			t.Errorf("stop of a job that has ended: %v, %v", replayed, err)
		}
	}
}

// A namespace runs ten jobs at once, and another tenant's jobs are not there.
func TestBulkJobsAreBoundedAndOfTheirTenant(t *testing.T) {
	t.Parallel()
	l := startLocal(t, holder{"acme", "admin", ""}, holder{"evil", "admin", ""})
	ctx := bounded(t, 60*time.Second)
	k, evil := l.client(0), l.client(1)
	job := millrace.Job[int, int]("later").Queue("mail")
	if _, err := job.AddMany(ctx, k, make([]int, 500), millrace.In(time.Hour)); err != nil {
		t.Fatal(err)
	}
	start := func(ctx context.Context) (*millrace.BulkJob, error) {
		return k.StartBulk(ctx, millrace.BulkCancel, millrace.TaskFilter{Queue: "mail"}, millrace.BulkRate(1))
	}
	var first *millrace.BulkJob
	for range 10 {
		j, err := start(ctx)
		if err != nil {
			t.Fatal(err)
		}
		first = j
	}
	// The client tries again until its time is over: a job may end. What is under way then is of unknown outcome.
	until(t, "one job too many is refused", func() bool {
		_, err := start(bounded(t, 2*time.Second))
		if err == nil {
			t.Fatal("one job too many is begun")
		}
		return strings.Contains(err.Error(), "bulk_jobs")
	})
	if _, err := evil.Bulk(ctx, first.ID); !errors.Is(err, millrace.ErrNotFound) {
		t.Errorf("another tenant reads the job: %v", err)
	}
	if _, err := evil.StopBulk(ctx, first.ID); !errors.Is(err, millrace.ErrNotFound) {
		t.Errorf("another tenant stops the job: %v", err)
	}
	if jobs, err := evil.Bulks(ctx); err != nil || len(jobs) > 0 {
		t.Errorf("another tenant lists %d jobs, %v", len(jobs), err)
	}
	if _, err := evil.StartBulk(ctx, millrace.BulkCancel, millrace.TaskFilter{}); err != nil && !errors.Is(err, millrace.ErrNotFound) {
		t.Error(err)
	}
	if replayed, err := k.StopBulk(ctx, first.ID); err != nil || replayed {
		t.Errorf("stop: %v, %v", replayed, err)
	}
	if j, err := k.Bulk(ctx, first.ID); err != nil || j.State != millrace.BulkStopped || j.Done == 500 {
		t.Errorf("stopped: %+v, %v", j, err)
	}
	if _, err := start(ctx); err != nil {
		t.Errorf("after one was stopped: %v", err)
	}
}
