package e2e

import (
	"context"
	"testing"
	"time"

	millrace "github.com/millrace/millrace/sdk/go"
)

// TestBatchesOverALostLeader finishes batches while their leader is lost: each makes its follow-up once.
func TestBatchesOverALostLeader(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3, 1)
	lead := c.leader()
	k := c.client((lead + 1) % 3)
	ctx := bounded(t, 2*time.Minute)
	job, after := millrace.Job[int, int]("part"), millrace.Job[int, int]("whole")
	const batches, tasks = 20, 5
	var ids []string
	for i := range batches {
		b, err := k.OpenBatch(ctx, millrace.OnDone(after, i), millrace.OnSuccess(after, 1000+i))
		noErr(t, err)
		ids = append(ids, b.ID)
		for n := range tasks {
			_, err := job.Add(ctx, k, n, millrace.InBatch(b.ID))
			noErr(t, err)
		}
		_, err = k.SealBatch(ctx, b.ID)
		noErr(t, err)
	}
	c.stop(lead)
	w := k.Worker(millrace.Slots(8))
	job.Handle(w, func(_ context.Context, _ *millrace.Task, n int) (int, error) { return n, nil })
	working, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(working) }()
	for _, id := range ids {
		b, err := k.WaitBatch(ctx, id)
		noErr(t, err)
		want := millrace.BatchCounts{Total: tasks, Completed: tasks}
		if b.State != millrace.BatchFinished || b.Counts != want || b.DoneTask == "" || b.SuccessTask == "" {
			t.Errorf("%+v", b)
		}
	}
	stop()
	noErr(t, <-ended)
	stats, err := k.Queue("whole").Stats(ctx)
	noErr(t, err)
	if stats.Created != 2*batches {
		t.Errorf("%d batches made %d tasks", batches, stats.Created)
	}
}
