package e2e

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	millrace "github.com/millrace/millrace/sdk/go"
)

// TestADiamondOfTasksRunsInOrderOverALostLeader runs a first task, 988 that wait for it, ten that wait for these, and a last one. The
// leader is stopped halfway. One of the 988 dies: what waits for it is held until a redrive.
func TestADiamondOfTasksRunsInOrderOverALostLeader(t *testing.T) {
	onlyInCheck(t, "it runs 1,000 tasks over a change of leaders")
	t.Parallel()
	const middle, gathers = 988, 10
	c := startCluster(t, 3, 1)
	lead := c.leader()
	k := c.client((lead + 1) % 3)
	ctx := bounded(t, 3*time.Minute)

	var mu sync.Mutex // guards what follows
	waits := map[string][]string{}
	done := map[string]bool{}
	bad := "" // the task that fails
	heal := false
	half := make(chan struct{})
	job := millrace.Job[int, int]("part")
	w := k.Worker(millrace.Slots(64))
	job.Handle(w, func(_ context.Context, task *millrace.Task, n int) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		for _, id := range waits[task.ID] {
			if !done[id] {
				t.Errorf("task %d began before task %s, which it waits for", n, id)
			}
		}
		if task.ID == bad && !heal {
			return 0, millrace.Fatal(errors.New("broken"))
		}
		if done[task.ID] = true; len(done) == middle/2 {
			close(half)
		}
		return n, nil
	})
	add := func(n int, after ...string) *millrace.Handle[int] {
		h, err := job.Add(ctx, k, n, millrace.ID(millrace.NewID()), millrace.After(after...))
		if err != nil {
			t.Fatalf("task %d: %v", n, err)
		}
		mu.Lock()
		waits[h.ID] = after
		mu.Unlock()
		return h
	}
	first := got[*millrace.Handle[int]](t)(job.Add(ctx, k, 0, millrace.In(time.Hour)))
	var joins []string
	per := middle/gathers + 1
	var group []string
	for n := 1; n <= middle; n++ {
		h := add(n, first.ID)
		if group = append(group, h.ID); n == middle/3 {
			mu.Lock()
			bad = h.ID
			mu.Unlock()
		}
		if len(group) == per || n == middle {
			joins = append(joins, add(middle+len(joins)+1, group...).ID)
			group = nil
		}
	}
	last := add(middle+gathers+1, joins...)
	noErr(t, k.RunNow(ctx, first.ID))

	run, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(run) }()
	defer func() { cancel(); <-ended }()
	select {
	case <-half:
	case <-ctx.Done():
		t.Fatal("half of the tasks did not run")
	}
	c.stop(lead)
	stateIs := func(id string, want millrace.State) {
		t.Helper()
		for {
			info, err := k.Task(ctx, id)
			noErr(t, err)
			if info.State == want {
				return
			}
			pause(ctx, t)
		}
	}
	stateIs(bad, millrace.Dead)
	c.start(lead)
	for i, id := range joins {
		if held := i == (middle/3-1)/per; !held {
			stateIs(id, millrace.Completed)
		} else if info, err := k.Task(ctx, id); err != nil || info.State != millrace.Blocked {
			t.Errorf("what waits for a dead task is %v, %v", info, err)
		}
	}
	mu.Lock()
	heal = true
	mu.Unlock()
	got[millrace.State](t)(k.Retry(ctx, bad))
	if n, err := last.Wait(ctx); err != nil || n != middle+gathers+1 {
		t.Fatalf("the last task: %d, %v", n, err)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(done) != middle+gathers+2 {
		t.Errorf("%d tasks were done, want %d", len(done), middle+gathers+2)
	}
}
