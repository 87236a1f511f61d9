package session

import (
	"slices"
	"time"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/sdk/go/internal/fault"
	"github.com/millrace/millrace/sdk/go/internal/retry"
	"github.com/millrace/millrace/sdk/go/internal/wire"
)

// settleFrame is the outgoing of gathered settles.
type settleFrame struct {
	l *workerStream
	// In the order of the frame's items.
	tasks []*Attempt
	n     window
}

// nextSettles gathers what waits, up to the size of a frame.
func (l *workerStream) nextSettles(seq uint64) (*millracev1.ClientFrame, outgoing) {
	var out *settleFrame
	var items []*millracev1.SettleItem
	now := time.Time{}
	for l.settles.len() > 0 {
		t := l.settles.front()
		n := window{items: 1, bytes: t.bytes}
		if out != nil {
			if t.solo || out.tasks[0].solo || len(items) >= wire.FrameItems || out.n.bytes+t.bytes > FrameAim {
				break
			}
			n = window{items: out.n.items + 1, bytes: out.n.bytes + t.bytes}
		}
		if !l.s.fits(n) {
			break
		}
		l.settles.popFront()
		if out == nil {
			size := min(l.settles.len()+1, wire.FrameItems)
			out, items, now = &settleFrame{l: l, tasks: make([]*Attempt, 0, size)}, make([]*millracev1.SettleItem, 0, size), time.Now()
		}
		if t.first.IsZero() {
			t.first = now
		}
		t.to(settled)
		out.tasks, out.n, items = append(out.tasks, t), n, append(items, &t.item)
	}
	if out == nil {
		return nil, nil
	}
	l.w.freed()
	return &millracev1.ClientFrame{Frame: &millracev1.ClientFrame_Settle{
		Settle: &millracev1.SettleFrame{Seq: seq, Items: items},
	}}, out
}

// size is what the frame takes of the window.
func (f *settleFrame) size() window { return f.n }

// lost queues the settles again, as ones that may have been applied: sending them again under their tokens is safe.
func (f *settleFrame) lost() {
	for _, t := range slices.Backward(f.tasks) {
		if f.l.held[t.Lease] == t {
			t.unsure = true
			t.to(settling)
			f.l.settles.pushFront(t)
		}
	}
}

// acked gives each settle its result. Where the frame was refused as a whole, each is tried in a frame of its own.
func (f *settleFrame) acked(a *millracev1.Ack) {
	l := f.l
	if e := fault.FromWire(a.Error); e != nil && len(f.tasks) > 1 && (e.Code == wire.InvalidArgument || e.Code == wire.TooLarge) {
		// One bad item can have been the reason: the others are tried without it.
		l.s.mu.Lock()
		for _, t := range slices.Backward(f.tasks) {
			if l.held[t.Lease] == t {
				t.solo = true
				t.to(settling)
				l.settles.pushFront(t)
			}
		}
		l.s.mu.Unlock()
		l.s.poke()
		return
	}
	for i, t := range f.tasks {
		switch {
		case a.Error != nil:
			l.answered(t, a.At, nil, fault.FromWire(a.Error))
		case i >= len(a.Settled):
			l.answered(t, a.At, nil, fault.Lacking("results"))
		case a.Settled[i].FailedInstead: // the error is why: the attempt has ended all the same
			l.done(t, a.At, a.Settled[i])
		default:
			l.answered(t, a.At, a.Settled[i], fault.FromWire(a.Settled[i].Error))
		}
	}
}

// answered takes the answer to one settle.
func (l *workerStream) answered(t *Attempt, at *millracev1.At, r *millracev1.SettleResult, e *fault.Fault) {
	if e == nil {
		l.done(t, at, r)
		return
	}
	op := t.op // that was answered: what replaces it below is another settle
	defer func() {
		if op != "" {
			l.w.handlers.Settled(t, op, false, e)
		}
	}()
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	if l.held[t.Lease] != t {
		op = ""
		return // given up meanwhile
	}
	line := l.w.line(t, t.op)
	switch {
	case e.Op == fault.OpNone && (e.Code == wire.LeaseLost || e.Code == wire.NotFound || e.Code == wire.WrongState): // not of an effect
		l.w.hub.Logger.Info("the lease was lost before the attempt was settled", "task", t.Lease.ID, "attempt", t.Number, "settle", t.op, "reason", e.Reason)
		t.cancel(l.w.hub.Error(e))
		l.drop(t)
	// "Later": the settle is sent again when the wait is over, for as long as servers remember its token.
	case e.Op == fault.OpNone && e.Patience() > 0 && time.Since(t.first) < retry.For:
		t.unsure = t.unsure || e.Unknown
		wait := e.Wait(t.tries)
		t.tries++
		op = ""
		t.to(settling)
		time.AfterFunc(wait, func() { l.w.again(t) })
		return
	// The handlers may change the effects and complete once more: the lease is still held.
	case t.op == "complete" && t.again && !e.Unknown:
		t.refusal, t.first, t.unsure = e, time.Time{}, false
		t.to(waiting)
		l.w.start(t)
	// It will never be applied as it is. A plain failure in its place lets the policy for retries decide.
	case t.op == "complete" || t.op == "snooze" || t.op == "fail" && !t.plainly && !e.Unknown:
		l.w.hub.Logger.Warn("the attempt is failed because it could not be settled", "task", t.Lease.ID, "attempt", t.Number, "settle", t.op, "error", l.w.hub.Error(e))
		l.w.hub.Ledger.Write(line, at, e)
		if t.op == "fail" {
			t.failPlainly(e)
		} else {
			t.failFor(e)
		}
		t.invoke, t.solo, t.first, t.unsure = l.w.hub.Ledger.Now(), true, time.Time{}, false
		t.to(settling)
		l.settles.pushBack(t)
		l.s.poke()
		return
	default:
		l.w.hub.Logger.Error("the attempt could not be settled", "task", t.Lease.ID, "attempt", t.Number, "settle", t.op, "error", l.w.hub.Error(e))
		t.cancel(l.w.hub.Error(e))
		l.drop(t)
	}
	l.w.hub.Ledger.Write(line, at, e)
}

// done ends a settle that was applied.
func (l *workerStream) done(t *Attempt, at *millracev1.At, r *millracev1.SettleResult) {
	line := l.w.line(t, t.op)
	if r.FailedInstead {
		line.Op = "fail"
		l.w.hub.Logger.Warn("the effects were refused and the attempt failed", "task", t.Lease.ID, "attempt", t.Number, "error", l.w.hub.Error(fault.FromWire(r.Error)))
	}
	line.Replayed = r.Replayed
	l.w.hub.Ledger.Write(line, at, nil)
	l.w.handlers.Settled(t, line.Op, r.Replayed, nil)
	t.cancel(nil)
	l.s.mu.Lock()
	if l.held[t.Lease] == t {
		l.drop(t)
	}
	l.s.mu.Unlock()
}

// again queues a settle that was answered "later", on the stream that the task is of by now.
func (w *Worker) again(t *Attempt) {
	w.mu.Lock()
	l := t.l
	if l.held[t.Lease] == t && t.stage == settling && !l.queued(t) {
		l.settles.pushBack(t)
	}
	w.mu.Unlock()
	l.s.poke()
}

// queued reports whether t's settle waits already.
func (l *workerStream) queued(t *Attempt) bool {
	for i := range l.settles.len() {
		if l.settles.ring[l.settles.at(i)] == t {
			return true
		}
	}
	return false
}

// expire gives up the settles that left before t and have no answer.
func (f *settleFrame) expire(t time.Time) time.Time {
	return f.l.expireTasks(slices.Values(f.tasks), t)
}

// expire gives up settles that wait to be sent again and left before t; the others stay in their order.
func (l *workerStream) expire(t time.Time) time.Time {
	var tasks []*Attempt
	for l.settles.len() > 0 {
		tasks = append(tasks, l.settles.popFront())
	}
	oldest := l.expireTasks(slices.Values(tasks), t)
	for _, task := range tasks {
		if l.held[task.Lease] == task {
			l.settles.pushBack(task)
		}
	}
	return oldest
}

// refuse ends the settles that wait, when the stream ends for good.
func (l *workerStream) refuse(err *fault.Fault) {
	for l.settles.len() > 0 {
		t := l.settles.popFront()
		l.w.hub.Ledger.Write(l.w.line(t, t.op), nil, err.Copy().After(t.unsure))
	}
}
