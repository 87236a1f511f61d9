package millrace

import (
	"time"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
)

// receive takes what the server pushes to a worker.
func (w *Worker) receive(f *millracev1.ServerFrame) {
	switch x := f.Frame.(type) {
	case *millracev1.ServerFrame_Assign:
		w.assigned(x.Assign.Tasks)
	case *millracev1.ServerFrame_LeaseLost:
		w.s.mu.Lock()
		w.lose(taskKey{x.LeaseLost.Id, x.LeaseLost.Token}, x.LeaseLost.Reason)
		w.restate = !w.drains
		w.s.mu.Unlock()
		w.s.poke()
	case *millracev1.ServerFrame_Cancel:
		w.s.mu.Lock()
		if t := w.held[taskKey{x.Cancel.Id, x.Cancel.Token}]; t != nil {
			t.cancelled = true
			t.cancel(&Error{Code: CodeWrongState, Reason: "cancelled", Message: x.Cancel.Reason, Op: OpNone, Outcome: Refused})
		}
		w.s.mu.Unlock()
	}
}

// assigned takes tasks over. One that is held already came twice; one that comes while the worker drains goes back.
func (w *Worker) assigned(tasks []*millracev1.Assignment) {
	now := time.Now()
	w.s.mu.Lock()
	renew, batched := time.Time{}, 0
	for _, a := range tasks {
		if _, ok := w.held[taskKey{a.Id, a.Token}]; ok {
			continue
		}
		t := newTask(w, a, now)
		w.held[t.key()] = t
		if w.s.plain {
			t.unbound = true
			w.unbound++
		}
		renew = earlier(renew, t.renewAt)
		if w.drains {
			w.release(t)
			continue
		}
		if w.batches != nil {
			w.ready.pushBack(t)
			batched++
			continue
		}
		w.start(t)
	}
	w.startBatch(batched)
	w.renewBy(renew)
	drains := w.drains
	w.s.mu.Unlock()
	if drains {
		w.s.poke()
	}
}

// start gives t to a goroutine. It needs mu.
func (w *Worker) start(t *Task) {
	w.ready.pushBack(t)
	w.spread()
}

// spread finds a goroutine for the task that was queued last: a parked one, else a new one within the slots. Otherwise
// one that finishes takes it. It needs mu.
func (w *Worker) spread() {
	switch {
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
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
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
			w.serveBatch(b, t)
			continue
		}
		t.stage = running
		refusal := t.refusal
		t.refusal = nil
		w.s.mu.Unlock()
		w.run(t, refusal)
		w.s.mu.Lock()
		w.finished(t)
	}
	w.live--
	if w.over && w.live == 0 {
		close(w.quiet)
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
	if t.lost || t.released {
		w.beyond--
		return
	}
	if t.cancelled && t.op == "fail" {
		t.failed(errRelease) // the server decides what a cancelled task becomes
	}
	t.stage = settling
	w.settles.pushBack(t)
	w.s.poke()
}

// lose ends a lease that the server says is gone. A settle that is on its way keeps its answer. It needs mu.
func (w *Worker) lose(k taskKey, reason string) {
	t := w.held[k]
	if t == nil || t.stage >= settling {
		return
	}
	t.lost = true
	if t.stage == running {
		w.beyond++ // the slot is free for the server: the handler must not hold it
		if w.ready.len() > 0 {
			w.spread()
		}
	}
	t.cancel(&Error{Code: CodeLeaseLost, Reason: reason, Message: "task " + t.ID, Op: OpNone, Outcome: Refused})
	w.drop(t)
}

// drop forgets a task. It needs mu.
func (w *Worker) drop(t *Task) {
	delete(w.held, t.key())
	if t.unbound {
		w.unbound--
		if !w.s.plain && !w.drains {
			w.restate = true // its slot is free for the stream
			w.s.poke()
		}
	}
	w.noteDrained()
}

func (w *Worker) line(t *Task, op string) ledgerLine {
	return ledgerLine{Op: op, ID: t.ID, Token: tokenText(t.token), Attempt: uint32(t.Attempt), Queue: t.Queue, Invoke: t.invoke}
}
