package queue

import (
	"fmt"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/keys"
)

// applyCreate makes a task, or finds that it was made before: by its id first, then by its unique key. The limits are
// judged last, so that a repeated create is answered as the first one was.
func (m *Machine) applyCreate(tx core.Txn, c *Context, op *core.TaskCreate) (core.OpResult, core.Fact, error) {
	if fact := checkCreate(op); fact != nil {
		return core.OpResult{}, fact, nil
	}
	payload, content := appendSpec(m.room(specSize(c, op)), c, op)
	res, fact, known, err := m.createdBefore(tx, op, content)
	if known || fact != nil || err != nil {
		return res, fact, err
	}
	l := m.lineOf(op.Queue)
	if l != nil && op.Unique.Key != "" {
		res, fact, known, err = m.createdUnique(tx, c, l, op)
		if known || fact != nil || err != nil {
			return res, fact, err
		}
	}
	if fact := m.roomFor(c, l, op); fact != nil {
		return core.OpResult{}, fact, nil
	}
	m.key = keys.AppendTaskPayload(m.key[:0], m.p, op.ID)
	payload = m.keep(payload)
	tx.Insert(m.mem.own(m.key), payload)
	if l == nil {
		l = m.addLine(tx, op.Queue)
	}
	if op.Unique.Key != "" {
		if err := m.openWindow(tx, c, l, op); err != nil {
			return core.OpResult{}, nil, err
		}
	}
	return core.OpResult{Task: op.ID, State: m.place(tx, c, l, op, payload)}, nil, nil
}

func checkCreate(op *core.TaskCreate) core.Fact {
	switch {
	case op.ID.IsZero():
		return core.Invalid{Field: "id", Message: "is missing"}
	case op.Queue == "" || len(op.Queue) > maxName:
		return core.Invalid{Field: "queue", Message: fmt.Sprintf("a name has 1 to %d characters", maxName)}
	case len(op.TaskKind) > maxName:
		return core.Invalid{Field: "kind", Message: fmt.Sprintf("a name has 1 to %d characters", maxName)}
	case op.Priority > maxPriority:
		return core.Invalid{Field: "priority", Message: fmt.Sprintf("is at most %d", maxPriority)}
	case len(op.Unique.Key) > maxUnique:
		return core.TooLarge{Field: "unique.key", Limit: "unique_key", Max: maxUnique}
	case len(op.Tag) > maxTag:
		return core.TooLarge{Field: "tag", Limit: "tag_bytes", Max: maxTag}
	}
	return nil
}

func (m *Machine) roomFor(c *Context, l *line, op *core.TaskCreate) core.Fact {
	limit := int64(defaultMaxPayload)
	switch {
	case l != nil:
		limit = l.maxPayload()
	case c.Namespace.NoAutoCreate:
		return core.NotFound{Kind: "queue", ID: op.Queue}
	case len(m.lines) >= m.o.Queues:
		return core.Exhausted{Limit: "queues", Max: int64(m.o.Queues)}
	}
	if int64(len(op.Payload)) > limit {
		return core.TooLarge{Field: "payload", Limit: "max_payload", Max: limit}
	}
	return nil
}

// createdBefore answers a create whose id is known: a replay when the content is the same.
func (m *Machine) createdBefore(v core.View, op *core.TaskCreate, content uint64) (res core.OpResult, fact core.Fact, known bool, err error) {
	m.key = keys.AppendTaskState(m.key[:0], m.p, op.ID)
	value, ok, err := v.Get(m.key)
	if err != nil || !ok {
		return res, nil, false, err
	}
	var was uint64
	if isTombstone(value) {
		t, err := decodeTombstone(value)
		if err != nil {
			return res, nil, false, err
		}
		was, res.State = t.content, t.state
	} else {
		rec, err := decodeRecord(value)
		if err != nil {
			return res, nil, false, err
		}
		if was = rec.content; !rec.state.Terminal() {
			if was, err = m.loadContent(v, op.ID); err != nil {
				return res, nil, false, err
			}
		}
		res.State = rec.state
	}
	if was != content {
		return core.OpResult{}, core.AlreadyExists{Kind: "task", ID: op.ID.String()}, true, nil
	}
	res.Task, res.Replayed, res.PayloadMatches = op.ID, true, true
	return res, nil, true, nil
}

// loadContent reads the hash of what a task was created with.
func (m *Machine) loadContent(v core.View, id core.TaskID) (uint64, error) {
	m.key = keys.AppendTaskPayload(m.key[:0], m.p, id)
	value, err := must(v, m.key, "payload of task %s", id)
	if err != nil {
		return 0, err
	}
	return specContent(value)
}

// createdUnique answers a create whose unique key's window is open, even when the first task is gone.
func (m *Machine) createdUnique(v core.View, c *Context, l *line, op *core.TaskCreate) (res core.OpResult, fact core.Fact, known bool, err error) {
	w, ok, err := m.loadWindow(v, l, op.Unique.Key)
	if err != nil || !ok || w.until <= c.Stamp {
		return res, nil, false, err
	}
	if op.Unique.Reject {
		return res, core.AlreadyExists{Kind: "unique", ID: op.Unique.Key}, true, nil
	}
	res.Task, res.Replayed, res.PayloadMatches = w.task, true, w.payload == hash(op.Payload)
	rec, ok, err := m.loadRecord(v, w.task)
	if ok {
		res.State = rec.state
	}
	return res, nil, true, err
}

func (m *Machine) loadWindow(v core.View, l *line, key string) (w window, ok bool, err error) {
	m.key = keys.AppendUnique(m.key[:0], m.p, l.number, key)
	value, ok, err := v.Get(m.key)
	if err != nil || !ok {
		return w, false, err
	}
	w, err = decodeWindow(value)
	return w, err == nil, err
}

// openWindow reserves op's unique key. A window that ended and was not yet swept is replaced.
func (m *Machine) openWindow(tx core.Txn, c *Context, l *line, op *core.TaskCreate) error {
	old, ok, err := m.loadWindow(tx, l, op.Unique.Key)
	if err != nil {
		return err
	}
	if ok {
		m.key = keys.AppendUniqueTimer(m.key[:0], m.p, old.until, l.number, op.Unique.Key)
		tx.Delete(m.mem.own(m.key))
	}
	ttl := min(orDefault(max(op.Unique.TTL, 0), defaultUniqueTTL), maxUniqueTTL)
	w := window{task: op.ID, until: c.Stamp.Add(ttl), payload: hash(op.Payload)}
	m.key = keys.AppendUnique(m.key[:0], m.p, l.number, op.Unique.Key)
	m.value = appendWindow(m.value[:0], w)
	if ok {
		tx.Set(m.mem.own(m.key), m.mem.own(m.value))
	} else {
		tx.Insert(m.mem.own(m.key), m.mem.own(m.value))
	}
	m.key = keys.AppendUniqueTimer(m.key[:0], m.p, w.until, l.number, op.Unique.Key)
	m.setTimer(tx, w.until, nil)
	return nil
}

// place writes a new task's state: ready now, or when it is due. payload is its payload record.
func (m *Machine) place(tx core.Txn, c *Context, l *line, op *core.TaskCreate, payload []byte) core.State {
	m.touch(l)
	l.created++
	l.bytes += uint64(len(op.Payload))
	rec := record{queue: l.number, priority: op.Priority}
	due := op.RunAt
	if due == 0 && op.Delay > 0 {
		due = c.Stamp.Add(op.Delay)
	}
	if due > c.Stamp {
		rec.reason = reasonDelay
		m.schedule(tx, l, op.ID, &rec, 0, min(due, c.Stamp.Add(maxDelay)))
	} else {
		m.admit(l, op.ID, &rec, payload, c.Stamp)
	}
	m.key = keys.AppendTaskState(m.key[:0], m.p, op.ID)
	m.value = appendRecord(m.value[:0], &rec)
	tx.Insert(m.mem.own(m.key), m.mem.own(m.value))
	return rec.state
}
