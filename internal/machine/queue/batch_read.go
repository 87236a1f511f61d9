package queue

import (
	"fmt"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/keys"
)

// BatchOf reads a batch; ok is false when there is none.
func BatchOf(v core.View, p core.Partition, id core.TaskID) (b core.Batch, ok bool, err error) {
	number, ok, err := batchNumber(v, p, id)
	if err != nil || !ok {
		return b, false, err
	}
	value, err := must(v, keys.AppendBatchCounts(nil, p, number), "counts of batch %s", id)
	if err != nil {
		return b, false, err
	}
	b, err = readBatch(v, p, number, value)
	return b, err == nil, err
}

// batchNumber reads the number of a batch; ok is false when there is none.
func batchNumber(v core.View, p core.Partition, id core.TaskID) (number uint64, ok bool, err error) {
	value, ok, err := v.Get(keys.AppendBatch(nil, p, id))
	if err != nil || !ok {
		return 0, false, err
	}
	made, err := decodeBatchMade(value)
	return made.number, err == nil, err
}

// Batches reads the batches of a partition in the order in which they were opened, the last ones first, those with numbers below one (0:
// there is no bound), at most n of them or about bytes of follow-ups. more says that there are others behind them.
func Batches(v core.View, p core.Partition, below uint64, n, bytes int) (out []core.Batch, more bool, err error) {
	type row struct {
		number uint64
		value  []byte
	}
	var rows []row
	from, to := keys.BatchCountsRange(p)
	if below > 0 {
		to = keys.AppendBatchCounts(nil, p, below)
	}
	var bad error
	err = v.ScanBack(from, to, func(key, value []byte) bool {
		if more = len(rows) == n; more {
			return false
		}
		number, ok := keys.DecodeBatchCounts(key)
		if !ok {
			bad = errs.Corruptf("row %x of batches makes no sense", key)
			return false
		}
		rows = append(rows, row{number, append([]byte(nil), value...)})
		return true
	})
	if err == nil {
		err = bad
	}
	for i := 0; i < len(rows) && err == nil; i++ {
		if bytes <= 0 {
			return out, true, nil
		}
		var b core.Batch
		b, err = readBatch(v, p, rows[i].number, rows[i].value)
		bytes -= 256
		for _, t := range [...]*core.TaskCreate{b.OnDone, b.OnSuccess} {
			if t != nil {
				bytes -= len(t.Payload)
			}
		}
		out = append(out, b)
	}
	return out, more, err
}

// readBatch reads the rest of a batch of whose counts value is what is stored.
func readBatch(v core.View, p core.Partition, number uint64, value []byte) (b core.Batch, err error) {
	row, err := decodeBatchRow(value)
	if err != nil {
		return b, fmt.Errorf("batch number %d: %w", number, err)
	}
	stored, err := must(v, keys.AppendBatch(nil, p, row.id), "batch %s", row.id)
	if err != nil {
		return b, err
	}
	made, err := decodeBatchMade(stored)
	if err == nil && made.number != number {
		err = errs.Corruptf("batch %s has numbers %d and %d", row.id, number, made.number)
	}
	if err != nil {
		return b, err
	}
	b = core.Batch{
		BatchOpen: core.BatchOpen{ID: row.id, Labels: made.labels}, Number: number, State: row.state(), By: made.by, Opened: made.at,
		Counts: core.BatchCounts{
			Total: row.total, Waiting: row.waiting(), Running: row.running, Completed: row.completed, Dead: row.dead, Cancelled: row.cancelled,
		},
		Sealed: row.sealed, Finished: row.finished, Cancel: row.cancel, RefusedCode: row.code, RefusedMessage: row.message,
	}
	if len(b.Labels) == 0 {
		b.Labels = nil
	}
	if row.made&followDone != 0 {
		b.DoneTask = core.FollowUpID(row.id, row.opened, false)
	}
	if row.made&followSuccess != 0 {
		b.SuccessTask = core.FollowUpID(row.id, row.opened, true)
	}
	if b.OnDone, err = made.template(made.onDone); err != nil {
		return b, errs.Corruptf("follow-up of batch %s: %v", row.id, err)
	}
	if b.OnSuccess, err = made.template(made.onSuccess); err != nil {
		return b, errs.Corruptf("follow-up of batch %s: %v", row.id, err)
	}
	return b, nil
}

// HasBatches reports whether there are batches that have not finished.
func (m *Machine) HasBatches() bool { return m.batches.count.open > 0 }
