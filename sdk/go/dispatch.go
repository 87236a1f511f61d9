package millrace

import "errors"

// start gives t to a goroutine. It needs mu.
func (w *Worker) start(t *Task) {
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
	case w.live < w.opts.slots+w.beyond:
		w.live++
		go w.serve()
	}
}

// serve runs tasks until the worker is over. A handler that outlived its lease does not count as a slot, so there may be
// more goroutines than slots; those end as soon as they can.
func (w *Worker) serve() {
	var tasks []*Task // whose handler runs, or ran last
	runs := false     // without mu
	w.mu.Lock()
	defer func() {
		if runs {
			w.exited(tasks)
		}
		w.live--
		if w.ready.len() > 0 {
			w.spread()
		}
		w.noteQuiet()
		w.mu.Unlock()
	}()
	for w.live <= w.opts.slots+w.beyond {
		for w.ready.len() == 0 && !w.over {
			w.parked++
			w.cond.Wait()
		}
		if w.ready.len() == 0 {
			break
		}
		t := w.ready.popFront()
		if t.lost {
			continue
		}
		if b := w.batches[t.Kind]; b != nil && t.refusal == nil {
			tasks = w.gather(tasks[:0], b, t)
			runs = true
			w.mu.Unlock()
			w.runBatch(b, tasks)
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
func (w *Worker) exited(tasks []*Task) {
	now := w.c.ledger.now()
	for _, t := range tasks {
		t.settle(nil, "", errExited)
		t.invoke = now
	}
	w.mu.Lock()
	for _, t := range tasks {
		w.finished(t)
	}
}

// run calls the handler, or what it left for a refusal, and writes the item that ends the attempt.
func (w *Worker) run(t *Task, refusal *Error) {
	if refusal != nil {
		if err := invokeRefused(t, refusal); err != nil {
			t.settle(nil, "", err)
		} else {
			t.settle(t.complete.Result, t.complete.ResultType, nil)
		}
		t.invoke = w.c.ledger.now()
		return
	}
	if w.c.ledger != nil {
		line := w.line(t, "deliver")
		line.Invoke = w.c.ledger.now()
		w.c.ledger.write(line, nil, nil)
	}
	h := w.handlers[t.Kind]
	if h == nil {
		h = w.other
	}
	if h == nil {
		if _, told := w.unknown.LoadOrStore(t.Kind, true); !told {
			w.c.opts.logger.Warn("tasks of a kind without a handler are snoozed", "kind", t.Kind, "queue", t.Queue, "task", t.ID, "for", unknownSnooze)
		}
		t.settle(nil, "", Snooze(unknownSnooze))
	} else {
		t.settle(invoke(h, t))
	}
	t.invoke = w.c.ledger.now()
}

// finished queues the settle of a task whose handler returned. It needs mu.
func (w *Worker) finished(t *Task) {
	w.mayDrain()
	if t.lost || t.released {
		w.returned(t)
		return
	}
	if t.stopped || t.cancelled && t.op == "fail" {
		t.failed(errRelease) // the server decides what a cancelled task becomes
	}
	t.to(settling)
	t.l.settles.pushBack(t)
	t.l.s.poke()
}

func (w *Worker) line(t *Task, op string) ledgerLine {
	return ledgerLine{Op: op, ID: t.ID, Token: tokenText(t.token), Attempt: uint32(t.Attempt), Queue: t.Queue, Invoke: t.invoke}
}
