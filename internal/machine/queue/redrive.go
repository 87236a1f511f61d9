package queue

import (
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/keys"
)

// A dead or cancelled task can be made ready again: in its queue or, by a bulk job, in another one, and with a payload that a merge patch
// has changed. It stays the same task: id, attempts, labels and creation go with it. For its old queue it is as if it had been removed,
// for the new one as if it had been created there.

// redriving is a task on its way from the ended ones to the ready ones.
type redriving struct {
	id   core.TaskID
	rec  record
	from *queueState
	to   *queueState // nil: it is made
	name string      // of to
	key  string
	// The limiters that it names.
	limiters []string
	// payload is what it is to have, and record its payload record; nil: both stay as they are.
	payload, record []byte
	was             spec // of record
}

// redrive makes a dead or cancelled task ready. An empty name of a queue stands for its own; a patch may be nil.
func (m *Machine) redrive(tx core.Txn, c *core.ApplyContext, id core.TaskID, name string, patch []byte) (core.OpResult, core.Fact, error) {
	rec, l, fact, err := m.found(tx, id)
	switch {
	case fact != nil || err != nil:
		return core.OpResult{}, fact, err
	case rec.state != core.Dead && rec.state != core.Cancelled:
		return core.OpResult{}, core.WrongState{Task: id, State: rec.state}, nil
	}
	r := &redriving{id: id, rec: rec, from: l, to: l, name: l.name}
	if name != "" && name != l.name {
		r.to, r.name = m.lineOf(name), name
	}
	if r.to != l || len(patch) > 0 {
		if fact, err := m.rewrite(tx, r, patch); fact != nil || err != nil {
			return core.OpResult{}, fact, err
		}
	}
	if fact, err := m.roomToRedrive(tx, c, r); fact != nil || err != nil {
		return core.OpResult{}, fact, err
	}
	return core.OpResult{Task: id, State: core.Ready}, nil, m.makeReady(tx, c, r)
}

// rewrite works out what the payload of a task is to be that moves or is patched.
func (m *Machine) rewrite(v core.View, r *redriving, patch []byte) (core.Fact, error) {
	m.key = keys.AppendTaskPayload(m.key[:0], m.p, r.id)
	value, err := must(v, m.key, "payload of task %s", r.id)
	if err != nil {
		return nil, err
	}
	if r.was, err = decodeSpec(value); err != nil {
		return nil, err
	}
	r.record, r.payload = value, r.was.payload
	if len(patch) > 0 {
		patched, ok := mergePatch(nil, r.was.payload, patch)
		if !ok {
			return core.Invalid{Field: "patch", Message: "must be for tasks whose payload is JSON"}, nil
		}
		r.payload = patched
	}
	return nil, nil
}

// roomToRedrive judges the limits of the queue in which a task is to be ready. A task that stays there brings no bytes but those of a
// longer payload.
func (m *Machine) roomToRedrive(v core.View, c *core.ApplyContext, r *redriving) (core.Fact, error) {
	switch {
	case r.to != r.from && m.pinnedElsewhere(r.to):
		return core.QueuePinned{Queue: r.name}, nil
	case r.to != nil:
		if fact := r.to.roomForTask(); fact != nil {
			return fact, nil
		}
	case c.Namespace.NoAutoCreate:
		return core.NotFound{Kind: "queue", ID: r.name}, nil
	default:
		if fact := m.roomForQueue(c); fact != nil {
			return fact, nil
		}
	}
	if r.record != nil {
		limit := int64(defaultMaxPayload)
		if r.to != nil {
			limit = r.to.maxPayload()
		}
		if int64(len(r.payload)) > limit {
			return core.TooLarge{Field: "payload", Limit: "max_payload", Max: limit}, nil
		}
		is, was := uint64(len(r.payload)), uint64(len(r.was.payload))
		if r.to != r.from {
			was = 0
		}
		if r.to != nil && is > was {
			if fact := r.to.roomForBytes(is - was); fact != nil {
				return fact, nil
			}
		}
	}
	var more uint64
	if is, was := len(r.payload), len(r.was.payload); r.record != nil && is > was {
		more = uint64(is - was)
	}
	if fact := m.roomInTenant(c, 1, more); fact != nil {
		return fact, nil
	}
	if r.rec.lane == 0 {
		return nil, nil
	}
	s, err := m.loadSpec(v, r.id)
	if err != nil {
		return nil, err
	}
	r.key, r.limiters = string(s.key), s.limiters
	if len(r.limiters) > 0 {
		if fact := m.checkLimiters(r.to, r.limiters); fact != nil {
			return fact, nil
		}
	}
	return m.roomForKey(r.to, laneKey(r.key, r.limiters)), nil
}

// makeReady takes a task out of the ended ones, and makes it ready where it goes.
func (m *Machine) makeReady(tx core.Txn, c *core.ApplyContext, r *redriving) error {
	rec := r.rec
	row, err := m.takePast(tx, r.from, r.id, &rec)
	if err != nil {
		return err
	}
	m.dropPast(tx, r.id)
	if row.cancel {
		m.dropCancel(tx, r.id)
	}
	if r.to == nil {
		r.to = m.addLine(tx, r.name)
	}
	if r.record != nil {
		m.saveRewritten(tx, r, row.bytes)
	}
	state := rec.state
	rec.failures, rec.crashes, rec.snoozes = 0, 0, 0
	rec.redrives++
	rec.base, rec.hasCancel = rec.attempt, false
	if r.to != r.from {
		m.move(&r.from.plain, state, 0)
		r.from.purged++
		r.to.created++
		rec.queue = r.to.number
		state = 0
	}
	// Its lane may have gone since it ended: the key is known from what was sent.
	limits, err := m.resolve(r.limiters)
	if err != nil {
		return err
	}
	m.nameLimiters(limits, false)
	ln := m.laneFor(r.to, r.key, r.limiters)
	rec.lane = ln.number
	m.enqueue(tx, ln, r.id, &rec, state, c.Stamp)
	m.saveRecord(tx, r.id, &rec)
	m.noteCron(r.id)
	if rec.batch != 0 {
		m.moveInBatch(rec.batch, r.rec.state, core.Ready)
	}
	return m.afterPast(tx, r.from.pastOf(r.rec.state), row.at)
}

// saveRewritten writes the payload record of a task that moves or is patched, and counts its bytes, of which it had that many. The rows
// of its labels name its queue.
func (m *Machine) saveRewritten(tx core.Txn, r *redriving, had uint64) {
	record := appendMoved(m.room(len(r.record)+len(r.payload)+2*maxName+32), r.record, &r.was, r.name, r.payload)
	m.key = keys.AppendTaskPayload(m.key[:0], m.p, r.id)
	tx.Set(m.mem.own(m.key), m.keep(record))
	m.touch(r.from)
	m.touch(r.to)
	m.addBytes(r.from, -had)
	m.addBytes(r.to, had-uint64(len(r.was.payload))+uint64(len(r.payload)))
	if r.to != r.from {
		m.dropLabels(tx, r.id, r.was.labels)
		m.saveLabels(tx, r.to, r.id, r.was.labels)
	}
}
