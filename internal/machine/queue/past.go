package queue

import (
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/keys"
)

// finish ends a task for good: rec has its terminal state. writeResult stores the result and returns its length; it is
// not called when nothing is kept.
func (m *Machine) finish(tx core.Txn, c *Context, r *run, rec *record, writeResult func() uint64) error {
	m.ended = append(m.ended, r.id)
	rec.endedAt, rec.endedIdx = c.Stamp, c.Index
	if r.line.retain(rec.state) == retainNone {
		r.line.purged++
		r.line.bytes -= r.payload
		m.erase(tx, r.id, rec.state, ended{attempt: rec.attempt, longHolder: rec.longHolder})
		m.bury(tx, r.id, tombstone{rec.state, rec.outcome, rec.token, r.content, c.Stamp.Add(m.o.Remember)})
		return nil
	}
	e := ended{attempt: rec.attempt, bytes: r.payload, hasResult: rec.hasResult, longHolder: rec.longHolder}
	if writeResult != nil {
		n := writeResult()
		e.bytes += n
		r.line.bytes += n
	}
	m.saveRecord(tx, r.id, rec)
	m.key = keys.AppendTerminal(m.key[:0], m.p, r.line.number, rec.state, c.Stamp, r.id)
	m.value = appendEnded(m.value[:0], e)
	tx.Insert(m.mem.own(m.key), m.mem.own(m.value))
	m.move(r.line, 0, rec.state)
	r.line.counters.ended += e.size()
	m.endedBytes += e.size()
	if p := r.line.pastOf(rec.state); p.oldest == core.Never {
		m.setOldest(p, c.Stamp)
	}
	return nil
}

// erase deletes the records of an ended task but the state record, which may become a tombstone.
func (m *Machine) erase(tx core.Txn, id core.TaskID, s core.State, e ended) {
	m.key = keys.AppendTaskPayload(m.key[:0], m.p, id)
	tx.Delete(m.mem.own(m.key))
	if e.hasResult {
		m.key = keys.AppendTaskResult(m.key[:0], m.p, id)
		tx.Delete(m.mem.own(m.key))
	}
	if e.longHolder {
		m.key = keys.AppendTaskHolder(m.key[:0], m.p, id)
		tx.Delete(m.mem.own(m.key))
	}
	last := e.attempt // the delivery that completes a task has no record of its own
	if s == core.Completed {
		last--
	}
	first := uint32(1)
	if last > keptAttempts {
		first = last - keptAttempts + 1
	}
	for n := first; n <= last; n++ {
		m.key = keys.AppendTaskAttempt(m.key[:0], m.p, id, n)
		tx.Delete(m.mem.own(m.key))
	}
}

// bury leaves a tombstone in the place of the state record.
func (m *Machine) bury(tx core.Txn, id core.TaskID, t tombstone) {
	m.key = keys.AppendTaskState(m.key[:0], m.p, id)
	m.value = appendTombstone(m.value[:0], t)
	tx.Set(m.mem.own(m.key), m.mem.own(m.value))
	m.key = keys.AppendTaskTimer(m.key[:0], m.p, t.until, keys.TimerTombstone, id)
	m.setTimer(tx, t.until, nil)
}

// pastRow is one row of the terminal index.
type pastRow struct {
	at core.ShardTime
	id core.TaskID
	ended
}

// remove deletes an ended task. Its id stays known until it could no longer be repeated.
func (m *Machine) remove(tx core.Txn, c *Context, p *past, row pastRow) error {
	l := p.line
	if until := row.at.Add(m.o.Remember); until > c.Stamp {
		rec, err := m.mustRecord(tx, row.id, p.state)
		if err != nil {
			return err
		}
		content, err := m.loadContent(tx, row.id)
		if err != nil {
			return err
		}
		m.bury(tx, row.id, tombstone{p.state, rec.outcome, rec.token, content, until})
	} else {
		m.key = keys.AppendTaskState(m.key[:0], m.p, row.id)
		tx.Delete(m.mem.own(m.key))
	}
	m.erase(tx, row.id, p.state, row.ended)
	m.key = keys.AppendTerminal(m.key[:0], m.p, l.number, p.state, row.at, row.id)
	tx.Delete(m.mem.own(m.key))
	if l.bytes < row.bytes || l.counters.ended < row.size() || m.endedBytes < row.size() || l.states[p.state] == 0 {
		return errs.Corruptf("queue %q counts less than it holds", l.name)
	}
	m.move(l, p.state, 0)
	l.purged++
	l.bytes -= row.bytes
	l.counters.ended -= row.size()
	m.endedBytes -= row.size()
	return nil
}

// rowsOf reads up to limit rows of ended tasks, oldest first, while keep holds, and when the next one ended.
func (m *Machine) rowsOf(v core.View, p *past, limit int, keep func(row *pastRow) bool) (rows []pastRow, after core.ShardTime, err error) {
	after = core.Never
	var bad error
	lo, hi := keys.TerminalRange(m.p, p.line.number, p.state, p.oldest)
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

// removeRows deletes rows, which are the first of p, and notes when the next one ended.
func (m *Machine) removeRows(tx core.Txn, c *Context, p *past, rows []pastRow, after core.ShardTime) error {
	m.touch(p.line)
	for _, row := range rows {
		if err := m.remove(tx, c, p, row); err != nil {
			return err
		}
	}
	if after == core.Never && p.line.states[p.state] > 0 {
		return errs.Corruptf("queue %q counts %d tasks %s more than its index", p.line.name, p.line.states[p.state], p.state)
	}
	m.setOldest(p, after)
	return nil
}

// purge removes what was kept long enough, then the oldest of what is too much, up to budget tasks.
func (m *Machine) purge(tx core.Txn, c *Context, budget int) (used int, err error) {
	for used < budget {
		p, ok := m.byDue.top()
		if !ok || p.due > c.Stamp {
			break
		}
		keepFor := max(p.line.retain(p.state), 0)
		rows, after, err := m.rowsOf(tx, p.past, budget-used, func(row *pastRow) bool {
			return row.at.Add(keepFor) <= c.Stamp
		})
		if err != nil {
			return used, err
		}
		if err := m.removeRows(tx, c, p.past, rows, after); err != nil {
			return used, err
		}
		used += len(rows)
	}
	for used < budget && m.endedBytes > m.retainBytes {
		n, err := m.purgeOldest(tx, c, budget-used)
		if err != nil {
			return used, err
		}
		used += n
	}
	return used, nil
}

// purgeOldest removes the oldest ended tasks of the queue and state that has them, as long as those are the oldest of
// all and there are too many bytes.
func (m *Machine) purgeOldest(tx core.Txn, c *Context, budget int) (used int, err error) {
	p, ok := m.byEnd.top()
	if !ok {
		return 0, errs.Corruptf("%d bytes of ended tasks, and no such task", m.endedBytes)
	}
	other, others := m.byEnd.second()
	over := m.endedBytes - m.retainBytes
	var freed uint64
	rows, after, err := m.rowsOf(tx, p.past, budget, func(row *pastRow) bool {
		if freed >= over || others && !p.rank(row.at, other.past, other.oldest) {
			return false
		}
		freed += row.size()
		return true
	})
	if err != nil {
		return 0, err
	}
	if len(rows) == 0 {
		return 0, errs.Corruptf("queue %q has no task %s that ended at %d", p.line.name, p.state, p.oldest)
	}
	return len(rows), m.removeRows(tx, c, p.past, rows, after)
}
