package queue

import (
	"encoding/binary"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/keys"
)

// A unique key is held by the task that was created under it: until its window ends, or, where the create says so, until the task
// starts or ends. While the task has not started, another create of the key can replace what the first one asked for.

// checkUnique refuses what a create may not say of what frees its unique key, and of what a second one does.
func checkUnique(op *core.TaskCreate) core.Fact {
	switch {
	case op.Unique.Key == "":
		return core.Invalid{Field: "unique.key", Message: "is required"}
	case op.Unique.Until > core.UniqueTerminal:
		return core.Invalid{Field: "unique.until", Message: "must be ttl, start or terminal"}
	case op.Unique.Replace && op.Unique.Reject:
		return core.Invalid{Field: "unique.on_conflict", Message: "must be either reject or replace"}
	}
	return nil
}

// createdUnique answers a create whose unique key's window is open, even when the first task is
// gone, or its queue. It is a replay, or AlreadyExists where the create asks for that, or the task
// becomes what the create asks for. Else found is what is stored of the key: nothing, or a window that holds it no longer.
func (m *Machine) createdUnique(tx core.Txn, c *core.ApplyContext, l *queueState, op *core.TaskCreate, h hashes) (found foundWindow, res core.OpResult, fact core.Fact, known bool, err error) {
	found, err = m.findWindow(tx, l, op)
	w, at := found.window, found.at
	if err != nil || at == unreserved || w.until <= c.Stamp {
		return found, res, nil, false, err
	}
	rec, ok, err := m.loadRecord(tx, w.task)
	if err != nil {
		return found, res, nil, false, err
	}
	if !ok && w.frees != core.UniqueTTL { // its queue was removed, and the sweep has not come to it
		return found, res, nil, false, nil
	}
	if op.Unique.Reject {
		return found, res, core.AlreadyExists{Kind: "unique", ID: op.Unique.Key}, true, nil
	}
	asked := h.asked
	if at == byQueueNumber {
		asked = hash(op.Payload)
	}
	same := w.hash == asked
	if op.Unique.Replace && ok && at == byQueueName && rec.waiting() && rec.attempt == 0 && rec.queue == l.number && !(same && op.Delay == 0) {
		res, fact, err = m.replace(tx, c, l, op, &rec, h, found)
		return found, res, fact, true, err
	}
	res.Task, res.Replayed, res.PayloadMatches = w.task, true, same
	if ok {
		res.State = rec.state
	}
	return found, res, nil, true, nil
}

// foundWindow is what is stored of a unique key.
type foundWindow struct {
	window
	at windowPlace
}

// windowPlace is where a window is stored.
type windowPlace byte

const (
	unreserved windowPlace = iota
	// byQueueName is by the queue's name and by space, so that it outlives the queue.
	byQueueName
	// byQueueNumber is by the queue's number, as entries before format 2 stored it, for both spaces.
	byQueueNumber
)

// spaceOf is the space of a unique key: keys that name requests do not meet those that name tasks.
func spaceOf(u *core.Unique) keys.Space {
	if u.Request {
		return keys.SpaceRequest
	}
	return keys.SpaceUnique
}

// findWindow finds the window of op's unique key, open or not. l is op's queue, or nil. Windows by
// number are looked for only while there may be some (m.numbered).
func (m *Machine) findWindow(v core.View, l *queueState, op *core.TaskCreate) (w foundWindow, err error) {
	m.key = keys.AppendWindow(m.key[:0], m.p, op.Queue, spaceOf(&op.Unique), op.Unique.Key)
	value, ok, err := v.Get(m.key)
	switch {
	case err != nil:
		return w, err
	case ok:
		w.at = byQueueName
		w.window, err = decodeWindow(value, formWindow)
		return w, err
	case l == nil || !m.numbered:
		return w, nil
	}
	m.key = keys.AppendUnique(m.key[:0], m.p, l.number, op.Unique.Key)
	if value, ok, err = v.Get(m.key); err != nil || !ok {
		return w, err
	}
	w.at = byQueueNumber
	w.window, err = decodeWindow(value, formUnique)
	return w, err
}

// openWindow reserves op's unique key for a task, until its time to live is over or the task frees it. old is what is stored of the key:
// a window that ended and was not yet swept is replaced, together with its timer.
func (m *Machine) openWindow(tx core.Txn, c *core.ApplyContext, l *queueState, op *core.TaskCreate, task core.TaskID, asked uint64, old foundWindow) {
	at := old.at
	ttl := min(orDefault(max(op.Unique.TTL, 0), defaultUniqueTTL), maxUniqueTTL)
	w := window{task: task, until: c.Stamp.Add(ttl), hash: asked, frees: op.Unique.Until}
	if c.Format < core.FormatQueues && at != byQueueName {
		w.hash = hash(op.Payload)
		m.openNumbered(tx, l, op, old.window, at == byQueueNumber, w)
		return
	}
	space := spaceOf(&op.Unique)
	switch at {
	case byQueueNumber:
		m.key = keys.AppendUnique(m.key[:0], m.p, l.number, op.Unique.Key)
		tx.Delete(m.mem.own(m.key))
		m.key = keys.AppendUniqueTimer(m.key[:0], m.p, old.until, l.number, op.Unique.Key)
		tx.Delete(m.mem.own(m.key))
	case byQueueName:
		if old.timed() {
			m.key = keys.AppendWindowTimer(m.key[:0], m.p, old.until, op.Queue, space, op.Unique.Key)
			tx.Delete(m.mem.own(m.key))
		}
	}
	m.key = keys.AppendWindow(m.key[:0], m.p, op.Queue, space, op.Unique.Key)
	m.value = appendWindow(m.value[:0], formWindow, w)
	m.put(tx, at == byQueueName)
	if w.timed() {
		m.key = keys.AppendWindowTimer(m.key[:0], m.p, w.until, op.Queue, space, op.Unique.Key)
		m.setTimer(tx, w.until, nil)
	}
}

// timed reports whether a timer sweeps the window. One that its task frees goes with that; until then it takes less than the task does,
// and when its time is over it holds the key no longer.
func (w *window) timed() bool { return w.frees == core.UniqueTTL }

// openNumbered is openWindow as entries before format 2 did it: by the queue's number, in one
// space. Applying such an entry must write the same bytes today.
func (m *Machine) openNumbered(tx core.Txn, l *queueState, op *core.TaskCreate, old window, replaced bool, w window) {
	if replaced {
		m.key = keys.AppendUniqueTimer(m.key[:0], m.p, old.until, l.number, op.Unique.Key)
		tx.Delete(m.mem.own(m.key))
	}
	m.numbered = true
	m.key = keys.AppendUnique(m.key[:0], m.p, l.number, op.Unique.Key)
	m.value = appendWindow(m.value[:0], formUnique, w)
	m.put(tx, replaced)
	m.key = keys.AppendUniqueTimer(m.key[:0], m.p, w.until, l.number, op.Unique.Key)
	m.setTimer(tx, w.until, nil)
}

// appendWindowOf appends the key of the window that a task was created under. s is of its payload record.
func (m *Machine) appendWindowOf(key []byte, s *spec) []byte {
	space := keys.SpaceUnique
	if s.flags&specRequest != 0 {
		space = keys.SpaceRequest
	}
	return keys.AppendWindow(key, m.p, string(s.queue), space, string(s.unique))
}

// freeKey frees the unique key that a task was created under. s is of its payload record. It leaves the memory alone in which values are
// put together.
func (m *Machine) freeKey(tx core.Txn, id core.TaskID, s *spec) error {
	m.key = m.appendWindowOf(m.key[:0], s)
	return m.closeWindow(tx, id, m.key)
}

// closeWindow removes the window under a key, if it is the task's. Where it has ended meanwhile, the key may be another task's.
func (m *Machine) closeWindow(tx core.Txn, id core.TaskID, key []byte) error {
	value, ok, err := tx.Get(key)
	if err != nil || !ok {
		return err
	}
	w, err := decodeWindow(value, formWindow)
	if err != nil || w.task != id {
		return err
	}
	tx.Delete(m.mem.own(key))
	return nil
}

// freeAtEnd frees the unique key of a task that ends, if its end frees one. Only such a task costs a read, or two where it was given out
// before the machine was opened.
func (m *Machine) freeAtEnd(tx core.Txn, r *run, rec *record) error {
	if !rec.frees {
		return nil
	}
	rec.frees = false
	if r.window != nil {
		return m.closeWindow(tx, r.id, r.window)
	}
	s, err := m.loadSpec(tx, r.id)
	if err != nil {
		return err
	}
	return m.freeKey(tx, r.id, &s)
}

// replace makes a task that waits and has not started what another create of its unique key asks for. Its id, its creation and what
// places it stay: key, cost, limiters, tag, batch and what it waits for. rec is its record, and found the window of the key.
//
// The create is known under its own id for as long as a task that was removed: a repetition of it, which may come after yet another
// create of the key, must not replace that one.
func (m *Machine) replace(tx core.Txn, c *core.ApplyContext, l *queueState, op *core.TaskCreate, rec *record, h hashes, found foundWindow) (core.OpResult, core.Fact, error) {
	id := found.task
	was, err := m.loadSpec(tx, id)
	if err != nil {
		return core.OpResult{}, nil, err
	}
	if fact := l.roomToReplace(op, uint64(len(was.payload))); fact != nil {
		return core.OpResult{}, fact, nil
	}
	if is := len(op.Payload); is > len(was.payload) {
		if fact := m.roomInTenant(c, 0, uint64(is-len(was.payload))); fact != nil {
			return core.OpResult{}, fact, nil
		}
	}
	if rec.state == core.Ready {
		m.settleOne(tx, l, id, rec)
	}
	next, first := *op, *c
	next.Key, next.Cost, next.Limiters, next.Tag = string(was.key), was.cost, was.limiters, string(was.tag)
	next.After, next.OnDepFailure, next.Batch = was.after, was.onDep, was.batch
	first.Stamp, first.Index, first.Principal = was.createdAt, was.createdIdx, string(was.creator)
	labels, content, size := was.labels, was.content, uint64(len(was.payload))
	record, _ := appendSpec(m.room(specSize(&first, &next)), &first, &next)
	binary.BigEndian.PutUint64(record[1:], content) // by which a repetition of the first create is known
	m.key = keys.AppendTaskPayload(m.key[:0], m.p, id)
	tx.Set(m.mem.own(m.key), m.keep(record))
	m.dropLabels(tx, id, labels)
	m.saveLabels(tx, l, id, op.Labels)
	m.touch(l)
	m.addBytes(l, uint64(len(op.Payload))-size)
	m.dropExpiry(tx, id, rec)
	m.setExpiry(tx, l, id, rec, expiryOf(c, l, op))
	if err := m.replacePlace(tx, c, l, op, id, rec); err != nil {
		return core.OpResult{}, nil, err
	}
	rec.frees = op.Unique.Until != core.UniqueTTL
	m.saveRecord(tx, id, rec)
	m.openWindow(tx, c, l, op, id, h.asked, found)
	until := c.Stamp.Add(m.o.Remember)
	m.key = keys.AppendTaskState(m.key[:0], m.p, op.ID)
	m.value = appendReplaced(m.value[:0], replaced{id, h.content, until})
	tx.Insert(m.mem.own(m.key), m.mem.own(m.value))
	m.key = keys.AppendTaskTimer(m.key[:0], m.p, until, keys.TimerTombstone, op.ID)
	m.setTimer(tx, until, nil)
	return core.OpResult{Task: id, State: rec.state, Existed: true}, nil, nil
}

// roomToReplace judges the limits of a create that replaces an earlier one, whose payload has that many bytes.
func (l *queueState) roomToReplace(op *core.TaskCreate, was uint64) core.Fact {
	if l.config.Limits != (core.QueueLimits{}) {
		if fact := l.checkCeilings(op); fact != nil {
			return fact
		}
		if is := uint64(len(op.Payload)); is > was {
			if fact := l.roomForBytes(is - was); fact != nil {
				return fact
			}
		}
	}
	if limit := l.maxPayload(); int64(len(op.Payload)) > limit {
		return core.TooLarge{Field: "payload", Limit: "max_payload", Max: limit}
	}
	return nil
}

// replacePlace gives a task the priority and the time of a create that replaced the one it was made by. A task that was ready and still
// is keeps its ready time. One that waits for others goes on waiting.
func (m *Machine) replacePlace(tx core.Txn, c *core.ApplyContext, l *queueState, op *core.TaskCreate, id core.TaskID, rec *record) error {
	due := dueOf(c, op)
	later := waits(c, due)
	moved := rec.state == core.Scheduled || rec.state == core.Ready && (later || op.Priority != rec.priority)
	if rec.state == core.Blocked {
		rec.runAt, rec.wall = 0, false
		if later {
			rec.runAt, rec.wall = due.at, due.wall
		}
	}
	if !moved {
		rec.priority = op.Priority
		return nil
	}
	from := rec.state
	ln, err := m.leave(tx, l, id, rec)
	if err != nil {
		return err
	}
	rec.priority = op.Priority
	switch {
	case later:
		rec.reason = reasonDelay
		m.schedule(tx, ln, id, rec, 0, due)
	case from == core.Ready:
		rec.sort = placeKey(rec.readyAt, rec.priority)
		m.enter(tx, ln, id, rec, 0)
	default:
		m.enqueue(tx, ln, id, rec, 0, c.Stamp)
	}
	return nil
}
