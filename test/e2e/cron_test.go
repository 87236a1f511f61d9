package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	millrace "github.com/millrace/millrace/sdk/go"
)

// TestCronsOverALostLeader lets ten crons run while their leader is lost: each slot is done once, and none is forgotten.
func TestCronsOverALostLeader(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3, 1)
	lead := c.leader()
	k := c.client((lead + 1) % 3)
	ctx := bounded(t, 2*time.Minute)
	job := millrace.Job[int, int]("tick")
	const crons = 10
	for i := range crons {
		_, err := job.Cron(ctx, k, fmt.Sprint("c", i), "@every 1s", i, millrace.CronOverlaps(millrace.CronAllow), millrace.CronIfVersion(0))
		noErr(t, err)
	}
	haveRun := func(n uint64) {
		t.Helper()
		for i := range crons {
			for name := fmt.Sprint("c", i); ; {
				got, err := k.Cron(ctx, name)
				noErr(t, err)
				if got.Runs >= n {
					break
				}
				pause(ctx, t)
			}
		}
	}
	haveRun(2)
	c.stop(lead)
	list, _, err := k.Crons(ctx, 0, "")
	noErr(t, err)
	var most uint64
	for _, one := range list {
		most = max(most, one.Runs)
	}
	haveRun(most + 3)
	var tasks []string
	for i := range crons {
		name := fmt.Sprint("c", i)
		_, err := k.PauseCron(ctx, name)
		noErr(t, err)
		runs, err := k.CronRuns(ctx, name)
		noErr(t, err)
		slices.Reverse(runs)
		for j, r := range runs {
			tasks = append(tasks, r.Task)
			if r.Outcome != "started" || r.Number != uint64(j+1) {
				t.Errorf("%s: run %+v", name, r)
			}
			// Each second is a slot: what lies between two runs was passed over, or nothing does.
			if j > 0 && int(r.Slot.Sub(runs[j-1].Slot)/time.Second) != r.Passed+1 {
				t.Errorf("%s: the slot %s comes after %s, and %d were passed over", name, r.Slot, runs[j-1].Slot, r.Passed)
			}
		}
	}
	n := len(tasks)
	slices.Sort(tasks)
	if tasks = slices.Compact(tasks); len(tasks) != n {
		t.Errorf("%d runs made %d tasks", n, len(tasks))
	}
	stats, err := k.Queue("tick").Stats(ctx)
	noErr(t, err)
	if stats.Created != uint64(n) {
		t.Errorf("%d runs made %d tasks of the queue", n, stats.Created)
	}
}

// pause waits a little before something is looked at again.
func pause(ctx context.Context, t *testing.T) {
	t.Helper()
	select {
	case <-ctx.Done():
		t.Fatal(ctx.Err())
	case <-time.After(20 * time.Millisecond):
	}
}
