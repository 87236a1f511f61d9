package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	millrace "github.com/millrace/millrace/sdk/go"
)

// TestAWorkerIsOneInTheListOfAllLeadersAndQuietAtAll: a namespace of six partitions over three nodes. Any node lists its workers, and
// makes one quiet at all.
func TestAWorkerIsOneInTheListOfAllLeadersAndQuietAtAll(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3, 3)
	ctx, cancel := context.WithCancel(bounded(t, 90*time.Second))
	defer cancel()
	c.leader()
	wide := millrace.Namespace("wide")
	admin := c.client(1, wide)
	_, err := admin.CreateNamespace(ctx, 6)
	noErr(t, err)
	job := millrace.Job[int, int]("count")
	begun, ended := make(chan int, 100), make(chan error, 1)
	w := c.client(0, wide).Worker(millrace.Name("w-1"), millrace.Slots(12))
	job.Handle(w, func(_ context.Context, _ *millrace.Task, n int) (int, error) {
		begun <- n
		return n, nil
	})
	go func() { ended <- w.Run(ctx) }()

	// It has a stream to each partition, on each of the nodes.
	for node := range 3 {
		k := c.client(node, wide)
		var list *millrace.WorkerList
		for late := time.Now().Add(40 * time.Second); ; {
			list, err = k.Workers(ctx, "count")
			noErr(t, err)
			if !list.Partial && len(list.Workers) == 1 && list.Workers[0].Slots == 12 && len(list.Workers[0].Nodes) == 3 {
				break
			}
			if time.Now().After(late) {
				t.Fatalf("node %d lists %+v", node+1, list)
			}
			time.Sleep(50 * time.Millisecond)
		}
		if w := list.Workers[0]; len(w.Sessions) != 6 {
			t.Errorf("node %d lists %+v", node+1, w)
		}
	}
	replayed, err := c.client(2, wide).QuietWorker(ctx, "w-1", true)
	if err != nil || replayed {
		t.Fatalf("made quiet: %v, %v", replayed, err)
	}
	var handles []*millrace.Handle[int]
	for n := range 24 { // of all partitions
		h, err := job.Add(ctx, admin, n, millrace.Tag(fmt.Sprint(n)))
		noErr(t, err)
		handles = append(handles, h)
	}
	select {
	case n := <-begun:
		t.Errorf("a quiet worker is given task %d", n)
	case <-time.After(2 * time.Second):
	}
	if _, err := c.client(0, wide).QuietWorker(ctx, "w-1", false); err != nil {
		t.Fatal(err)
	}
	for _, h := range handles {
		if _, err := h.Wait(ctx); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	noErr(t, <-ended)
}
