package queue

import (
	"bytes"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/keys"
)

// maxGrantBytes ends a grant. Once the payloads that it gave are that large together, the next
// grant goes on. It bounds what a node holds for one worker, whose tasks may have 1 MiB each.
const maxGrantBytes = 4 << 20

// applyGrant gives the first ready tasks of the op's queues to a worker, one queue after the other
// in turn, or by their weights. A queue that is unknown or empty is passed over and leaves nothing behind.
func (m *Machine) applyGrant(tx core.Txn, c *core.ApplyContext, op *core.Grant) (core.OpResult, core.Fact, error) {
	if len(op.Worker) > maxWorker {
		return core.OpResult{}, core.TooLarge{Field: "worker", Limit: "worker", Max: maxWorker}, nil
	}
	n := op.N
	// A grant and the settles that free its slots are in one entry. A settle that did not free its
	// slot, because it was refused, must not make room.
	for _, s := range op.Settles {
		if n > 0 && m.holding(s.Task, s.Token) != nil {
			n-- // that slot is still taken
		}
	}
	n = uint32(min(uint64(n), m.roomToRun(c.Format)))
	var res core.OpResult
	var some bool
	turns := m.turnsOf(op)
	var bytes uint64
	for n > 0 && bytes < maxGrantBytes {
		i := turns.next()
		if i < 0 {
			break
		}
		l := m.lineOf(op.Queues[i].Name)
		ln, err := m.nextLane(tx, c, l, op.Worker)
		if err != nil {
			return core.OpResult{}, nil, err
		}
		turns.took(i, ln != nil)
		if ln == nil {
			continue
		}
		a, err := m.give(tx, c, ln, op)
		if err != nil {
			return core.OpResult{}, nil, err
		}
		if res.Assigned == nil {
			res.Assigned = make([]core.Assigned, 0, min(uint64(n), ln.queue.states[core.Ready]+1))
		}
		res.Assigned = append(res.Assigned, a)
		bytes += uint64(len(a.Payload) + len(a.Checkpoint))
		some = true
		n--
	}
	if some {
		m.meta.grants++
	}
	return res, nil, nil
}

// give starts the first ready task of a lane that has one: it leaves the index of ready tasks,
// gets the next token, and is stored as running. It returns what the worker gets.
func (m *Machine) give(tx core.Txn, c *core.ApplyContext, ln *lane, op *core.Grant) (a core.Assigned, err error) {
	l := ln.queue
	h, err := m.popNext(tx, ln)
	if err != nil {
		return a, err
	}
	rec, payload, err := m.take(tx, ln, h)
	if err != nil {
		return a, err
	}
	s, err := decodeSpec(payload)
	if err != nil {
		return a, err
	}
	if rec.frees && s.until == core.UniqueStart {
		rec.frees = false
		if err := m.freeKey(tx, h.id, &s); err != nil {
			return a, err
		}
	}
	m.move(ln, core.Ready, core.Running)
	m.charge(c, ln, h.id, max(rec.cost, 1))
	m.meta.token++
	r := &run{
		id: h.id, queue: l, lane: ln, rec: rec, at: -1,
		content: s.content, payload: uint64(len(s.payload)), settings: s.settings, labels: len(s.labels) > 0,
	}
	m.dropExpiry(tx, h.id, &r.rec)
	r.hold(c, op, core.Token(m.meta.token))
	if r.rec.longHolder {
		m.key = keys.AppendTaskHolder(m.key[:0], m.p, h.id)
		tx.Insert(m.mem.own(m.key), m.mem.own([]byte(op.Worker)))
	}
	if len(s.limiters) > 0 {
		if r.limits, err = m.resolve(s.limiters); err != nil {
			return a, err
		}
	}
	m.takeLimiters(c, r)
	checkpoint, err := checkpointOf(tx, m.p, h.id, &r.rec)
	if err != nil {
		return a, err
	}
	m.start(tx, r)
	a = assigned(r.id, &r.rec, &s, l)
	a.Checkpoint = checkpoint
	if c.Format >= core.FormatOperate {
		tellMore(&a, &r.rec, &s, l)
	}
	r.kind = a.Kind
	if r.rec.frees {
		r.window = m.appendWindowOf(nil, &s)
	}
	return a, nil
}

// take takes the first ready task of a lane out of the ready index, and returns its records. A task that this
// entry created has no row there yet: its records are in memory.
func (m *Machine) take(tx core.Txn, ln *lane, h head) (rec record, payload []byte, err error) {
	if f := m.freshOf(h); f != nil {
		f.taken = true
		m.log.took(int(h.fresh - 1))
		rec, payload = f.rec, f.payload
		if payload == nil {
			m.key = keys.AppendTaskPayload(m.key[:0], m.p, h.id)
			payload, err = must(tx, m.key, "payload of task %s", h.id)
		}
		return rec, payload, err
	}
	if rec, err = m.mustRecord(tx, h.id, core.Ready); err != nil {
		return rec, nil, err
	}
	// The head is a cache of the index; a record that says otherwise means that the store is damaged.
	if rec.sort != h.sort || rec.seq != h.seq || rec.queue != ln.queue.number || rec.lane != ln.number {
		return rec, nil, errs.Corruptf("task %s is not at its place in queue %q", h.id, ln.queue.name)
	}
	m.key = keys.AppendTaskPayload(m.key[:0], m.p, h.id)
	if payload, err = must(tx, m.key, "payload of task %s", h.id); err != nil {
		return rec, nil, err
	}
	m.deletePlace(tx, ln, h.sort, h.seq)
	return rec, payload, nil
}

// hold makes the record that of an attempt which starts now, held by the op's session. The lease is
// the op's, else the task's, else the queue's, and it never goes beyond the end of max_run.
func (r *run) hold(c *core.ApplyContext, op *core.Grant, token core.Token) {
	rec := &r.rec
	rec.state, rec.outcome, rec.token = core.Running, core.OutcomeNone, token
	rec.attempt++
	rec.startedAt = c.Stamp
	rec.session, rec.worker = op.Session, op.Worker
	rec.longHolder = len(op.Worker) > inlineWorker
	rec.lease = r.queue.lease(&r.settings)
	if op.Lease > 0 {
		rec.lease = clampLease(op.Lease)
	}
	rec.leaseUntil = c.Stamp.Add(rec.lease)
	rec.runEnd = 0
	if run := r.queue.maxRun(&r.settings); run > 0 {
		rec.runEnd = c.Stamp.Add(run)
		rec.leaseUntil = min(rec.leaseUntil, rec.runEnd)
	}
}

// assigned is what a worker gets of a running task. It copies the payload, since the record belongs
// to the store.
func assigned(id core.TaskID, rec *record, s *spec, l *queueState) core.Assigned {
	return core.Assigned{
		Task: id, Token: rec.token, Attempt: rec.attempt, Queue: l.name, Kind: s.kindName(l.name),
		ContentType: s.typeName(), Headers: s.headers, Payload: bytes.Clone(s.payload), Priority: rec.priority,
		LeaseUntil: rec.leaseUntil, Lease: rec.lease, MaxAttempts: l.maxAttempts(&s.settings),
		Failures: rec.failures, Crashes: rec.crashes, CreatedAt: s.createdAt,
	}
}

// tellMore tells a worker what servers of older formats cannot read in the answer to a claim that they passed on.
func tellMore(a *core.Assigned, rec *record, s *spec, l *queueState) {
	a.Tag, a.MaxRun = string(s.tag), l.maxRun(&s.settings)
	if rec.readyAt != s.createdAt {
		a.ReadyAt = rec.readyAt
	}
}
