package queue

import (
	"cmp"
	"slices"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
)

// lane is the tasks of one key of a queue that have not ended, or those without a key that name the same limiters. It is there as long as there are such tasks, something was set for
// the key, or its rate still counts what began. The tasks without a key and limiters are a lane too, with number 0, which is always there.
type lane struct {
	queue *queueState
	// The key of its tasks, or what laneKey says; empty for the lane of tasks without a key that name no limiter.
	key string
	laneState
	// heads is nil while what is ready is only in the store.
	heads *heads

	// The rest is derived of that, for the queue's share; see refreshLane.

	// first places its first task among those of other lanes, in a queue without fairness; nil: it was never looked at in such a queue.
	first *laneRank
	// due is when its rate lets its first task go, or is full again; Never: it does not wait for that.
	due core.ShardTime
	// group is the one that it is in, while it may give a task.
	group *group
	// can is how many tasks it may give, but for limiters.
	can uint32
	// Places in group.turns, Machine.refills and Machine.keyResumes; -1: it is not in it.
	byTurn, byRefill, byResume int32
	// stale says that it is in share.stale, dirty that it is in share.dirty, and isStored that it has a record.
	stale, dirty, isStored bool
	// saved is the mark under which the journal has what it was before.
	saved uint64
}

// laneState is what is stored of a lane.
type laneState struct {
	// number stands for the lane in the index of ready tasks and in state records. It is not given again while one refers to it.
	number uint64
	// How many of its tasks have not ended, are ready, and run.
	tasks, ready, running uint32
	// named says that one of its tasks with a key names limiters: which group it is in depends on its first task.
	named bool
	// pass is how much it was served: the lane with the smallest pass is next. It wraps around.
	pass uint64
	// rate says how much began lately; see rate.go.
	rate rateState
	// hold is what holds the lane of a strict queue; nil: nothing does. It is replaced as a whole, so that a copy of the state stays.
	hold *laneHold
	// set is what was set for the key; nil: nothing was.
	set *laneSet
}

// laneRank is the rank of a task among those of a queue without fairness, and its place in the sequence of the partition.
type laneRank struct{ rank, seq uint64 }

// laneHold is the task that holds the lane of a strict queue, from its first delivery to its end.
type laneHold struct {
	task core.TaskID
	// ready says that it is ready, and cost what it costs.
	ready bool
	cost  uint32
}

// laneSet is what was set for a key.
type laneSet struct {
	core.KeySettings
	// Zero while the key is served.
	paused core.QueuePaused
}

// newLane makes a lane without tasks.
func newLane(l *queueState, key string, number uint64) lane {
	return lane{queue: l, key: key, laneState: laneState{number: number}, due: core.Never, byTurn: -1, byRefill: -1, byResume: -1}
}

// isIdle reports whether nothing keeps a lane but its rate.
func (ln *lane) isIdle() bool { return ln.tasks == 0 && ln.set == nil }

// weight is the share of the lane among the others of its queue.
func (ln *lane) weight() uint32 {
	if ln.set == nil {
		return 1
	}
	return max(ln.set.Weight, 1)
}

// concurrency is how many of its tasks may run at once; 0: it is not limited.
func (ln *lane) concurrency() int64 {
	c := &ln.queue.config.Share
	n := c.KeyConcurrency
	if ln.set != nil && ln.set.Concurrency > 0 {
		n = ln.set.Concurrency
	}
	if c.Strict {
		n = 1
	}
	return n
}

// rateLimit is the rate of the lane; the zero value limits nothing.
func (ln *lane) rateLimit() core.Rate {
	if ln.set != nil && ln.set.Rate != (core.Rate{}) {
		return ln.set.Rate
	}
	return ln.queue.config.Share.KeyRate
}

// isPaused reports whether the key's tasks are not given out.
func (ln *lane) isPaused() bool { return ln.set != nil && ln.set.paused.Since != 0 }

// holderIsReady notes whether a task is ready, if it holds the lane.
func (ln *lane) holderIsReady(id core.TaskID, ready bool) {
	if h := ln.hold; h != nil && h.task == id && h.ready != ready {
		ln.hold = &laneHold{task: id, ready: ready, cost: h.cost}
	}
}

// letGo frees the lane of a strict queue of a task that has ended.
func (m *Machine) letGo(ln *lane, id core.TaskID) {
	if ln.hold != nil && ln.hold.task == id {
		m.touchLane(ln)
		ln.hold = nil
	}
}

// moveInLane counts a task of a lane that went from one state to another; 0 stands for none. move calls it, after touchLane.
func (m *Machine) moveInLane(ln *lane, from, to core.State) {
	switch from {
	case core.Ready:
		ln.ready--
	case core.Running:
		ln.running--
	}
	switch to {
	case core.Ready:
		ln.ready++
		if s := ln.queue.share; s != nil && ln.ready == 1 && isBefore(ln.pass, s.pass) {
			ln.pass = s.pass // what it did not ask for while it was idle is not kept for it
		}
	case core.Running:
		ln.running++
	}
	if isLive(from) {
		ln.tasks--
	}
	if isLive(to) {
		ln.tasks++
	}
}

// isLive reports whether a state is that of a task that has not ended; 0 stands for no task.
func isLive(s core.State) bool { return s != 0 && !s.Terminal() }

// isBefore orders passes, which wrap around: two that are compared are never half of their range apart.
func isBefore(a, b uint64) bool { return int64(a-b) < 0 }

// touchLane must come before any change of what is stored of a lane: End writes it, and the journal knows what it was.
func (m *Machine) touchLane(ln *lane) {
	s := ln.queue.share
	if s == nil {
		return
	}
	m.touchShare(s)
	m.log.saveLane(ln)
	if !ln.dirty {
		ln.dirty = true
		s.dirty = append(s.dirty, ln)
	}
	s.look(ln)
}

// laneOf returns the lane that a record of a task which has not ended names. A queue that was removed has one lane.
func (m *Machine) laneOf(l *queueState, rec *record) (*lane, error) {
	if rec.lane == 0 || l.removed {
		return &l.plain, nil
	}
	if s := l.share; s != nil {
		if ln := s.byNumber.find(rec.lane); ln != nil {
			return ln, nil
		}
	}
	return nil, errs.Corruptf("queue %q has no lane %d", l.name, rec.lane)
}

// ln is the lane of a running task.
func (r *run) ln() *lane {
	if r.queue.removed {
		return &r.queue.plain
	}
	return r.lane
}

// laneFor returns the lane of tasks with a key, or of those without one, that name limiters, and makes it where there is none.
func (m *Machine) laneFor(l *queueState, key string, limiters []string) *lane {
	name := laneKey(key, limiters)
	if name == "" {
		return &l.plain
	}
	ln := m.shareOf(l).byKey.find(name)
	if ln == nil {
		ln = m.addLane(l, name)
	}
	if len(limiters) > 0 && !ln.named && !ln.keyless() {
		m.touchLane(ln)
		ln.named = true
	}
	return ln
}

// addLane makes the lane of a name.
func (m *Machine) addLane(l *queueState, name string) *lane {
	s := l.share
	m.touch(l)
	s.made++
	ln := new(lane)
	*ln = newLane(l, name, s.made)
	// A key that comes, or comes back, waits for its turn once: what it had before is not known any more.
	ln.pass = s.pass + stride
	s.add(ln)
	m.lanes++
	m.log.made(ln)
	m.touchLane(ln)
	return ln
}

// maxLoaded bounds how many lanes of keys have their first ready tasks in memory between entries.
const maxLoaded = 4096

// headsOf is the most ready tasks of one class of a lane that are kept in memory.
func (m *Machine) headsOf(ln *lane) int {
	if ln.number == 0 {
		return m.o.Heads
	}
	return min(m.o.Heads, 64)
}

// giveHeads makes the heads of a lane that has none.
func (m *Machine) giveHeads(ln *lane) {
	if n := len(m.spare); n > 0 {
		ln.heads, m.spare = m.spare[n-1], m.spare[:n-1]
	} else {
		ln.heads = &heads{}
	}
	if ln.number != 0 {
		m.loaded++
	}
}

// dropHeads forgets the heads of a lane. Those of keys come and go with every task, so some are kept for the next.
func (m *Machine) dropHeads(ln *lane) {
	h := ln.heads
	if h == nil {
		return
	}
	ln.heads = nil
	if ln.number == 0 {
		return
	}
	m.loaded--
	if len(m.spare) < 256 && cap(h.one.rows) <= 64 {
		rows := h.one.rows[:0]
		*h = heads{}
		h.one.rows = rows
		m.spare = append(m.spare, h)
	}
}

// trimHeads forgets the heads of all lanes of keys where there are too many: they are read again when they are needed.
func (m *Machine) trimHeads() {
	if m.loaded <= maxLoaded {
		return
	}
	for _, l := range m.queues {
		if l.share != nil {
			for _, ln := range l.share.sorted() {
				m.dropHeads(ln)
			}
		}
	}
}

// nextCost is what the task of a lane costs that goes next. Its heads are loaded.
func (ln *lane) nextCost(list *headList) uint32 {
	if ln.queue.config.Share.Strict && ln.hold != nil {
		return ln.hold.cost
	}
	return max(list.rows[list.first].cost, 1)
}

// popNext takes the task of a lane that goes next: the one that holds the lane of a strict queue, else the first one.
func (m *Machine) popNext(v core.View, ln *lane) (head, error) {
	if !ln.queue.config.Share.Strict || ln.hold == nil {
		return m.popHead(v, ln)
	}
	rec, err := m.mustRecord(v, ln.hold.task, core.Ready)
	if err != nil {
		return head{}, err
	}
	row := head{sort: rec.sort, seq: rec.seq, id: ln.hold.task, cost: rec.cost}
	m.log.popped(ln)
	if ln.heads != nil {
		ln.heads.drop(row)
		if ln.ready == 1 {
			m.dropHeads(ln)
		}
	}
	return row, nil
}

// keyed returns the lane of a key, or of limiters, by what laneKey says; nil: there is none.
func (l *queueState) keyed(name string) *lane {
	if l.share == nil {
		return nil
	}
	return l.share.byKey.find(name)
}

// sorted returns the lanes in order of their numbers.
func (s *share) sorted() []*lane {
	out := make([]*lane, 0, s.byNumber.n)
	s.byNumber.each(func(ln *lane) { out = append(out, ln) })
	slices.SortFunc(out, func(a, b *lane) int { return cmp.Compare(a.number, b.number) })
	return out
}

// add takes a new lane in.
func (s *share) add(ln *lane) {
	s.byKey.add(ln)
	s.byNumber.add(ln)
}

// remove takes a lane out.
func (s *share) remove(ln *lane) {
	s.byKey.remove(ln.key)
	s.byNumber.remove(ln.number)
}
