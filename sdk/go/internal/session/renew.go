package session

import (
	"iter"
	"time"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/sdk/go/internal/fault"
	"github.com/millrace/millrace/sdk/go/internal/retry"
	"github.com/millrace/millrace/sdk/go/internal/wire"
)

// Leases are renewed at a third of their length, while the handlers run: one timer serves all of a worker's tasks, and one
// frame renews every lease that is due or will be soon.

// renewFrame is the outgoing of one renewal.
type renewFrame struct {
	// Whose leases they are.
	l     *workerStream
	tasks []*Attempt
}

// size takes 48 bytes for an id and a token.
func (f *renewFrame) size() window { return window{items: len(f.tasks), bytes: 48 * len(f.tasks)} }

// message writes the frame.
func (f *renewFrame) message(seq uint64) *millracev1.ClientFrame {
	items := make([]*millracev1.Hold, len(f.tasks))
	for i, t := range f.tasks {
		items[i] = t.hold()
	}
	return &millracev1.ClientFrame{Frame: &millracev1.ClientFrame_Renew{Renew: &millracev1.RenewFrame{Seq: seq, Items: items}}}
}

// acked ends the leases that the server no longer knows, and tells handlers to stop whose tasks are cancelled. If none was renewed, all
// are tried again soon.
func (f *renewFrame) acked(a *millracev1.Ack) {
	l := f.l
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	if e := fault.FromWire(a.Error); e != nil {
		if e.Patience() > 0 { // not renewed: try again well before the leases end
			soon := time.Now().Add(max(retry.Base, e.RetryAfter))
			for _, t := range f.tasks {
				t.renewAt = retry.Earlier(t.renewAt, soon)
			}
			l.renewBy(soon)
		}
		return
	}
	for i, t := range f.tasks {
		switch {
		case i >= len(a.Renewed) || l.held[t.Lease] != t:
		case a.Renewed[i].Lost:
			l.lose(t.Lease, "expired")
		case a.Renewed[i].Cancel:
			t.cancelFor("") // the answer has no reason
		}
	}
}

// lost has nothing to put back.
func (f *renewFrame) lost() {} // a new stream renews everything

// expire has nothing to give up: a renewal that has no answer is overtaken by the next one.
func (f *renewFrame) expire(time.Time) time.Time { return time.Time{} }

// renewBy makes the timer fire at t, if it would fire later. It needs mu.
func (l *workerStream) renewBy(t time.Time) {
	if t.IsZero() || !l.renewNext.IsZero() && !t.Before(l.renewNext) {
		return
	}
	l.renewNext = t
	d := max(time.Until(t), 0)
	if l.renewTimer == nil {
		l.renewTimer = time.AfterFunc(d, l.renewDue)
		return
	}
	l.renewTimer.Reset(d)
}

// renewDue renews what is due.
func (l *workerStream) renewDue() {
	l.s.mu.Lock()
	l.renewNext = time.Time{}
	if l.s.up && !l.w.over {
		l.renew(time.Now(), false)
	}
	l.s.mu.Unlock()
	l.s.poke()
}

// renewAll renews every lease, on a new stream. It needs mu.
func (l *workerStream) renewAll() {
	l.renewNext = time.Time{}
	l.renew(time.Now(), true)
}

// renew queues the renewal of the leases that are due, or all, and sets the timer for the next. A lease that is due soon
// joins, so that tasks which began at different times come to share a frame. A settle that has left needs no lease. It
// needs mu.
func (l *workerStream) renew(now time.Time, all bool) {
	var f *renewFrame
	next := time.Time{}
	for l.renewals.len() > 0 { // not written since the last time
		l.renewals.popFront()
		all = true
	}
	for _, t := range l.held {
		if t.stage == settled {
			continue
		}
		if all || !t.renewAt.After(now.Add(t.length/6)) {
			if f == nil || len(f.tasks) == wire.FrameItems {
				f = &renewFrame{l: l}
				l.renewals.pushBack(f)
			}
			f.tasks = append(f.tasks, t)
			t.renewAt = now.Add(t.length / 3)
		}
		next = retry.Earlier(next, t.renewAt)
	}
	l.renewBy(next)
}

// expireTasks gives up settles that left before t and have no answer, and returns when the oldest other one left. It needs mu.
func (l *workerStream) expireTasks(tasks iter.Seq[*Attempt], t time.Time) (oldest time.Time) {
	for task := range tasks {
		switch {
		case l.held[task.Lease] != task || task.first.IsZero():
		case task.first.After(t):
			oldest = retry.Earlier(oldest, task.first)
		default:
			l.w.hub.Logger.Error("an attempt was not settled in time", "task", task.Lease.ID, "attempt", task.Number, "settle", task.op)
			l.w.hub.Ledger.Write(l.w.line(task, task.op), nil, fault.Expired())
			task.cancel(l.w.hub.Error(fault.Expired()))
			l.drop(task)
		}
	}
	return oldest
}
