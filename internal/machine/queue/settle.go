package queue

import (
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/keys"
)

// next is what becomes of a task after a delivery that did not complete it.
type next struct {
	// How the delivery ended.
	outcome core.Outcome
	// What the worker reported; zero where it reported nothing.
	err core.TaskError
	// reason is why it waits, or with dead why it died.
	reason reason
	// dead says that there is no further attempt.
	dead bool
	// at is when it is ready again; at once when that time has come.
	at due
	// back says that it goes back to its old place in the queue.
	back bool
}

// applyComplete ends a task with its result. Its effects are the commit's other ops. JSON, the
// usual type, is stored as nothing.
func (m *Machine) applyComplete(tx core.Txn, c *core.ApplyContext, op *core.TaskComplete) (core.OpResult, core.Fact, error) {
	r := m.holding(op.Task, op.Token)
	if r == nil {
		return m.settledBefore(tx, op.Task, op.Token, core.OutcomeCompleted)
	}
	if len(op.Result) > maxResult {
		return core.OpResult{}, core.TooLarge{Field: "result", Limit: "max_result", Max: maxResult}, nil
	}
	m.stop(tx, r)
	m.move(r.ln(), core.Running, 0)
	r.queue.completed++
	rec := r.rec
	rec.state, rec.outcome, rec.hasResult = core.Completed, core.OutcomeCompleted, true
	if rec.cancelUntil != 0 { // it completed before it was cancelled
		rec.cancelUntil = 0
		m.dropCancel(tx, r.id)
	}
	kind := op.ResultType
	if kind == jsonType {
		kind = ""
	}
	result := appendResult(m.room(len(kind)+len(op.Result)+16), kind, op.Result)
	err := m.finish(tx, c, r, &rec, result, len(op.Result))
	return core.OpResult{Task: op.Task, State: core.Completed}, nil, err
}

// applyFail ends an attempt that failed. A wait that the worker names replaces the policy's, but
// does not give a dead task another attempt.
func (m *Machine) applyFail(tx core.Txn, c *core.ApplyContext, op *core.TaskFail) (core.OpResult, core.Fact, error) {
	r := m.holding(op.Task, op.Token)
	if r == nil {
		return m.settledBefore(tx, op.Task, op.Token, core.OutcomeFailed)
	}
	n := next{outcome: core.OutcomeFailed, err: cutError(op.Error)}
	m.failed(c, r, &n, op.Fatal)
	if op.HasRetry && !n.dead {
		n.at = after(c, min(op.RetryAfter, maxRetryAfter))
	}
	return m.settle(tx, c, r, n)
}

// failed fills in what a failed attempt leads to: death after a fatal error or the last attempt,
// else a wait by the policy.
func (m *Machine) failed(c *core.ApplyContext, r *run, n *next, fatal bool) {
	n.reason = reasonRetry
	switch failures := r.rec.failures + 1; {
	case fatal:
		n.dead, n.reason = true, reasonFatal
	case int64(failures) >= int64(r.queue.maxAttempts(&r.settings)):
		n.dead, n.reason = true, reasonMaxAttempts
	default:
		n.at = after(c, r.backoff(failures))
	}
}

// applySnooze gives a task back until a time. That is neither a failure nor a crash, but it is a delivery.
func (m *Machine) applySnooze(tx core.Txn, c *core.ApplyContext, op *core.TaskSnooze) (core.OpResult, core.Fact, error) {
	r := m.holding(op.Task, op.Token)
	if r == nil {
		return m.settledBefore(tx, op.Task, op.Token, core.OutcomeSnoozed)
	}
	until := after(c, op.Delay)
	if op.Until != 0 {
		until = named(c, op.Until)
	}
	return m.settle(tx, c, r, next{outcome: core.OutcomeSnoozed, reason: reasonSnooze, at: until})
}

// applyRelease gives a task back to its old place. Undelivered says that the worker never got it,
// so its session is told, and it counts as no attempt.
func (m *Machine) applyRelease(tx core.Txn, c *core.ApplyContext, op *core.TaskRelease) (core.OpResult, core.Fact, error) {
	r := m.holding(op.Task, op.Token)
	if r == nil {
		return m.settledBefore(tx, op.Task, op.Token, core.OutcomeReleased)
	}
	if !op.Undelivered {
		return m.settle(tx, c, r, next{outcome: core.OutcomeReleased, back: true})
	}
	m.lose(r, "released")
	counts, err := m.isDelivered(tx, c, r)
	switch {
	case err != nil:
		return core.OpResult{}, nil, err
	case counts:
		return m.settle(tx, c, r, next{outcome: core.OutcomeReleased, back: true})
	}
	return core.OpResult{Task: r.id, State: core.Ready}, nil, m.takeBack(tx, r)
}

// isDelivered reports whether an attempt that is given back as undelivered counts all the same: its holder told of its work, so it was
// delivered, or the end of the attempt cancels the task. In entries before format 3 every one counts.
func (m *Machine) isDelivered(v core.View, c *core.ApplyContext, r *run) (bool, error) {
	if c.Format < core.FormatOperate || r.rec.cancelUntil != 0 {
		return true, nil
	}
	if !r.rec.reported {
		return false, nil
	}
	t, err := readTold(v, m.p, r.id)
	return t.attempt == r.rec.attempt, err
}

// takeBack puts a task that was given out and never delivered back to its old place, with the attempts that it had before. Its token
// stays the last one, so that the release is known when it is repeated.
func (m *Machine) takeBack(tx core.Txn, r *run) error {
	m.stop(tx, r)
	m.touch(r.queue)
	if r.rec.longHolder {
		m.dropHolder(tx, r.id)
	}
	rec := r.rec
	rec.attempt--
	rec.outcome, rec.reason, rec.longHolder = core.OutcomeReleased, reasonNone, false
	if rec.attempt > 0 { // the start is that of the attempt before
		m.key = keys.AppendTaskAttempt(m.key[:0], m.p, r.id, rec.attempt)
		value, err := must(tx, m.key, "attempt %d of task %s", rec.attempt, r.id)
		if err != nil {
			return err
		}
		a, err := decodeAttempt(value)
		if err != nil {
			return err
		}
		rec.startedAt = a.Start
	}
	m.enter(tx, r.ln(), r.id, &rec, core.Running)
	m.saveRecord(tx, r.id, &rec)
	return nil
}

// dropHolder deletes the record of a long name of a worker.
func (m *Machine) dropHolder(tx core.Txn, id core.TaskID) {
	m.key = keys.AppendTaskHolder(m.key[:0], m.p, id)
	tx.Delete(m.mem.own(m.key))
}

// settle ends the attempt, and answers with the new state.
func (m *Machine) settle(tx core.Txn, c *core.ApplyContext, r *run, n next) (core.OpResult, core.Fact, error) {
	s, err := m.endAttempt(tx, c, r, n)
	return core.OpResult{Task: r.id, State: s}, nil, err
}

// Why leases end, other than by their holders, for operators' reasons.
const (
	// Its cancel was asked for, and the grace was over or waived.
	lostCancelled = "cancelled"
	// An operator took the task from its holder.
	lostForced = "force_released"
)

// lose notes a lease that ended other than by its holder, for Events.
func (m *Machine) lose(r *run, why string) {
	m.lost = append(m.lost, core.Lost{
		Partition: m.p, Session: r.rec.session, Task: r.id, Token: r.rec.token, Reason: why,
	})
}

// endAttempt ends a delivery that did not complete its task, records it, and puts the task where n
// says. The limit of deliveries is judged here, over all outcomes. It returns the new state.
func (m *Machine) endAttempt(tx core.Txn, c *core.ApplyContext, r *run, n next) (core.State, error) {
	m.stop(tx, r)
	if limit := r.queue.maxDeliveries(&r.settings); !n.dead && limit > 0 && int64(r.rec.deliveries()) >= int64(limit) {
		n.dead, n.reason = true, reasonMaxDeliveries
	}
	if err := m.saveAttempt(tx, c, r, &n); err != nil {
		return 0, err
	}
	m.touch(r.queue)
	if err := m.countAttempt(tx, c, r, &n); err != nil {
		return 0, err
	}
	rec := r.rec
	rec.outcome, rec.reason, rec.longHolder = n.outcome, n.reason, false
	cancelled := rec.cancelUntil != 0
	rec.cancelUntil = 0
	switch n.outcome {
	case core.OutcomeFailed, core.OutcomeTimeout:
		rec.failures++
		r.queue.failed++
	case core.OutcomeCrashed:
		rec.crashes++
		r.queue.crashed++
	case core.OutcomeSnoozed:
		rec.snoozes++
	}
	if cancelled { // whatever ended the attempt, the task is not to run again
		m.move(r.ln(), core.Running, 0)
		rec.state, rec.reason, rec.hasCancel = core.Cancelled, reasonNone, true
		return core.Cancelled, m.finish(tx, c, r, &rec, nil, 0)
	}
	if n.dead {
		m.move(r.ln(), core.Running, 0)
		rec.state = core.Dead
		if err := m.deadLetter(tx, c, r, &rec, &n.err); err != nil {
			return 0, err
		}
		return core.Dead, m.finish(tx, c, r, &rec, nil, 0)
	}
	switch {
	case n.back:
		m.enter(tx, r.ln(), r.id, &rec, core.Running)
	case waits(c, n.at):
		m.schedule(tx, r.ln(), r.id, &rec, core.Running, n.at)
	default:
		m.enqueue(tx, r.ln(), r.id, &rec, core.Running, c.Stamp)
	}
	m.saveRecord(tx, r.id, &rec)
	return rec.state, nil
}

// saveAttempt records a delivery that did not complete its task. Beyond the number that is kept,
// the oldest record makes room.
func (m *Machine) saveAttempt(tx core.Txn, c *core.ApplyContext, r *run, n *next) error {
	a := core.Attempt{
		Worker: r.rec.worker, Session: r.rec.session, Start: r.rec.startedAt, End: c.Stamp,
		Outcome: n.outcome, Error: n.err, Index: c.Index, Token: r.rec.token,
	}
	if c.Format >= core.FormatOperate {
		a.ReadyAt, a.LeaseUntil = r.rec.readyAt, r.rec.leaseUntil
		if !n.dead && !n.back && r.rec.cancelUntil == 0 && waits(c, n.at) {
			a.RetryAt = n.at.shard(c)
		}
	}
	m.key = keys.AppendTaskAttempt(m.key[:0], m.p, r.id, r.rec.attempt)
	m.value = appendAttempt(m.value[:0], &a)
	tx.Insert(m.mem.own(m.key), m.mem.own(m.value))
	if r.rec.longHolder {
		m.dropHolder(tx, r.id)
	}
	if r.rec.attempt > keptAttempts {
		return m.forgetAttempt(tx, c, r.id, r.rec.attempt-keptAttempts)
	}
	return nil
}

// forgetAttempt deletes the record of an attempt, whose outcome is counted with those of the attempts before it.
func (m *Machine) forgetAttempt(tx core.Txn, c *core.ApplyContext, id core.TaskID, number uint32) error {
	m.key = keys.AppendTaskAttempt(m.key[:0], m.p, id, number)
	key := m.mem.own(m.key)
	if c.Format >= core.FormatOperate {
		value, ok, err := tx.Get(key)
		if err != nil {
			return err
		}
		var a core.Attempt // an attempt without a record counts as one of unknown outcome
		if ok {
			if a, err = decodeAttempt(value); err != nil {
				return err
			}
		}
		older, err := readOlder(tx, m.p, id)
		if err != nil {
			return err
		}
		older[a.Outcome]++
		m.key = keys.AppendTaskAttempt(m.key[:0], m.p, id, olderAttempts)
		m.value = appendOlder(m.value[:0], &older)
		tx.Set(m.mem.own(m.key), m.mem.own(m.value))
	}
	tx.Delete(key)
	return nil
}

// settledBefore answers a settle whose token is not live. It is a replay when that token ended its attempt
// with the same outcome, LeaseLost when it did not, and NotFound when the id is not known at all.
func (m *Machine) settledBefore(v core.View, task core.TaskID, token core.Token, outcome core.Outcome) (core.OpResult, core.Fact, error) {
	m.key = keys.AppendTaskState(m.key[:0], m.p, task)
	value, ok, err := v.Get(m.key)
	if err != nil {
		return core.OpResult{}, nil, err
	}
	if !ok {
		return core.OpResult{}, core.NotFound{Kind: "task", ID: task.String()}, nil
	}
	var state core.State
	var same bool
	if isReplaced(value) { // no token was ever given under the id
		return core.OpResult{}, core.LeaseLost{Task: task, Given: token}, nil
	}
	if isTombstone(value) {
		t, err := decodeTombstone(value)
		if err != nil {
			return core.OpResult{}, nil, err
		}
		state, same = t.state, t.token == token && t.outcome == outcome
	} else {
		rec, err := decodeRecord(value)
		if err != nil {
			return core.OpResult{}, nil, err
		}
		state, same = rec.state, rec.token == token && rec.outcome == outcome
		if !same && token != 0 && token < rec.token {
			if same, err = m.attemptEnded(v, task, token, outcome); err != nil {
				return core.OpResult{}, nil, err
			}
		}
	}
	if !same {
		return core.OpResult{}, core.LeaseLost{Task: task, Given: token}, nil
	}
	return core.OpResult{Task: task, State: state, Replayed: true}, nil, nil
}

// attemptEnded looks among the attempts that are kept for one that token ended with outcome. Tokens
// rise with attempts, so it stops at the first one that is not below.
func (m *Machine) attemptEnded(v core.View, task core.TaskID, token core.Token, outcome core.Outcome) (same bool, err error) {
	var bad error
	from, to := keys.TaskAttemptRange(m.p, task)
	err = v.Scan(from, to, func(_, value []byte) bool {
		a, err := decodeAttempt(value)
		if err != nil {
			bad = err
			return false
		}
		same = a.Token == token && a.Outcome == outcome
		return a.Token < token
	})
	if err == nil {
		err = bad
	}
	return same, err
}

// cutError cuts what a worker reports to the sizes that are kept, at a rune, so that the text stays valid.
func cutError(e core.TaskError) core.TaskError {
	return core.TaskError{Code: core.Cut(e.Code, maxCode), Message: core.Cut(e.Message, maxMessage), Stack: core.Cut(e.Stack, maxStack)}
}
