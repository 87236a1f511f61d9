package queue

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/keys"
)

// Operators and programs act on tasks by these ops, from core.FormatOperate on. Each is judged on the state that the task is in:
// of a settle and a cancel that race, the one that is applied first rules.

// fromFormat refuses what only entries of a format, or of a later one, have.
func fromFormat(c *core.ApplyContext, format uint16, field, what string) core.Fact {
	if c.Format >= format {
		return nil
	}
	return core.Invalid{Field: field, Reason: "not_supported", Message: fmt.Sprintf("a cluster %s from format %d on", what, format)}
}

// notYet refuses an op that entries before core.FormatOperate do not have.
func notYet(c *core.ApplyContext, what string) core.Fact {
	return fromFormat(c, core.FormatOperate, "op", what)
}

// notShared refuses an op that entries before core.FormatShare do not have.
func notShared(c *core.ApplyContext, what string) core.Fact {
	return fromFormat(c, core.FormatShare, "op", what)
}

// found reads the task that an op names and its queue. A task that is not there is refused.
func (m *Machine) found(v core.View, id core.TaskID) (rec record, l *queueState, fact core.Fact, err error) {
	rec, ok, err := m.loadRecord(v, id)
	if err != nil {
		return rec, nil, nil, err
	}
	if !ok {
		return rec, nil, core.NotFound{Kind: "task", ID: id.String()}, nil
	}
	l, err = m.lineAt(rec.queue)
	return rec, l, nil, err
}

// running returns the running task of an id. Its record said that it runs.
func (m *Machine) running(id core.TaskID) (*run, error) {
	if r := m.runs[id]; r != nil {
		return r, nil
	}
	return nil, errs.Corruptf("task %s runs and is not among the running ones", id)
}

// applyCancel cancels a task that waits, asks the holder of one that runs to stop, or with Force ends its lease.
func (m *Machine) applyCancel(tx core.Txn, c *core.ApplyContext, op *core.TaskCancel) (core.OpResult, core.Fact, error) {
	if fact := notYet(c, "cancels tasks"); fact != nil {
		return core.OpResult{}, fact, nil
	}
	rec, l, fact, err := m.found(tx, op.Task)
	switch {
	case fact != nil || err != nil:
		return core.OpResult{}, fact, err
	case rec.state == core.Cancelled:
		return core.OpResult{Task: op.Task, State: rec.state, Replayed: true}, nil, nil
	case rec.state.Terminal():
		return core.OpResult{}, core.WrongState{Task: op.Task, State: rec.state}, nil
	case rec.state == core.Running:
		r, err := m.running(op.Task)
		if err != nil {
			return core.OpResult{}, nil, err
		}
		return m.cancelRunning(tx, c, r, op)
	}
	m.saveCancel(tx, op.Task, &core.CancelAsked{At: c.Stamp, By: c.Principal, Reason: cutReason(op.Reason), Force: op.Force})
	rec.hasCancel, rec.reason = true, reasonNone
	err = m.endWaiting(tx, c, l, op.Task, &rec, core.Cancelled)
	return core.OpResult{Task: op.Task, State: core.Cancelled}, nil, err
}

// cancelRunning asks the holder of a running task to stop, or ends its lease where it is not to be waited for. What was asked for
// first, and by whom, stays.
func (m *Machine) cancelRunning(tx core.Txn, c *core.ApplyContext, r *run, op *core.TaskCancel) (core.OpResult, core.Fact, error) {
	asked := r.rec.cancelUntil != 0
	grace := orDefault(r.queue.config.Limits.CancelGrace, defaultCancelGrace)
	force := op.Force || grace < 0 && !asked
	reason := cutReason(op.Reason)
	if !asked {
		m.saveCancel(tx, r.id, &core.CancelAsked{At: c.Stamp, By: c.Principal, Reason: reason, Force: force})
		m.log.run(r, runRenewed)
		r.rec.cancelUntil, r.reason = c.Stamp.Add(max(grace, 1)), reason // never 0, which stands for none
	}
	if force {
		m.lose(r, lostCancelled)
		return m.settle(tx, c, r, next{outcome: core.OutcomeCancelled})
	}
	if asked {
		return core.OpResult{Task: r.id, State: core.Running, Replayed: true}, nil, nil
	}
	r.ends = m.endOf(&r.rec)
	m.leases.fix(r)
	m.saveRecord(tx, r.id, &r.rec)
	m.wanted = append(m.wanted, m.wantedOf(r))
	return core.OpResult{Task: r.id, State: core.Running}, nil, nil
}

// wantedOf is what the holder of a running task is told whose cancel was asked for.
func (m *Machine) wantedOf(r *run) core.CancelWanted {
	return core.CancelWanted{
		Partition: m.p, Session: r.rec.session, Task: r.id, Token: r.rec.token, Reason: r.reason, Until: r.rec.cancelUntil,
	}
}

// Wanted returns the running tasks of a session whose cancel was asked for, in order of token: a holder that reconnects is told
// again.
func (m *Machine) Wanted(s core.SessionID) []core.CancelWanted {
	var out []core.CancelWanted
	for r := m.sessions[s]; r != nil; r = r.next {
		if r.rec.cancelUntil != 0 && !r.queue.removed {
			out = append(out, m.wantedOf(r))
		}
	}
	slices.SortFunc(out, func(a, b core.CancelWanted) int { return cmp.Compare(a.Token, b.Token) })
	return out
}

// applyStop ends the attempt of a holder that was asked to stop: the task is cancelled.
func (m *Machine) applyStop(tx core.Txn, c *core.ApplyContext, op *core.TaskStop) (core.OpResult, core.Fact, error) {
	r := m.holding(op.Task, op.Token)
	switch {
	case r == nil:
		return m.settledBefore(tx, op.Task, op.Token, core.OutcomeCancelled)
	case r.rec.cancelUntil == 0:
		return core.OpResult{}, core.WrongState{Task: op.Task, State: core.Running}, nil
	}
	return m.settle(tx, c, r, next{outcome: core.OutcomeCancelled, err: cutError(op.Error)})
}

// applyForceRelease takes a running task from its holder. It goes back to its old place.
func (m *Machine) applyForceRelease(tx core.Txn, c *core.ApplyContext, op *core.TaskForceRelease) (core.OpResult, core.Fact, error) {
	if fact := notYet(c, "releases tasks by force"); fact != nil {
		return core.OpResult{}, fact, nil
	}
	rec, _, fact, err := m.found(tx, op.Task)
	switch {
	case fact != nil || err != nil:
		return core.OpResult{}, fact, err
	case rec.state != core.Running || op.Attempt != 0 && rec.attempt != op.Attempt:
		return core.OpResult{}, core.WrongState{Task: op.Task, State: rec.state}, nil
	}
	r, err := m.running(op.Task)
	if err != nil {
		return core.OpResult{}, nil, err
	}
	m.lose(r, lostForced)
	return m.settle(tx, c, r, next{outcome: core.OutcomeReleased, back: true})
}

// applyRedrive makes a dead or cancelled task ready. Its row in the index of ended tasks goes.
func (m *Machine) applyRedrive(tx core.Txn, c *core.ApplyContext, op *core.TaskRedrive) (core.OpResult, core.Fact, error) {
	if fact := notYet(c, "redrives tasks"); fact != nil {
		return core.OpResult{}, fact, nil
	}
	return m.redrive(tx, c, op.Task, "", nil)
}

// pastRowOf reads the row of an ended task in the index of ended tasks. Its key is in m.key.
func (m *Machine) pastRowOf(v core.View, l *queueState, id core.TaskID, rec *record) (row pastRow, err error) {
	row = pastRow{at: rec.endedAt, id: id}
	m.key = keys.AppendTerminal(m.key[:0], m.p, l.number, rec.state, row.at, id)
	value := m.looked.ended
	if m.looked.rec == nil || m.looked.id != id || value == nil {
		if value, err = must(v, m.key, "task %s in the index of ended tasks", id); err != nil {
			return row, err
		}
	}
	row.ended, err = decodeEnded(value)
	return row, err
}

// takePast takes an ended task out of the bytes that ended tasks count. The key of its row in the index of ended tasks is in m.key: the
// caller writes the row again, or deletes it, counts the task in another state, and then calls afterPast.
func (m *Machine) takePast(tx core.Txn, l *queueState, id core.TaskID, rec *record) (row pastRow, err error) {
	if row, err = m.pastRowOf(tx, l, id, rec); err != nil {
		return row, err
	}
	if l.counters.ended < row.size() || m.endedBytes < row.size() {
		return row, errs.Corruptf("queue %q counts less than it holds", l.name)
	}
	m.touch(l)
	l.counters.ended -= row.size()
	m.endedBytes -= row.size()
	return row, nil
}

// afterPast looks up which of the ended tasks is the oldest, where the one that ended at a time is gone.
func (m *Machine) afterPast(v core.View, p *past, at core.ShardTime) error {
	if at != p.oldest {
		return nil
	}
	if m.looksLate {
		if !slices.Contains(m.late, p) {
			m.late = append(m.late, p)
		}
		return nil
	}
	oldest, err := m.seekOldest(v, p, at)
	if err != nil {
		return err
	}
	m.setOldest(p, oldest)
	return nil
}

// endWaiting ends a task that waits: it leaves the index of its state. rec says in which state, and gets the new one.
func (m *Machine) endWaiting(tx core.Txn, c *core.ApplyContext, l *queueState, id core.TaskID, rec *record, to core.State) error {
	s, err := m.loadSpec(tx, id)
	if err != nil {
		return err
	}
	var ln *lane
	if rec.state == core.Blocked {
		ln, err = m.leaveBlocked(tx, l, id, rec, s.after)
	} else {
		ln, err = m.leave(tx, l, id, rec)
	}
	if err != nil {
		return err
	}
	m.dropExpiry(tx, id, rec)
	rec.state = to
	if to == core.Dead {
		if err := m.countError(tx, c, l, id, s.kindName(l.name), expiredError()); err != nil {
			return err
		}
	}
	r := &run{id: id, queue: l, lane: ln, content: s.content, payload: uint64(len(s.payload)), labels: len(s.labels) > 0}
	if r.limits, err = m.resolve(s.limiters); err != nil {
		return err
	}
	if to == core.Dead {
		if err := m.deadLetter(tx, c, r, rec, expiredError()); err != nil {
			return err
		}
	}
	return m.finish(tx, c, r, rec, nil, 0)
}

// leave takes a task that waits out of the index of its state, and out of its count. The record stays as it is. It returns the
// task's lane.
func (m *Machine) leave(tx core.Txn, l *queueState, id core.TaskID, rec *record) (*lane, error) {
	ln, err := m.laneOf(l, rec)
	if err != nil {
		return nil, err
	}
	switch rec.state {
	case core.Scheduled:
		m.taskTimer(id, rec)
		tx.Delete(m.mem.own(m.key))
	case core.Ready:
		m.leaveReady(tx, ln, id, rec)
	default:
		return nil, errs.Corruptf("task %s is %s and does not wait", id, rec.state)
	}
	m.move(ln, rec.state, 0)
	ln.holderIsReady(id, false)
	return ln, nil
}

// leaveReady takes a task out of the ready ones. One that this entry created has no row yet. It must come before the task is no
// longer counted as ready.
func (m *Machine) leaveReady(tx core.Txn, ln *lane, id core.TaskID, rec *record) {
	if !m.takeFresh(id) {
		m.deletePlace(tx, ln, rec.sort, rec.seq)
	}
	m.log.popped(ln)
	if ln.heads == nil {
		return
	}
	if ln.ready == 1 { // it was the last
		m.dropHeads(ln)
		return
	}
	ln.heads.drop(head{sort: rec.sort, seq: rec.seq})
}

// saveCancel stores who asked for a cancel.
func (m *Machine) saveCancel(tx core.Txn, id core.TaskID, asked *core.CancelAsked) {
	m.key = keys.AppendTaskCancel(m.key[:0], m.p, id)
	m.value = appendCancel(m.value[:0], asked)
	tx.Insert(m.mem.own(m.key), m.mem.own(m.value))
}

// dropCancel deletes what saveCancel stored.
func (m *Machine) dropCancel(tx core.Txn, id core.TaskID) {
	m.key = keys.AppendTaskCancel(m.key[:0], m.p, id)
	tx.Delete(m.mem.own(m.key))
}

// cutReason cuts a text that an operator gives to the size that is kept.
func cutReason(s string) string { return core.Cut(s, core.MaxReason) }
