package queue

import (
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/keys"
)

// A task may expire: it is dead when most wall clocks show a time and it was never given out. Its row in the index of expiries goes
// with its first delivery, or when it ends before.

// setExpiry notes when a task expires, in its record and in the index; 0: it does not.
func (m *Machine) setExpiry(tx core.Txn, l *queueState, id core.TaskID, rec *record, at core.ShardTime) {
	if rec.expiresAt = at; at == 0 {
		return
	}
	m.key = keys.AppendExpiry(m.key[:0], m.p, at, id)
	m.value = putUint(m.value[:0], uint64(l.number))
	tx.Insert(m.mem.own(m.key), m.mem.own(m.value))
	m.expiry = min(m.expiry, at)
	m.passed.expiry.insert(m.key)
}

// dropExpiry takes a task out of the index of expiries, if it is in it.
func (m *Machine) dropExpiry(tx core.Txn, id core.TaskID, rec *record) {
	if rec.expiresAt == 0 {
		return
	}
	m.key = keys.AppendExpiry(m.key[:0], m.p, rec.expiresAt, id)
	tx.Delete(m.mem.own(m.key))
	rec.expiresAt = 0
}

// expiryOf is when a new task expires: when its create says, or the default of its queue after now.
func expiryOf(c *core.ApplyContext, l *queueState, op *core.TaskCreate) core.ShardTime {
	if op.ExpiresAt != 0 || l.config.Limits.DefaultTTL == 0 || c.Format < core.FormatOperate {
		return op.ExpiresAt
	}
	return now(c, true).Add(l.config.Limits.DefaultTTL)
}

// tickExpiry ends the tasks that have expired, in order, up to budget.
func (m *Machine) tickExpiry(tx core.Txn, c *core.ApplyContext, budget int) (used int, err error) {
	type row struct {
		at core.ShardTime
		id core.TaskID
	}
	var rows []row
	from, to := keys.ExpiryRange(m.p, m.expiry, now(c, true)+1)
	err = core.ScanRows(tx, m.passed.expiry.from(from), to, func(key, _ []byte) (bool, error) {
		if len(rows) == budget {
			return false, nil
		}
		at, id, ok := keys.DecodeExpiry(key)
		if !ok {
			return false, errs.Corruptf("row of the index of expiries makes no sense")
		}
		rows = append(rows, row{at, id})
		return true, nil
	})
	if err != nil {
		return 0, err
	}
	done := m.expiry
	if len(rows) > 0 {
		last := rows[len(rows)-1]
		m.key = keys.AppendExpiry(m.key[:0], m.p, last.at, last.id)
		m.passed.expiry.past(m.key)
	}
	for _, r := range rows {
		if err := m.expireTask(tx, c, r.id, r.at); err != nil {
			return 0, err
		}
		done = r.at
	}
	return len(rows), m.seekExpiry(tx, done)
}

// expireTask ends a task that was not given out in time.
func (m *Machine) expireTask(tx core.Txn, c *core.ApplyContext, id core.TaskID, at core.ShardTime) error {
	m.key = keys.AppendTaskState(m.key[:0], m.p, id)
	rec, ok, err := storedRecord(tx, m.key, id)
	switch {
	case err != nil:
		return err
	case !ok || !rec.waiting() || rec.expiresAt != at:
		return errs.Corruptf("task %s is in the index of expiries and does not expire", id)
	}
	l, err := m.lineAt(rec.queue)
	if err != nil {
		return err
	}
	if l.removed {
		m.touch(l)
		return m.cancelRemoved(tx, c, l, id, rec.state)
	}
	rec.reason = reasonExpired
	return m.endWaiting(tx, c, l, id, &rec, core.Dead)
}

// seekExpiry finds the first expiry, given that there is none before from.
func (m *Machine) seekExpiry(v core.View, from core.ShardTime) error {
	m.expiry = core.Never
	lo, hi := keys.ExpiryRangeAll(m.p, from)
	return core.ScanRows(v, m.passed.expiry.from(lo), hi, func(key, _ []byte) (bool, error) {
		at, _, ok := keys.DecodeExpiry(key)
		if !ok {
			return false, errs.Corruptf("row of the index of expiries makes no sense")
		}
		m.expiry = at
		return false, nil
	})
}
