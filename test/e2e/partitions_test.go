package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	millrace "github.com/millrace/millrace/sdk/go"
)

// A namespace of four partitions over three nodes: tasks find their partition, a completion writes keys of its tag in the
// same entry, workers with fewer slots than partitions serve all of them, and a node that goes takes nothing along.
func TestPartitionsAreServedByWhoeverLeadsThem(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3, 4)
	ctx, cancel := context.WithCancel(bounded(t, 120*time.Second))
	defer cancel()
	admin := c.client(1, millrace.Namespace("wide"))
	if _, err := admin.CreateNamespace(ctx, 4); err != nil {
		t.Fatal(err)
	}
	job := millrace.Job[int, int]("double")
	ended := make(chan error, 2)
	for i, slots := range []int{8, 2} {
		w := c.client(i, millrace.Namespace("wide")).Worker(millrace.Slots(slots))
		job.Handle(w, func(_ context.Context, t *millrace.Task, n int) (int, error) {
			t.Effects().KV("out").Put(fmt.Sprintf("{g%d}/%d", n%10, n), 2*n)
			return 2 * n, nil
		})
		go func() { ended <- w.Run(ctx) }()
	}
	producer := c.client(2, millrace.Namespace("wide"))
	const tasks = 400
	gone := c.leader()
	handles := make([]*millrace.Handle[int], tasks)
	for i := range handles {
		if i == tasks/3 {
			c.stop(gone)
		}
		if i == 2*tasks/3 {
			c.start(gone)
		}
		h, err := job.Add(ctx, producer, i, millrace.Tag(fmt.Sprintf("g%d", i%10)))
		if err != nil {
			t.Fatalf("task %d: %v", i, err)
		}
		handles[i] = h
	}
	for i, h := range handles {
		if got, err := h.Wait(ctx); err != nil || got != 2*i {
			t.Fatalf("task %d: %d, %v", i, got, err)
		}
		v, err := producer.KV("out").Get(ctx, fmt.Sprintf("{g%d}/%d", i%10, i))
		if err != nil || v.String() != fmt.Sprint(2*i) {
			t.Errorf("key of task %d: %s, %v", i, v, err)
		}
	}
	stats, err := producer.Queue("double").Stats(ctx)
	if err != nil || stats.Completed != tasks || stats.Ready+stats.Running != 0 {
		t.Errorf("the queue over all partitions: %+v, %v", stats, err)
	}
	cancel()
	<-ended
	<-ended
}
