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
	// fingerprintBytes is how much of a message counts. Messages that differ later are one error.
	fingerprintBytes = 1 << 10
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

// fingerprintOf returns the fingerprint of an error. It is never 0.
func fingerprintOf(kind string, e *core.TaskError) core.Fingerprint {
	b := putString(make([]byte, 0, 128), kind)
	if e.Code != "" {
		b = append(append(b, 'c'), e.Code...)
	} else {
		b = appendWithoutDigits(append(b, 'm'), core.Cut(e.Message, fingerprintBytes))
	}
	return max(core.Fingerprint(hash(b)), 1)
}

// appendWithoutDigits appends a text in which each run of digits is one mark.
func appendWithoutDigits(b []byte, text string) []byte {
	digits := false
	for i := range len(text) {
		was := digits
		if digits = text[i] >= '0' && text[i] <= '9'; !digits {
			b = append(b, text[i])
		} else if !was {
			b = append(b, '#')
		}
	}
	return b
}

// errorOf is the error for which a delivery counts that ended with an outcome: what the worker reported, or a code for what it did not.
// ok is false where the delivery counts for none.
func errorOf(outcome core.Outcome, e core.TaskError) (core.TaskError, bool) {
	switch outcome {
	case core.OutcomeFailed:
		return e, true
	case core.OutcomeTimeout:
		return core.TaskError{Code: core.ErrorTimeout, Message: "max_run was over"}, true
	case core.OutcomeCrashed:
		return core.TaskError{Code: core.ErrorCrashed, Message: "the lease ended without an answer of the worker"}, true
	}
	return core.TaskError{}, false
}

// expiredError is the error for which a task counts that was not given out in time.
var expiredError = core.TaskError{Code: core.ErrorExpired, Message: "the task was not given out in time"}

// fingerprintOfAttempt returns the fingerprint of how a delivery ended; 0: of no error.
func fingerprintOfAttempt(kind string, a *core.Attempt) core.Fingerprint {
	e, ok := errorOf(a.Outcome, a.Error)
	if !ok {
		return 0
	}
	return fingerprintOf(kind, &e)
}

// lastFingerprint returns the fingerprint of the last error of a task since it was redriven last; 0: it had none.
func lastFingerprint(v core.View, p core.Partition, id core.TaskID, rec *record, kind string) (fp core.Fingerprint, err error) {
	switch {
	case rec.state == core.Dead && rec.reason == reasonExpired:
		return fingerprintOf(kind, &expiredError), nil
	case rec.failures == 0 && rec.crashes == 0:
		return 0, nil
	case rec.failures == 0:
		return fingerprintOfAttempt(kind, &core.Attempt{Outcome: core.OutcomeCrashed}), nil
	}
	var bad error
	from, to := keys.TaskAttemptRange(p, id)
	err = v.ScanBack(from, to, func(_, value []byte) bool {
		var a core.Attempt
		if a, bad = decodeAttempt(value); bad != nil {
			return false
		}
		fp = fingerprintOfAttempt(kind, &a)
		return fp == 0
	})
	if err == nil {
		err = bad
	}
	return fp, err
}

// kindOf returns the kind of a running task. It is known from the grant, and read where the machine was opened since.
func (m *Machine) kindOf(v core.View, r *run) (string, error) {
	if r.kind != "" {
		return r.kind, nil
	}
	m.key = keys.AppendTaskPayload(m.key[:0], m.p, r.id)
	value, err := must(v, m.key, "payload of task %s", r.id)
	if err != nil {
		return "", err
	}
	s, err := decodeSpec(value)
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

// appendErrorGroup writes a group. Queue and fingerprint are in its key.
func appendErrorGroup(b []byte, g *core.ErrorGroup) []byte {
	b = putUint(append(b, formErrorGroup), g.Count)
	b = putInt(putInt(b, int64(g.First)), int64(g.Last-g.First))
	b = putString(putString(putString(b, g.Kind), g.Code), g.Message)
	for _, n := range g.Trend {
		b = putUint(b, n)
	}
	b = putUint(b, uint64(len(g.Sample)))
	for i := range g.Sample {
		b = append(b, g.Sample[i][:]...)
	}
	return b
}

// decodeErrorGroup reads what appendErrorGroup wrote.
func decodeErrorGroup(b []byte) (g core.ErrorGroup, err error) {
	r := read(b, formErrorGroup)
	g.Count, g.First = r.uint(), core.ShardTime(r.int())
	g.Last = g.First + core.ShardTime(r.int())
	g.Kind, g.Code, g.Message = r.string(), r.string(), r.string()
	for i := range g.Trend {
		g.Trend[i] = r.uint()
	}
	for n := r.uint(); n > 0 && !r.bad; n-- {
		g.Sample = append(g.Sample, r.id())
	}
	return g, r.done("group of errors")
}

// appendErrors writes what is known of the groups of a queue, with its name.
func appendErrors(b []byte, name string, s *errorState) []byte {
	b = putUint(putString(append(b, formErrors), name), uint64(s.groups))
	b = putInt(append(b, boolByte(s.other)), int64(s.due))
	return putInt(putFixed(b, uint64(s.cursor)), int64(s.oldest))
}

// decodeErrors reads what appendErrors wrote.
func decodeErrors(b []byte) (name string, s errorState, err error) {
	r := read(b, formErrors)
	name, s.groups = r.string(), r.u32()
	s.other, s.due = r.byte() != 0, core.ShardTime(r.int())
	s.cursor, s.oldest = core.Fingerprint(r.fixed()), core.ShardTime(r.int())
	return name, s, r.done("groups of errors of a queue")
}

// Errors reads groups of errors, those with the highest counts first, at most core.MaxErrorsListed. It looks at up to MaxInspected
// groups. Trends end with the hour of now, which is shard time.
func Errors(v core.View, p core.Partition, q core.ErrorQuery, now core.ShardTime) (page core.ErrorPage, err error) {
	type of struct {
		number uint32
		name   string
	}
	var queues []of
	from, to := keys.ErrorsRange(p)
	err = core.ScanRows(v, from, to, func(key, value []byte) (bool, error) {
		if len(queues) == MaxInspected {
			page.More = true
			return false, nil
		}
		row, ok := keys.DecodeQueue(key)
		if !ok {
			return false, errs.Corruptf("row of the groups of errors makes no sense")
		}
		name, _, err := decodeErrors(value)
		if q.Queue == "" || q.Queue == name {
			queues = append(queues, of{row.Queue, name})
		}
		return true, err
	})
	if err != nil {
		return page, err
	}
	left := MaxInspected
	for _, l := range queues {
		value, ok, err := v.Get(keys.AppendQueueConfig(nil, p, l.name))
		if err != nil {
			return page, err
		}
		if !ok {
			continue
		}
		row, err := decodeConfig(value)
		if err != nil {
			return page, err
		}
		if row.number != l.number { // that queue was removed
			continue
		}
		from, to := keys.ErrorGroupRange(p, l.number, 0)
		err = core.ScanRows(v, from, to, func(key, value []byte) (bool, error) {
			if left--; left < 0 {
				page.More = true
				return false, nil
			}
			row, ok := keys.DecodeQueue(key)
			if !ok {
				return false, errs.Corruptf("row of a group of errors makes no sense")
			}
			g, err := decodeErrorGroup(value)
			if err != nil || q.Kind != "" && g.Kind != q.Kind || q.Span > 0 && g.Last.Add(q.Span) < now {
				return true, err
			}
			g.Queue, g.Fingerprint = l.name, core.Fingerprint(row.Fingerprint)
			moveTrend(&g.Trend, hourOf(now)-hourOf(g.Last))
			page.Groups = append(page.Groups, g)
			return true, nil
		})
		if err != nil {
			return page, err
		}
	}
	page.Cut()
	return page, nil
}
