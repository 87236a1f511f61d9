package queue

import (
	"fmt"

	"github.com/millrace/millrace/internal/core"
)

// A paused queue gives out no tasks. What runs goes on, and delays come due. Where a time was named, ticks let the queue go on when
// most wall clocks show it.

// resuming orders the queues that go on by themselves in the Machine's heap of them: by when, then by number.
type resuming struct{ *queueState }

// place is for the heap.
func (r resuming) place() *int32 { return &r.byResume }

// before orders by the time at which a queue goes on; numbers break ties.
func (r resuming) before(o resuming) bool {
	return r.paused.Until < o.paused.Until || r.paused.Until == o.paused.Until && r.number < o.number
}

// isPaused reports whether a queue gives out no tasks.
func (l *queueState) isPaused() bool { return l.paused.Since != 0 }

// setPaused pauses a queue, or with the zero value lets it go on.
func (m *Machine) setPaused(l *queueState, p core.QueuePaused) {
	l.paused = p
	m.resumes.keep(resuming{l}, p.Since != 0 && p.Until != 0)
}

// applyPause pauses a queue, or lets it go on. Doing again what is done is a replay.
func (m *Machine) applyPause(tx core.Txn, c *core.ApplyContext, op *core.QueuePause) (core.OpResult, core.Fact) {
	if fact := notYet(c, "pauses queues"); fact != nil {
		return core.OpResult{}, fact
	}
	if op.Queue == "" || len(op.Queue) > maxName {
		return core.OpResult{}, core.Invalid{Field: "queue", Message: fmt.Sprintf("must have 1 to %d characters", maxName)}
	}
	l := m.lineOf(op.Queue)
	switch {
	case l == nil && !op.Make:
		return core.OpResult{}, core.NotFound{Kind: "queue", ID: op.Queue}
	case l == nil && op.Resume:
		return core.OpResult{Replayed: true}, nil
	case l == nil:
		if fact := m.roomForQueue(c); fact != nil {
			return core.OpResult{}, fact
		}
		l = m.addLine(tx, op.Queue)
	}
	reason := cutReason(op.Reason)
	if op.Resume && !l.isPaused() || !op.Resume && l.isPaused() && l.paused.Until == op.Until && l.paused.Reason == reason {
		return core.OpResult{Replayed: true}, nil
	}
	if op.Resume {
		m.resume(tx, l)
		return core.OpResult{}, nil
	}
	p := core.QueuePaused{Since: c.Stamp, Until: op.Until, By: c.Principal, Reason: reason}
	if l.isPaused() {
		p.Since = l.paused.Since
	}
	m.touch(l)
	m.setPaused(l, p)
	m.saveConfig(tx, l)
	return core.OpResult{}, nil
}

// resume lets a queue go on, and wakes those who wait for its tasks.
func (m *Machine) resume(tx core.Txn, l *queueState) {
	m.touch(l)
	m.setPaused(l, core.QueuePaused{})
	m.saveConfig(tx, l)
	if l.states[core.Ready] > 0 {
		m.wake(l)
	}
}

// resumeDue is the earliest shard time at which a queue goes on by itself, by what the wall clocks show now.
func (m *Machine) resumeDue() core.ShardTime {
	r, ok := m.resumes.top()
	if !ok {
		return core.Never
	}
	return r.paused.Until.Add(-m.shift)
}

// tickPaused lets the queues go on whose time has come, up to budget.
func (m *Machine) tickPaused(tx core.Txn, c *core.ApplyContext, budget int) (used int) {
	for used < budget && m.resumeDue() <= c.Stamp {
		r, _ := m.resumes.top()
		m.resume(tx, r.queueState)
		used++
	}
	return used
}
