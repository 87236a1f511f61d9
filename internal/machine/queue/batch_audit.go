package queue

import (
	"maps"
	"slices"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/keys"
)

// batchAudit is what an audit finds of batches.
type batchAudit struct {
	stored batches
	// The batches by number, and what was counted of their tasks.
	rows  map[uint64]batchRow
	found map[uint64]batchRow
	// How many rows there are.
	made, ends, timers int
	// Rows of tasks in the indexes of batches, and how many there must be.
	tasks, wants int
}

// batchOf counts a task of a batch, and checks that it has a row in its index, unless the batch is gone.
func (a *audit) batchOf(id core.TaskID, rec *record) error {
	if rec.batch == 0 {
		return nil
	}
	_, there, err := a.v.Get(keys.AppendBatchCounts(nil, a.p, rec.batch))
	if err != nil || !there {
		return err
	}
	found := a.batches.found[rec.batch]
	found.total++
	if n := found.count(rec.state); n != nil {
		*n++
	}
	a.batches.found[rec.batch] = found
	a.batches.wants++
	return a.has(keys.AppendBatchTask(nil, a.p, rec.batch, id), "row of task %s in the index of its batch", id)
}

// batchRow looks at a row of batches.
func (a *audit) batchRow(row keys.QueueRow, value []byte) (err error) {
	b := &a.batches
	switch row.Record {
	case keys.RecordBatch:
		b.made++
		made, err := decodeBatchMade(value)
		if err == nil && made.number > a.meta.seq {
			a.find("batch %s has number %d of %d", row.Task, made.number, a.meta.seq)
		}
		return err
	case keys.RecordBatchTask:
		b.tasks++
	case keys.RecordBatchEnd:
		b.ends++
	case keys.RecordBatches:
		b.stored, err = decodeBatches(value)
	case keys.RecordBatchCounts:
		r, err := decodeBatchRow(value)
		if err != nil {
			return err
		}
		b.rows[row.Batch] = r
		if r.settled != 0 {
			err = a.has(keys.AppendBatchEnd(nil, a.p, r.settled, row.Batch), "end of batch %s", r.id)
		}
		if r.due != 0 && err == nil {
			err = a.has(keys.AppendBatchTimer(nil, a.p, r.retry, row.Batch), "timer of batch %s", r.id)
		}
		if err != nil {
			return err
		}
		return a.has(keys.AppendBatch(nil, a.p, r.id), "batch %s", r.id)
	}
	return err
}

// finishBatches compares what batches count with what was found. Tasks that were removed after their end stay counted.
func (a *audit) finishBatches() {
	b := &a.batches
	open, kept, timers := 0, 0, 0
	for _, n := range slices.Sorted(maps.Keys(b.rows)) {
		r, found := b.rows[n], b.found[n]
		if r.running != found.running || r.waiting() != found.waiting() || r.completed < found.completed || r.dead < found.dead ||
			r.cancelled < found.cancelled {
			a.find("batch %s counts %+v, and has %+v", r.id, r, found)
		}
		switch {
		case r.finished != 0 && r.settled == 0 && r.due == 0, r.finished == 0 && (r.settled != 0 || r.due != 0 || r.made != 0), r.settled != 0 && r.due != 0,
			r.finished != 0 && r.sealed == 0, r.sealed == 0 && r.cancel.At != 0, r.finished == 0 && r.isOver(), (r.due|r.made)&^r.wants != 0, r.due&r.made != 0:
			a.find("batch %s makes no sense: %+v", r.id, r)
		}
		if r.settled != 0 {
			kept++
		} else {
			open++
		}
		if r.due != 0 {
			timers++
		}
	}
	if uint64(open) != b.stored.open || uint64(kept) != b.stored.kept {
		a.find("%d batches have not finished and %d are kept, and %+v are counted", open, kept, b.stored)
	}
	if b.made != len(b.rows) || b.ends != kept || b.timers != timers || b.tasks != b.wants {
		a.find("%d batches have %d records, %d ends of %d, %d timers of %d, and %d rows of %d tasks", len(b.rows), b.made, b.ends, kept, b.timers, timers, b.tasks, b.wants)
	}
}
