package queue

import (
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/keys"
)

// finish ends a task for good. rec has its terminal state; result is its result record, of which
// size bytes are the result itself; nil: there is none. Where the queue keeps no such tasks, only a
// tombstone is left. Otherwise the task gets its row in the index of ended tasks, and a small
// result becomes part of its state record. The caller has taken the task out of the running ones
// and out of the count of its old state.
func (m *Machine) finish(tx core.Txn, c *core.ApplyContext, r *run, rec *record, result []byte, size int) error {
	m.ended = append(m.ended, r.id)
	m.letGo(r.ln(), r.id)
	m.nameLimiters(r.limits, true)
	m.noteEnd(r.id, rec)
	rec.endedAt, rec.endedIdx, rec.content = c.Stamp, c.Index, r.content
	if err := m.freeAtEnd(tx, r, rec); err != nil {
		return err
	}
	told, err := m.endReports(tx, r, rec)
	if err != nil {
		return err
	}
	if r.queue.retain(rec.state) == retainNone {
		r.queue.purged++
		m.addBytes(r.queue, -(r.payload + told))
		e := ended{
			attempt: rec.attempt, longHolder: rec.longHolder, labels: r.labels, cancel: rec.hasCancel, reported: rec.reported, batch: rec.batch != 0,
		}
		if err := m.erase(tx, r.id, rec.state, e); err != nil {
			return err
		}
		m.bury(tx, r.id, tombstone{rec.state, rec.outcome, rec.token, r.content, c.Stamp.Add(m.o.Remember)})
		return nil
	}
	e := ended{
		attempt: rec.attempt, bytes: r.payload + uint64(size) + told, longHolder: rec.longHolder, labels: r.labels, cancel: rec.hasCancel,
		effects: rec.outcome == core.OutcomeCompleted && hasEffects(c), reported: rec.reported, batch: rec.batch != 0,
	}
	m.addBytes(r.queue, uint64(size))
	if e.effects {
		m.saveEffects(tx, c, r.id, rec.token)
	}
	switch {
	case result == nil:
	case len(result) <= inlineResult:
		m.small = append(m.small[:0], result...) // result lies where the record is about to be put together
		rec.result = m.small
	default:
		e.ownResult = true
		m.key = keys.AppendTaskResult(m.key[:0], m.p, r.id)
		tx.Insert(m.mem.own(m.key), m.keep(result))
	}
	m.saveRecord(tx, r.id, rec)
	m.key = keys.AppendTerminal(m.key[:0], m.p, r.queue.number, rec.state, c.Stamp, r.id)
	m.value = appendEnded(m.value[:0], e)
	tx.Insert(m.mem.own(m.key), m.mem.own(m.value))
	m.move(&r.queue.plain, 0, rec.state)
	r.queue.counters.ended += e.size()
	m.endedBytes += e.size()
	if p := r.queue.pastOf(rec.state); p.oldest == core.Never {
		m.setOldest(p, c.Stamp)
	}
	return nil
}

// erase deletes the records of a task in state s, except its state record, by which its id is known
// for a while. e says which records there are. The labels of a task that has some are read from its payload record.
func (m *Machine) erase(tx core.Txn, id core.TaskID, s core.State, e ended) error {
	m.key = keys.AppendTaskPayload(m.key[:0], m.p, id)
	if e.labels {
		made, err := storedSpec(tx, m.key, id)
		if err != nil {
			return err
		}
		m.dropLabels(tx, id, made.labels)
		m.key = keys.AppendTaskPayload(m.key[:0], m.p, id)
	}
	tx.Delete(m.mem.own(m.key))
	if e.batch {
		if err := m.leaveBatch(tx, id); err != nil {
			return err
		}
	}
	if e.cancel {
		m.dropCancel(tx, id)
	}
	if e.effects {
		m.dropEffects(tx, id)
	}
	if e.reported {
		if err := m.dropReports(tx, id); err != nil {
			return err
		}
	}
	if e.ownResult {
		m.key = keys.AppendTaskResult(m.key[:0], m.p, id)
		tx.Delete(m.mem.own(m.key))
	}
	if e.longHolder {
		m.dropHolder(tx, id)
	}
	last := e.attempt // the delivery that completes a task, or still runs, has no record of its own
	if s == core.Completed || s == core.Running {
		last--
	}
	first := uint32(1)
	if last > keptAttempts {
		first = last - keptAttempts + 1
		m.key = keys.AppendTaskAttempt(m.key[:0], m.p, id, olderAttempts)
		_, counted, err := tx.Get(m.key)
		if err != nil {
			return err
		}
		if counted { // by a program that counts them
			tx.Delete(m.mem.own(m.key))
		}
	}
	for n := first; n <= last; n++ {
		m.key = keys.AppendTaskAttempt(m.key[:0], m.p, id, n)
		tx.Delete(m.mem.own(m.key))
	}
	return nil
}

// bury leaves a tombstone in the place of the state record, with a timer that deletes it at t.until.
func (m *Machine) bury(tx core.Txn, id core.TaskID, t tombstone) {
	m.key = keys.AppendTaskState(m.key[:0], m.p, id)
	m.value = appendTombstone(m.value[:0], t)
	tx.Set(m.mem.own(m.key), m.mem.own(m.value))
	m.changed(id)
	m.key = keys.AppendTaskTimer(m.key[:0], m.p, t.until, keys.TimerTombstone, id)
	m.setTimer(tx, t.until, nil)
}

// pastRow is one row of the terminal index: when the task ended, its id, and what its removal needs.
type pastRow struct {
	// When the task ended.
	at core.ShardTime
	// The task.
	id core.TaskID
	ended
}

// remove deletes what an ended task takes, and counts it as gone. Its row and its state record stay, for the
// caller to handle. Counters that would fall below zero mean that the store is damaged.
func (m *Machine) remove(tx core.Txn, p *past, row pastRow) error {
	l := p.queue
	if l.bytes < row.bytes || l.counters.ended < row.size() || m.endedBytes < row.size() || l.states[p.state] == 0 {
		return errs.Corruptf("queue %q counts less than it holds", l.name)
	}
	if err := m.erase(tx, row.id, p.state, row.ended); err != nil {
		return err
	}
	m.move(&l.plain, p.state, 0)
	l.purged++
	m.addBytes(l, -row.bytes)
	l.counters.ended -= row.size()
	m.endedBytes -= row.size()
	return nil
}

// pastRange bounds the rows of a queue's ended tasks in one state that ended at or after from and
// were not removed.
func (m *Machine) pastRange(p *past, from core.ShardTime) (lo, hi []byte) {
	lo, hi = keys.TerminalRange(m.p, p.queue.number, p.state, from)
	if c := p.queue.sweep(p.state); !c.id.IsZero() && c.at >= from {
		lo = m.swept(p)
	}
	return lo, hi
}

// swept returns the end of the rows of p that are of removed tasks. Only for a sweep that has removed some.
func (m *Machine) swept(p *past) []byte {
	return p.queue.sweep(p.state).after(m.p, p.queue.number, p.state)
}

// after returns the first key of the index of ended tasks that a sweep does not cover.
func (s *sweep) after(p core.Partition, queue uint32, state core.State) []byte {
	return keys.QueueAfter(p, keys.QueueTail(keys.AppendTerminal(nil, p, queue, state, s.at, s.id)))
}

// seekOldest finds when the first of the ended tasks of a state ended, among those at or after from
// that were not removed. Never: there is none, which must agree with the counters.
func (m *Machine) seekOldest(v core.View, p *past, from core.ShardTime) (core.ShardTime, error) {
	lo, hi := m.pastRange(p, from)
	oldest, err := firstEnd(v, lo, hi)
	if err == nil && oldest == core.Never && p.queue.states[p.state] > 0 {
		err = errs.Corruptf("queue %q counts %d tasks %s, and its index has none", p.queue.name, p.queue.states[p.state], p.state)
	}
	return oldest, err
}

// seekKnown finds when the first of the removed tasks ended whose ids are still known.
func (m *Machine) seekKnown(v core.View, p *past) (core.ShardTime, error) {
	lo, _ := keys.TerminalRange(m.p, p.queue.number, p.state, minTime)
	return firstEnd(v, lo, m.swept(p))
}

// firstEnd returns when the task of the first row of a range of the index of ended tasks ended, or Never.
func firstEnd(v core.View, from, to []byte) (at core.ShardTime, err error) {
	at, ok := core.Never, true
	err = v.Scan(from, to, func(key, _ []byte) bool {
		at, _, ok = keys.DecodeTerminal(key)
		return false
	})
	if err == nil && !ok {
		err = errs.Corruptf("row of the index of ended tasks makes no sense")
	}
	return at, err
}

// rowsOf reads up to limit rows of ended tasks, oldest first, as long as keep holds. after is when
// the next one ended, or Never.
func (m *Machine) rowsOf(v core.View, p *past, limit int, keep func(row *pastRow) bool) (rows []pastRow, after core.ShardTime, err error) {
	after = core.Never
	var bad error
	lo, hi := m.pastRange(p, p.oldest)
	err = v.Scan(lo, hi, func(key, value []byte) bool {
		var row pastRow
		var ok bool
		if row.at, row.id, ok = keys.DecodeTerminal(key); !ok {
			bad = errs.Corruptf("row of the index of ended tasks makes no sense")
			return false
		}
		if row.ended, bad = decodeEnded(value); bad != nil {
			return false
		}
		if len(rows) == limit || !keep(&row) {
			after = row.at
			return false
		}
		rows = append(rows, row)
		return true
	})
	if err == nil {
		err = bad
	}
	return rows, after, err
}

// removeRows removes tasks, at least one, which are the first of p, and notes when the next one
// ended. It moves the sweep over them instead of deleting their rows. Their ids stay known until
// they could no longer be repeated: a repetition is told by the state record, which stays as it is,
// and the sweep says that it is of a task that is gone. So the removal of a task costs no write of
// its state, and later one range deletes the rows of many.
func (m *Machine) removeRows(tx core.Txn, p *past, rows []pastRow, after core.ShardTime) error {
	m.touch(p.queue)
	for _, row := range rows {
		if err := m.remove(tx, p, row); err != nil {
			return err
		}
	}
	if after == core.Never && p.queue.states[p.state] > 0 {
		return errs.Corruptf("queue %q counts %d tasks %s more than its index", p.queue.name, p.queue.states[p.state], p.state)
	}
	last := &rows[len(rows)-1]
	*p.queue.sweep(p.state) = sweep{last.at, last.id}
	p.known = min(p.known, rows[0].at)
	m.setOldest(p, after)
	return nil
}

// forget deletes what is left of removed tasks whose ids need not be known any more, up to limit:
// their state records, and their rows as one range.
func (m *Machine) forget(tx core.Txn, c *core.ApplyContext, p *past, limit int) (used int, err error) {
	m.touch(p.queue)
	var ids []core.TaskID
	var last sweep
	next, ok := core.Never, true
	end := m.swept(p)
	lo, _ := keys.TerminalRange(m.p, p.queue.number, p.state, p.known)
	err = tx.Scan(lo, end, func(key, _ []byte) bool {
		var row sweep
		if row.at, row.id, ok = keys.DecodeTerminal(key); !ok {
			return false
		}
		if len(ids) == limit || row.at.Add(m.o.Remember) > c.Stamp {
			next = row.at
			return false
		}
		ids, last = append(ids, row.id), row
		return true
	})
	switch {
	case err != nil:
		return 0, err
	case !ok:
		return 0, errs.Corruptf("row of the index of ended tasks makes no sense")
	case len(ids) == 0:
		return 0, errs.Corruptf("queue %q has no removed task %s that ended at %d", p.queue.name, p.state, p.known)
	}
	for _, id := range ids {
		m.key = keys.AppendTaskState(m.key[:0], m.p, id)
		tx.Delete(m.mem.own(m.key))
	}
	// The rows go as one range, and where it can, it ends where the next one begins, so that ranges join.
	if next > last.at && next != core.Never {
		end, _ = keys.TerminalRange(m.p, p.queue.number, p.state, next)
	} else {
		end = last.after(m.p, p.queue.number, p.state)
	}
	tx.DeleteRange(m.mem.own(lo), m.mem.own(end))
	p.known = next
	m.setOldest(p, p.oldest)
	return len(ids), nil
}

// purge does what time does to ended tasks, up to budget tasks: it forgets ids that were known long enough,
// removes tasks that were kept long enough, then the oldest while there are too many bytes, and then batches.
func (m *Machine) purge(tx core.Txn, c *core.ApplyContext, budget int) (used int, err error) {
	for used < budget {
		p, ok := m.byDue.top()
		if !ok || p.due > c.Stamp {
			break
		}
		n, err := m.purgeDue(tx, c, p.past, budget-used)
		if err != nil {
			return used, err
		}
		used += n
	}
	for used < budget && m.overDue() <= c.Stamp {
		n, err := m.purgeOldest(tx, c, budget-used)
		if err != nil {
			return used, err
		}
		used += n
	}
	n, err := m.purgeBatches(tx, c, budget-used)
	return used + n, err
}

// purgeDue does what is due of p: it forgets ids first, and removes tasks when no id is due.
func (m *Machine) purgeDue(tx core.Txn, c *core.ApplyContext, p *past, budget int) (used int, err error) {
	if p.known != core.Never && p.known.Add(m.o.Remember) <= c.Stamp {
		return m.forget(tx, c, p, budget)
	}
	keepFor := p.queue.keeps(p.state)
	rows, after, err := m.rowsOf(tx, p, budget, func(row *pastRow) bool {
		return row.at.Add(keepFor) <= c.Stamp
	})
	if err != nil {
		return 0, err
	}
	if len(rows) == 0 {
		return 0, errs.Corruptf("queue %q has no task %s that ended at %d", p.queue.name, p.state, p.oldest)
	}
	return len(rows), m.removeRows(tx, p, rows, after)
}

// overDue is when an ended task can be removed because there are too many bytes of them, or Never.
// That is after its end, since at the same stamp further tasks may end with smaller ids.
func (m *Machine) overDue() core.ShardTime {
	if p, ok := m.byEnd.top(); ok && m.endedBytes > m.retainBytes {
		return p.oldest.Add(1)
	}
	return core.Never
}

// purgeOldest removes ended tasks of the queue and state that has the oldest one, as long as theirs are the
// oldest of all and there are too many bytes. The next queue's turn comes with the next call.
func (m *Machine) purgeOldest(tx core.Txn, c *core.ApplyContext, budget int) (used int, err error) {
	p, _ := m.byEnd.top()
	other, others := m.byEnd.second()
	over := m.endedBytes - m.retainBytes
	var freed uint64
	rows, after, err := m.rowsOf(tx, p.past, budget, func(row *pastRow) bool {
		if freed >= over || row.at >= c.Stamp || others && !p.rank(row.at, other.past, other.oldest) {
			return false
		}
		freed += row.size()
		return true
	})
	if err != nil {
		return 0, err
	}
	if len(rows) == 0 {
		return 0, errs.Corruptf("queue %q has no task %s that ended at %d", p.queue.name, p.state, p.oldest)
	}
	return len(rows), m.removeRows(tx, p.past, rows, after)
}
