package queue

import (
	"cmp"
	"slices"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/keys"
)

// queueState is one queue as the Machine keeps it: its name, configuration and counters, and what
// it derives from the rows of its tasks. It exists for each queue there is, so it is small; heads
// exist only while something is ready.
type queueState struct {
	// number stands for the queue in keys and records. It is never given again.
	number uint32
	// Its name; removed queues keep it, though it does not stand for them.
	name string
	// The configuration as stored. The functions below fill the defaults in.
	config core.QueueConfig
	// paused says whether it gives out tasks. It is set by setPaused.
	paused core.QueuePaused
	// The counters now; End stores them.
	counters
	// plain is the lane of the tasks without a key. Its counters rule while share is there.
	plain lane
	// share is how the queue is shared out; nil while no task has a key and no limit is set.
	share *share
	// Its ended tasks, by terminal state from completed on.
	past [3]past
	// dirty says that the counters differ from the stored ones, and woken that the queue gained a
	// ready task since Events.
	dirty bool
	//
	woken bool
	// removed says that a QueueDelete removed it and the sweep is not at its end: its number has
	// rows, and its name does not stand for it.
	removed bool
	// gone says that it has neither name nor rows. It may still be in dirty.
	gone bool
	// cursor is up to where the sweep of a removed queue has read an index.
	cursor []byte
	// errors is what is known of its groups of errors.
	errors errorState
	// byVacant is the place in the Machine's heap of queues that may go, and byResume that in its heap of paused queues that go on
	// by themselves.
	byVacant int32
	// Place in Machine.resumes; -1: it is not in it.
	byResume int32
	// saved is the mark under which the journal has what it was before.
	saved uint64
}

// past are the ended tasks of a queue in one terminal state, and those removed whose ids are still
// known. It is in the Machine's heap by due while there are any of either, and in that by end while
// there are ended tasks.
type past struct {
	// The queue whose tasks these are.
	queue *queueState
	// One of the terminal states; retention differs by it.
	state core.State
	// oldest is when the first of the ended tasks ended; Never without any.
	oldest core.ShardTime
	// known is when the first of the removed tasks ended whose ids are known; Never without any.
	known core.ShardTime
	// due is when the one is removed, or the other forgotten, whichever is earlier.
	due core.ShardTime
	// byDue and byEnd are the places in the two heaps.
	byDue int32
	// Place by oldest; -1: there are no ended tasks.
	byEnd int32
}

// duePast and oldPast give past its two orders: by when something is due, and by when the oldest task ended.
type (
	// By due, then as rank says.
	duePast struct{ *past }
	// By oldest, then as rank says.
	oldPast struct{ *past }
)

// These make past an element of two heaps at once: each has its place and its order.
func (p duePast) place() *int32         { return &p.byDue }
func (p duePast) before(q duePast) bool { return p.rank(p.due, q.past, q.due) }
func (p oldPast) place() *int32         { return &p.byEnd }
func (p oldPast) before(q oldPast) bool { return p.rank(p.oldest, q.past, q.oldest) }

// rank orders two pasts by a time of each, then by number and state, so that the order is total.
func (p *past) rank(at core.ShardTime, q *past, other core.ShardTime) bool {
	switch {
	case at != other:
		return at < other
	case p.queue.number != q.queue.number:
		return p.queue.number < q.queue.number
	}
	return p.state < q.state
}

// newLine makes a queue without tasks.
func newLine(number uint32, name string) *queueState {
	l := &queueState{number: number, name: name, byVacant: -1, byResume: -1}
	l.plain = newLane(l, "", 0)
	for i := range l.past {
		l.past[i] = past{queue: l, state: core.Completed + core.State(i), oldest: core.Never, known: core.Never, due: core.Never, byDue: -1, byEnd: -1}
	}
	return l
}

// pastOf returns the ended tasks of a terminal state.
func (l *queueState) pastOf(s core.State) *past { return &l.past[s-core.Completed] }

// setOldest notes when the first of a queue's ended tasks ended, and puts p into the heaps where it
// belongs. It must also be called after a change of known or of the queue's retention.
func (m *Machine) setOldest(p *past, oldest core.ShardTime) {
	p.oldest = oldest
	p.due = core.Never
	if oldest != core.Never {
		p.due = oldest.Add(p.queue.keeps(p.state))
	}
	if p.known != core.Never {
		p.due = min(p.due, p.known.Add(m.o.Remember))
	}
	m.byDue.keep(duePast{p}, p.due != core.Never)
	m.byEnd.keep(oldPast{p}, oldest != core.Never)
}

// lineOf returns the queue of a name, or nil: there is none, or it was removed.
func (m *Machine) lineOf(name string) *queueState { return m.names[name] }

// lineAt returns the queue with a number that a record holds, also one that was removed. A number
// without a queue means that the store is damaged.
func (m *Machine) lineAt(number uint32) (*queueState, error) {
	if i := int(number) - 1; i >= 0 && i < len(m.queues) && m.queues[i].number == number { // no queue has gone yet
		return m.queues[i], nil
	}
	i, ok := m.findLine(number)
	if !ok {
		return nil, errs.Corruptf("no queue has number %d", number)
	}
	return m.queues[i], nil
}

// findLine finds a number among the queues, or where it would be.
func (m *Machine) findLine(number uint32) (at int, ok bool) {
	return slices.BinarySearchFunc(m.queues, number, func(l *queueState, n uint32) int { return cmp.Compare(l.number, n) })
}

// addLine makes a queue with the next number, and stores its configuration, which its name is found
// by. The caller has checked that there is room and that no queue has the name.
func (m *Machine) addLine(tx core.Txn, name string) *queueState {
	m.meta.queues++
	l := newLine(m.meta.queues, name)
	m.queues = append(m.queues, l)
	m.names[name] = l
	m.touch(l)
	m.saveConfig(tx, l)
	return l
}

// saveConfig stores number, configuration and pause of a queue under its name. What changes one of them calls it.
func (m *Machine) saveConfig(tx core.Txn, l *queueState) {
	m.key = keys.AppendQueueConfig(m.key[:0], m.p, l.name)
	m.value = appendConfig(m.value[:0], &queueRow{l.number, l.config, l.paused})
	tx.Set(m.mem.own(m.key), m.mem.own(m.value))
}

// touch must come before any change of a queue's counters, configuration or past: End writes the
// queue, and the journal knows what it was.
func (m *Machine) touch(l *queueState) {
	if !l.dirty {
		l.dirty = true
		m.dirty = append(m.dirty, l)
	}
	m.log.save(l)
}

// move counts a task of a lane that went from one state to another; 0 stands for none.
func (m *Machine) move(ln *lane, from, to core.State) {
	l := ln.queue
	m.touch(l)
	m.touchLane(ln)
	if from != 0 {
		l.states[from]--
	}
	if to != 0 {
		l.states[to]++
	}
	m.moveInLane(ln, from, to)
	if !l.removed {
		m.count(from, ^uint64(0))
		m.count(to, 1)
	}
}

// wake notes that a queue gained a ready task, once until Events.
func (m *Machine) wake(l *queueState) {
	if !l.woken {
		l.woken = true
		m.woken = append(m.woken, l)
	}
}

// What rules a queue, with defaults filled in. A task's own settings win over the queue's
// configuration, and that over the default.

// aging is for how much waiting one step of priority makes up; strictAging: for any.
func (l *queueState) aging() core.Millis { return orDefault(l.config.Aging, defaultAging) }

// maxPayload is how many bytes a payload of the queue may have.
func (l *queueState) maxPayload() int64 { return orDefault(l.config.MaxPayload, defaultMaxPayload) }

// retain is how long ended tasks of a state are kept; retainNone: not at all.
func (l *queueState) retain(s core.State) core.Millis {
	switch s {
	case core.Completed:
		return orDefault(l.config.RetainCompleted, defaultRetain)
	case core.Cancelled:
		return orDefault(l.config.RetainCancelled, defaultRetain)
	default:
		return orDefault(l.config.RetainDead, defaultRetainDead)
	}
}

// keeps is how long ended tasks stay, at least a millisecond. A sweep covers all that ended at a
// time with an id up to its own, so it may only cover times at which no task can end any more,
// which is before the stamp.
func (l *queueState) keeps(s core.State) core.Millis { return max(l.retain(s), 1) }

// maxAttempts is how many attempts of a task may fail.
func (l *queueState) maxAttempts(s *settings) int32 {
	return orDefault(s.maxAttempts, orDefault(l.config.MaxAttempts, defaultMaxAttempts))
}

// maxCrashes is how many leases of a task may expire.
func (l *queueState) maxCrashes(s *settings) int32 {
	return orDefault(s.maxCrashes, orDefault(l.config.MaxCrashes, defaultMaxCrashes))
}

// maxDeliveries is the limit of deliveries, 0 when they are not limited.
func (l *queueState) maxDeliveries(s *settings) int32 {
	return max(orDefault(s.maxDeliveries, orDefault(l.config.MaxDeliveries, defaultMaxDeliveries)), 0)
}

// lease is how long a lease of a task is, within minLease and maxLease.
func (l *queueState) lease(s *settings) core.Millis {
	return clampLease(orDefault(s.lease, orDefault(l.config.Lease, defaultLease)))
}

// maxRun is the limit of one attempt, 0 when there is none.
func (l *queueState) maxRun(s *settings) core.Millis {
	return max(orDefault(s.maxRun, l.config.MaxRun), 0)
}

// clampLease brings a lease within its bounds.
func clampLease(d core.Millis) core.Millis { return min(max(d, minLease), maxLease) }

// orDefault returns n, or byDefault when n is 0.
func orDefault[N int32 | int64 | uint32 | core.Millis](n, byDefault N) N {
	if n == 0 {
		return byDefault
	}
	return n
}
