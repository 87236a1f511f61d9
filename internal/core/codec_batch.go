package core

import "math"

// The numbers of a TaskCreate that adds to a batch, and of a BulkStart about one: the id of the batch comes before what the op has
// without it, because the words of presence bits of both have no bit left. They stand in entries alone and are not OpKinds.
const (
	opTaskCreateBatch = 60
	opBulkStartBatch  = 62
)

// batchOp writes what follows the kind of an op of batches.
func (w *writer) batchOp(op Op) {
	switch op := op.(type) {
	case *BatchOpen:
		w.id(op.ID)
		f := w.fields(false)
		if f.has(len(op.Labels) > 0) {
			w.labels(op.Labels)
		}
		if f.has(op.OnDone != nil) {
			w.taskCreate(op.OnDone)
		}
		if f.has(op.OnSuccess != nil) {
			w.taskCreate(op.OnSuccess)
		}
	case *BatchSeal:
		w.id(op.ID)
	case *BatchCancel:
		w.id(op.ID)
		f := w.fields(false)
		f.text(op.Reason)
		f.uint(uint64(op.Rate))
		f.has(op.Force)
	}
}

// batchOp reads what the writer's batchOp wrote.
func (r *reader) batchOp(kind OpKind) Op {
	switch kind {
	case OpBatchSeal:
		return &BatchSeal{ID: r.id()}
	case OpBatchCancel:
		op := &BatchCancel{ID: r.id()}
		f := r.fields(false)
		op.Reason, op.Rate, op.Force = f.text(), uint32(f.uint(math.MaxUint32)), f.has()
		f.end()
		return op
	}
	op := &BatchOpen{ID: r.id()}
	f := r.fields(false)
	if f.has() {
		op.Labels = r.labels()
		r.nonZero(len(op.Labels) > 0)
	}
	if f.has() {
		op.OnDone = new(TaskCreate)
		r.template(op.OnDone)
	}
	if f.has() {
		op.OnSuccess = new(TaskCreate)
		r.template(op.OnSuccess)
	}
	f.end()
	return op
}

// batchID reads the id of a batch that stands before an op. An op without a batch is written without.
func (r *reader) batchID() TaskID {
	id := r.id()
	r.nonZero(!id.IsZero())
	return id
}

// batchOpSize is opSize of the ops of batches.
func batchOpSize(op Op) int {
	switch op := op.(type) {
	case *BatchOpen:
		n := opHeader + 16 + varintBytes + labelsSize(op.Labels)
		if op.OnDone != nil {
			n += opSize(op.OnDone)
		}
		if op.OnSuccess != nil {
			n += opSize(op.OnSuccess)
		}
		return n
	case *BatchCancel:
		return opHeader + 16 + nameBytes + len(op.Reason) + varintBytes
	}
	return opHeader + 16
}
