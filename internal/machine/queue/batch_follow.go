package queue

import (
	"fmt"
	"slices"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/keys"
)

// A batch finishes once: in the entry of its seal or of the end of its last task, whichever is later. What happens to its tasks after that
// moves its counts, and nothing else. Its follow-ups are made in the same entry, as creates of the batch. One that the limits of queues
// and quotas refuse is not lost: a timer tries again until it was made, and the batch stays among those that have not finished for the
// bound on these.

// finishBatch finishes a batch whose tasks have all ended.
func (m *Machine) finishBatch(tx core.Txn, c *core.ApplyContext, b *batch) error {
	m.touchBatch(b)
	b.finished = max(c.Stamp, 1)
	b.due = b.wants & followDone
	if b.completed == b.total && b.cancel.At == 0 {
		b.due = b.wants
	}
	m.ended = append(m.ended, b.id)
	return m.followUp(tx, c, b)
}

// followUp makes the follow-ups of a batch that are to be made. What is refused is tried again.
func (m *Machine) followUp(tx core.Txn, c *core.ApplyContext, b *batch) error {
	b.code, b.message, b.retry = "", "", 0
	for _, which := range [...]followUps{followDone, followSuccess} {
		if b.due&which == 0 {
			continue
		}
		fact, err := m.makeFollowUp(tx, c, b, which)
		if err != nil {
			return err
		}
		if fact != nil {
			b.code, b.message = fact.Code().String(), core.Cut(fact.Error(), core.MaxReason)
			continue
		}
		b.due &^= which
		b.made |= which
	}
	if b.due != 0 {
		wait := min(core.Millis(core.BatchRetryFirst)<<min(b.tries, 10), core.BatchRetryMax)
		b.tries++
		b.retry = c.Stamp.Add(wait)
		m.key = keys.AppendBatchTimer(m.key[:0], m.p, b.retry, b.number)
		m.setTimer(tx, b.retry, nil)
		return nil
	}
	b.settled = max(c.Stamp, 1)
	m.key = keys.AppendBatchEnd(m.key[:0], m.p, b.settled, b.number)
	tx.Insert(m.mem.own(m.key), nil)
	m.batches.count.open--
	m.batches.count.kept++
	m.batches.end = min(m.batches.end, b.settled)
	return nil
}

// makeFollowUp makes one follow-up of a batch.
func (m *Machine) makeFollowUp(tx core.Txn, c *core.ApplyContext, b *batch, which followUps) (core.Fact, error) {
	m.key = keys.AppendBatch(m.key[:0], m.p, b.id)
	value, err := must(tx, m.key, "batch %s", b.id)
	if err != nil {
		return nil, err
	}
	made, err := decodeBatchMade(m.mem.own(value))
	if err != nil {
		return nil, err
	}
	template := made.onDone
	if which == followSuccess {
		template = made.onSuccess
	}
	create, err := core.DecodeTemplate(template)
	if err != nil {
		return nil, errs.Corruptf("follow-up of batch %s: %v", b.id, err)
	}
	create.ID = core.FollowUpID(b.id, b.opened, which == followSuccess)
	create.Headers = append(slices.Clone(create.Headers), core.Header{Name: core.HeaderBatch, Value: b.id.String()})
	by := *c
	by.Principal = "batch/" + b.id.String()
	_, fact, err := m.applyCreate(tx, &by, &create, false)
	return fact, err
}

// fireBatch tries again to make the follow-ups of a batch.
func (m *Machine) fireBatch(tx core.Txn, c *core.ApplyContext, rest []byte) error {
	number, ok := keys.DecodeBatchTimer(rest)
	if !ok {
		return errs.Corruptf("timer of a batch makes no sense")
	}
	b, err := m.batchAt(tx, number)
	switch {
	case err != nil:
		return err
	case b == nil || b.due == 0:
		return errs.Corruptf("batch number %d has a timer and nothing to make", number)
	}
	m.touchBatch(b)
	return m.followUp(tx, c, b)
}

// batchDue is when the first of the batches that are kept goes, or Never. At the very stamp of its end others may be settled before it.
func (m *Machine) batchDue() core.ShardTime {
	if m.batches.count.kept > uint64(m.o.BatchesKept) {
		return m.batches.end.Add(1)
	}
	return m.batches.end.Add(core.BatchKept)
}

// purgeBatches removes batches that were kept long enough, or of which there are too many, the oldest first, up to budget.
func (m *Machine) purgeBatches(tx core.Txn, c *core.ApplyContext, budget int) (used int, err error) {
	if m.batchDue() > c.Stamp || budget <= 0 {
		return 0, nil
	}
	type row struct {
		at     core.ShardTime
		number uint64
	}
	var rows []row
	over := int(m.batches.count.kept) - m.o.BatchesKept
	from, to := keys.BatchEndRange(m.p, m.batches.end)
	err = core.ScanRows(tx, from, to, func(key, _ []byte) (bool, error) {
		at, number, ok := keys.DecodeBatchEnd(key)
		if !ok {
			return false, errs.Corruptf("row of the index of batches makes no sense")
		}
		if len(rows) == budget || at.Add(core.BatchKept) > c.Stamp && (len(rows) >= over || at >= c.Stamp) {
			return false, nil
		}
		rows = append(rows, row{at, number})
		return true, nil
	})
	if err != nil {
		return 0, err
	}
	for _, r := range rows {
		if err := m.removeBatch(tx, r.number, r.at); err != nil {
			return 0, err
		}
	}
	return len(rows), m.seekBatchEnd(tx, m.batches.end)
}

// removeBatch removes a batch. Tasks of it that are there stay, and count nowhere any more; their rows in its index go as one range.
func (m *Machine) removeBatch(tx core.Txn, number uint64, at core.ShardTime) error {
	b, err := m.batchAt(tx, number)
	if err != nil {
		return err
	}
	if b == nil || b.settled != at || m.batches.count.kept == 0 {
		return errs.Corruptf("batch number %d is in the index of batches that are kept and is not", number)
	}
	m.touchBatch(b)
	b.gone = true
	m.batches.count.kept--
	m.key = keys.AppendBatchEnd(m.key[:0], m.p, at, number)
	tx.Delete(m.mem.own(m.key))
	m.key = keys.AppendBatchCounts(m.key[:0], m.p, number)
	tx.Delete(m.mem.own(m.key))
	m.key = keys.AppendBatch(m.key[:0], m.p, b.id)
	tx.Delete(m.mem.own(m.key))
	from, to := keys.BatchTaskRange(m.p, number)
	some, err := core.SomeRow(tx, from, to)
	if some {
		tx.DeleteRange(from, to)
	}
	return err
}

// seekBatchEnd finds when the first of the batches that are kept was settled, given that none was before from.
func (m *Machine) seekBatchEnd(v core.View, from core.ShardTime) error {
	m.batches.end = core.Never
	lo, hi := keys.BatchEndRange(m.p, from)
	err := core.ScanRows(v, lo, hi, func(key, _ []byte) (bool, error) {
		at, _, ok := keys.DecodeBatchEnd(key)
		if !ok {
			return false, errs.Corruptf("row of the index of batches makes no sense")
		}
		m.batches.end = at
		return false, nil
	})
	if err == nil && (m.batches.end == core.Never) != (m.batches.count.kept == 0) {
		err = fmt.Errorf("%d batches are kept: %w", m.batches.count.kept, errs.Corruptf("their index differs"))
	}
	return err
}
