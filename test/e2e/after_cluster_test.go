package e2e

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	millrace "github.com/millrace/millrace/sdk/go"
)

// diamond is a first task, tasks that wait for it, tasks that each wait for a part of these, and a last one that waits for all of those.
type diamond struct {
	t     *testing.T
	job   *millrace.JobOf[int, int]
	half  chan struct{} // closed when half of the middle is done
	first *millrace.Handle[int]
	last  *millrace.Handle[int]
	joins []string // the tasks before the last one

	mu    sync.Mutex // guards what follows
	waits map[string][]string
	done  map[string]bool
	bad   string // the task that fails until heal is set
	heal  bool
}

const (
	diamondMiddle = 988
	diamondJoins  = 10
	// diamondPart is how many tasks of the middle one join waits for, at most.
	diamondPart = diamondMiddle/diamondJoins + 1
	// diamondBad is the number of the task that fails.
	diamondBad = diamondMiddle / 3
)

// handle is the handler: nothing begins before what it waits for is done.
func (d *diamond) handle(_ context.Context, task *millrace.Task, n int) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, id := range d.waits[task.ID] {
		if !d.done[id] {
			d.t.Errorf("task %d began before task %s, which it waits for", n, id)
		}
	}
	if task.ID == d.bad && !d.heal {
		return 0, millrace.Fatal(errors.New("broken"))
	}
	if d.done[task.ID] = true; len(d.done) == diamondMiddle/2 {
		close(d.half)
	}
	return n, nil
}

// add makes task n.
func (d *diamond) add(ctx context.Context, k *millrace.Client, n int, after ...string) *millrace.Handle[int] {
	d.t.Helper()
	h, err := d.job.Add(ctx, k, n, millrace.After(after...))
	if err != nil {
		d.t.Fatalf("task %d: %v", n, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.waits[h.ID] = after; n == diamondBad {
		d.bad = h.ID
	}
	return h
}

// build makes all tasks. The first one is not due.
func (d *diamond) build(ctx context.Context, k *millrace.Client) {
	d.t.Helper()
	d.first = got[*millrace.Handle[int]](d.t)(d.job.Add(ctx, k, 0, millrace.In(time.Hour)))
	var part []string
	for n := 1; n <= diamondMiddle; n++ {
		part = append(part, d.add(ctx, k, n, d.first.ID).ID)
		if len(part) == diamondPart || n == diamondMiddle {
			d.joins = append(d.joins, d.add(ctx, k, diamondMiddle+len(d.joins)+1, part...).ID)
			part = nil
		}
	}
	d.last = d.add(ctx, k, diamondMiddle+diamondJoins+1, d.joins...)
}

// TestADiamondOfTasksRunsInOrderOverALostLeader runs 1,000 tasks. The leader is stopped halfway. One task dies: what waits for it is held
// until a retry.
func TestADiamondOfTasksRunsInOrderOverALostLeader(t *testing.T) {
	onlyInCheck(t, "it runs 1,000 tasks over a change of leaders")
	t.Parallel()
	c := startCluster(t, 3, 1)
	lead := c.leader()
	k := c.client((lead + 1) % 3)
	ctx := bounded(t, 3*time.Minute)
	d := &diamond{t: t, job: millrace.Job[int, int]("part"), half: make(chan struct{}), waits: map[string][]string{}, done: map[string]bool{}}
	w := k.Worker(millrace.Slots(64))
	d.job.Handle(w, d.handle)
	d.build(ctx, k)
	noErr(t, k.RunNow(ctx, d.first.ID))
	run, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(run) }()
	defer func() { cancel(); <-ended }()
	select {
	case <-d.half:
	case <-ctx.Done():
		t.Fatal("half of the tasks did not run")
	}
	c.stop(lead)
	becomes := func(id string, want millrace.State) {
		t.Helper()
		for got[*millrace.TaskInfo](t)(k.Task(ctx, id)).State != want {
			pause(ctx, t)
		}
	}
	becomes(d.bad, millrace.Dead)
	c.start(lead)
	for i, id := range d.joins {
		if i != (diamondBad-1)/diamondPart {
			becomes(id, millrace.Completed)
		} else if info := got[*millrace.TaskInfo](t)(k.Task(ctx, id)); info.State != millrace.Blocked {
			t.Errorf("what waits for a dead task is %v", info.State)
		}
	}
	d.mu.Lock()
	d.heal = true
	d.mu.Unlock()
	got[millrace.State](t)(k.Retry(ctx, d.bad))
	if n, err := d.last.Wait(ctx); err != nil || n != diamondMiddle+diamondJoins+1 {
		t.Fatalf("the last task: %d, %v", n, err)
	}
	if all := diamondMiddle + diamondJoins + 2; len(d.done) != all {
		t.Errorf("%d tasks were done, want %d", len(d.done), all)
	}
}
