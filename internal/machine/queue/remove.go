package queue

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/keys"
)

// Removal of a queue is one small entry, whatever the queue holds: its name is free, its tasks are not there
// any more, and no token holds one of them. Its rows stay under its number, and ticks sweep them, a bounded
// number of steps each. A record of the number says so, and how far an index that queues share was searched:
// the next leader, or a machine that is opened again, goes on from there.

// maxRemoved bounds the queues of a partition that were removed and are not swept yet, since their
// counters stay in memory.
const maxRemoved = 1000

// scanPerStep is the number of rows of a shared index that are looked at for one step of a tick.
// Rows of other queues cost time too, though nothing is done with them.
const scanPerStep = 16

// applyQueueDelete removes a queue. Without Purge it refuses a queue with tasks that have not
// ended. A queue that is not there is a success that says so.
func (m *Machine) applyQueueDelete(tx core.Txn, c *core.ApplyContext, op *core.QueueDelete) (core.OpResult, core.Fact, error) {
	if c.Format < core.FormatQueues {
		return core.OpResult{}, core.Invalid{Field: "queue", Reason: "not_supported", Message: fmt.Sprintf("a cluster removes queues from format %d on", core.FormatQueues)}, nil
	}
	if op.Queue == "" || len(op.Queue) > maxName {
		return core.OpResult{}, core.Invalid{Field: "queue", Message: fmt.Sprintf("a name has 1 to %d characters", maxName)}, nil
	}
	l := m.lineOf(op.Queue)
	var version uint64
	if l != nil {
		version = l.config.Version
	}
	switch {
	case op.IfVersion >= 0 && uint64(op.IfVersion) != version:
		return core.OpResult{}, core.RevMismatch{Rev: version, Missing: l == nil, Key: []byte(op.Queue)}, nil
	case l == nil:
		return core.OpResult{}, nil, nil
	case !op.Purge && l.waits() != 0:
		return core.OpResult{}, core.WrongState{State: l.waits()}, nil
	case len(m.removed) >= maxRemoved:
		return core.OpResult{}, core.Exhausted{Limit: "removed_queues", Max: maxRemoved}, nil
	}
	return core.OpResult{Existed: true, Version: version}, nil, m.removeLine(tx, l)
}

// waits returns a state in which a queue has tasks that have not ended, running ones first, or 0.
func (l *queueState) waits() core.State {
	for _, s := range [...]core.State{core.Running, core.Ready, core.Scheduled, core.Blocked} {
		if l.states[s] > 0 {
			return s
		}
	}
	return 0
}

// removeLine takes a queue's name away. What it holds is swept by ticks. From here on none of its
// tasks counts among the bytes of ended tasks, so that retention does not wait for the sweep.
func (m *Machine) removeLine(tx core.Txn, l *queueState) error {
	m.touch(l)
	m.vacant.keep(vacant{l}, false)
	for i := range l.past {
		p := &l.past[i]
		m.byDue.keep(duePast{p}, false)
		m.byEnd.keep(oldPast{p}, false)
		p.oldest, p.known, p.due = core.Never, core.Never, core.Never
	}
	if m.endedBytes < l.counters.ended {
		return errs.Corruptf("queue %q counts less than it holds", l.name)
	}
	m.endedBytes -= l.counters.ended
	m.use = m.use.Less(l.use())
	delete(m.names, l.name)
	m.cronCheckAll = len(m.cronWaits) > 0 // its tasks are not there any more
	m.freeRemoved(l)
	m.removeShare(tx, l)
	l.removed, l.config = true, core.QueueConfig{} // nothing of what is left is ruled by it
	m.setPaused(l, core.QueuePaused{})
	m.removed = append(m.removed, l)
	slices.SortFunc(m.removed, func(a, b *queueState) int { return cmp.Compare(a.number, b.number) })
	m.key = keys.AppendQueueConfig(m.key[:0], m.p, l.name)
	tx.Delete(m.mem.own(m.key))
	m.saveRemoved(tx, l)
	return nil
}

// removeShare takes the share of a queue away that is removed: all its tasks are in one lane from here on.
func (m *Machine) removeShare(tx core.Txn, l *queueState) {
	m.dropHeads(&l.plain)
	if s := l.share; s != nil {
		m.forgetShare(s)
		m.key = keys.AppendShare(m.key[:0], m.p, l.number)
		if s.isStored {
			tx.Delete(m.mem.own(m.key))
		}
		if slices.ContainsFunc(s.sorted(), func(ln *lane) bool { return ln.isStored }) {
			tx.DeleteRange(keys.LaneRange(m.p, l.number))
		}
	}
	l.oneLane()
}

// saveRemoved stores the record of a removed queue, with how far its sweep is.
func (m *Machine) saveRemoved(tx core.Txn, l *queueState) {
	m.key = keys.AppendRemoved(m.key[:0], m.p, l.number)
	m.value = appendRemoved(m.value[:0], &removed{name: l.name, cursor: l.cursor})
	tx.Set(m.mem.own(m.key), m.mem.own(m.value))
}

// openRemoved reads the queues that were removed and are not swept yet. Their sweeps go on at the
// stored cursors.
func (m *Machine) openRemoved(v core.View) error {
	from, to := keys.RemovedRange(m.p)
	return core.ScanRows(v, from, to, func(key, value []byte) (bool, error) {
		number, ok := keys.DecodeRemoved(key)
		if !ok || number > m.meta.queues {
			return false, errs.Corruptf("removed queue number %d of %d", number, m.meta.queues)
		}
		d, err := decodeRemoved(value)
		if err != nil {
			return false, err
		}
		l := newLine(number, d.name)
		l.removed, l.cursor = true, d.cursor
		m.queues, m.removed = append(m.queues, l), append(m.removed, l)
		return true, nil
	})
}

// sweepRemoved deletes rows of removed queues, at most budget steps of it, those of the lowest
// number first. A queue without rows is dropped, which is a step too.
func (m *Machine) sweepRemoved(tx core.Txn, c *core.ApplyContext, budget int) (used int, err error) {
	for used < budget && len(m.removed) > 0 {
		l := m.removed[0]
		m.touch(l)
		n, err := m.sweepSome(tx, c, l, budget-used)
		if err != nil {
			return used, fmt.Errorf("sweep removed queue %q: %w", l.name, err)
		}
		if used += n; n > 0 {
			continue
		}
		m.key = keys.AppendRemoved(m.key[:0], m.p, l.number)
		tx.Delete(m.mem.own(m.key))
		m.drop(tx, l)
		m.removed = slices.Delete(m.removed, 0, 1)
		used++
	}
	return used, nil
}

// sweepSome deletes the next rows of a removed queue: running tasks first, because their workers
// must be told. It returns 0 when there are none left.
func (m *Machine) sweepSome(tx core.Txn, c *core.ApplyContext, l *queueState, limit int) (used int, err error) {
	switch {
	case l.states[core.Running] > 0:
		from, to := keys.RunningRange(m.p)
		return m.sweepShared(tx, c, l, core.Running, from, to, limit)
	case l.states[core.Scheduled] > 0:
		from, to := keys.TimerRangeAll(m.p, minTime)
		if bytes.HasPrefix(l.cursor, wallTimers) {
			from, to = keys.WallTimerRangeAll(m.p, minTime)
		}
		return m.sweepShared(tx, c, l, core.Scheduled, from, to, limit)
	case l.states[core.Ready] > 0:
		return m.sweepReady(tx, c, l, limit)
	case l.states[core.Blocked] > 0:
		return m.sweepBlocked(tx, c, l, limit)
	}
	for i := range l.past {
		if used, err = m.sweepEnded(tx, c, l, l.past[i].state, limit); used > 0 || err != nil {
			return used, err
		}
	}
	return m.sweepUnique(tx, l, limit)
}

// wallTimers begins the tail of the keys of timers by wall clock. A cursor of a sweep that is only
// this says that all other timers were searched.
var wallTimers = []byte{byte(keys.RecordWallTimer)}

// sweepShared cancels a removed queue's tasks in a state whose index all queues share. It looks at
// a bounded number of rows, and stores in the queue's record how far it came. The queue's counter
// says when no task is left. Reaching the end of the index with tasks left means that the store is
// damaged; new rows of this queue cannot appear behind the cursor, since no op finds the queue.
func (m *Machine) sweepShared(tx core.Txn, c *core.ApplyContext, l *queueState, s core.State, from, to []byte, limit int) (used int, err error) {
	if next := keys.QueueAfter(m.p, l.cursor); len(l.cursor) > 0 && keys.Compare(next, from) > 0 && keys.Compare(next, to) < 0 {
		from = next
	}
	var ids []core.TaskID
	var last []byte
	seen, end := 0, true
	err = core.ScanRows(tx, from, to, func(key, value []byte) (bool, error) {
		if len(ids) == limit || seen == limit*scanPerStep {
			end = false
			return false, nil
		}
		seen++
		last = append(last[:0], keys.QueueTail(key)...)
		id, of, err := listRow(s, key, value)
		if of == l.number {
			ids = append(ids, id)
		}
		return true, err
	})
	if err != nil {
		return 0, err
	}
	for _, id := range ids {
		if err := m.cancelRemoved(tx, c, l, id, s); err != nil {
			return 0, err
		}
	}
	switch before := l.cursor; {
	case l.states[s] == 0:
		l.cursor = nil
	case !end:
		l.cursor = last
	case s == core.Scheduled && !bytes.HasPrefix(before, wallTimers):
		l.cursor = wallTimers
	default:
		return 0, errs.Corruptf("%d tasks are %s, and their index has none", l.states[s], s)
	}
	m.saveRemoved(tx, l)
	return max(len(ids), seen/scanPerStep, 1), nil
}

// sweepReady cancels the first ready tasks of a removed queue, whose index is its own.
func (m *Machine) sweepReady(tx core.Txn, c *core.ApplyContext, l *queueState, limit int) (used int, err error) {
	var ids []core.TaskID
	from, to := keys.ReadyRange(m.p, l.number)
	scan := func() error {
		return tx.Scan(from, to, func(_, value []byte) bool {
			ids = append(ids, toID(value))
			return len(ids) < limit
		})
	}
	if err = scan(); err == nil && len(ids) == 0 {
		m.settleOf(tx, l) // this entry created them
		err = scan()
	}
	if err == nil && len(ids) == 0 {
		err = errs.Corruptf("%d tasks are ready, and their index has none", l.states[core.Ready])
	}
	for i := 0; i < len(ids) && err == nil; i++ {
		err = m.cancelRemoved(tx, c, l, ids[i], core.Ready)
	}
	return len(ids), err
}

// sweepBlocked cancels the first blocked tasks of a removed queue, whose index is its own.
func (m *Machine) sweepBlocked(tx core.Txn, c *core.ApplyContext, l *queueState, limit int) (used int, err error) {
	var ids []core.TaskID
	from, to := keys.BlockedRange(m.p, l.number)
	err = core.ScanRows(tx, from, to, func(key, _ []byte) (bool, error) {
		id, ok := keys.DecodeBlocked(key)
		if !ok {
			return false, errs.Corruptf("row of the index of blocked tasks makes no sense")
		}
		ids = append(ids, id)
		return len(ids) < limit, nil
	})
	if err == nil && len(ids) == 0 {
		err = errs.Corruptf("%d tasks are blocked, and their index has none", l.states[core.Blocked])
	}
	for i := 0; i < len(ids) && err == nil; i++ {
		err = m.cancelRemoved(tx, c, l, ids[i], core.Blocked)
	}
	return len(ids), err
}

// cancelRemoved cancels a task of a removed queue and removes it. What is left is its tombstone,
// with the state cancelled. A worker that runs it is told that its lease is lost.
func (m *Machine) cancelRemoved(tx core.Txn, c *core.ApplyContext, l *queueState, id core.TaskID, s core.State) error {
	m.key = keys.AppendTaskState(m.key[:0], m.p, id)
	rec, ok, err := storedRecord(tx, m.key, id)
	switch {
	case err != nil:
		return err
	case !ok || rec.state != s || rec.queue != l.number:
		return errs.Corruptf("task %s is in the index of tasks %s and is not", id, s)
	}
	made, err := m.loadSpec(tx, id)
	if err != nil {
		return err
	}
	switch s {
	case core.Ready:
		if !m.takeFresh(id) {
			m.key = keys.AppendPlace(m.key[:0], m.p, l.number, rec.lane, rec.sort, rec.seq)
			tx.Delete(m.mem.own(m.key))
		}
	case core.Scheduled:
		m.taskTimer(id, &rec)
		tx.Delete(m.mem.own(m.key))
	case core.Running:
		r := m.runs[id]
		if r == nil {
			return errs.Corruptf("task %s runs and is not among the running ones", id)
		}
		m.lose(r, "removed")
		m.stop(tx, r)
	}
	if s == core.Blocked {
		if err := m.unblock(tx, l, id, &rec, made.after); err != nil {
			return err
		}
	}
	m.dropExpiry(tx, id, &rec)
	if err := m.endNamed(made.limiters); err != nil {
		return err
	}
	if rec.frees {
		if err := m.freeKey(tx, id, &made); err != nil {
			return err
		}
	}
	told, err := m.reportBytes(tx, id, &rec)
	if err != nil {
		return err
	}
	e := ended{
		attempt: rec.attempt, longHolder: rec.longHolder, labels: len(made.labels) > 0, cancel: rec.cancelUntil != 0, reported: rec.reported,
		batch: rec.batch != 0,
	}
	if err := m.erase(tx, id, s, e); err != nil {
		return err
	}
	m.bury(tx, id, tombstone{core.Cancelled, rec.outcome, rec.token, made.content, c.Stamp.Add(m.o.Remember)})
	m.move(&l.plain, s, 0)
	l.purged++
	m.addBytes(l, -(uint64(len(made.payload)) + told))
	rec.state = core.Cancelled
	m.noteEnd(id, &rec)
	m.ended = append(m.ended, id)
	return nil
}

// sweepEnded removes the first ended tasks of a removed queue in a state, with their rows. Ids that
// must be known longer get tombstones, since the queue's sweep will not be there to tell.
func (m *Machine) sweepEnded(tx core.Txn, c *core.ApplyContext, l *queueState, s core.State, limit int) (used int, err error) {
	var rows []pastRow
	from, to := keys.TerminalRange(m.p, l.number, s, minTime)
	err = core.ScanRows(tx, from, to, func(key, value []byte) (bool, error) {
		var row pastRow
		var ok bool
		if row.at, row.id, ok = keys.DecodeTerminal(key); !ok {
			return false, errs.Corruptf("row of the index of ended tasks makes no sense")
		}
		var err error
		row.ended, err = decodeEnded(value)
		rows = append(rows, row)
		return len(rows) < limit, err
	})
	if err != nil {
		return 0, err
	}
	for _, row := range rows {
		if err := m.buryRemoved(tx, c, l, s, row); err != nil {
			return 0, err
		}
	}
	return len(rows), nil
}

// buryRemoved removes an ended task of a removed queue, whether retention had removed it before or
// not. Only in the second case it still counts.
func (m *Machine) buryRemoved(tx core.Txn, c *core.ApplyContext, l *queueState, s core.State, row pastRow) error {
	if !l.sweep(s).covers(row.at, row.id) {
		if err := m.erase(tx, row.id, s, row.ended); err != nil {
			return err
		}
		m.move(&l.plain, s, 0)
		l.purged++
		m.addBytes(l, -row.bytes)
		l.counters.ended -= row.size()
	}
	m.key = keys.AppendTerminal(m.key[:0], m.p, l.number, s, row.at, row.id)
	tx.Delete(m.mem.own(m.key))
	m.key = keys.AppendTaskState(m.key[:0], m.p, row.id)
	until := row.at.Add(m.o.Remember)
	if until <= c.Stamp {
		tx.Delete(m.mem.own(m.key))
		return nil
	}
	rec, ok, err := storedRecord(tx, m.key, row.id)
	if err != nil {
		return err
	}
	if !ok {
		return errs.Corruptf("task %s is in the index of tasks %s and has no record", row.id, s)
	}
	m.bury(tx, row.id, tombstone{rec.state, rec.outcome, rec.token, rec.content, until})
	return nil
}

// sweepUnique deletes records of unique keys that are stored by the number of a removed queue.
// Those stored by name stay to the end of their windows, so that a create repeated after the
// removal is still a replay.
func (m *Machine) sweepUnique(tx core.Txn, l *queueState, limit int) (used int, err error) {
	if !m.numbered {
		return 0, nil
	}
	var rows []keys.QueueRow
	var windows []window
	from, to := keys.UniqueRange(m.p, l.number)
	err = core.ScanRows(tx, from, to, func(key, value []byte) (bool, error) {
		row, _ := keys.DecodeQueue(key)
		w, err := decodeWindow(value, formUnique)
		rows, windows = append(rows, row), append(windows, w)
		return len(rows) < limit, err
	})
	if err != nil {
		return 0, err
	}
	for i, row := range rows {
		m.key = keys.AppendUnique(m.key[:0], m.p, l.number, row.Name)
		tx.Delete(m.mem.own(m.key))
		m.key = keys.AppendUniqueTimer(m.key[:0], m.p, windows[i].until, l.number, row.Name)
		tx.Delete(m.mem.own(m.key))
	}
	return len(rows), nil
}
