package queue

import (
	"cmp"
	"slices"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/keys"
)

// queueState is one queue as the Machine keeps it: its name, configuration and counters, and what it derives from the rows
// of its tasks. It exists for each queue there is, so it is small; heads exist only while there is something ready.
type queueState struct {
	number uint32
	name   string
	config core.QueueConfig
	counters
	heads    *heads // nil: what is ready is only in the store
	past     [3]past
	dirty    bool   // the counters differ from the stored ones
	woken    bool   // gained a ready task since Events
	removed  bool   // by a QueueDelete, and not swept yet: its number has rows, its name does not stand for it
	gone     bool   // it has neither name nor rows
	cursor   []byte // removed: up to where the sweep has read an index
	byVacant int    // in the Machine's heap of queues that may go
	saved    uint64 // mark under which the journal has what it was before
}

// past are the ended tasks of a queue in one terminal state, and those removed whose ids are still known. It is in the
// Machine's heap of what is due while there are any, and in that by end while there are ended tasks.
type past struct {
	queue  *queueState
	state  core.State
	oldest core.ShardTime // when the first ended task did; Never without any
	known  core.ShardTime // when the first of the removed ones that are known ended; Never without any
	due    core.ShardTime // when the one is removed, or the other forgotten
	byDue  int
	byEnd  int
}

// duePast and oldPast give past its two orders: by when it is due, and by when it ended.
type (
	duePast struct{ *past }
	oldPast struct{ *past }
)

func (p duePast) place() *int           { return &p.byDue }
func (p duePast) before(q duePast) bool { return p.rank(p.due, q.past, q.due) }
func (p oldPast) place() *int           { return &p.byEnd }
func (p oldPast) before(q oldPast) bool { return p.rank(p.oldest, q.past, q.oldest) }

func (p *past) rank(at core.ShardTime, q *past, other core.ShardTime) bool {
	switch {
	case at != other:
		return at < other
	case p.queue.number != q.queue.number:
		return p.queue.number < q.queue.number
	}
	return p.state < q.state
}

func newLine(number uint32, name string) *queueState {
	l := &queueState{number: number, name: name, byVacant: -1}
	for i := range l.past {
		l.past[i] = past{queue: l, state: core.Completed + core.State(i), oldest: core.Never, known: core.Never, due: core.Never, byDue: -1, byEnd: -1}
	}
	return l
}

// pastOf returns the ended tasks of a terminal state.
func (l *queueState) pastOf(s core.State) *past { return &l.past[s-core.Completed] }

// setOldest notes when the first of a queue's ended tasks ended. It comes after any change of known, too.
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

// lineOf returns the queue of a name, or nil.
func (m *Machine) lineOf(name string) *queueState { return m.names[name] }

// lineAt returns the queue of a number that a record holds.
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

func (m *Machine) findLine(number uint32) (at int, ok bool) {
	return slices.BinarySearchFunc(m.queues, number, func(l *queueState, n uint32) int { return cmp.Compare(l.number, n) })
}

// addLine makes a queue. The caller has checked that there is room and no such name.
func (m *Machine) addLine(tx core.Txn, name string) *queueState {
	m.meta.queues++
	l := newLine(m.meta.queues, name)
	m.queues = append(m.queues, l)
	m.names[name] = l
	m.touch(l)
	m.saveConfig(tx, l)
	return l
}

func (m *Machine) saveConfig(tx core.Txn, l *queueState) {
	m.key = keys.AppendQueueConfig(m.key[:0], m.p, l.name)
	m.value = appendConfig(m.value[:0], l.number, &l.config)
	tx.Set(m.mem.own(m.key), m.mem.own(m.value))
}

// touch must come before any change of a queue's counters, configuration or past.
func (m *Machine) touch(l *queueState) {
	if !l.dirty {
		l.dirty = true
		m.dirty = append(m.dirty, l)
	}
	m.log.save(l)
}

// move counts a task that went from one state to another; 0 is none.
func (m *Machine) move(l *queueState, from, to core.State) {
	m.touch(l)
	if from != 0 {
		l.states[from]--
	}
	if to != 0 {
		l.states[to]++
	}
}

// wake notes that a queue gained a ready task.
func (m *Machine) wake(l *queueState) {
	if !l.woken {
		l.woken = true
		m.woken = append(m.woken, l)
	}
}

// What rules a queue, with defaults filled in.

func (l *queueState) aging() core.Millis { return orDefault(l.config.Aging, defaultAging) }

func (l *queueState) maxPayload() int64 { return orDefault(l.config.MaxPayload, defaultMaxPayload) }

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

// keeps is how long ended tasks stay. It is never nothing: a sweep covers all that ended at a time with an id up to its
// own, so it may only go where no task can end any more, which is before the stamp.
func (l *queueState) keeps(s core.State) core.Millis { return max(l.retain(s), 1) }

func (l *queueState) maxAttempts(s *settings) int32 {
	return orDefault(s.maxAttempts, orDefault(l.config.MaxAttempts, defaultMaxAttempts))
}

func (l *queueState) maxCrashes(s *settings) int32 {
	return orDefault(s.maxCrashes, orDefault(l.config.MaxCrashes, defaultMaxCrashes))
}

// maxDeliveries is 0 when deliveries are not limited.
func (l *queueState) maxDeliveries(s *settings) int32 {
	return max(orDefault(s.maxDeliveries, orDefault(l.config.MaxDeliveries, defaultMaxDeliveries)), 0)
}

func (l *queueState) lease(s *settings) core.Millis {
	return clampLease(orDefault(s.lease, orDefault(l.config.Lease, defaultLease)))
}

func (l *queueState) maxRun(s *settings) core.Millis {
	return max(orDefault(s.maxRun, l.config.MaxRun), 0)
}

func clampLease(d core.Millis) core.Millis { return min(max(d, minLease), maxLease) }

func orDefault[N int32 | int64 | uint32 | core.Millis](n, byDefault N) N {
	if n == 0 {
		return byDefault
	}
	return n
}
