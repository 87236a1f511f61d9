package queue

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/keys"
)

// Machine is the queue of one partition: what it derives from the stored records, so that ops and
// ticks read little. Its methods are called by one goroutine at a time, in the order of the log.
// What it answers is a function of what is stored and of the entry alone; the rest is cache and
// memory that is used again.
type Machine struct {
	// The partition whose queue it is.
	p core.Partition
	// With the defaults in the place of zeros. They are rules of Apply, but for Heads.
	o Options

	// meta is the partition's counters now.
	meta meta
	// stored is meta as End last wrote it.
	stored meta
	// names are the queues that were not removed, by name.
	names map[string]*queueState
	// queues are all queues that have rows, in order of number. Without gaps a queue's place is its
	// number less one.
	queues []*queueState
	// removed are the queues that were removed and still have rows, in order of number.
	removed []*queueState
	// vacant are the queues that may go by themselves, by number.
	vacant heap[vacant]
	// dirty are the queues whose counters differ from the stored ones; End writes them.
	dirty []*queueState
	// numbered says that unique keys may be stored by a queue's number. Once it is false, no such
	// key is looked for.
	numbered bool
	// endedBytes is the sum of what the ended tasks of all queues count for.
	endedBytes uint64
	// use is what the tasks of all queues that were not removed take of the tenant's quota, and quota what the partition was told of that.
	use   core.TaskUse
	quota core.TenantQuota
	// byDue and byEnd have each queue's ended tasks by state: by when something is due of them, and
	// by when the oldest ended.
	byDue heap[duePast]
	// By oldest: what goes first when ended tasks take too many bytes.
	byEnd heap[oldPast]

	// runs are the running tasks, by id.
	runs map[core.TaskID]*run
	// leases are the same, by when their leases may be ended.
	leases heap[*run]
	// sessions has the first of each session's running tasks; the others follow by run.next.
	sessions map[core.SessionID]*run
	// timer is a lower bound: no row of the timer index is due earlier. wall is the same of the
	// timers by wall clock, as a wall time.
	timer core.ShardTime
	//
	wall core.ShardTime
	// expiry is the same of the expiries, as a wall time.
	expiry core.ShardTime
	// passed says where looks at these three begin.
	passed passedAll
	// resumes has the paused queues that go on by themselves, by when.
	resumes heap[resuming]
	// bulks are the bulk jobs, by id, with those that ended and are still known.
	bulks []bulk
	// refills are the lanes that wait for their rates, or are kept until these are full again; refilling the queues that wait.
	refills   heap[refill]
	refilling heap[refilling]
	// keyResumes has the paused keys that go on by themselves, by when.
	keyResumes heap[keyResuming]
	// limiters are those there are, by name. limDirty are the ones that the entry being applied has changed, in order, and limLog has
	// one for each change: share.limSeen counts from the first change ever, and limBase were before the entry.
	limiters map[string]*limiter
	limDirty []*limiter
	limLog   []*limiter
	limBase  uint64
	// limBoth is where lists of limiters are put together.
	limBoth []*limiter
	// groupRefills are the groups of lanes that wait for rates of limiters.
	groupRefills heap[groupRefill]
	// lanes is how many lanes of keys there are, in all queues.
	lanes int
	// shares are those that the entry being applied has touched.
	shares []*share
	// passes are those of the queues of the grant at hand; memory that is used again.
	passes []uint64
	// loaded is how many lanes of keys have heads, and spare are heads for the next.
	loaded int
	spare  []*heads
	// cronNames are the crons, and crons those of which something will be due, by when.
	cronNames map[string]*cron
	crons     heap[*cron]
	// cronWaits has the crons of which a run waits, by the task that it waits for. cronCheck are those of these tasks that may have
	// ended, or come to life again, in the entry at hand; cronCheckAll: any of them may.
	cronWaits    map[core.TaskID]*cron
	cronCheck    []core.TaskID
	cronCheckAll bool
	// byCron is set while a cron makes a task.
	byCron bool
	// batches is what it knows of batches.
	batches batchState

	// looksLate is set while a part of a job is done: late has the lists of ended tasks whose oldest is looked up at its end.
	looksLate bool
	late      []*past
	// looked is what a bulk job has just read of the task that it acts on: the state record, and of an ended task its row in the index
	// of ended tasks where the job found it there. Reading both again would be two thirds of its lookups. rec is nil otherwise.
	looked struct {
		id    core.TaskID
		rec   *record
		ended []byte
		// leaves says that the row leaves the index: the job deletes it.
		leaves bool
	}

	// The rest of this block is as the last context had it. term is the first stamp of the term.
	term core.ShardTime
	//
	stamp core.ShardTime
	//
	retainBytes uint64
	//
	format uint16
	// shift is what the wall clocks show beyond shard time.
	shift core.Millis

	// fresh are the ready tasks that the entry being applied has created, until End.
	fresh []fresh
	// epoch counts entries: it tells heads of the one being applied from older ones.
	epoch uint32

	// What Events reports: tasks that ended, queues that gained ready tasks, leases that were lost, holders that are to stop.
	ended  []core.TaskID
	woken  []*queueState
	lost   []core.Lost
	wanted []core.CancelWanted

	// endings are the tasks that ended in the op or tick at hand and that others wait for. told counts the rows of those others that the
	// entry has acted on.
	endings []ending
	told    int

	// log undoes a commit that is refused halfway. mem is the memory that transactions keep.
	log journal
	mem arena
	// key and value are where keys and values are put together. Any method may overwrite them, so
	// each is copied before another method is called.
	key, value []byte
	// small is a result on its way into a state record.
	small []byte
}

// New returns the machine of an empty partition.
func New(p core.Partition, o Options) *Machine {
	m := &Machine{p: p, o: o.withDefaults()}
	m.clear()
	return m
}

// clear makes the machine that of an empty partition.
func (m *Machine) clear() {
	*m = Machine{
		p: m.p, o: m.o,
		names: map[string]*queueState{}, runs: map[core.TaskID]*run{}, sessions: map[core.SessionID]*run{},
		limiters: map[string]*limiter{}, cronNames: map[string]*cron{}, cronWaits: map[core.TaskID]*cron{}, batches: batchState{end: core.Never},
		timer: core.Never, wall: core.Never, expiry: core.Never, retainBytes: defaultRetainBytes,
	}
	m.meta.token = uint64(m.o.Above)
	m.stored = m.meta // it is written with the next token
}

// Open derives everything from what is stored: it reads a record or two for each queue and each running task,
// and seeks for the rest. A machine can be opened again, and then forgets what it had.
func (m *Machine) Open(v core.View) error {
	m.clear()
	// A job, a cron or a limiter may be there before the first task.
	if err := m.openBulks(v); err != nil {
		return err
	}
	if err := m.openQuota(v); err != nil {
		return err
	}
	if err := m.openCrons(v); err != nil {
		return err
	}
	if err := m.openBatches(v); err != nil {
		return err
	}
	if err := m.openLimiters(v); err != nil {
		return err
	}
	if err := m.openTasks(v); err != nil {
		return err
	}
	return m.settleCrons(v)
}

// openTasks is Open for queues and their tasks.
func (m *Machine) openTasks(v core.View) error {
	m.key = keys.AppendQueueMeta(m.key[:0], m.p)
	value, ok, err := v.Get(m.key)
	if err != nil || !ok {
		return err
	}
	if m.meta, err = decodeMeta(value); err != nil {
		return err
	}
	m.meta.token = max(m.meta.token, uint64(m.o.Above))
	m.stored = m.meta
	if err := m.openLines(v); err != nil {
		return err
	}
	if err := m.openErrors(v); err != nil {
		return err
	}
	if err := m.openRuns(v); err != nil {
		return err
	}
	if err := m.openedShares(v); err != nil {
		return err
	}
	if err := m.seekTimer(v, minTime); err != nil {
		return err
	}
	if err := m.seekWall(v, minTime); err != nil {
		return err
	}
	return m.seekExpiry(v, minTime)
}

// openLines reads all queues, named and removed, then the counters of each. Two queues with one
// number mean that the store is damaged.
func (m *Machine) openLines(v core.View) error {
	if err := m.openNamed(v); err != nil {
		return err
	}
	if err := m.openRemoved(v); err != nil {
		return err
	}
	slices.SortFunc(m.queues, func(a, b *queueState) int { return cmp.Compare(a.number, b.number) })
	var err error
	from, to := keys.UniqueRangeAll(m.p)
	if m.numbered, err = core.SomeRow(v, from, to); err != nil {
		return err
	}
	for i, l := range m.queues {
		if i > 0 && m.queues[i-1].number == l.number {
			return errs.Corruptf("two queues have number %d", l.number)
		}
		if err := m.openLine(v, l); err != nil {
			return fmt.Errorf("open queue %q: %w", l.name, err)
		}
	}
	if err := m.openShares(v); err != nil {
		return err
	}
	for _, l := range m.queues {
		if l.removed {
			continue
		}
		if err := m.noteVacant(v, l); err != nil {
			return err
		}
	}
	return nil
}

// openNamed reads the queues that have a name.
func (m *Machine) openNamed(v core.View) error {
	from, to := keys.QueueConfigRange(m.p)
	return core.ScanRows(v, from, to, func(key, value []byte) (bool, error) {
		row, err := decodeConfig(value)
		if err == nil && (row.number == 0 || row.number > m.meta.queues) {
			err = errs.Corruptf("queue number %d of %d", row.number, m.meta.queues)
		}
		if err != nil {
			return false, err
		}
		l := newLine(row.number, keys.DecodeQueueConfig(key))
		l.config = row.config
		m.setPaused(l, row.paused)
		m.queues, m.names[l.name] = append(m.queues, l), l
		return true, nil
	})
}

// openLine reads the counters of a queue, and seeks the first of its ended tasks.
func (m *Machine) openLine(v core.View, l *queueState) error {
	m.key = keys.AppendQueueCounters(m.key[:0], m.p, l.number)
	value, ok, err := v.Get(m.key)
	switch {
	case err != nil:
		return err
	case !ok:
		return errs.Corruptf("counters are missing")
	}
	if l.counters, err = decodeCounters(value); err != nil {
		return err
	}
	l.oneLane()
	if l.removed {
		return nil
	}
	m.endedBytes += l.counters.ended
	m.use = m.use.Plus(l.use())
	for i := range l.past {
		p := &l.past[i]
		if !l.sweep(p.state).id.IsZero() {
			if p.known, err = m.seekKnown(v, p); err != nil {
				return err
			}
		}
		oldest := core.Never
		if l.states[p.state] > 0 {
			if oldest, err = m.seekOldest(v, p, minTime); err != nil {
				return err
			}
		}
		m.setOldest(p, oldest)
	}
	return nil
}

// openRuns reads the running tasks: first all rows of their index, then the state record of each.
func (m *Machine) openRuns(v core.View) error {
	var rows []*run
	var bad error
	from, to := keys.RunningRange(m.p)
	err := v.Scan(from, to, func(_, value []byte) bool {
		c, err := decodeCarried(value)
		if err != nil {
			bad = err
			return false
		}
		l, err := m.lineAt(c.queue)
		if err != nil {
			bad = err
			return false
		}
		rows = append(rows, &run{
			id: c.task, queue: l, content: c.content, payload: c.payload, settings: c.settings, labels: c.labels, at: -1,
		})
		return true
	})
	if err != nil {
		return err
	}
	if bad != nil {
		return bad
	}
	for _, r := range rows {
		m.key = keys.AppendTaskState(m.key[:0], m.p, r.id)
		rec, ok, err := storedRecord(v, m.key, r.id)
		switch {
		case err != nil:
			return err
		case !ok || rec.state != core.Running:
			return errs.Corruptf("task %s is in the index of running tasks and not running", r.id)
		}
		r.rec = rec
		if r.lane, err = m.laneOf(r.queue, &rec); err != nil {
			return err
		}
		if r.limits, err = m.limitsNamed(v, r.lane, r.id); err != nil {
			return err
		}
		if rec.longHolder {
			if r.rec.worker, err = loadHolder(v, m.p, r.id); err != nil {
				return err
			}
		}
		if rec.cancelUntil != 0 {
			asked, err := loadCancel(v, m.p, r.id)
			if err != nil {
				return err
			}
			r.reason = asked.Reason
		}
		m.attach(r)
	}
	return nil
}

// loadRecord reads the state record of a task that is there. A task that was removed is not there,
// though its id may be known: retention or the removal of its queue may have taken it, and its
// record says nothing of that.
func (m *Machine) loadRecord(v core.View, id core.TaskID) (rec record, ok bool, err error) {
	if m.looked.rec != nil && m.looked.id == id {
		rec = *m.looked.rec
		if errs.Invariants {
			now, ok, err := storedRecord(v, keys.AppendTaskState(nil, m.p, id), id)
			_ = errs.Assertf(err == nil && ok && reflect.DeepEqual(now, rec), "the record of task %s changed after a bulk job read it", id)
		}
	} else {
		m.key = keys.AppendTaskState(m.key[:0], m.p, id)
		rec, ok, err = storedRecord(v, m.key, id)
		if err != nil || !ok {
			return rec, false, err
		}
	}
	l, err := m.lineAt(rec.queue)
	if err != nil || l.removed || rec.state.Terminal() && l.sweep(rec.state).covers(rec.endedAt, id) {
		return record{}, false, err
	}
	return rec, true, nil
}

// storedRecord reads a state record, also that of a task that retention removed and whose id is
// known. ok is false where the id is not that of a task: it was removed, or is that of a create which replaced another.
func storedRecord(v core.View, key []byte, id core.TaskID) (rec record, ok bool, err error) {
	value, ok, err := v.Get(key)
	if err != nil || !ok || isNoTask(value) {
		return rec, false, err
	}
	if rec, err = decodeRecord(value); err != nil {
		return rec, false, fmt.Errorf("load task %s: %w", id, err)
	}
	return rec, true, nil
}

// mustRecord reads the state record of a task that an index names. Anything else than a task in
// that state means that the store is damaged.
func (m *Machine) mustRecord(v core.View, id core.TaskID, want core.State) (record, error) {
	rec, ok, err := m.loadRecord(v, id)
	switch {
	case err != nil:
		return rec, err
	case !ok:
		return rec, errs.Corruptf("task %s is in the index of tasks %s and has no record", id, want)
	case rec.state != want:
		return rec, errs.Corruptf("task %s is in the index of tasks %s and is %s", id, want, rec.state)
	}
	return rec, nil
}

// Observe takes over what an entry says about term, wall clocks, namespace and rules. What is due depends on
// it. With a new term or format the leases end at other times, so all of them are ranked again.
func (m *Machine) Observe(c *core.ApplyContext) {
	m.retainBytes, m.shift, m.stamp = defaultRetainBytes, c.Shift, c.Stamp
	if c.Namespace.RetainBytes > 0 {
		m.retainBytes = uint64(c.Namespace.RetainBytes)
	}
	if c.TermStart == m.term && c.Format == m.format {
		return
	}
	m.term, m.format = c.TermStart, c.Format
	for _, r := range m.leases.items {
		r.ends = m.endOf(&r.rec)
	}
	m.leases.build()
}

// Apply judges one op and does it. A fact says why not, and means that nothing was changed; an
// error means that what is stored makes no sense, and the partition cannot go on.
func (m *Machine) Apply(tx core.Txn, c *core.ApplyContext, op core.Op) (core.OpResult, core.Fact, error) {
	m.Observe(c)
	var res core.OpResult
	var fact core.Fact
	var err error
	switch op := op.(type) {
	case *core.TaskCreate:
		res, fact, err = m.applyCreate(tx, c, op, true)
	case *core.TaskComplete:
		res, fact, err = m.applyComplete(tx, c, op)
	case *core.TaskFail:
		res, fact, err = m.applyFail(tx, c, op)
	case *core.TaskSnooze:
		res, fact, err = m.applySnooze(tx, c, op)
	case *core.TaskRelease:
		res, fact, err = m.applyRelease(tx, c, op)
	case *core.TaskRenew:
		res = m.applyRenew(tx, c, op)
	case *core.TaskDelete:
		res, fact, err = m.applyDelete(tx, c, op)
	case *core.TaskRunNow:
		res, fact, err = m.applyRunNow(tx, c, op)
	case *core.TaskCancel:
		res, fact, err = m.applyCancel(tx, c, op)
	case *core.TaskStop:
		res, fact, err = m.applyStop(tx, c, op)
	case *core.TaskRedrive:
		res, fact, err = m.applyRedrive(tx, c, op)
	case *core.TaskForceRelease:
		res, fact, err = m.applyForceRelease(tx, c, op)
	case *core.TaskUpdate:
		res, fact, err = m.applyUpdate(tx, c, op)
	case *core.KeySet:
		res, fact = m.applyKeySet(tx, c, op)
	case *core.QueuePause:
		res, fact = m.applyPause(tx, c, op)
	case *core.BulkStart:
		res, fact, err = m.applyBulkStart(tx, c, op)
	case *core.BulkStop:
		res, fact = m.applyBulkStop(tx, c, op)
	case *core.BatchOpen, *core.BatchSeal, *core.BatchCancel:
		res, fact, err = m.applyBatch(tx, c, op)
	case *core.CronSet, *core.CronDelete, *core.CronFire:
		res, fact, err = m.applyCron(tx, c, op)
	case *core.LimiterSet:
		res, fact = m.applyLimiterSet(c, op)
	case *core.LimiterDelete:
		res, fact = m.applyLimiterDelete(c, op)
	case *core.QueueSet:
		res, fact = m.applyQueueSet(tx, c, op)
	case *core.QueueDelete:
		res, fact, err = m.applyQueueDelete(tx, c, op)
	case *core.Grant:
		res, fact, err = m.applyGrant(tx, c, op)
	case *core.TaskReport:
		res, fact, err = m.applyReport(tx, c, op)
	case *core.TenantQuota:
		fact = m.applyTenantQuota(tx, c, op)
	case *core.SessionLost:
		res, fact, err = m.applySessionLost(tx, c, op)
	default:
		err = errs.Corruptf("op %d does not belong to the queue", op.Kind())
	}
	if fact != nil || err != nil {
		return core.OpResult{}, fact, err
	}
	if len(m.endings) > 0 {
		if err := m.tellDependents(tx, c, m.o.Told); err != nil {
			return core.OpResult{}, nil, err
		}
	}
	if len(m.batches.moves)+len(m.batches.check) > 0 {
		if err := m.followBatches(tx, c); err != nil {
			return core.OpResult{}, nil, err
		}
	}
	res.Kind = op.Kind()
	return res, nil, nil
}

// Live returns nil while token is the live token of task, else LeaseLost. Package commit calls it
// before it applies a commit that a token fences.
func (m *Machine) Live(task core.TaskID, token core.Token) core.Fact {
	if m.holding(task, token) == nil {
		return core.LeaseLost{Task: task, Given: token}
	}
	return nil
}

// End writes what an entry left to its end: rows of the ready tasks that it created, and the
// counters, which are a record per queue that it touched and the partition's own. From
// core.FormatQueues on, queues go here that have nothing left. That comes before the counters are
// written, since a queue that goes has none.
func (m *Machine) End(tx core.Txn, c *core.ApplyContext) error {
	if err := m.settleCrons(tx); err != nil {
		return err
	}
	m.settleFresh(tx)
	m.told = 0
	if len(m.batches.read) > 0 {
		m.endBatches(tx)
	}
	if len(m.shares) > 0 {
		if err := m.endShares(tx, c.Stamp); err != nil {
			return err
		}
	}
	if len(m.limDirty) > 0 {
		if err := m.endLimiters(tx, c.Stamp); err != nil {
			return err
		}
	}
	for _, l := range m.dirty {
		if err := m.noteVacant(tx, l); err != nil {
			return err
		}
	}
	if c.Format >= core.FormatQueues {
		m.dropVacant(tx)
	}
	for _, l := range m.dirty {
		l.dirty = false
		if l.gone {
			continue
		}
		m.key = keys.AppendQueueCounters(m.key[:0], m.p, l.number)
		m.value = appendCounters(m.value[:0], &l.counters)
		tx.Set(m.mem.own(m.key), m.mem.own(m.value))
	}
	clear(m.dirty)
	m.dirty = m.dirty[:0]
	if m.meta != m.stored {
		m.stored = m.meta
		m.key = keys.AppendQueueMeta(m.key[:0], m.p)
		m.value = appendMeta(m.value[:0], m.meta)
		tx.Set(m.mem.own(m.key), m.mem.own(m.value))
	}
	return nil
}

// Events adds what happened since the last call: the tasks that ended, the queues that gained ready
// tasks, the leases that ended other than by their holder, and the holders that are to stop.
func (m *Machine) Events(to *core.EventList) {
	for _, id := range m.ended {
		to.AddEnded(core.Ended{Partition: m.p, Task: id})
	}
	for _, l := range m.woken {
		l.woken = false
		to.AddWoken(core.Woken{Partition: m.p, Queue: l.name})
	}
	for _, l := range m.lost {
		to.AddLost(l)
	}
	for i := range m.wanted {
		w := m.wanted[i]
		to.Add(&w)
	}
	clear(m.woken)
	m.ended, m.woken, m.lost, m.wanted = emptied(m.ended), m.woken[:0], emptied(m.lost), emptied(m.wanted)
}

// emptied returns the memory of a list for the next entry, unless it is large: a machine is one of
// many, and one busy entry must not fix its size.
func emptied[T any](list []T) []T {
	if cap(list) > 256 {
		return nil
	}
	return list[:0]
}

// LastToken returns the token that was issued last, or what the next one is above.
func (m *Machine) LastToken() core.Token { return core.Token(m.meta.token) }

// Supply is what a queue can give out now.
type Supply struct {
	Tasks uint64 // as its pause, its limits and the tenant's quota let it
	// Held says that it has ready tasks, and limits hold all of them up: a new one would wait, too, unless it has another key.
	Held bool
	// Workers are those that may have its tasks; nil: any may.
	Workers []string
	// Blocked says that tasks of it wait for others.
	Blocked bool
}

// Supply returns what a queue can give out now.
func (m *Machine) Supply(queue string) (s Supply) {
	l := m.names[queue]
	if l == nil {
		return s
	}
	if !m.MayRun() {
		s.Held = l.states[core.Ready] > 0
		return s
	}
	s.Tasks, s.Blocked = l.available(m.stamp), l.states[core.Blocked] > 0
	s.Held = s.Tasks == 0 && l.share != nil && l.states[core.Ready] > 0
	if most := l.config.Share.MaxWorkers; most > 0 && l.share != nil && len(l.share.workers) >= int(most) {
		s.Workers = slices.Sorted(maps.Keys(l.share.workers))
	}
	return s
}

// ReadyCount returns how many tasks of a queue can be given out now, as its pause, its limits and the tenant's quota let it.
func (m *Machine) ReadyCount(queue string) uint64 {
	if l := m.names[queue]; l != nil && m.MayRun() {
		return l.available(m.stamp)
	}
	return 0
}
