package queue

import (
	"slices"

	"github.com/millrace/millrace/internal/core"
)

// journal remembers what the derived state was, so that a commit that is refused halfway leaves
// none of it. It is kept in step with the transaction's own mark: Mark, then Keep or Undo.
type journal struct {
	// on is set between Mark and its end. Outside of that nothing is remembered.
	on bool
	// mark is the number of the current or last mark. A queue remembers the mark under which it was
	// saved last.
	mark uint64

	// The values of the Machine's fields of these names at the mark.
	meta        meta
	endedBytes  uint64
	use         core.TaskUse
	quota       core.TenantQuota
	timer, wall core.ShardTime
	expiry      core.ShardTime
	// Lengths of the Machine's lists at the mark. Lists only grow in between, so Undo cuts them.
	queues             int
	dirty              int
	ended, woken, lost int
	wanted             int
	created            int
	// Its count of what was acted on for those that wait.
	told int
	// freshened are the fresh tasks whose dependents were counted since, as they were.
	freshened []freshened
	// takes are the fresh tasks that were granted since, by index.
	takes []int
	// The queues that were touched since, as they were.
	saves []saved
	// The lanes that were touched since, as they were, and those that were made.
	lanes []savedLane
	born  []*lane
	// The limiters that were touched since, as they were.
	limiters []savedLimiter
	// The heads that were added since, in order.
	pushes []pushed
	// pops are the lanes of which a head was taken. Undo drops their heads, which are loaded again
	// when they are needed.
	pops []*lane
	// runs are the changes of running tasks since, in order.
	runs []runChange
	// crons are the changes of crons since, in order.
	crons []cronChange
	// The batches that were touched since, as they were; how many the entry had read at the mark, and the Machine's values there.
	batches     []savedBatch
	batchesRead int
	batchCount  batches
	batchEnd    core.ShardTime
	// The bulk jobs at the mark, where any was started or stopped since.
	bulks      []bulk
	bulkChange bool
}

// saved is a queue as it was at the mark, or when it was first touched after it.
type saved struct {
	// The queue, and below its values at the mark.
	queue    *queueState
	counters counters
	// Configuration and pause change by ops as counters do, and come back with them.
	config core.QueueConfig
	paused core.QueuePaused
	errors errorState
	plain  laneState
	share  *share
	shared shareState // of share, if there was one
	reset  bool       // the configuration changed since
	// The times of past that setOldest does not derive, by state.
	past [3]struct{ oldest, known core.ShardTime }
}

// savedLane is a lane as it was at the mark, or when it was first touched after it.
type savedLane struct {
	lane *lane
	was  laneState
}

// freshened is the record of a fresh task before a change of it.
type freshened struct {
	// Index of the task.
	at  int
	rec record
}

// pushed is a head that was added.
type pushed struct {
	// The lane whose heads have it.
	lane *lane
	// The head, which Undo drops from the list of its class.
	row head
}

// runChange is one change of the running tasks: added, removed, or renewed, with the lease that it had before.
type runChange struct {
	// The task, whose record may have changed since.
	run *run
	// What happened to it.
	what runStep
	//
	old lease
}

// runStep is the kind of a change of the running tasks.
type runStep byte

const (
	// It began to run: Undo detaches it.
	runAdded runStep = iota
	// It ran no longer: Undo attaches it.
	runRemoved
	// Its lease changed: Undo sets the old one back.
	runRenewed
)

// save remembers a queue before its first change under the current mark.
func (j *journal) save(l *queueState) {
	if j.on && l.saved != j.mark {
		l.saved = j.mark
		s := saved{
			queue: l, counters: l.counters, config: l.config, paused: l.paused, errors: l.errors, plain: l.plain.laneState, share: l.share,
		}
		if l.share != nil {
			s.shared = l.share.shareState
		}
		for i := range l.past {
			s.past[i].oldest, s.past[i].known = l.past[i].oldest, l.past[i].known
		}
		j.saves = append(j.saves, s)
	}
}

// saveLane remembers a lane before its first change under the current mark.
func (j *journal) saveLane(ln *lane) {
	if j.on && ln.saved != j.mark {
		ln.saved = j.mark
		j.lanes = append(j.lanes, savedLane{ln, ln.laneState})
	}
}

// saveLimiter remembers a limiter before its first change under the current mark. gone says that it was not there.
func (j *journal) saveLimiter(x *limiter, gone bool) {
	if j.on && x.saved != j.mark {
		x.saved = j.mark
		j.limiters = append(j.limiters, savedLimiter{x, x.limiterState, gone})
	}
}

// made remembers a lane that was made.
func (j *journal) made(ln *lane) {
	if j.on {
		j.born = append(j.born, ln)
	}
}

// pushed remembers a head that was added, popped a lane whose head was taken, and took a fresh
// task that was granted.
func (j *journal) pushed(ln *lane, row head) {
	if j.on {
		j.pushes = append(j.pushes, pushed{ln, row})
	}
}

// popped notes a lane whose head is taken, once.
func (j *journal) popped(ln *lane) {
	if j.on && !slices.Contains(j.pops, ln) {
		j.pops = append(j.pops, ln)
	}
}

// took notes a fresh task that was granted, by its index.
func (j *journal) took(fresh int) {
	if j.on {
		j.takes = append(j.takes, fresh)
	}
}

// refreshed remembers the record of a fresh task before a change of it.
func (j *journal) refreshed(at int, rec *record) {
	if j.on {
		j.freshened = append(j.freshened, freshened{at, *rec})
	}
}

// run remembers a change of a running task. For a renewal it comes before the change.
func (j *journal) run(r *run, what runStep) {
	if j.on {
		j.runs = append(j.runs, runChange{run: r, what: what, old: r.lease()})
	}
}

// cron remembers a cron before a change.
func (j *journal) cron(ch cronChange) {
	if j.on {
		j.crons = append(j.crons, ch)
	}
}

// batch remembers a batch before its first change under the current mark.
func (j *journal) batch(b *batch) {
	if j.on && b.saved != j.mark {
		b.saved = j.mark
		j.batches = append(j.batches, savedBatch{b, b.batchRow, b.gone})
	}
}

// bulked remembers the bulk jobs before the first change of one under the current mark.
func (j *journal) bulked(m *Machine) {
	if j.on && !j.bulkChange {
		j.bulkChange, j.bulks = true, slices.Clone(m.bulks)
	}
}

// reset forgets everything, and drops pointers so that what was remembered can be collected.
func (j *journal) reset() {
	j.on, j.bulks, j.bulkChange = false, nil, false
	clear(j.saves)
	clear(j.pushes)
	clear(j.pops)
	clear(j.runs)
	clear(j.lanes)
	clear(j.born)
	clear(j.limiters)
	j.limiters = j.limiters[:0]
	clear(j.freshened)
	j.freshened = j.freshened[:0]
	clear(j.crons)
	j.crons = j.crons[:0]
	clear(j.batches)
	j.batches = j.batches[:0]
	j.saves, j.pushes, j.pops, j.runs, j.takes = j.saves[:0], j.pushes[:0], j.pops[:0], j.runs[:0], j.takes[:0]
	j.lanes, j.born = j.lanes[:0], j.born[:0]
}

// Mark starts remembering changes, so that Undo can take them back. It is called with the
// transaction's Mark, and marks do not nest.
func (m *Machine) Mark() {
	j := &m.log
	j.on = true
	j.mark++
	j.meta, j.endedBytes, j.timer, j.wall, j.expiry = m.meta, m.endedBytes, m.timer, m.wall, m.expiry
	j.use, j.quota = m.use, m.quota
	j.batchesRead, j.batchCount, j.batchEnd = len(m.batches.read), m.batches.count, m.batches.end
	j.queues, j.dirty = len(m.queues), len(m.dirty)
	j.ended, j.woken, j.lost = len(m.ended), len(m.woken), len(m.lost)
	j.wanted, j.created, j.told = len(m.wanted), len(m.fresh), m.told
}

// Keep keeps every change since Mark.
func (m *Machine) Keep() { m.log.reset() }

// Undo takes back every change since Mark, in the opposite order. Limiters come first, which queues name, then running tasks, then
// counters, then heads: the number of ready tasks at the mark says whether a queue has heads at all.
func (m *Machine) Undo() {
	j := &m.log
	j.on = false
	m.undoLimiters()
	for _, c := range slices.Backward(j.runs) {
		switch c.what {
		case runAdded:
			m.detach(c.run)
		case runRemoved:
			m.attach(c.run)
		case runRenewed:
			m.setLease(c.run, c.old)
			if c.old.cancel == 0 {
				c.run.reason = ""
			}
		}
	}
	for i, s := range slices.Backward(j.saves) {
		s.queue.counters = s.counters
		j.saves[i].reset = s.queue.config != s.config
		s.queue.config, s.queue.errors = s.config, s.errors
		s.queue.plain.laneState = s.plain
		m.setPaused(s.queue, s.paused)
		for i := range s.past {
			p := &s.queue.past[i]
			p.known = s.past[i].known
			m.setOldest(p, s.past[i].oldest)
		}
	}
	m.undoLanes()
	for _, p := range slices.Backward(j.pushes) {
		if p.lane.ready == 0 {
			m.dropHeads(p.lane)
		} else if p.lane.heads != nil {
			p.lane.heads.drop(p.row)
		}
	}
	for _, ln := range j.pops {
		m.dropHeads(ln)
	}
	for _, f := range slices.Backward(j.freshened) {
		m.fresh[f.at].rec = f.rec
	}
	m.told = j.told
	for _, i := range j.takes {
		m.fresh[i].taken = false
	}
	clear(m.fresh[j.created:])
	m.fresh = m.fresh[:j.created]
	for _, l := range m.queues[j.queues:] {
		m.setPaused(l, core.QueuePaused{})
		delete(m.names, l.name)
	}
	clear(m.queues[j.queues:])
	m.queues = m.queues[:j.queues]
	for _, l := range m.dirty[j.dirty:] {
		l.dirty = false
	}
	m.dirty = m.dirty[:j.dirty]
	for _, l := range m.woken[j.woken:] {
		l.woken = false
	}
	for _, ch := range slices.Backward(j.crons) {
		m.undoCron(ch)
	}
	m.undoBatches()
	if j.bulkChange {
		m.bulks = j.bulks
	}
	m.meta, m.endedBytes, m.timer, m.wall, m.expiry = j.meta, j.endedBytes, j.timer, j.wall, j.expiry
	m.passed.forget()
	m.use, m.quota = j.use, j.quota
	m.ended, m.woken, m.lost, m.wanted = m.ended[:j.ended], m.woken[:j.woken], m.lost[:j.lost], m.wanted[:j.wanted]
	j.reset()
}

// undoLanes brings lanes and shares back to what they were at the mark. The queues' own values are back by then.
func (m *Machine) undoLanes() {
	j := &m.log
	for _, s := range slices.Backward(j.lanes) {
		was := s.lane.set
		if share := s.lane.queue.share; share != nil { // it may have been looked at since
			m.touchShare(share)
			share.look(s.lane)
		}
		m.keyResumes.keep(keyResuming{s.lane}, false)
		s.lane.laneState = s.was
		m.keyResumes.keep(keyResuming{s.lane}, s.lane.goesOn())
		if share := s.lane.queue.share; share != nil && (was != nil) != (s.lane.set != nil) {
			if was != nil {
				share.keysSet--
			} else {
				share.keysSet++
			}
		}
	}
	for _, ln := range j.born {
		s := ln.queue.share
		m.forgetLane(s, ln)
		s.remove(ln)
		m.lanes--
	}
	for _, s := range j.saves {
		if s.share != nil {
			s.share.shareState = s.shared
		} else if now := s.queue.share; now != nil {
			m.forgetShare(now)
			s.queue.plain.laneState = s.plain
		}
		s.queue.share = s.share
	}
	for i := range j.saves {
		if s := &j.saves[i]; s.share != nil && s.reset {
			m.ruleLimits(s.share)
			s.share.lookAtAll()
			m.countWorkers(s.queue)
		}
	}
}
