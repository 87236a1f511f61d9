package queue

import (
	"fmt"
	"math"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/keys"
)

// stride is by how much a task of cost 1 moves the pass of a lane of weight 1.
const stride = 1 << 16

// share is how a queue is shared out between its lanes, and how much of it may run. It exists from the first task with a key on, and
// while something is set for the sharing of the queue.
type share struct {
	shareState
	// stored is the record as End last wrote it, with the lane of tasks without a key; isStored says that there is one.
	stored   []byte
	isStored bool

	// The lanes of keys.
	byKey    laneIndex[string]
	byNumber laneIndex[uint64]
	// none is the group of the lanes whose next tasks name no limiter: in most queues, all of them. groups are the others, by name.
	none   group
	groups map[string]*group
	// limits are the limiters that the queue's configuration names.
	limits []*limiter
	// open are the groups that may give a task, the next one first, while limiters are named in the queue. What of staleGroups is in
	// it, or waits for a rate, may be wrong. limSeen is up to where in Machine.limLog changes of limiters were followed.
	open        heap[*group]
	staleGroups []*group
	limSeen     uint64
	// stale are the lanes of which turns and what they can give may be wrong: something of them changed since they were looked at.
	stale []*lane
	// dirty are the lanes that differ from their records.
	dirty []*lane
	// keysSet is how many lanes have something set.
	keysSet int
	// workers counts the running tasks of each worker, while the number of workers is limited.
	workers map[string]int
	// byRefill is the place in Machine.refilling; -1: the rate of the queue holds nothing up.
	byRefill int32
	// due is when the rate of the queue lets something go.
	due core.ShardTime
	// touched says that it is in Machine.shares.
	touched bool
	// before is what the queue could give when the entry touched it first.
	before uint64
	// hadWorkers is how many workers had tasks then.
	hadWorkers int
	// queue is the one that is shared.
	queue *queueState
}

// shareState is what is stored of a share.
type shareState struct {
	// pass is that of the lane that was served last, as it was before.
	pass uint64
	// rate says how much of the queue began lately.
	rate rateState
	// made is the last number that was given to a lane.
	made uint64
}

// turn orders the lanes of a queue that may give a task.
type turn struct{ *lane }

func (t turn) place() *int32 { return &t.byTurn }
func (t turn) before(o turn) bool {
	if t.queue.config.Share.NoFairness {
		return t.ranked().before(o.ranked())
	}
	if t.pass != o.pass {
		return isBefore(t.pass, o.pass)
	}
	return t.number < o.number
}

// ranked returns what places the first task of a lane in a queue without fairness.
func (ln *lane) ranked() laneRank {
	if ln.first == nil {
		return laneRank{}
	}
	return *ln.first
}

// before orders by rank, and within it by the sequence of the partition.
func (r laneRank) before(o laneRank) bool {
	return r.rank < o.rank || r.rank == o.rank && r.seq < o.seq
}

// refill orders the lanes that wait for their rates, by when these let them go; refilling the queues.
type (
	refill    struct{ *lane }
	refilling struct{ *share }
)

func (r refill) place() *int32 { return &r.byRefill }
func (r refill) before(o refill) bool {
	switch {
	case r.due != o.due:
		return r.due < o.due
	case r.queue.number != o.queue.number:
		return r.queue.number < o.queue.number
	}
	return r.number < o.number
}

func (r refilling) place() *int32 { return &r.byRefill }
func (r refilling) before(o refilling) bool {
	return r.due < o.due || r.due == o.due && r.queue.number < o.queue.number
}

// newShare makes the share of a queue without lanes of keys.
func newShare(l *queueState, hash func(string) uint64) *share {
	s := &share{queue: l, byKey: lanesByKey(hash), byNumber: lanesByNumber(), byRefill: -1, due: core.Never}
	s.none = group{share: s, due: core.Never, byTurn: -1, byRefill: -1}
	return s
}

// checkShareConfig refuses a configuration whose share makes no sense. The edge names what it refuses before.
func checkShareConfig(s *core.QueueShare) core.Fact {
	switch {
	case len(s.DeadLetter) > maxName:
		return core.Invalid{Field: "config.dead_letter", Message: fmt.Sprintf("must have at most %d characters", maxName)}
	case s.Concurrency < 0 || s.Concurrency > core.MaxConcurrency:
		return core.Invalid{Field: "config.concurrency", Message: fmt.Sprintf("must be from 0 to %d", core.MaxConcurrency)}
	case s.KeyConcurrency < 0 || s.KeyConcurrency > core.MaxConcurrency:
		return core.Invalid{Field: "config.per_key.concurrency", Message: fmt.Sprintf("must be from 0 to %d", core.MaxConcurrency)}
	case s.MaxWorkers < 0:
		return core.Invalid{Field: "config.max_workers", Message: "must not be negative"}
	}
	if fact := checkNames("config.limiters", s.LimiterNames()); fact != nil {
		return fact
	}
	if fact := checkRate("config.rate", &s.Rate); fact != nil {
		return fact
	}
	return checkRate("config.per_key.rate", &s.KeyRate)
}

// notYetShared refuses a field that entries before core.FormatShare do not have.
func notYetShared(c *core.ApplyContext, field string) core.Fact {
	return fromFormat(c, core.FormatShare, field, "shares queues between keys, and limits them,")
}

// checkRate refuses a rate that cannot be kept: one that is finer than a nanosecond, or longer than a day.
func checkRate(field string, r *core.Rate) core.Fact {
	switch {
	case *r == core.Rate{}:
		return nil
	case r.Limit < 1 || r.Limit > core.MaxRate:
		return core.Invalid{Field: field + ".limit", Message: fmt.Sprintf("must be from 1 to %d", core.MaxRate)}
	case r.Per < 1 || r.Per > core.MaxRatePer:
		return core.Invalid{Field: field + ".per", Message: "must be from 1 ms to 24 h"}
	case r.Burst < 0 || r.Burst > core.MaxRate:
		return core.Invalid{Field: field + ".burst", Message: fmt.Sprintf("must be from 0 to %d", core.MaxRate)}
	case r.Limit > int64(r.Per)*1_000_000:
		return core.Invalid{Field: field, Message: "must be at most 1,000,000,000 in a second"}
	}
	return nil
}

// limited reports whether the configuration of a queue asks for a share.
func limited(c *core.QueueConfig) bool {
	s := c.Share
	s.DeadLetter = ""
	return s != core.QueueShare{}
}

// shareOf returns the share of a queue, and makes it where there is none.
func (m *Machine) shareOf(l *queueState) *share {
	if l.share == nil {
		m.touch(l)
		l.share = newShare(l, m.o.Hash)
		m.touchLane(&l.plain)
	}
	return l.share
}

// look notes a lane of which something is about to change. Until it is looked at again it has no turn, since its place among the
// others may change.
func (s *share) look(ln *lane) {
	if ln.stale {
		return
	}
	ln.stale = true
	s.stale = append(s.stale, ln)
	s.leaveTurns(ln)
}

// lookAtAll notes all lanes: what rules them changed.
func (s *share) lookAtAll() {
	s.emptyTurns()
	s.look(&s.queue.plain)
	for _, ln := range s.sorted() {
		s.look(ln)
	}
}

// refresh brings what a share derives of its lanes up to date.
func (m *Machine) refresh(v core.View, stamp core.ShardTime, s *share) error {
	m.lookAtLimiters(s)
	for _, ln := range s.stale {
		ln.stale = false
		if ln.number != 0 && s.byNumber.find(ln.number) != ln {
			continue // it is gone
		}
		if err := m.refreshLane(v, stamp, s, ln); err != nil {
			return err
		}
	}
	clear(s.stale)
	s.stale = emptied(s.stale)
	if len(s.staleGroups) > 0 {
		if err := m.judgeGroups(v, stamp, s); err != nil {
			return err
		}
	}
	return m.holdQueue(v, stamp, s)
}

// holdQueue notes whether the rate of a queue holds up what its lanes may give, and until when.
func (m *Machine) holdQueue(v core.View, stamp core.ShardTime, s *share) error {
	rate := s.queue.config.Share.Rate
	t, ok := s.next()
	if !ok || rate.Limit == 0 || s.queue.removed {
		m.setRefill(s, core.Never, false)
		return nil
	}
	list, err := m.firstList(v, t.lane)
	if err != nil {
		return err
	}
	at := s.rate.from(&rate, t.nextCost(list))
	m.setRefill(s, at, at > stamp)
	return nil
}

// refreshLane finds out how many tasks a lane may give at a stamp, or when it may, and puts it where it belongs. A lane that may give
// nothing is in no heap: it costs nothing until what it waits for comes.
func (m *Machine) refreshLane(v core.View, stamp core.ShardTime, s *share, ln *lane) error {
	can, due := ln.may(), core.Never
	rate := ln.rateLimit()
	switch {
	case s.queue.removed:
		can = 0
	case can > 0:
		if rate.Limit > 0 || s.queue.config.Share.NoFairness {
			list, err := m.firstList(v, ln)
			if err != nil {
				return err
			}
			first := &list.rows[list.first]
			if s.queue.config.Share.NoFairness {
				rank, err := m.rankOf(v, s.queue, list, classOf(first.sort))
				if err != nil {
					return err
				}
				if ln.first == nil {
					ln.first = new(laneRank)
				}
				*ln.first = laneRank{rank, first.seq}
			}
			if at := ln.rate.from(&rate, ln.nextCost(list)); at > stamp {
				can, due = 0, at
			} else {
				can = ln.rate.room(&rate, stamp, can)
			}
		}
	case ln.number != 0 && ln.isIdle() && nanos(stamp) < int64(ln.rate):
		due = core.ShardTime((int64(ln.rate) + 999_999) / 1_000_000)
	}
	ln.can, ln.due = can, due
	m.refills.keep(refill{ln}, due != core.Never)
	if can > 0 {
		return m.enterTurns(v, s, ln)
	}
	return nil
}

// may is how many tasks a lane may give, but for its rate.
func (ln *lane) may() uint32 {
	if ln.ready == 0 || ln.isPaused() {
		return 0
	}
	can := ln.ready
	if c := ln.concurrency(); c > 0 {
		if int64(ln.running) >= c {
			return 0
		}
		can = uint32(min(int64(can), c-int64(ln.running)))
	}
	if ln.queue.config.Share.Strict && ln.hold != nil {
		if !ln.hold.ready {
			return 0
		}
		can = 1
	}
	return can
}

// nextLane returns the lane whose task a worker gets next of a queue; nil: it gets none now.
func (m *Machine) nextLane(tx core.Txn, c *core.ApplyContext, l *queueState, worker string) (*lane, error) {
	if l == nil || l.states[core.Ready] == 0 || l.isPaused() {
		return nil, nil
	}
	s := l.share
	if s == nil {
		return &l.plain, nil
	}
	if !s.admits(worker) || s.running() == 0 {
		return nil, nil
	}
	m.refillAt(c.Stamp)
	if err := m.refresh(tx, c.Stamp, s); err != nil {
		return nil, err
	}
	t, ok := s.next()
	if !ok {
		return nil, nil
	}
	if s.byRefill >= 0 {
		return nil, nil
	}
	return t.lane, nil
}

// setRefill notes when the rate of a queue lets something go, if it holds something up.
func (m *Machine) setRefill(s *share, at core.ShardTime, waits bool) {
	if s.due = at; !waits {
		s.due = core.Never
	}
	m.refilling.keep(refilling{s}, waits)
}

// running is how many more tasks of a queue may run, as its limit of concurrency says.
func (s *share) running() uint64 {
	limit, now := s.queue.config.Share.Concurrency, s.queue.states[core.Running]
	switch {
	case limit == 0:
		return math.MaxUint64
	case now >= uint64(limit):
		return 0
	}
	return uint64(limit) - now
}

// admits reports whether a worker may have a task of the queue, as the limit of workers says.
func (s *share) admits(worker string) bool {
	most := s.queue.config.Share.MaxWorkers
	return most == 0 || s.workers[worker] > 0 || len(s.workers) < int(most)
}

// charge counts a task that begins: for the share of its lane, for rates, and as the one that holds the lane of a strict queue.
func (m *Machine) charge(c *core.ApplyContext, ln *lane, id core.TaskID, cost uint32) {
	s := ln.queue.share
	if s == nil {
		return
	}
	m.touchLane(ln)
	s.pass = ln.pass
	ln.pass += max(uint64(cost)*stride/uint64(ln.weight()), 1)
	rate := ln.rateLimit()
	ln.rate = ln.rate.use(&rate, c.Stamp, cost)
	s.rate = s.rate.use(&ln.queue.config.Share.Rate, c.Stamp, cost)
	if ln.queue.config.Share.Strict {
		ln.hold = &laneHold{task: id, cost: cost}
	} else {
		ln.holderIsReady(id, false) // it holds the lane since the queue was strict, and may be strict again before it ends
	}
}

// refillAt lets the lanes be looked at again whose rates let something go at a stamp, and wakes their queues.
func (m *Machine) refillAt(stamp core.ShardTime) (some bool) {
	m.refillGroups(stamp)
	for {
		r, ok := m.refills.top()
		if !ok || r.due > stamp {
			break
		}
		m.refills.remove(r)
		r.due = core.Never
		s := r.queue.share
		m.touchShare(s)
		s.look(r.lane)
		if some = true; r.isIdle() && !r.dirty {
			r.dirty = true
			s.dirty = append(s.dirty, r.lane)
		}
	}
	for {
		r, ok := m.refilling.top()
		if !ok || r.due > stamp {
			return some
		}
		m.touchShare(r.share)
		m.setRefill(r.share, core.Never, false)
		some = true
	}
}

// refillGroups lets the groups be looked at again that rates of limiters let go at a stamp, and wakes their queues.
func (m *Machine) refillGroups(stamp core.ShardTime) {
	for {
		r, ok := m.groupRefills.top()
		if !ok || r.due > stamp {
			return
		}
		m.groupRefills.remove(r)
		r.due = core.Never
		m.touchShare(r.share)
		r.share.lookGroup(r.group)
	}
}

// refillDue is when the next rate lets something go.
func (m *Machine) refillDue() core.ShardTime {
	due := core.Never
	if r, ok := m.refills.top(); ok {
		due = r.due
	}
	if r, ok := m.refilling.top(); ok {
		due = min(due, r.due)
	}
	if r, ok := m.groupRefills.top(); ok {
		due = min(due, r.due)
	}
	return due
}

// countWorkers makes or forgets the count of a queue's workers, as its configuration asks for.
func (m *Machine) countWorkers(l *queueState) {
	s := l.share
	if s == nil {
		return
	}
	s.workers = nil
	if l.config.Share.MaxWorkers == 0 {
		return
	}
	s.workers = map[string]int{}
	for _, r := range m.leases.items {
		if r.queue == l {
			s.workers[r.rec.worker]++
		}
	}
}

// ruleShare follows a change of a queue's configuration, which shared the queue as was says before.
func (m *Machine) ruleShare(l *queueState, was *core.QueueShare, stamp core.ShardTime) {
	if l.share == nil && !limited(&l.config) {
		return
	}
	s := m.shareOf(l)
	is := &l.config.Share
	s.rate = s.rate.under(&was.Rate, &is.Rate, stamp)
	if was.Limiters != is.Limiters {
		held := s.limits
		m.ruleLimits(s)
		m.rehold(l, held, s.limits)
	}
	if was.KeyRate != is.KeyRate {
		m.rerate(&l.plain, was.KeyRate, is.KeyRate, stamp)
		for _, ln := range s.sorted() { // what is written is written in the same order everywhere
			if ln.set == nil || ln.set.Rate == (core.Rate{}) {
				m.rerate(ln, was.KeyRate, is.KeyRate, stamp)
			}
		}
	}
	m.touchShare(s)
	s.lookAtAll()
	m.countWorkers(l)
}

// touchShare has the end of the entry look at a share.
func (m *Machine) touchShare(s *share) {
	if !s.touched {
		s.touched, s.before, s.hadWorkers = true, s.queue.available(m.stamp), len(s.workers)
		m.shares = append(m.shares, s)
	}
}

// endShares does what endShare says for all shares that the entry touched.
func (m *Machine) endShares(tx core.Txn, stamp core.ShardTime) error {
	for _, s := range m.shares {
		s.touched = false
		if s.queue.share != s || s.queue.gone || s.queue.removed {
			continue
		}
		if err := m.endShare(tx, stamp, s); err != nil {
			return err
		}
	}
	clear(m.shares)
	m.shares = emptied(m.shares)
	m.trimHeads()
	return nil
}

// rerate has a lane count what began under one rate as what another rate allows.
func (m *Machine) rerate(ln *lane, was, is core.Rate, stamp core.ShardTime) {
	if ln.rate != 0 && was != is {
		m.touchLane(ln)
		ln.rate = ln.rate.under(&was, &is, stamp)
	}
}

// endShare writes what changed of a queue's share, and lets lanes go that nothing keeps. Who waits for its tasks is told when it may
// give some: a lease that ended may have made room.
func (m *Machine) endShare(tx core.Txn, stamp core.ShardTime, s *share) error {
	l := s.queue
	for _, ln := range s.dirty {
		ln.dirty = false
		if ln.number != 0 && s.byNumber.find(ln.number) == ln {
			m.endLane(tx, stamp, s, ln)
		}
	}
	clear(s.dirty)
	s.dirty = emptied(s.dirty)
	m.key = keys.AppendShare(m.key[:0], m.p, l.number)
	if s.byNumber.n == 0 && !limited(&l.config) && l.plain.hold == nil {
		m.touch(l) // it may go now
		m.forgetShare(s)
		if s.isStored {
			tx.Delete(m.mem.own(m.key))
		}
		if l.available(stamp) > s.before {
			m.wake(l)
		}
		return nil
	}
	m.value = appendShareRecord(m.value[:0], &s.shareState, &l.plain.laneState)
	if string(m.value) != string(s.stored) {
		tx.Set(m.mem.own(m.key), m.mem.own(m.value))
		s.stored, s.isStored = append(s.stored[:0], m.value...), true
	}
	if err := m.refresh(tx, stamp, s); err != nil {
		return err
	}
	if l.available(stamp) > s.before || len(s.workers) < s.hadWorkers {
		m.wake(l)
	}
	return nil
}

// available is how many tasks of a queue can be given out at a stamp.
func (l *queueState) available(stamp core.ShardTime) uint64 {
	switch s := l.share; {
	case l.isPaused():
		return 0
	case s == nil:
		return l.states[core.Ready]
	case s.byRefill >= 0:
		return 0
	default:
		n := min(s.gives(stamp), s.running())
		return uint64(s.rate.room(&l.config.Share.Rate, stamp, uint32(min(n, 1<<30))))
	}
}

// endLane writes the record of a lane, or lets it go when nothing keeps it.
func (m *Machine) endLane(tx core.Txn, stamp core.ShardTime, s *share, ln *lane) {
	m.key = keys.AppendLane(m.key[:0], m.p, ln.queue.number, ln.key)
	if ln.isIdle() && int64(ln.rate) <= nanos(stamp) {
		if ln.isStored {
			tx.Delete(m.mem.own(m.key))
		}
		m.forgetLane(s, ln)
		s.remove(ln)
		m.lanes--
		return
	}
	if ln.tasks == 0 { // not earlier: an edit takes the last task out and puts it back
		ln.named = false
	}
	m.value = appendLaneRecord(m.value[:0], &ln.laneState)
	m.put(tx, ln.isStored)
	ln.isStored = true
}

// forgetLane takes a lane out of all that is derived of it.
func (m *Machine) forgetLane(s *share, ln *lane) {
	s.leaveTurns(ln)
	m.refills.keep(refill{ln}, false)
	m.keyResumes.keep(keyResuming{ln}, false)
	ln.due = core.Never
	m.dropHeads(ln)
}

// forgetShare takes the share of a queue away.
func (m *Machine) forgetShare(s *share) {
	l := s.queue
	for _, ln := range s.sorted() {
		m.forgetLane(s, ln)
		m.lanes--
	}
	m.forgetGroups(s)
	m.refills.keep(refill{&l.plain}, false)
	m.setRefill(s, core.Never, false)
	number, tasks, ready, running := l.plain.number, l.plain.tasks, l.plain.ready, l.plain.running
	l.plain.laneState = laneState{number: number, tasks: tasks, ready: ready, running: running}
	l.plain.due, l.plain.stale, l.plain.dirty = core.Never, false, false
	l.share = nil
}

// oneLane counts all tasks of a queue as those of one lane.
func (l *queueState) oneLane() {
	l.plain.tasks = uint32(l.states[core.Blocked] + l.states[core.Scheduled] + l.states[core.Ready] + l.states[core.Running])
	l.plain.ready, l.plain.running = uint32(l.states[core.Ready]), uint32(l.states[core.Running])
}

// openShares reads the shares of all queues.
func (m *Machine) openShares(v core.View) error {
	from, to := keys.ShareRange(m.p)
	return core.ScanRows(v, from, to, func(key, value []byte) (bool, error) {
		row, ok := keys.DecodeQueue(key)
		if !ok {
			return false, errs.Corruptf("row %x of the shares of queues makes no sense", key)
		}
		l, err := m.lineAt(row.Queue)
		if err != nil {
			return false, err
		}
		s := newShare(l, m.o.Hash)
		if s.shareState, l.plain.laneState, err = decodeShareRecord(value); err != nil {
			return false, err
		}
		s.stored, s.isStored = append(s.stored, value...), true
		l.share = s
		if _, err := m.resolve(l.config.Share.LimiterNames()); err != nil {
			return false, err
		}
		m.ruleLimits(s)
		return true, m.openLanes(v, s)
	})
}

// openLanes reads the lanes of a queue's keys.
func (m *Machine) openLanes(v core.View, s *share) error {
	l := s.queue
	from, to := keys.LaneRange(m.p, l.number)
	err := core.ScanRows(v, from, to, func(key, value []byte) (bool, error) {
		ln := new(lane)
		*ln = newLane(l, keys.DecodeLane(key), 0)
		var err error
		ln.laneState, err = decodeLaneRecord(value)
		if err == nil && (ln.number == 0 || ln.number > s.made || s.byNumber.find(ln.number) != nil) {
			err = errs.Corruptf("lane number %d of %d in queue %q", ln.number, s.made, l.name)
		}
		ln.isStored = true
		s.add(ln)
		m.lanes++
		if ln.set != nil {
			s.keysSet++
		}
		m.keyResumes.keep(keyResuming{ln}, ln.goesOn())
		return err == nil, err
	})
	if err != nil {
		return err
	}
	s.lookAtAll()
	return nil
}

// openedShares looks at all lanes once the running tasks are known. What waits for a rate waits until its time is seen to be over.
func (m *Machine) openedShares(v core.View) error {
	for _, l := range m.queues {
		if l.share == nil {
			continue
		}
		m.countWorkers(l)
		if err := m.refresh(v, 0, l.share); err != nil {
			return err
		}
	}
	m.trimHeads()
	return nil
}

// appendShareRecord writes a queue's share and its lane of tasks without a key.
func appendShareRecord(b []byte, s *shareState, plain *laneState) []byte {
	b = putFixed(append(b, formShare), s.pass)
	b = putUint(putInt(b, int64(s.rate)), s.made)
	return appendLane(b, plain)
}

// decodeShareRecord reads what appendShareRecord wrote.
func decodeShareRecord(b []byte) (s shareState, plain laneState, err error) {
	r := read(b, formShare)
	s.pass, s.rate, s.made = r.fixed(), rateState(r.int()), r.uint()
	plain = r.lane()
	return s, plain, r.done("share of a queue")
}

// appendLaneRecord writes the record of a lane.
func appendLaneRecord(b []byte, ln *laneState) []byte { return appendLane(append(b, formLane), ln) }

// decodeLaneRecord reads what appendLaneRecord wrote.
func decodeLaneRecord(b []byte) (ln laneState, err error) {
	r := read(b, formLane)
	ln = r.lane()
	return ln, r.done("lane")
}

// The flags of what a lane has besides its counters. They are stored.
const (
	laneRate byte = 1 << iota
	laneHeld
	laneHeldReady
	laneIsSet
	laneIsPaused
	laneNamed
)

// appendLane writes the fields of a lane, those that are rarely there by flags.
func appendLane(b []byte, ln *laneState) []byte {
	var f byte
	if ln.rate != 0 {
		f |= laneRate
	}
	if ln.hold != nil {
		f |= laneHeld
		if ln.hold.ready {
			f |= laneHeldReady
		}
	}
	if ln.named {
		f |= laneNamed
	}
	if ln.set != nil {
		f |= laneIsSet
		if ln.set.paused.Since != 0 {
			f |= laneIsPaused
		}
	}
	b = putUint(append(b, f), ln.number)
	b = putUint(putUint(putUint(b, uint64(ln.tasks)), uint64(ln.ready)), uint64(ln.running))
	b = putFixed(b, ln.pass)
	if f&laneRate != 0 {
		b = putInt(b, int64(ln.rate))
	}
	if f&laneHeld != 0 {
		b = putUint(append(b, ln.hold.task[:]...), uint64(ln.hold.cost))
	}
	if f&laneIsSet != 0 {
		b = appendRate(putInt(putUint(b, uint64(ln.set.Weight)), ln.set.Concurrency), ln.set.Rate)
	}
	if f&laneIsPaused != 0 {
		p := &ln.set.paused
		b = putString(putString(putInt(putInt(b, int64(p.Since)), int64(p.Until)), p.By), p.Reason)
	}
	return b
}

// lane reads what appendLane wrote.
func (r *reader) lane() (ln laneState) {
	f := r.byte()
	ln.number = r.uint()
	ln.tasks, ln.ready, ln.running = r.u32(), r.u32(), r.u32()
	ln.pass = r.fixed()
	if f&laneRate != 0 {
		ln.rate = rateState(r.int())
	}
	if f&laneHeld != 0 {
		ln.hold = &laneHold{task: r.id(), cost: r.u32(), ready: f&laneHeldReady != 0}
	}
	ln.named = f&laneNamed != 0
	if f&laneIsSet != 0 {
		ln.set = &laneSet{KeySettings: core.KeySettings{Weight: r.u32(), Concurrency: r.int(), Rate: r.rate()}}
		if f&laneIsPaused != 0 {
			p := &ln.set.paused
			p.Since, p.Until, p.By, p.Reason = core.ShardTime(r.int()), core.ShardTime(r.int()), r.string(), r.string()
		}
	}
	return ln
}
