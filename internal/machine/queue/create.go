package queue

import (
	"fmt"
	"math"
	"strings"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/keys"
)

// applyCreate makes a task, or finds that it was made before: by its id first, then by its unique
// key. The limits are judged last, so that a repeated create is answered as the first one was, also
// when there is no room any more. asked says that a client asks for it: what the server makes of its own, for a cron or a batch,
// is made where that is, whatever its queue says.
func (m *Machine) applyCreate(tx core.Txn, c *core.ApplyContext, op *core.TaskCreate, asked bool) (core.OpResult, core.Fact, error) {
	if fact := checkCreate(c, op); fact != nil {
		return core.OpResult{}, fact, nil
	}
	// The payload record is put together once, for its hash, before it is known whether it is stored.
	payload, h := appendSpec(m.room(specSize(c, op)), c, op)
	res, fact, known, err := m.createdBefore(tx, op, h.content)
	if known || fact != nil || err != nil {
		return res, fact, err
	}
	l := m.lineOf(op.Queue)
	var window foundWindow
	if op.Unique.Key != "" {
		window, res, fact, known, err = m.createdUnique(tx, c, l, op, h)
		if known || fact != nil || err != nil {
			return res, fact, err
		}
	}
	if asked && m.pinnedElsewhere(l) {
		return core.OpResult{}, core.QueuePinned{Queue: op.Queue}, nil
	}
	var deps dependencies
	if len(op.After) > 0 {
		if deps, fact, err = m.findAfter(tx, op); fact != nil || err != nil {
			return core.OpResult{}, fact, err
		}
	}
	if !op.Batch.IsZero() {
		if deps.batch, fact, err = m.roomInBatch(tx, op.Batch); fact != nil || err != nil {
			return core.OpResult{}, fact, err
		}
	}
	if fact := m.roomFor(c, l, op); fact != nil {
		return core.OpResult{}, fact, nil
	}
	state, err := m.insert(tx, c, l, op, payload, h.asked, window, &deps)
	return core.OpResult{Task: op.ID, State: state}, nil, err
}

// insert makes a task for which there is room. l is its queue; nil: that is made too. payload is its payload record, which was just put
// together in room, asked the hash of its unique key, window what is stored of that, and deps what it waits for and its batch.
func (m *Machine) insert(tx core.Txn, c *core.ApplyContext, l *queueState, op *core.TaskCreate, payload []byte, asked uint64, window foundWindow, deps *dependencies) (state core.State, err error) {
	m.key = keys.AppendTaskPayload(m.key[:0], m.p, op.ID)
	payload = m.keep(payload)
	tx.Insert(m.mem.own(m.key), payload)
	if l == nil {
		l = m.addLine(tx, op.Queue)
	}
	ln := m.laneFor(l, op.Key, op.Limiters)
	if len(op.Limiters) > 0 {
		limits, err := m.resolve(op.Limiters)
		if err != nil {
			return 0, err
		}
		m.nameLimiters(limits, false)
	}
	if op.Unique.Key != "" {
		m.openWindow(tx, c, l, op, op.ID, asked, window)
	}
	m.saveLabels(tx, l, op.ID, op.Labels)
	m.noteCron(op.ID)
	state = m.place(tx, c, ln, op, payload, deps)
	if !deps.failed.IsZero() {
		state, err = core.Cancelled, m.failNew(tx, c, l, op.ID, deps)
	}
	return state, err
}

// pinnedElsewhere reports whether the tasks of a queue are made in another partition than this one. l is nil when there is no such queue.
func (m *Machine) pinnedElsewhere(l *queueState) bool {
	return l != nil && m.p.Index != core.PinnedPartition && l.config.Share.Pins()
}

// Pinned reports whether a queue is pinned.
func (m *Machine) Pinned(queue string) bool {
	l := m.lineOf(queue)
	return l != nil && l.config.Share.Pins()
}

// checkCreate refuses what no create may say, whatever is stored. What is refused here was not
// caught by the edge.
func checkCreate(c *core.ApplyContext, op *core.TaskCreate) core.Fact {
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
	if op.HasShare() {
		if fact := checkShare(c, op); fact != nil {
			return fact
		}
	}
	if op.ExpiresAt != 0 || len(op.Labels) > 0 {
		if fact := notYet(c, "lets tasks expire, and have labels,"); fact != nil {
			return fact
		}
		return checkLabels(op.Labels)
	}
	return nil
}

// roomFor judges the limits of one more task: the queue may have to be made, and the payload has a
// limit of the queue. l is nil when there is no such queue.
func (m *Machine) roomFor(c *core.ApplyContext, l *queueState, op *core.TaskCreate) core.Fact {
	limit := int64(defaultMaxPayload)
	switch {
	case l != nil:
		limit = l.maxPayload()
		if l.config.Limits != (core.QueueLimits{}) {
			if fact := l.roomInLimits(op); fact != nil {
				return fact
			}
		}
	case c.Namespace.NoAutoCreate:
		return core.NotFound{Kind: "queue", ID: op.Queue}
	default:
		if fact := m.roomForQueue(c); fact != nil {
			return fact
		}
	}
	if int64(len(op.Payload)) > limit {
		return core.TooLarge{Field: "payload", Limit: "max_payload", Max: limit}
	}
	if len(op.Limiters) > 0 {
		if fact := m.checkLimiters(l, op.Limiters); fact != nil {
			return fact
		}
	}
	if fact := m.roomForKey(l, laneKey(op.Key, op.Limiters)); fact != nil {
		return fact
	}
	return m.roomInTenant(c, 1, uint64(len(op.Payload)))
}

// roomForKey refuses a lane beyond those that may have tasks at once. It is named by laneKey. l is nil when there is no such queue.
func (m *Machine) roomForKey(l *queueState, lane string) core.Fact {
	switch {
	case lane == "" || m.lanes < m.o.Keys:
		return nil
	case l != nil && l.keyed(lane) != nil:
		return nil
	}
	return core.Exhausted{Limit: "keys", Max: int64(m.o.Keys)}
}

// checkShare refuses what no create may say of sharing.
func checkShare(c *core.ApplyContext, op *core.TaskCreate) core.Fact {
	if fact := notYetShared(c, "key"); fact != nil {
		return fact
	}
	switch {
	case len(op.Key) > core.MaxKey:
		return core.TooLarge{Field: "key", Limit: "key_bytes", Max: core.MaxKey}
	case strings.IndexByte(op.Key, 0) >= 0:
		return core.Invalid{Field: "key", Message: "must not have a zero byte"}
	case op.Cost > core.MaxCost:
		return core.Invalid{Field: "cost", Message: fmt.Sprintf("must be at most %d", core.MaxCost)}
	case op.Unique.Until != core.UniqueTTL || op.Unique.Replace:
		if fact := checkUnique(op); fact != nil {
			return fact
		}
	}
	if fact := checkNames("limiters", op.Limiters); fact != nil {
		return fact
	}
	return checkAfter(op)
}

// roomInLimits judges a create by the bounds that operators set for its queue.
func (l *queueState) roomInLimits(op *core.TaskCreate) core.Fact {
	if fact := l.checkCeilings(op); fact != nil {
		return fact
	}
	if fact := l.roomForTask(); fact != nil {
		return fact
	}
	return l.roomForBytes(uint64(len(op.Payload)))
}

// roomForQueue refuses one queue more than there may be: by the limits of the machine and of the
// entry's context, and by the numbers that are left.
func (m *Machine) roomForQueue(c *core.ApplyContext) core.Fact {
	most := min(m.o.Queues, int(orDefault(c.Queues, core.DefaultQueues)))
	switch {
	case len(m.names) >= most:
		return core.Exhausted{Limit: "queues", Max: int64(most)}
	case m.meta.queues == math.MaxUint32:
		return core.Exhausted{Limit: "queue_numbers", Max: math.MaxUint32}
	}
	return nil
}

// createdBefore answers a create whose id is known: as a replay when the content is the same, else
// with AlreadyExists. known is false when there is no such id. The hash of a task that has not
// ended is in its payload record.
func (m *Machine) createdBefore(v core.View, op *core.TaskCreate, content uint64) (res core.OpResult, fact core.Fact, known bool, err error) {
	m.key = keys.AppendTaskState(m.key[:0], m.p, op.ID)
	value, ok, err := v.Get(m.key)
	if err != nil || !ok {
		return res, nil, false, err
	}
	var was uint64
	task := op.ID
	if isReplaced(value) {
		p, err := decodeReplaced(value)
		if err != nil {
			return res, nil, false, err
		}
		was, task = p.content, p.task
		rec, _, err := m.loadRecord(v, task)
		if err != nil {
			return res, nil, false, err
		}
		res.State = rec.state
	} else if isTombstone(value) {
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
		if res.State, err = m.stateOf(&rec); err != nil {
			return res, nil, false, err
		}
	}
	if was != content {
		return core.OpResult{}, core.AlreadyExists{Kind: "task", ID: op.ID.String()}, true, nil
	}
	res.Task, res.Replayed, res.PayloadMatches = task, true, true
	return res, nil, true, nil
}

// loadContent reads the hash of what a task was created with, from its payload record.
func (m *Machine) loadContent(v core.View, id core.TaskID) (uint64, error) {
	m.key = keys.AppendTaskPayload(m.key[:0], m.p, id)
	value, err := must(v, m.key, "payload of task %s", id)
	if err != nil {
		return 0, err
	}
	return specContent(value)
}

// stateOf is the state that a record tells. A task that had not ended when its queue was removed is
// cancelled, though its record says so only when the sweep has come to it.
func (m *Machine) stateOf(rec *record) (core.State, error) {
	l, err := m.lineAt(rec.queue)
	if err != nil {
		return 0, err
	}
	if l.removed && !rec.state.Terminal() {
		return core.Cancelled, nil
	}
	return rec.state, nil
}

// put stores the value in m.value under the key in m.key. stored says that the key is stored
// already: Insert is for keys that are not.
func (m *Machine) put(tx core.Txn, stored bool) {
	if stored {
		tx.Set(m.mem.own(m.key), m.mem.own(m.value))
	} else {
		tx.Insert(m.mem.own(m.key), m.mem.own(m.value))
	}
}

// place writes a new task's state record: blocked while it waits for others, ready now, or scheduled until it is due. payload is its
// payload record, which the worker may get in the same entry.
func (m *Machine) place(tx core.Txn, c *core.ApplyContext, ln *lane, op *core.TaskCreate, payload []byte, d *dependencies) core.State {
	l := ln.queue
	m.touch(l)
	l.created++
	m.addBytes(l, uint64(len(op.Payload)))
	rec := record{queue: l.number, lane: ln.number, priority: op.Priority, frees: op.Unique.Until != core.UniqueTTL}
	if op.Cost > 1 {
		rec.cost = op.Cost
	}
	if d.batch != nil {
		m.addToBatch(tx, d.batch, op.ID, &rec)
	}
	m.setExpiry(tx, l, op.ID, &rec, expiryOf(c, l, op))
	due := dueOf(c, op)
	switch {
	case d.blocks():
		m.block(tx, c, ln, op.ID, &rec, d, due)
	case waits(c, due):
		rec.reason = reasonDelay
		if m.byCron {
			rec.reason = reasonCron
		}
		m.schedule(tx, ln, op.ID, &rec, 0, due)
	default:
		m.admit(ln, op.ID, &rec, payload, 0, c.Stamp)
	}
	m.key = keys.AppendTaskState(m.key[:0], m.p, op.ID)
	m.value = appendRecord(m.value[:0], &rec)
	tx.Insert(m.mem.own(m.key), m.mem.own(m.value))
	return rec.state
}

// dueOf is when a create wants its task to be ready. A named time wins over a delay; the edge refuses both together.
func dueOf(c *core.ApplyContext, op *core.TaskCreate) due {
	if op.RunAt != 0 {
		return named(c, op.RunAt)
	}
	return after(c, op.Delay)
}
