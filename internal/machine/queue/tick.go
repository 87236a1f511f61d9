package queue

import (
	"bytes"
	"encoding/binary"
	"math"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/keys"
)

// minTime is before every time that is stored.
const minTime = core.ShardTime(math.MinInt64)

// Tick does what is due at the stamp, at most limit steps of it, and reports whether something due
// is left. used is the number of changes that it made: a step makes at least one.
// The order bounds how long anything waits. Leases and timers come first with three quarters of the
// steps, then removed queues with half of the rest, then bulk jobs with half of that, then ended tasks; what is left over goes to
// leases and timers again. So a flood of one kind does not hold up another.
func (m *Machine) Tick(tx core.Txn, c *core.ApplyContext, limit uint32) (used uint32, more bool, err error) {
	m.Observe(c)
	m.refillAt(c.Stamp)
	counter := &core.ChangeCounter{Txn: tx}
	more, err = m.tick(counter, c, int(limit))
	return counter.Changes, more, err
}

// tick is Tick over a transaction that counts changes.
func (m *Machine) tick(tx core.Txn, c *core.ApplyContext, left int) (more bool, err error) {
	if err := m.seekDue(tx, c); err != nil {
		return false, err
	}
	used, err := m.tickTimed(tx, c, left-left/4)
	if err != nil {
		return false, err
	}
	left -= used
	if used, err = m.sweepRemoved(tx, c, left-left/2); err != nil {
		return false, err
	}
	left -= used
	if used, err = m.tickBulk(tx, c, left-left/2); err != nil {
		return false, err
	}
	left = max(left-used, 0)
	if used, err = m.purge(tx, c, left); err != nil {
		return false, err
	}
	left -= used
	if _, err = m.tickTimed(tx, c, left); err != nil {
		return false, err
	}
	if len(m.endings) > 0 {
		if err := m.tellDependents(tx, c, min(m.told+toldPerTick, m.o.Told)); err != nil {
			return false, err
		}
	}
	if len(m.batches.moves) > 0 {
		if err := m.followBatches(tx, c); err != nil {
			return false, err
		}
	}
	if m.timer <= c.Stamp {
		// what is left is part of the answer, so it is looked up and not taken from a bound
		if err := m.seekTimer(tx, m.timer); err != nil {
			return false, err
		}
	}
	if err := m.seekDue(tx, c); err != nil {
		return false, err
	}
	return m.Due() <= c.Stamp, nil
}

// seekDue makes the bounds of timers by wall clock and of expiries exact where they say that something is due: what was due may be
// gone, and a machine that was opened since knows that. They decide how the steps of a tick are shared.
func (m *Machine) seekDue(v core.View, c *core.ApplyContext) error {
	if m.wallDue() <= c.Stamp {
		if err := m.seekWall(v, m.wall); err != nil {
			return err
		}
	}
	if m.expiryDue() <= c.Stamp {
		return m.seekExpiry(v, m.expiry)
	}
	return nil
}

// Due returns when there is timed work next, or core.Never; 0: there is some at any time. It is a
// lower bound, so a tick at that time may find nothing.
func (m *Machine) Due() core.ShardTime {
	due := min(m.timer, m.wallDue())
	if r, ok := m.leases.top(); ok {
		due = min(due, r.ends)
	}
	if p, ok := m.byDue.top(); ok {
		due = min(due, p.due)
	}
	if len(m.removed) > 0 {
		return 0
	}
	return min(due, m.overDue(), m.expiryDue(), m.resumeDue(), m.bulkDue(), m.refillDue(), m.keyResumeDue(), m.batchDue())
}

// tickTimed ends leases first, in order of their ends, and then fires timers of both kinds, each
// with a part of the steps while both are due.
func (m *Machine) tickTimed(tx core.Txn, c *core.ApplyContext, budget int) (used int, err error) {
	for used < budget {
		r, ok := m.leases.top()
		if !ok || r.ends > c.Stamp {
			break
		}
		if err := m.expire(tx, c, r); err != nil {
			return used, err
		}
		used++
	}
	rest := budget - used
	if rest > 0 && m.timer <= c.Stamp {
		most := rest
		if m.wallDue() <= c.Stamp {
			most -= rest / 2 // many of the one kind do not hold up the other
		}
		n, err := m.tickTimers(tx, c, most)
		if err != nil {
			return used, err
		}
		used += n
	}
	if used < budget && m.wallDue() <= c.Stamp {
		most := budget - used
		if m.expiryDue() <= c.Stamp {
			most -= most / 2
		}
		n, err := m.tickWall(tx, c, most)
		if err != nil {
			return used, err
		}
		used += n
	}
	used += m.tickPaused(tx, c, budget-used)
	used += m.tickPausedKeys(c, budget-used)
	if used == budget || m.expiryDue() > c.Stamp {
		return used, nil
	}
	n, err := m.tickExpiry(tx, c, budget-used)
	return used + n, err
}

// expire ends a lease whose time is over: as a timeout when max_run was over, else as a crash of its holder.
func (m *Machine) expire(tx core.Txn, c *core.ApplyContext, r *run) error {
	if r.queue.removed {
		m.touch(r.queue)
		return m.cancelRemoved(tx, c, r.queue, r.id, core.Running)
	}
	n, why := r.crash(c), "expired"
	if until := r.rec.cancelUntil; until != 0 && until <= c.Stamp && until <= r.rec.leaseUntil {
		why, n = lostCancelled, next{outcome: core.OutcomeCancelled, reason: reasonRetry}
	} else if r.rec.runEnd != 0 && r.rec.runEnd <= r.rec.leaseUntil {
		why = "max_run"
		n = next{outcome: core.OutcomeTimeout, err: core.TaskError{Code: core.ErrorTimeout, Message: "max_run was over"}}
		m.failed(c, r, &n, false)
	}
	m.lose(r, why)
	_, err := m.endAttempt(tx, c, r, n)
	return err
}

// timerRow is one row of the timer index.
type timerRow struct {
	// When it is due, and what kind of timer it is.
	due  core.ShardTime
	kind keys.Timer
	// The key of the row, which goes when the timer has fired.
	key []byte
	// rest is the part of key after time and kind: what the timer is of.
	rest []byte
	// The value, of a timer of kind TimerAfter.
	value []byte
}

// tickTimers does what the timer index has due, in order of time. It reads all rows first: firing
// one changes the index.
func (m *Machine) tickTimers(tx core.Txn, c *core.ApplyContext, budget int) (used int, err error) {
	var rows []timerRow
	var bad bool
	from, to := keys.TimerRange(m.p, m.timer, c.Stamp+1)
	err = tx.Scan(m.passed.timer.from(from), to, func(key, value []byte) bool {
		if len(rows) == budget {
			return false
		}
		row := timerRow{key: m.mem.own(key)}
		var ok bool
		row.due, row.kind, row.rest, ok = keys.DecodeTimer(row.key)
		if bad = !ok; bad {
			return false
		}
		if row.kind == keys.TimerAfter {
			row.value = bytes.Clone(value)
		}
		rows = append(rows, row)
		return true
	})
	if err != nil {
		return 0, err
	}
	if bad {
		return 0, errs.Corruptf("row of the timer index makes no sense")
	}
	done := m.timer
	if len(rows) > 0 {
		last := rows[len(rows)-1]
		done = last.due
		m.passed.timer.past(last.key)
	}
	for _, row := range rows {
		if err := m.fire(tx, c, row); err != nil {
			return 0, err
		}
	}
	return len(rows), m.seekTimer(tx, done)
}

// fire does what one timer is for: a scheduled task becomes ready, a window of a unique key ends, a
// tombstone goes, those who wait for an ended task are told, a follow-up of a batch is tried again.
func (m *Machine) fire(tx core.Txn, c *core.ApplyContext, row timerRow) error {
	if row.kind == keys.TimerScheduled {
		return m.fireScheduled(tx, c, row.key, toID(row.rest), row.due)
	}
	tx.Delete(row.key)
	switch row.kind {
	case keys.TimerAfter:
		return m.fireAfter(row.rest, row.value)
	case keys.TimerBatch:
		return m.fireBatch(tx, c, row.rest)
	case keys.TimerErrors:
		if len(row.rest) != 4 {
			return errs.Corruptf("timer of groups of errors makes no sense")
		}
		return m.fireErrors(tx, c, binary.BigEndian.Uint32(row.rest))
	case keys.TimerUnique:
		if len(row.rest) < 4 {
			return errs.Corruptf("timer of a unique key makes no sense")
		}
		number := binary.BigEndian.Uint32(row.rest)
		m.key = keys.AppendUnique(m.key[:0], m.p, number, string(row.rest[4:]))
		tx.Delete(m.mem.own(m.key))
		if i, ok := m.findLine(number); ok && c.Format >= core.FormatQueues {
			m.touch(m.queues[i]) // it may have been the last row of the queue
		}
	case keys.TimerWindow:
		m.key = keys.AppendWindowOf(m.key[:0], m.p, row.rest)
		tx.Delete(m.mem.own(m.key))
	case keys.TimerTombstone:
		id := toID(row.rest)
		m.key = keys.AppendTaskState(m.key[:0], m.p, id)
		tx.Delete(m.mem.own(m.key))
	default:
		return errs.Corruptf("timer of kind %d", row.kind)
	}
	return nil
}

// fireScheduled makes a task ready that was due at a shard time. key is that of its timer, in either index.
// The task's ready time is when it was due, so that a late tick does not change its place.
func (m *Machine) fireScheduled(tx core.Txn, c *core.ApplyContext, key []byte, id core.TaskID, due core.ShardTime) error {
	m.key = keys.AppendTaskState(m.key[:0], m.p, id)
	rec, ok, err := storedRecord(tx, m.key, id)
	switch {
	case err != nil:
		return err
	case !ok || rec.state != core.Scheduled:
		return errs.Corruptf("task %s is in the index of tasks scheduled and is not", id)
	}
	l, err := m.lineAt(rec.queue)
	if err != nil {
		return err
	}
	if l.removed {
		m.touch(l)
		return m.cancelRemoved(tx, c, l, id, core.Scheduled)
	}
	ln, err := m.laneOf(l, &rec)
	if err != nil {
		return err
	}
	tx.Delete(key)
	m.enqueue(tx, ln, id, &rec, core.Scheduled, due)
	m.saveRecord(tx, id, &rec)
	return nil
}

// seekTimer finds when the first row of the timer index is due, given that none is due before from.
func (m *Machine) seekTimer(v core.View, from core.ShardTime) error {
	m.timer = core.Never
	var bad bool
	lo, hi := keys.TimerRangeAll(m.p, from)
	err := v.Scan(m.passed.timer.from(lo), hi, func(key, _ []byte) bool {
		due, _, _, ok := keys.DecodeTimer(key)
		m.timer, bad = due, !ok
		return false
	})
	if err == nil && bad {
		err = errs.Corruptf("row of the timer index makes no sense")
	}
	return err
}
