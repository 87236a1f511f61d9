package node

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/millrace/millrace/internal/core"
)

// watching runs a watch of a task, and hands over the states it shows, and how it ended.
func watching(t *testing.T, r *rig, id core.TaskID) (shown chan core.Task, ended chan error, stop context.CancelFunc) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	shown, ended = make(chan core.Task, 100), make(chan error, 1)
	go func() {
		ended <- r.node.WatchTask(ctx, r.ns, id, func(task core.Task, _ core.ContentSize, at core.At) error {
			if at.Index == 0 {
				t.Error("a state of no index")
			}
			shown <- task
			return nil
		})
	}()
	return shown, ended, stop
}

// A watch shows each change of its task, whatever makes it, and no other's, and ends with the task.
func TestAWatchShowsEachChangeOfItsTask(t *testing.T) {
	r := openRig(t, rigOptions{})
	defer r.close()
	id := taskID(1)
	r.must(&core.TaskCreate{ID: id, Queue: "q", Delay: 3_600_000})
	shown, ended, stop := watching(t, r, id)
	defer stop()
	next := func(what string, is func(core.Task) bool) { // a state may be shown twice
		t.Helper()
		for got := range shown {
			if is(got) {
				return
			}
			if got.State.Terminal() {
				t.Fatalf("%s was not shown: %+v", what, got)
			}
		}
	}
	state := func(want core.State) func(core.Task) bool { return func(t core.Task) bool { return t.State == want } }
	next("the first state", state(core.Scheduled))
	r.must(&core.TaskUpdate{Task: id, HasPriority: true, Priority: 3})
	next("an edit", func(t core.Task) bool { return t.Priority == 3 })
	r.must(&core.TaskCreate{ID: taskID(2), Queue: "q"}) // of no concern
	r.claim("q", 1, 0)
	r.must(&core.TaskRunNow{Task: id})
	next("run now", state(core.Ready))
	a := r.claim("q", 1, 0)[0]
	next("a claim", state(core.Running))
	r.must(&core.TaskReport{Task: id, Token: a.Token, HasProgress: true, Percent: 40})
	next("progress", func(t core.Task) bool { return t.Progress.Percent == 40 })
	r.must(&core.TaskCancel{Task: id, Reason: "enough"})
	next("a cancel", func(t core.Task) bool { return t.Cancel.Reason == "enough" })
	r.must(&core.TaskComplete{Task: id, Token: a.Token})
	next("the end", state(core.Completed))
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if n := len(shown); n != 0 {
		t.Errorf("%d states after the end", n)
	}
}

// A watch ends with the removal of its task, with its caller, and is refused for an unknown task and beyond the bound.
func TestAWatchEnds(t *testing.T) {
	r := openRig(t, rigOptions{})
	defer r.close()
	gone, ctxEnds := taskID(1), taskID(2)
	_, ended, stop := watching(t, r, taskID(9))
	defer stop()
	if err := <-ended; !isFact[core.NotFound](err) {
		t.Errorf("an unknown task: %v", err)
	}
	for _, id := range []core.TaskID{gone, ctxEnds} {
		r.must(&core.TaskCreate{ID: id, Queue: "q"})
	}
	shown, ended, stop := watching(t, r, gone)
	defer stop()
	<-shown
	r.must(&core.QueueDelete{Queue: "q", Purge: true})
	if err := <-ended; !isFact[core.NotFound](err) {
		t.Errorf("a task that was removed: %v", err)
	}
	r.must(&core.TaskCreate{ID: taskID(3), Queue: "q"})
	shown, ended, stop = watching(t, r, taskID(3))
	<-shown
	stop()
	if err := <-ended; !isFact[core.DeadlineExceeded](err) {
		t.Errorf("a caller who went: %v", err)
	}
	s, _ := r.node.shardOf(r.ns)
	s.waits.mu.Lock()
	defer s.waits.mu.Unlock()
	if s.waits.n != 0 || len(s.waits.watched) != 0 || s.waits.watchers.Load() != 0 {
		t.Errorf("%d wait, %v are watched", s.waits.n, slices.Collect(func(yield func(waitKey) bool) {
			for k := range s.waits.watched {
				if !yield(k) {
					return
				}
			}
		}))
	}
}

// isFact reports whether an error is a fact of a kind.
func isFact[F core.Fact](err error) bool {
	_, ok := errors.AsType[F](err)
	return ok
}

// A waiter that is woken to look for itself, as by a snapshot that its replica has taken in, goes on while the task has not ended.
func TestAWaitGoesOnWhenItWasWokenBeforeTheEnd(t *testing.T) {
	r := openRig(t, rigOptions{})
	defer r.close()
	id := taskID(1)
	r.must(&core.TaskCreate{ID: id, Queue: "q"})
	s, _ := r.node.shardOf(r.ns)
	waiting := func(n int) func() bool {
		return func() bool {
			s.waits.mu.Lock()
			defer s.waits.mu.Unlock()
			return len(s.waits.byKey[waitKey{r.ns, id}]) == n
		}
	}
	type end struct {
		state core.State
		err   error
	}
	ended := make(chan end, 2)
	go func() {
		task, _, err := r.node.Wait(t.Context(), r.ns, id)
		ended <- end{task.State, err}
	}()
	go func() { ended <- end{core.Completed, r.node.WaitEnd(t.Context(), r.ns, id)} }()
	until(waiting(2))
	s.waits.wakeAll()
	until(func() bool { return waiting(2)() || len(ended) > 0 })
	a := r.claim("q", 1, 0)[0]
	if len(ended) > 0 {
		t.Fatalf("a wait ended with %+v while its task runs", <-ended)
	}
	r.must(&core.TaskComplete{Task: id, Token: a.Token})
	for range 2 {
		if e := <-ended; e.err != nil || e.state != core.Completed {
			t.Errorf("a wait ended with %+v", e)
		}
	}
}
