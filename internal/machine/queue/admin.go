package queue

import (
	"fmt"
	"math"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/keys"
)

// applyDelete removes a task that has ended, at a client's wish and not by retention. So the sweep
// of its state, which covers all that ended before a time, cannot say that it is gone: a tombstone
// takes the place of its state record while its id must be known, and none is left after that.
func (m *Machine) applyDelete(tx core.Txn, c *core.ApplyContext, op *core.TaskDelete) (core.OpResult, core.Fact, error) {
	rec, ok, err := m.loadRecord(tx, op.Task)
	switch {
	case err != nil:
		return core.OpResult{}, nil, err
	case !ok:
		return core.OpResult{}, core.NotFound{Kind: "task", ID: op.Task.String()}, nil
	case !rec.state.Terminal():
		return core.OpResult{}, core.WrongState{Task: op.Task, State: rec.state}, nil
	}
	l, err := m.lineAt(rec.queue)
	if err != nil {
		return core.OpResult{}, nil, err
	}
	row, err := m.pastRowOf(tx, l, op.Task, &rec)
	if err != nil {
		return core.OpResult{}, nil, err
	}
	m.dropPast(tx, op.Task)
	p := l.pastOf(rec.state)
	m.touch(l)
	if err := m.remove(tx, p, row); err != nil {
		return core.OpResult{}, nil, err
	}
	if until := row.at.Add(m.o.Remember); until > c.Stamp {
		m.bury(tx, row.id, tombstone{rec.state, rec.outcome, rec.token, rec.content, until})
	} else {
		m.key = keys.AppendTaskState(m.key[:0], m.p, row.id)
		tx.Delete(m.mem.own(m.key))
		m.changed(row.id)
	}
	return core.OpResult{Task: op.Task, State: rec.state}, nil, m.afterPast(tx, p, row.at)
}

// applyRunNow makes a scheduled task ready at the entry's stamp. Its timer goes, and its priority
// decides its place among the ready ones.
func (m *Machine) applyRunNow(tx core.Txn, c *core.ApplyContext, op *core.TaskRunNow) (core.OpResult, core.Fact, error) {
	rec, ok, err := m.loadRecord(tx, op.Task)
	switch {
	case err != nil:
		return core.OpResult{}, nil, err
	case !ok:
		return core.OpResult{}, core.NotFound{Kind: "task", ID: op.Task.String()}, nil
	case rec.state != core.Scheduled:
		return core.OpResult{}, core.WrongState{Task: op.Task, State: rec.state}, nil
	}
	l, err := m.lineAt(rec.queue)
	if err != nil {
		return core.OpResult{}, nil, err
	}
	m.taskTimer(op.Task, &rec)
	tx.Delete(m.mem.own(m.key))
	ln, err := m.laneOf(l, &rec)
	if err != nil {
		return core.OpResult{}, nil, err
	}
	m.enqueue(tx, ln, op.Task, &rec, core.Scheduled, c.Stamp)
	m.saveRecord(tx, op.Task, &rec)
	return core.OpResult{Task: op.Task, State: rec.state}, nil, nil
}

// applyQueueSet replaces a queue's configuration, and makes the queue when there is none. The
// version rises only when something changed. Retention may have changed, so what is due of the
// ended tasks is computed again.
func (m *Machine) applyQueueSet(tx core.Txn, c *core.ApplyContext, op *core.QueueSet) (core.OpResult, core.Fact) {
	version, fact := m.checkQueueSet(c, op)
	if fact != nil {
		return core.OpResult{}, fact
	}
	l := m.lineOf(op.Queue)
	config := op.Config
	config.Version = version
	switch {
	case l == nil:
		l = m.addLine(tx, op.Queue)
	case config == l.config:
		return core.OpResult{Version: version}, nil
	}
	m.touch(l)
	if l.share != nil {
		m.touchShare(l.share)
	}
	config.Version++
	was := l.config.Share
	l.config = config
	m.ruleShare(l, &was, c.Stamp)
	m.saveConfig(tx, l)
	for i := range l.past {
		m.setOldest(&l.past[i], l.past[i].oldest)
	}
	return core.OpResult{Version: config.Version}, nil
}

// checkQueueSet refuses a configuration that the queue cannot have, and returns the version of the one it has; 0: it is not there.
func (m *Machine) checkQueueSet(c *core.ApplyContext, op *core.QueueSet) (version uint64, fact core.Fact) {
	if op.Queue == "" || len(op.Queue) > maxName {
		return 0, core.Invalid{Field: "queue", Message: fmt.Sprintf("a name has 1 to %d characters", maxName)}
	}
	if fact := checkConfig(&op.Config); fact != nil {
		return 0, fact
	}
	if fact := checkShareConfig(&op.Config.Share); fact != nil {
		return 0, fact
	}
	l := m.lineOf(op.Queue)
	if l != nil {
		version = l.config.Version
	}
	if op.IfVersion >= 0 && uint64(op.IfVersion) != version {
		return 0, core.RevMismatch{Rev: version, Missing: l == nil, Key: []byte(op.Queue)}
	}
	if op.Config.Share != (core.QueueShare{}) {
		if fact := notYetShared(c, "config"); fact != nil {
			return 0, fact
		}
	}
	if fact := m.checkDeadLetter(op.Queue, op.Config.Share.DeadLetter); fact != nil {
		return 0, fact
	}
	if fact := m.checkLimiters(nil, op.Config.Share.LimiterNames()); fact != nil {
		return 0, fact
	}
	if op.Config.Limits != (core.QueueLimits{}) {
		if fact := notYet(c, "bounds queues"); fact != nil {
			return 0, fact
		}
	}
	if l == nil {
		return 0, m.roomForQueue(c)
	}
	return version, nil
}

// checkConfig refuses what a queue's configuration may not say. 0 means the default in each field;
// -1 turns some of the limits off.
func checkConfig(c *core.QueueConfig) core.Fact {
	for _, f := range [...]struct {
		field  string
		value  int64 // 0 is the default
		lo, hi int64
		none   bool // -1 is allowed
	}{
		{field: "max_attempts", value: int64(c.MaxAttempts), lo: 1, hi: 1000},
		{field: "max_crashes", value: int64(c.MaxCrashes), lo: 1, hi: 1000},
		{field: "max_deliveries", value: int64(c.MaxDeliveries), lo: 1, hi: 1_000_000, none: true},
		{field: "lease", value: int64(c.Lease), lo: int64(minLease), hi: int64(maxLease)},
		{field: "max_run", value: int64(c.MaxRun), lo: 1, hi: int64(maxDelay)},
		{field: "retry.backoff", value: int64(c.Retry.Backoff), lo: 1, hi: int64(core.BackoffEqualJitter)},
		{field: "retry.base", value: int64(c.Retry.Base), lo: 1, hi: int64(maxDelay)},
		{field: "retry.factor", value: int64(c.Retry.FactorPercent), lo: 100, hi: 10_000},
		{field: "retry.max", value: int64(c.Retry.Max), lo: 1, hi: int64(maxDelay)},
		{field: "max_payload", value: c.MaxPayload, lo: 1, hi: defaultMaxPayload},
		{field: "aging", value: int64(c.Aging), lo: 1, hi: int64(maxDelay), none: true},
		{field: "retention.completed", value: int64(c.RetainCompleted), lo: 1, hi: int64(maxDelay), none: true},
		{field: "retention.cancelled", value: int64(c.RetainCancelled), lo: 1, hi: int64(maxDelay), none: true},
		{field: "retention.dead", value: int64(c.RetainDead), lo: 1, hi: int64(maxDelay), none: true},
		{field: "cancel_grace", value: int64(c.Limits.CancelGrace), lo: 1, hi: core.MaxCancelGrace, none: true},
		{field: "default_ttl", value: int64(c.Limits.DefaultTTL), lo: 1, hi: int64(maxDelay)},
		{field: "max_tasks", value: c.Limits.MaxTasks, lo: 1, hi: math.MaxInt64},
		{field: "max_bytes", value: c.Limits.MaxBytes, lo: 1, hi: math.MaxInt64},
		{field: "ceilings.max_attempts", value: int64(c.Limits.CeilingAttempts), lo: 1, hi: 1000},
		{field: "ceilings.max_crashes", value: int64(c.Limits.CeilingCrashes), lo: 1, hi: 1000},
		{field: "ceilings.max_deliveries", value: int64(c.Limits.CeilingDeliveries), lo: 1, hi: 1_000_000},
		{field: "ceilings.lease", value: int64(c.Limits.CeilingLease), lo: int64(minLease), hi: int64(maxLease)},
		{field: "ceilings.max_run", value: int64(c.Limits.CeilingMaxRun), lo: 1, hi: int64(maxDelay)},
		{field: "ceilings.priority", value: int64(c.Limits.CeilingPriority), lo: 1, hi: maxPriority},
	} {
		if f.value == 0 || f.none && f.value == -1 || f.value >= f.lo && f.value <= f.hi {
			continue
		}
		return core.Invalid{Field: "config." + f.field, Message: fmt.Sprintf("is %d to %d", f.lo, f.hi)}
	}
	return nil
}
