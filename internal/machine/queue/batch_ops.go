package queue

import (
	"bytes"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/keys"
)

// notBatched refuses an op about a batch that entries before core.FormatShare do not have.
func notBatched(c *core.ApplyContext) core.Fact { return notShared(c, "has batches") }

// applyBatch judges an op of batches, and does it.
func (m *Machine) applyBatch(tx core.Txn, c *core.ApplyContext, op core.Op) (core.OpResult, core.Fact, error) {
	switch op := op.(type) {
	case *core.BatchOpen:
		return m.applyBatchOpen(tx, c, op)
	case *core.BatchSeal:
		return m.applyBatchSeal(tx, c, op)
	default:
		return m.applyBatchCancel(tx, c, op.(*core.BatchCancel))
	}
}

// checkBatch refuses what no batch may say. The edge refuses it with better words; this holds for entries.
func checkBatch(c *core.ApplyContext, op *core.BatchOpen) core.Fact {
	if op.ID.IsZero() {
		return core.Invalid{Field: "id", Message: "is required"}
	}
	if fact := checkLabels(op.Labels); fact != nil {
		return fact
	}
	if op.OnDone != nil {
		if fact := checkTemplate(c, "on_done", op.OnDone); fact != nil {
			return fact
		}
	}
	if op.OnSuccess != nil {
		return checkTemplate(c, "on_success", op.OnSuccess)
	}
	return nil
}

// applyBatchOpen makes a batch, or finds that it was made before.
func (m *Machine) applyBatchOpen(tx core.Txn, c *core.ApplyContext, op *core.BatchOpen) (core.OpResult, core.Fact, error) {
	if fact := notBatched(c); fact != nil {
		return core.OpResult{}, fact, nil
	}
	if fact := checkBatch(c, op); fact != nil {
		return core.OpResult{}, fact, nil
	}
	made := batchMade{opened: c.Index, at: c.Stamp, by: c.Principal, labels: op.Labels}
	wants := followUps(0)
	if op.OnDone != nil {
		made.onDone, wants = core.AppendTemplate(nil, op.OnDone), wants|followDone
	}
	if op.OnSuccess != nil {
		made.onSuccess, wants = core.AppendTemplate(nil, op.OnSuccess), wants|followSuccess
	}
	m.key = keys.AppendBatch(m.key[:0], m.p, op.ID)
	value, known, err := tx.Get(m.key)
	if err != nil {
		return core.OpResult{}, nil, err
	}
	if known {
		was, err := decodeBatchMade(value)
		if err != nil {
			return core.OpResult{}, nil, err
		}
		if !was.same(&made) {
			return core.OpResult{}, core.AlreadyExists{Kind: "batch", ID: op.ID.String()}, nil
		}
		return core.OpResult{Task: op.ID, Replayed: true}, nil, nil
	}
	for _, follow := range [...]*core.TaskCreate{op.OnDone, op.OnSuccess} {
		if follow != nil && m.pinnedElsewhere(m.lineOf(follow.Queue)) {
			return core.OpResult{}, core.QueuePinned{Queue: follow.Queue}, nil
		}
	}
	if m.batches.count.open >= uint64(m.o.Batches) {
		return core.OpResult{}, core.Exhausted{Limit: "batches", Max: int64(m.o.Batches)}, nil
	}
	m.meta.seq++
	made.number = m.meta.seq
	m.batches.count.open++
	m.value = appendBatchMade(m.value[:0], &made)
	tx.Set(m.mem.own(m.key), m.mem.own(m.value))
	m.keepBatch(&batch{number: made.number, batchRow: batchRow{id: op.ID, opened: c.Index, wants: wants}})
	return core.OpResult{Task: op.ID}, nil, nil
}

// same reports whether a batch was opened with the same as another.
func (s *batchMade) same(o *batchMade) bool {
	if len(s.labels) != len(o.labels) || !bytes.Equal(s.onDone, o.onDone) || !bytes.Equal(s.onSuccess, o.onSuccess) {
		return false
	}
	for i := range s.labels {
		if s.labels[i] != o.labels[i] {
			return false
		}
	}
	return true
}

// namedBatch reads the batch that an op changes.
func (m *Machine) namedBatch(v core.View, c *core.ApplyContext, id core.TaskID) (*batch, core.Fact, error) {
	if fact := notBatched(c); fact != nil {
		return nil, fact, nil
	}
	b, err := m.batchOf(v, id)
	if err == nil && b == nil {
		return nil, core.NotFound{Kind: "batch", ID: id.String()}, nil
	}
	return b, nil, err
}

// applyBatchSeal says that a batch gets no more tasks.
func (m *Machine) applyBatchSeal(tx core.Txn, c *core.ApplyContext, op *core.BatchSeal) (core.OpResult, core.Fact, error) {
	b, fact, err := m.namedBatch(tx, c, op.ID)
	switch {
	case fact != nil || err != nil:
		return core.OpResult{}, fact, err
	case b.sealed != 0:
		return core.OpResult{Task: op.ID, Replayed: true}, nil, nil
	}
	m.sealBatch(c, b)
	return core.OpResult{Task: op.ID}, nil, nil
}

// sealBatch seals a batch, which is over with that if nothing of it waits or runs.
func (m *Machine) sealBatch(c *core.ApplyContext, b *batch) {
	m.touchBatch(b)
	if b.sealed == 0 {
		b.sealed = max(c.Stamp, 1)
	}
	m.batches.check = append(m.batches.check, b)
}

// applyBatchCancel seals a batch, and starts a job that cancels what waits and asks what runs to stop.
func (m *Machine) applyBatchCancel(tx core.Txn, c *core.ApplyContext, op *core.BatchCancel) (core.OpResult, core.Fact, error) {
	b, fact, err := m.namedBatch(tx, c, op.ID)
	switch {
	case fact != nil || err != nil:
		return core.OpResult{}, fact, err
	case op.Rate > core.MaxBulkRate:
		return core.OpResult{}, core.TooLarge{Field: "rate", Limit: "bulk_rate", Max: core.MaxBulkRate}, nil
	case b.cancel.At != 0:
		return core.OpResult{Task: op.ID, Replayed: true}, nil, nil
	case b.finished != 0:
		return core.OpResult{}, core.WrongBatch{Batch: op.ID, State: core.BatchFinished}, nil
	}
	if b.waiting()+b.running > 0 {
		job := core.BatchJobID(b.id, b.opened)
		if _, taken := m.bulkAt(job); taken {
			return core.OpResult{}, core.AlreadyExists{Kind: "bulk", ID: job.String()}, nil
		}
		if m.bulksRunning() == core.MaxBulkJobs {
			return core.OpResult{}, core.Exhausted{Limit: "bulk_jobs", Max: core.MaxBulkJobs}, nil
		}
		m.startBulk(tx, c, &core.BulkStart{
			ID: job, Action: core.BulkCancel, Tasks: core.TaskFilter{Batch: b.id}, Rate: op.Rate, Reason: op.Reason, Force: op.Force,
		}, bulkScope{batch: b.number})
	}
	m.sealBatch(c, b)
	b.cancel = core.CancelAsked{At: max(c.Stamp, 1), By: c.Principal, Reason: cutReason(op.Reason), Force: op.Force}
	return core.OpResult{Task: op.ID}, nil, nil
}
