package session

import (
	"errors"
	"slices"

	"github.com/millrace/millrace/sdk/go/internal/fault"
	"github.com/millrace/millrace/sdk/go/internal/ledger"
)

// start gives t to a goroutine. It needs mu.
func (w *Worker) start(t *Attempt) {
	w.ready.pushBack(t)
	w.spread()
}

// spread finds a goroutine for the task that was queued last: a parked one, else a new one within the slots. Otherwise
// one that finishes takes it. It needs mu.
func (w *Worker) spread() {
	switch {
	case w.over:
	case w.parked > 0:
		w.parked--
		w.cond.Signal()
	case w.live < w.opts.Slots+w.beyond:
		w.live++
		go w.serve()
	}
}

// serve runs tasks until the worker is over. A handler that outlived its lease does not count as a slot, so there may be
// more goroutines than slots; those end as soon as they can.
func (w *Worker) serve() {
	// One goroutine runs one handler at a time; tasks are those of its call, which are several for a batch.
	var tasks []*Attempt // whose handler runs, or ran last
	runs := false        // without mu
	w.mu.Lock()
	defer func() {
		if runs { // the handler ended this goroutine
			w.exited(tasks)
		}
		w.live--
		if w.ready.len() > 0 {
			w.spread()
		}
		w.noteQuiet()
		w.mu.Unlock()
	}()
	// Beyond that number this goroutine is one too many, since a handler that outlived its lease has returned.
	for w.live <= w.opts.Slots+w.beyond {
		for w.ready.len() == 0 && !w.over {
			w.parked++
			w.cond.Wait()
		}
		if w.ready.len() == 0 {
			break
		}
		t := w.ready.popFront()
		if !w.begins(t) {
			continue
		}
		if n := w.work.Batches[t.Kind]; n > 0 && t.refusal == nil {
			tasks = w.gather(tasks[:0], n, t)
			runs = true
			w.mu.Unlock()
			w.runBatch(tasks)
		} else {
			tasks = append(tasks[:0], t)
			t.to(running)
			refusal := t.refusal
			t.refusal = nil
			runs = true
			w.mu.Unlock()
			w.run(t, refusal)
		}
		w.mu.Lock()
		runs = false
		for _, t := range tasks {
			w.finished(t)
		}
		clear(tasks)
	}
}

// errExited is what a handler fails with that ends its goroutine, as FailNow of package testing does.
var errExited = errors.New("the handler ended its goroutine (runtime.Goexit)")

// exited ends the attempts whose handler ended the goroutine that ran it. It takes mu.
func (w *Worker) exited(tasks []*Attempt) {
	now := w.hub.Ledger.Now()
	for _, t := range tasks {
		t.Fail(Failure{Code: "error", Message: errExited.Error()})
		t.invoke = now
	}
	w.mu.Lock()
	for _, t := range tasks {
		w.finished(t)
	}
}

// run has the handlers run an attempt, or judge a refusal of its effects.
func (w *Worker) run(t *Attempt, refusal *fault.Fault) {
	if refusal == nil {
		w.delivered(t)
	}
	w.handlers.Run(t, refusal)
	t.invoke = w.hub.Ledger.Now()
}

// runBatch has the handlers run a batch.
func (w *Worker) runBatch(tasks []*Attempt) {
	for _, t := range tasks {
		w.delivered(t)
	}
	w.handlers.RunBatch(tasks[0].Kind, tasks)
	now := w.hub.Ledger.Now()
	for _, t := range tasks {
		t.invoke = now
	}
}

// delivered writes into the ledger that a handler is about to run.
func (w *Worker) delivered(t *Attempt) {
	if w.hub.Ledger == nil {
		return
	}
	line := w.line(t, "deliver")
	line.Invoke = w.hub.Ledger.Now()
	w.hub.Ledger.Write(line, nil, nil)
}

// startBatch gives n tasks that were queued to goroutines, one for as many as a call takes. It needs mu.
func (w *Worker) startBatch(n int) {
	size := 1
	for _, most := range w.work.Batches {
		size = max(size, most)
	}
	for ; n > 0; n -= size {
		w.spread()
	}
}

// begins reports whether the handler of what waited is to run: not for a lease that was lost meanwhile, nor for a task that was
// cancelled before its handler began, whose attempt it ends. It needs mu.
func (w *Worker) begins(t *Attempt) bool {
	switch {
	case t.lost:
		return false
	case !t.cancelled || t.refusal != nil: // its handler has begun
		return true
	}
	t.Stop()
	t.invoke = w.hub.Ledger.Now()
	t.to(settling)
	t.l.settles.pushBack(t)
	t.l.s.poke()
	return false
}

// gather adds first, and what waits behind it, to tasks for one call that takes n at most. It needs mu.
func (w *Worker) gather(tasks []*Attempt, n int, first *Attempt) []*Attempt {
	tasks = append(slices.Grow(tasks, min(n, 1+w.ready.len())), first)
	for len(tasks) < n && w.ready.len() > 0 {
		t := w.ready.front()
		if t.Kind != first.Kind || t.refusal != nil {
			break
		}
		w.ready.popFront()
		if w.begins(t) {
			tasks = append(tasks, t)
		}
	}
	for _, t := range tasks {
		t.to(running)
	}
	return tasks
}

// finished queues the settle of a task whose handler returned. It needs mu.
func (w *Worker) finished(t *Attempt) {
	w.mayDrain()
	if t.lost || t.released {
		w.returned(t)
		return
	}
	switch {
	// A completion of a cancelled task rules if it comes first.
	case t.cancelled && (t.op != "complete" || t.stopped):
		if t.op != "stop" {
			t.Stop()
		}
	case t.stopped:
		t.Release()
	}
	t.to(settling)
	t.l.settles.pushBack(t)
	t.l.s.poke()
}

// line begins a line of the ledger about an attempt.
func (w *Worker) line(t *Attempt, op string) ledger.Line {
	return ledger.Line{Op: op, ID: t.Lease.ID, Token: ledger.Token(t.Lease.Token), Attempt: t.Number, Queue: t.Queue, Invoke: t.invoke}
}
