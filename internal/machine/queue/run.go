package queue

import (
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/keys"
)

// run is a running task: its record, and what a settle needs of its payload record. While it runs,
// nothing of it is read from the store.
type run struct {
	// Its id, which is its key in Machine.runs.
	id core.TaskID
	// Its queue, which may have been removed since.
	queue *queueState
	// Its lane, which is there as long as it runs.
	lane *lane
	// rec is the state record as it is stored. A longHolder's name is in rec.worker here.
	rec record
	// content is the hash of what it was created with, and payload the length of its payload.
	content uint64
	//
	payload uint64
	// What it asks for itself, as its payload record has it.
	settings settings
	// kind is that of the task, where it was given out since the machine was opened; else it is empty. Only its errors need it.
	kind string
	// labels says that it has labels.
	labels bool
	// window is the key of the unique key's window that its end frees, where it was given out since the machine was opened; else nil.
	window []byte
	// limits are the limiters that it names itself.
	limits []*limiter
	// reason is why its cancel was asked for, as its holder is told.
	reason string
	// ends is the earliest stamp at which the lease may be ended. It is no earlier than the deadline.
	ends core.ShardTime
	// at is the place in the heap by ends.
	at int32
	// prev and next are the other running tasks of the same session, in no order.
	prev *run
	next *run
}

// lease is what a renewal, the request of a cancel, a first report and a task that waits for this one change.
type lease struct {
	until, cancel, ends core.ShardTime
	reported            bool
	dependents          uint32
	since               uint64
	only                onlyDependent
}

// lease returns what a renewal may change.
func (r *run) lease() lease {
	return lease{r.rec.leaseUntil, r.rec.cancelUntil, r.ends, r.rec.reported, r.rec.dependents, r.rec.since, r.rec.only}
}

// place is for the heap of leases.
func (r *run) place() *int32 { return &r.at }

// before orders by the end of the lease; tokens break ties, so that the order is total and replicas
// end leases alike.
func (r *run) before(o *run) bool {
	return r.ends < o.ends || r.ends == o.ends && r.rec.token < o.rec.token
}

// endOf is when a lease may be ended: at its deadline, and not before its holder had time to report
// to this term's leader. After a change of leader a holder must find the new one first. A holder
// that got the task from this term's leader needs no such time, from core.FormatQueues on.
//
// Where a cancel was asked for it ends no later than the grace of that, whatever its holder reports.
func (m *Machine) endOf(rec *record) core.ShardTime {
	at := m.leaseEnd(rec)
	if rec.cancelUntil != 0 {
		at = min(at, rec.cancelUntil)
	}
	return at
}

// leaseEnd is endOf without a cancel.
func (m *Machine) leaseEnd(rec *record) core.ShardTime {
	if m.format >= core.FormatQueues && rec.startedAt >= m.term {
		return rec.leaseUntil
	}
	return max(rec.leaseUntil, m.term.Add(min(rec.lease, m.o.Grace)))
}

// attach makes r a running task of the Machine: by id, by the end of its lease, and in its session's list.
func (m *Machine) attach(r *run) {
	m.runs[r.id] = r
	r.ends = m.endOf(&r.rec)
	m.leases.push(r)
	if s := r.queue.share; s != nil && s.workers != nil {
		s.workers[r.rec.worker]++
	}
	if s := r.rec.session; s != (core.SessionID{}) {
		r.prev, r.next = nil, m.sessions[s]
		if r.next != nil {
			r.next.prev = r
		}
		m.sessions[s] = r
	}
}

// detach is the inverse of attach. The order of a session's list may differ after both.
func (m *Machine) detach(r *run) {
	delete(m.runs, r.id)
	m.leases.remove(r)
	if s := r.queue.share; s != nil && s.workers != nil {
		m.touchShare(s)
		if s.workers[r.rec.worker]--; s.workers[r.rec.worker] <= 0 {
			delete(s.workers, r.rec.worker)
		}
	}
	s := r.rec.session
	if s == (core.SessionID{}) {
		return
	}
	if r.next != nil {
		r.next.prev = r.prev
	}
	switch {
	case r.prev != nil:
		r.prev.next = r.next
	case r.next != nil:
		m.sessions[s] = r.next
	default:
		delete(m.sessions, s)
	}
	r.prev, r.next = nil, nil
}

// setLease sets back what changed of a lease, and how many tasks wait for this one.
func (m *Machine) setLease(r *run, l lease) {
	r.rec.leaseUntil, r.rec.cancelUntil, r.ends, r.rec.reported = l.until, l.cancel, l.ends, l.reported
	r.rec.dependents, r.rec.since, r.rec.only = l.dependents, l.since, l.only
	m.leases.fix(r)
}

// start stores a task that was just given out: its row in the index of running tasks, and its record.
func (m *Machine) start(tx core.Txn, r *run) {
	m.key = keys.AppendRunning(m.key[:0], m.p, r.rec.token)
	m.value = appendCarried(m.value[:0], &carried{r.id, r.queue.number, r.content, r.payload, r.settings, r.labels})
	tx.Insert(m.mem.own(m.key), m.mem.own(m.value))
	if r.rec.batch != 0 {
		m.moveInBatch(r.rec.batch, core.Ready, core.Running)
	}
	m.saveRecord(tx, r.id, &r.rec)
	m.attach(r)
	m.log.run(r, runAdded)
}

// stop takes a task out of the running ones. What becomes of it is the caller's to write.
func (m *Machine) stop(tx core.Txn, r *run) {
	m.freeLimiters(r)
	m.key = keys.AppendRunning(m.key[:0], m.p, r.rec.token)
	tx.Delete(m.mem.own(m.key))
	m.detach(r)
	m.log.run(r, runRemoved)
	if r.rec.batch != 0 {
		m.moveInBatch(r.rec.batch, core.Running, core.Ready)
	}
}

// saveRecord stores a state record in place of the old one.
func (m *Machine) saveRecord(tx core.Txn, id core.TaskID, rec *record) {
	m.key = keys.AppendTaskState(m.key[:0], m.p, id)
	m.value = appendRecord(m.value[:0], rec)
	tx.Set(m.mem.own(m.key), m.mem.own(m.value))
	m.changed(id)
}

// changed tells of a task that the entry may have changed.
func (m *Machine) changed(id core.TaskID) {
	if m.o.Changed != nil {
		m.o.Changed(m.p, id)
	}
}

// holding returns the running task that token holds, or nil. No token holds a task whose queue was removed.
func (m *Machine) holding(task core.TaskID, token core.Token) *run {
	if r := m.runs[task]; r != nil && r.rec.token == token && !r.queue.removed {
		return r
	}
	return nil
}

// applyRenew extends leases, each by itself: an item whose token is not live is marked lost and
// does not fail the others. It shortens none, and the end of max_run bounds them all.
func (m *Machine) applyRenew(tx core.Txn, c *core.ApplyContext, op *core.TaskRenew) core.OpResult {
	res := core.OpResult{Kind: core.OpTaskRenew, Renewed: make([]core.Renewed, len(op.Items))}
	for i, item := range op.Items {
		r := m.holding(item.Task, item.Token)
		if r == nil {
			res.Renewed[i].Lost = true
			continue
		}
		by := r.rec.lease
		if op.Extend > 0 {
			by = clampLease(op.Extend)
		}
		until := c.Stamp.Add(by)
		if r.rec.runEnd != 0 {
			until = min(until, r.rec.runEnd)
		}
		if until > r.rec.leaseUntil {
			m.log.run(r, runRenewed)
			r.rec.leaseUntil = until
			r.ends = m.endOf(&r.rec)
			m.leases.fix(r)
			m.saveRecord(tx, r.id, &r.rec)
		}
		res.Renewed[i].Until = r.rec.leaseUntil
		if r.rec.cancelUntil != 0 {
			res.Renewed[i].Cancel = true
			res.Renewed[i].Until = min(r.rec.leaseUntil, r.rec.cancelUntil)
		}
	}
	return res
}
