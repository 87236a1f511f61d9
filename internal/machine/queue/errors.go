package queue

import (
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/keys"
)

// The errors of a queue are counted in groups. A group is what one fingerprint stands for: the kind of the tasks and the code of the
// error, or without a code its message in which digits do not count. An attempt that fails reads and writes the row of its group; one
// that succeeds touches none.

const (
	// groupMessage is how much of the last message a group keeps, in bytes: what fits a line or two.
	groupMessage = 256
	// errorRows is how many groups one step of a tick looks at.
	errorRows = 64
	// errorKeep is for how long a group stays that is not seen where the queue keeps no dead tasks.
	errorKeep = defaultRetainDead
	// Groups of a queue are looked through at least once in errorSweepMost, and at most once in errorSweepLeast, in milliseconds:
	// what a shorter retention lets go is gone a day later.
	errorSweepLeast = core.Millis(3_600_000)
	errorSweepMost  = core.Millis(24 * 3_600_000)
	// hour is what one number of a trend counts, in milliseconds of shard time.
	hour = 3_600_000
)

// kindOf returns the kind of a running task. It is known from the grant, and read where the machine was opened since.
func (m *Machine) kindOf(v core.View, r *run) (string, error) {
	if r.kind != "" {
		return r.kind, nil
	}
	s, err := m.loadSpec(v, r.id)
	return s.kindName(r.queue.name), err
}

// countAttempt counts how a delivery ended, if that is an error.
func (m *Machine) countAttempt(tx core.Txn, c *core.ApplyContext, r *run, n *next) error {
	e, ok := errorOf(n.outcome, n.err)
	if !ok || c.Format < core.FormatOperate {
		return nil
	}
	kind, err := m.kindOf(tx, r)
	if err != nil {
		return err
	}
	return m.countError(tx, c, r.queue, r.id, kind, &e)
}

// countError counts an error of a task in its group. Where the queue has too many groups, a new one counts with the others.
func (m *Machine) countError(tx core.Txn, c *core.ApplyContext, l *queueState, id core.TaskID, kind string, e *core.TaskError) error {
	if c.Format < core.FormatOperate {
		return nil
	}
	fp := fingerprintOf(kind, e)
	m.key = keys.AppendErrorGroup(m.key[:0], m.p, l.number, uint64(fp))
	value, ok, err := tx.Get(m.key)
	g := core.ErrorGroup{Kind: kind, Code: e.Code, First: c.Stamp}
	if err == nil && !ok && l.errors.groups >= core.MaxErrorGroups {
		fp, g.Kind, g.Code, e = 0, "", "", new(core.TaskError)
		m.key = keys.AppendErrorGroup(m.key[:0], m.p, l.number, 0)
		value, ok, err = tx.Get(m.key)
	}
	if err == nil && ok {
		g, err = decodeErrorGroup(value)
	}
	if err != nil {
		return err
	}
	if !ok {
		m.addErrorGroup(tx, c, l, fp)
	}
	g.Message = core.Cut(e.Message, groupMessage)
	seenIn(&g, c.Stamp, id)
	m.key = keys.AppendErrorGroup(m.key[:0], m.p, l.number, uint64(fp))
	m.value = appendErrorGroup(m.value[:0], &g)
	tx.Set(m.mem.own(m.key), m.mem.own(m.value))
	return nil
}

// seenIn counts one error of a task.
func seenIn(g *core.ErrorGroup, at core.ShardTime, id core.TaskID) {
	if g.Count > 0 {
		moveTrend(&g.Trend, hourOf(at)-hourOf(g.Last))
		at = max(at, g.Last)
	}
	g.Count++
	g.Last = at
	g.Trend[core.ErrorHours-1]++
	sample := make([]core.TaskID, 1, core.ErrorSample+1)
	sample[0] = id
	for _, other := range g.Sample {
		if other != id && len(sample) < core.ErrorSample {
			sample = append(sample, other)
		}
	}
	g.Sample = sample
}

// hourOf numbers hours of shard time.
func hourOf(t core.ShardTime) int64 {
	n := int64(t) / hour
	if int64(t)%hour < 0 {
		n--
	}
	return n
}

// moveTrend lets hours pass: the first counts go, and the new hours have none.
func moveTrend(trend *[core.ErrorHours]uint64, hours int64) {
	if hours <= 0 {
		return
	}
	n := int(min(hours, core.ErrorHours))
	copy(trend[:], trend[n:])
	clear(trend[core.ErrorHours-n:])
}

// errorState is what is known of the groups of a queue without reading them. It is stored, and zero where there are none.
type errorState struct {
	// groups counts those that have a fingerprint. other says that there is the group of the others.
	groups uint32
	other  bool
	// due is when the groups are looked through next. A timer of the queue is due then.
	due core.ShardTime
	// cursor is the fingerprint from which the next step goes on, and oldest when the first of the groups that this round looked at
	// was seen last; Never: it looked at none that stay.
	cursor core.Fingerprint
	oldest core.ShardTime
}

// keepsErrors is for how long a group stays that is not seen.
func (l *queueState) keepsErrors() core.Millis {
	if d := l.retain(core.Dead); d != retainNone {
		return d
	}
	return errorKeep
}

// addErrorGroup counts a new group. The first one of a queue begins to look through them.
func (m *Machine) addErrorGroup(tx core.Txn, c *core.ApplyContext, l *queueState, fp core.Fingerprint) {
	m.touch(l)
	s := &l.errors
	if s.due == 0 {
		s.oldest = core.Never
		m.setErrorsDue(tx, l, c.Stamp.Add(min(l.keepsErrors(), errorSweepMost)))
	}
	if fp == 0 {
		s.other = true
	} else {
		s.groups++
	}
	m.saveErrors(tx, l)
}

// setErrorsDue sets the timer of a queue's groups. The one before has fired.
func (m *Machine) setErrorsDue(tx core.Txn, l *queueState, due core.ShardTime) {
	l.errors.due = due
	m.key = keys.AppendErrorTimer(m.key[:0], m.p, due, l.number)
	m.setTimer(tx, due, nil)
}

// saveErrors stores what is known of a queue's groups.
func (m *Machine) saveErrors(tx core.Txn, l *queueState) {
	m.key = keys.AppendErrors(m.key[:0], m.p, l.number)
	m.value = appendErrors(m.value[:0], l.name, &l.errors)
	tx.Set(m.mem.own(m.key), m.mem.own(m.value))
}

// openErrors reads what is known of the groups of all queues.
func (m *Machine) openErrors(v core.View) error {
	from, to := keys.ErrorsRange(m.p)
	return core.ScanRows(v, from, to, func(key, value []byte) (bool, error) {
		row, ok := keys.DecodeQueue(key)
		if !ok {
			return false, errs.Corruptf("row of the groups of errors makes no sense")
		}
		l, err := m.lineAt(row.Queue)
		if err != nil {
			return false, err
		}
		_, l.errors, err = decodeErrors(value)
		return true, err
	})
}

// fireErrors looks through some of the groups of a queue, and removes those that were not seen for long. The timer has fired.
func (m *Machine) fireErrors(tx core.Txn, c *core.ApplyContext, number uint32) error {
	l, err := m.lineAt(number)
	if err != nil {
		return err
	}
	m.touch(l)
	s, keep := &l.errors, l.keepsErrors()
	var gone []core.Fingerprint
	seen, end := 0, true
	from, to := keys.ErrorGroupRange(m.p, number, uint64(s.cursor))
	err = core.ScanRows(tx, from, to, func(key, value []byte) (bool, error) {
		row, ok := keys.DecodeQueue(key)
		if !ok {
			return false, errs.Corruptf("row of a group of errors makes no sense")
		}
		fp := core.Fingerprint(row.Fingerprint)
		if seen == errorRows {
			s.cursor, end = fp, false
			return false, nil
		}
		seen++
		g, err := decodeErrorGroup(value)
		if g.Last.Add(keep) <= c.Stamp {
			gone = append(gone, fp)
		} else {
			s.oldest = min(s.oldest, g.Last)
		}
		return true, err
	})
	if err != nil {
		return err
	}
	for _, fp := range gone {
		m.key = keys.AppendErrorGroup(m.key[:0], m.p, number, uint64(fp))
		tx.Delete(m.mem.own(m.key))
		if fp == 0 {
			s.other = false
		} else {
			s.groups--
		}
	}
	if s.groups == 0 && !s.other {
		*s = errorState{}
		m.key = keys.AppendErrors(m.key[:0], m.p, number)
		tx.Delete(m.mem.own(m.key))
		return nil
	}
	due := c.Stamp + 1 // the rest of the round comes with the next tick
	if end {
		due = c.Stamp.Add(errorSweepMost)
		if s.oldest != core.Never {
			due = min(due, max(s.oldest.Add(keep), c.Stamp.Add(errorSweepLeast)))
		}
		s.cursor, s.oldest = 0, core.Never
	}
	m.setErrorsDue(tx, l, due)
	m.saveErrors(tx, l)
	return nil
}

// dropErrors deletes the groups of a queue that goes.
func (m *Machine) dropErrors(tx core.Txn, l *queueState) {
	if l.errors.due == 0 {
		return
	}
	from, to := keys.ErrorGroupRange(m.p, l.number, 0)
	tx.DeleteRange(from, to)
	m.key = keys.AppendErrors(m.key[:0], m.p, l.number)
	tx.Delete(m.mem.own(m.key))
	m.key = keys.AppendErrorTimer(m.key[:0], m.p, l.errors.due, l.number)
	tx.Delete(m.mem.own(m.key))
	l.errors = errorState{}
}
