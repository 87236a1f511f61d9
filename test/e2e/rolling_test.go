package e2e

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	millrace "github.com/millrace/millrace/sdk/go"
)

func TestARollingRestartFailsNoOperation(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3, 2)
	c.leader()
	ctx, cancel := context.WithCancel(bounded(t, 90*time.Second))
	defer cancel()
	job := millrace.Job[int, int]("double")
	w := c.client(0).Worker(millrace.Slots(8))
	job.Handle(w, func(_ context.Context, t *millrace.Task, n int) (int, error) { return 2 * n, nil })
	ended := make(chan error, 1)
	working, stop := context.WithCancel(ctx)
	go func() { ended <- w.Run(working) }()

	var writers sync.WaitGroup
	var over atomic.Bool
	var made, written atomic.Int64
	for i := range 3 {
		producer := c.client(i)
		writers.Go(func() {
			for k := 0; !over.Load(); k++ {
				n := 1000*i + k
				h, err := job.Add(ctx, producer, n)
				if err != nil {
					t.Errorf("task %d: %v", n, err)
					return
				}
				made.Add(1)
				if got, err := h.Wait(ctx); err != nil || got != 2*n {
					t.Errorf("result of task %d: %d, %v", n, got, err)
					return
				}
			}
		})
		writers.Go(func() {
			kv := producer.KV("rolling")
			for k := 0; !over.Load(); k++ {
				key := fmt.Sprintf("%d-%d", i, k)
				if _, err := kv.Put(ctx, key, k); err != nil {
					t.Errorf("key %s: %v", key, err)
					return
				}
				written.Add(1)
				if v, err := kv.Get(ctx, key); err != nil || v.String() != fmt.Sprint(k) {
					t.Errorf("key %s reads as %s, %v", key, v, err)
					return
				}
			}
		})
	}
	for round := range 2 {
		for i := range 3 {
			before := made.Load() + written.Load()
			c.stop(i)
			c.start(i)
			if t.Failed() {
				t.Fatalf("round %d: failed when node %d was restarted", round, i+1)
			}
			for made.Load()+written.Load() < before+100 && ctx.Err() == nil && !t.Failed() {
				<-time.After(5 * time.Millisecond)
			}
		}
	}
	over.Store(true)
	writers.Wait()
	stop()
	<-ended
	if t.Failed() {
		for i, r := range c.running {
			if r != nil {
				t.Logf("node %d at %s: %+v", i+1, c.peers[i].API, r.Node().Standings())
			}
		}
	}
	t.Logf("%d tasks, %d keys during six restarts", made.Load(), written.Load())
}
