package core

import "math"

// bulkStart writes the start of a bulk job with its kind, after the batch that it is about if there is one.
func (w *writer) bulkStart(op *BulkStart) {
	if !op.Tasks.Batch.IsZero() {
		w.byte(opBulkStartBatch)
		w.id(op.Tasks.Batch)
	}
	w.byte(byte(OpBulkStart))
	w.id(op.ID)
	w.byte(byte(op.Action))
	w.byte(byte(op.Tasks.State))
	f := w.fields(true)
	f.name(op.Tasks.Queue)
	f.name(op.Tasks.Kind)
	f.text(op.Tasks.Worker)
	f.text(op.Tasks.Unique)
	if f.has(len(op.Tasks.Labels) > 0) {
		w.labels(op.Tasks.Labels)
	}
	f.int(int64(op.Tasks.From))
	f.int(int64(op.Tasks.To))
	f.uint(uint64(op.Priority))
	f.has(op.Force)
	f.uint(uint64(op.Rate))
	f.text(op.Reason)
	f.uint(op.Matched)
	f.has(op.Exact)
	f.uint(uint64(op.Tasks.Fingerprint))
	f.name(op.ToQueue)
	if f.has(len(op.Patch) > 0) {
		w.bytes(op.Patch)
	}
}

// bulkOp reads an op of bulk jobs, behind its kind.
func (r *reader) bulkOp(kind OpKind) Op {
	if kind == OpBulkStop {
		return &BulkStop{ID: r.id()}
	}
	var batch TaskID
	if kind == opBulkStartBatch {
		if batch = r.batchID(); r.byte() != byte(OpBulkStart) {
			r.fail("no bulk job about a batch")
		}
	}
	op := &BulkStart{ID: r.id(), Action: BulkAction(r.byte())}
	op.Tasks.State, op.Tasks.Batch = State(r.byte()), batch
	f := r.fields(true)
	op.Tasks.Queue, op.Tasks.Kind, op.Tasks.Worker, op.Tasks.Unique = f.name(), f.name(), f.text(), f.text()
	if f.has() {
		op.Tasks.Labels = r.labels()
		r.nonZero(len(op.Tasks.Labels) > 0)
	}
	op.Tasks.From, op.Tasks.To = ShardTime(f.int()), ShardTime(f.int())
	op.Priority, op.Force = uint8(f.uint(math.MaxUint8)), f.has()
	op.Rate, op.Reason = uint32(f.uint(math.MaxUint32)), f.text()
	op.Matched, op.Exact = f.uint(math.MaxUint64), f.has()
	op.Tasks.Fingerprint = Fingerprint(f.uint(math.MaxUint64))
	op.ToQueue = f.name()
	if f.has() {
		op.Patch = r.take(r.length())
		r.nonZero(len(op.Patch) > 0)
	}
	f.end()
	return op
}

// bulkStartSize is opSize of a BulkStart.
func bulkStartSize(op *BulkStart) int {
	q := &op.Tasks
	return opHeader + 16 + 3 + 17 + 2*newName + len(q.Queue) + len(q.Kind) + 3*nameBytes + len(q.Worker) + len(q.Unique) + len(op.Reason) +
		labelsSize(q.Labels) + 7*varintBytes + newName + len(op.ToQueue) + nameBytes + len(op.Patch)
}
