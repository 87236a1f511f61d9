package queue

import (
	"fmt"
	"strings"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/keys"
)

// applyUpdate edits a task that waits, or is dead.
func (m *Machine) applyUpdate(tx core.Txn, c *core.ApplyContext, op *core.TaskUpdate) (core.OpResult, core.Fact, error) {
	if fact := notYet(c, "edits tasks"); fact != nil {
		return core.OpResult{}, fact, nil
	}
	rec, l, fact, err := m.found(tx, op.Task)
	switch {
	case fact != nil || err != nil:
		return core.OpResult{}, fact, err
	case !rec.waiting() && rec.state != core.Dead:
		return core.OpResult{}, core.WrongState{Task: op.Task, State: rec.state}, nil
	}
	if fact := checkUpdate(op, l, &rec); fact != nil {
		return core.OpResult{}, fact, nil
	}
	if rec.state == core.Ready {
		m.settleOne(tx, l, op.Task, &rec)
	}
	if op.HasPayload || op.HasLabels || op.ContentType != "" {
		if fact, err := m.editSpec(tx, c, l, op, &rec); fact != nil || err != nil {
			return core.OpResult{}, fact, err
		}
	}
	if op.HasExpiry {
		m.dropExpiry(tx, op.Task, &rec)
		m.setExpiry(tx, l, op.Task, &rec, op.ExpiresAt)
	}
	if err := m.editPlace(tx, c, l, op, &rec); err != nil {
		return core.OpResult{}, nil, err
	}
	m.saveRecord(tx, op.Task, &rec)
	return core.OpResult{Task: op.Task, State: rec.state}, nil, nil
}

// checkUpdate refuses what an edit may not say of a task in the state of its record.
func checkUpdate(op *core.TaskUpdate, l *queueState, rec *record) core.Fact {
	switch {
	case op.Priority > maxPriority:
		return core.Invalid{Field: "priority", Message: fmt.Sprintf("must be at most %d", maxPriority)}
	case op.HasRunAt && rec.state == core.Dead:
		return core.Invalid{Field: "run_at", Message: "must not be set for a dead task"}
	case op.HasExpiry && (rec.state == core.Dead || rec.attempt > 0):
		return core.Invalid{Field: "expires_at", Message: "must not be set for a task that has started or is dead"}
	case op.HasPayload && int64(len(op.Payload)) > l.maxPayload():
		return core.TooLarge{Field: "payload", Limit: "max_payload", Max: l.maxPayload()}
	}
	if op.HasPriority {
		if fact := ceiling("priority", int64(op.Priority), int64(l.config.Limits.CeilingPriority)); fact != nil {
			return fact
		}
	}
	return checkLabels(op.Labels)
}

// editSpec writes a task's payload record again, with the payload or the labels that op gives it.
func (m *Machine) editSpec(tx core.Txn, c *core.ApplyContext, l *queueState, op *core.TaskUpdate, rec *record) (core.Fact, error) {
	m.key = keys.AppendTaskPayload(m.key[:0], m.p, op.Task)
	value, err := must(tx, m.key, "payload of task %s", op.Task)
	if err != nil {
		return nil, err
	}
	s, err := decodeSpec(value)
	if err != nil {
		return nil, err
	}
	was := uint64(len(s.payload))
	had := len(s.labels) > 0
	old := s.labels
	if op.HasPayload {
		s.payload = op.Payload
		if is := uint64(len(op.Payload)); is > was {
			if fact := l.roomForBytes(is - was); fact != nil {
				return fact, nil
			}
			if fact := m.roomInTenant(c, 0, is-was); fact != nil {
				return fact, nil
			}
		}
	}
	if op.HasPayload || op.ContentType != "" {
		s.contentType = nil
		if op.ContentType != jsonType {
			s.contentType = []byte(op.ContentType)
		}
	}
	if op.HasLabels {
		s.labels = op.Labels
	}
	edited := appendEdited(m.room(len(value)+len(op.Payload)+len(op.ContentType)+labelBytes(op.Labels)+32), value, &s)
	tx.Set(m.mem.own(m.key), m.keep(edited))
	if op.HasLabels {
		m.dropLabels(tx, op.Task, old)
		m.saveLabels(tx, l, op.Task, op.Labels)
	}
	is := uint64(len(s.payload))
	m.touch(l)
	m.addBytes(l, is-was)
	if rec.state == core.Dead && (is != was || had != (len(s.labels) > 0)) {
		return nil, m.editPast(tx, l, op.Task, rec, is-was, len(s.labels) > 0)
	}
	return nil, nil
}

// editPast writes the row of a dead task in the index of ended tasks again, after its payload or its labels changed:
// it has more bytes than before, in the arithmetic of uint64.
func (m *Machine) editPast(tx core.Txn, l *queueState, id core.TaskID, rec *record, more uint64, labels bool) error {
	row, err := m.takePast(tx, l, id, rec)
	if err != nil {
		return err
	}
	row.bytes, row.labels = row.bytes+more, labels
	l.counters.ended += row.size()
	m.endedBytes += row.size()
	m.key = keys.AppendTerminal(m.key[:0], m.p, l.number, rec.state, row.at, id)
	m.value = appendEnded(m.value[:0], row.ended)
	tx.Set(m.mem.own(m.key), m.mem.own(m.value))
	return nil
}

// editPlace changes the priority of a task, and when it becomes ready. A ready task gets the place of its new priority; it keeps
// its ready time.
func (m *Machine) editPlace(tx core.Txn, c *core.ApplyContext, l *queueState, op *core.TaskUpdate, rec *record) error {
	moved := op.HasRunAt || op.HasPriority && op.Priority != rec.priority && rec.state == core.Ready
	from := rec.state
	if from == core.Blocked {
		m.editBlocked(c, op, rec)
		return nil
	}
	var ln *lane
	var err error
	if moved && from != core.Dead {
		if ln, err = m.leave(tx, l, op.Task, rec); err != nil {
			return err
		}
	}
	if op.HasPriority {
		rec.priority = op.Priority
	}
	if !moved || from == core.Dead {
		return nil
	}
	if !op.HasRunAt {
		rec.sort = placeKey(rec.readyAt, rec.priority)
		m.enter(tx, ln, op.Task, rec, 0)
		return nil
	}
	at := after(c, op.Delay)
	if op.RunAt != 0 {
		at = named(c, op.RunAt)
	}
	if waits(c, at) {
		rec.reason = reasonDelay
		m.schedule(tx, ln, op.Task, rec, 0, at)
		return nil
	}
	m.enqueue(tx, ln, op.Task, rec, 0, c.Stamp)
	return nil
}

// editBlocked changes the priority of a blocked task, and before when it is not ready.
func (m *Machine) editBlocked(c *core.ApplyContext, op *core.TaskUpdate, rec *record) {
	if op.HasPriority {
		rec.priority = op.Priority
	}
	if !op.HasRunAt {
		return
	}
	at := after(c, op.Delay)
	if op.RunAt != 0 {
		at = named(c, op.RunAt)
	}
	if !waits(c, at) {
		at = due{}
	}
	rec.runAt, rec.wall = at.at, at.wall
}

// settleOne gives a ready task that this entry created its row in the ready index: Undo brings back rows, and not what a fresh task
// was in memory.
func (m *Machine) settleOne(tx core.Txn, l *queueState, id core.TaskID, rec *record) {
	for i := range m.fresh {
		if f := &m.fresh[i]; f.id == id && !f.taken {
			ln := f.lane
			m.leaveReady(tx, ln, id, rec)
			m.move(ln, core.Ready, 0)
			m.enter(tx, ln, id, rec, 0)
			return
		}
	}
}

// ceiling refuses what a task asks for itself beyond what its queue allows. most is 0 where the queue bounds nothing.
func ceiling(field string, asked, most int64) core.Fact {
	if most == 0 || asked <= most {
		return nil
	}
	return core.Invalid{Field: field, Reason: "ceiling", Message: fmt.Sprintf("must be at most %d, which the queue allows", most)}
}

// checkCeilings refuses a create that asks for more than its queue allows.
func (l *queueState) checkCeilings(op *core.TaskCreate) core.Fact {
	c := &l.config.Limits
	for _, f := range [...]struct {
		field       string
		asked, most int64
	}{
		{"max_attempts", int64(op.MaxAttempts), int64(c.CeilingAttempts)},
		{"max_crashes", int64(op.MaxCrashes), int64(c.CeilingCrashes)},
		{"max_deliveries", int64(op.MaxDeliveries), int64(c.CeilingDeliveries)},
		{"lease", int64(op.Lease), int64(c.CeilingLease)},
		{"max_run", int64(op.MaxRun), int64(c.CeilingMaxRun)},
		{"priority", int64(op.Priority), int64(c.CeilingPriority)},
	} {
		if fact := ceiling(f.field, f.asked, f.most); fact != nil {
			return fact
		}
	}
	if c.CeilingDeliveries > 0 && op.MaxDeliveries < 0 {
		return core.Invalid{Field: "max_deliveries", Reason: "ceiling", Message: "must not be turned off in this queue"}
	}
	if c.CeilingMaxRun > 0 && op.MaxRun < 0 && l.config.MaxRun > 0 {
		return core.Invalid{Field: "max_run", Reason: "ceiling", Message: "must not be turned off in this queue"}
	}
	return nil
}

// roomForTask refuses one more task that has not ended than the queue may have.
func (l *queueState) roomForTask() core.Fact {
	most := l.config.Limits.MaxTasks
	if most == 0 {
		return nil
	}
	if l.states[core.Blocked]+l.states[core.Scheduled]+l.states[core.Ready]+l.states[core.Running] < uint64(most) {
		return nil
	}
	return core.Exhausted{Limit: "max_tasks", Max: most}
}

// roomForBytes refuses more bytes of payloads and results than the queue may have. Results are not refused: they count for the
// creates that follow.
func (l *queueState) roomForBytes(n uint64) core.Fact {
	most := l.config.Limits.MaxBytes
	if most == 0 || l.bytes+n <= uint64(most) {
		return nil
	}
	return core.Exhausted{Limit: "max_bytes", Max: most}
}

// checkLabels refuses labels that a task cannot have. The edge names the label; what comes here was not caught by it.
func checkLabels(labels []core.Label) core.Fact {
	if len(labels) > core.MaxLabels {
		return core.TooLarge{Field: "labels", Limit: "labels", Max: core.MaxLabels}
	}
	for i, l := range labels {
		switch {
		case l.Name == "" || strings.IndexByte(l.Name, 0) >= 0 || strings.IndexByte(l.Value, 0) >= 0:
			return core.Invalid{Field: "labels", Message: "must have names, and neither names nor values with a zero byte"}
		case len(l.Name) > core.MaxLabelName:
			return core.TooLarge{Field: "labels", Limit: "label_name", Max: core.MaxLabelName}
		case len(l.Value) > core.MaxLabelValue:
			return core.TooLarge{Field: "labels", Limit: "label_value", Max: core.MaxLabelValue}
		case i > 0 && labels[i-1].Name >= l.Name:
			return core.Invalid{Field: "labels", Message: "must be sorted by name, and have each name once"}
		}
	}
	return nil
}

// labelBytes bounds the length of labels in a payload record.
func labelBytes(labels []core.Label) int {
	n := 10
	for _, l := range labels {
		n += 20 + len(l.Name) + len(l.Value)
	}
	return n
}

// saveLabels writes the rows by which a task is found by its labels. Their value is the number of its queue.
func (m *Machine) saveLabels(tx core.Txn, l *queueState, id core.TaskID, labels []core.Label) {
	for _, label := range labels {
		m.key = keys.AppendLabel(m.key[:0], m.p, label.Name, label.Value, id)
		m.value = putUint(m.value[:0], uint64(l.number))
		tx.Insert(m.mem.own(m.key), m.mem.own(m.value))
	}
}

// dropLabels deletes what saveLabels wrote.
func (m *Machine) dropLabels(tx core.Txn, id core.TaskID, labels []core.Label) {
	for _, label := range labels {
		m.key = keys.AppendLabel(m.key[:0], m.p, label.Name, label.Value, id)
		tx.Delete(m.mem.own(m.key))
	}
}
