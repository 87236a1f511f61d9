package api

import (
	"cmp"
	"context"
	"errors"
	"slices"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/auth"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// batchOps are the ops of batches. They need what the methods of BatchService need.
var batchOps = []opRow{
	opOf(core.OpBatchOpen, auth.TaskCreate, func(t *Translator, in *pb.Op_BatchOpen) (core.Op, core.Fact) {
		return asOp(t.opening("batch_open", in.BatchOpen))
	}),
	opOf(core.OpBatchSeal, auth.TaskCreate, func(t *Translator, in *pb.Op_BatchSeal) (core.Op, core.Fact) {
		return asOp(t.batchSeal(in.BatchSeal))
	}),
	opOf(core.OpBatchCancel, auth.TaskOperate, func(t *Translator, in *pb.Op_BatchCancel) (core.Op, core.Fact) {
		return asOp(t.batchCancel(in.BatchCancel))
	}).orAny(auth.Admin),
}

// opened is what is said of a batch that is opened: by a request of its own, or by an op of a commit.
type opened interface {
	GetId() string
	GetTag() string
	GetLabels() map[string]string
	GetOnDone() *pb.TaskTemplate
	GetOnSuccess() *pb.TaskTemplate
}

// opening reads a batch that is opened. Where there are several partitions, one that says none gets its id when its own is known. field is
// what is refused where the cluster has no batches yet.
func (t *Translator) opening(field string, in opened) (op *core.BatchOpen, fact core.Fact) {
	if fact = t.shared(field); fact != nil {
		return nil, fact
	}
	op = new(core.BatchOpen)
	if fact = TextUpTo("tag", in.GetTag(), "tag_bytes", t.l.TagBytes); fact != nil {
		return nil, fact
	}
	switch {
	case in.GetId() != "" && in.GetTag() != "":
		return nil, edge.Invalid("id", "and tag are mutually exclusive")
	case in.GetTag() != "" && t.several():
		op.ID = t.idAt(int(core.PlaceText([]byte(in.GetTag()), t.parts)))
	default:
		if op.ID, fact = t.newTaskID(in.GetId()); fact != nil {
			return nil, fact
		}
	}
	if p, ok := t.partOf(op.ID); !op.ID.IsZero() && (!ok || op.ID.Partition() != p.Index) {
		return nil, edge.Invalid("id", "must name a partition of the namespace")
	}
	if op.Labels, fact = labels(in.GetLabels()); fact != nil {
		return nil, fact
	}
	if op.OnDone, fact = t.followUp("on_done", in.GetOnDone()); fact != nil {
		return nil, fact
	}
	op.OnSuccess, fact = t.followUp("on_success", in.GetOnSuccess())
	return op, fact
}

// followUp reads a task that a batch makes.
func (t *Translator) followUp(field string, in *pb.TaskTemplate) (*core.TaskCreate, core.Fact) {
	if in == nil {
		return nil, nil
	}
	op := new(core.TaskCreate)
	if fact := t.template(op, in); fact != nil {
		return nil, edge.Within(field, fact)
	}
	return op, nil
}

// followsElsewhere returns the partition of a task that a batch makes, if that is not the batch's own, and the field that names it.
func (t *Translator) followsElsewhere(op *core.BatchOpen, place int) (field string, other int, ok bool) {
	if !t.several() {
		return "", 0, false
	}
	for _, f := range [...]struct {
		field string
		op    *core.TaskCreate
	}{{"on_done", op.OnDone}, {"on_success", op.OnSuccess}} {
		// Apply judges those of a pinned queue.
		if f.op == nil || placedBy(f.op) == "id" || f.op.Tag == "" && t.pinned(f.op.Queue) {
			continue
		}
		if other = int(f.op.Place(t.parts)); other != place {
			return f.field + "." + placedBy(f.op), other, true
		}
	}
	return "", 0, false
}

// pinnedFollowUp reports whether a batch is to make a task of a pinned queue, which only a batch of the partition of those can.
func (t *Translator) pinnedFollowUp(op *core.BatchOpen) bool {
	for _, follow := range [...]*core.TaskCreate{op.OnDone, op.OnSuccess} {
		if follow != nil && follow.Tag == "" && t.pinned(follow.Queue) {
			return true
		}
	}
	return false
}

// batchPlace chooses the partition of a batch that says none.
func (t *Translator) batchPlace(op *core.BatchOpen) int {
	if t.pinnedFollowUp(op) {
		return core.PinnedPartition
	}
	return t.anyPlace()
}

// batchSeal reads the seal of a batch as an op of a commit.
func (t *Translator) batchSeal(in *pb.BatchSeal) (*core.BatchSeal, core.Fact) {
	id, fact := ReadTaskID("id", in.GetId())
	if fact == nil {
		fact = t.shared("id")
	}
	return &core.BatchSeal{ID: id}, fact
}

// canceling is what is said of a batch that is cancelled: by a request of its own, or by an op of a commit.
type canceling interface {
	GetReason() string
	GetRate() uint32
	GetForce() bool
}

// batchCancel reads the cancel of a batch as an op of a commit.
func (t *Translator) batchCancel(in *pb.BatchCancel) (*core.BatchCancel, core.Fact) {
	id, fact := ReadTaskID("id", in.GetId())
	if fact == nil {
		fact = t.shared("id")
	}
	if fact != nil {
		return nil, fact
	}
	return cancelBatch(id, in)
}

// cancelBatch reads how a batch is cancelled.
func cancelBatch(id core.TaskID, in canceling) (*core.BatchCancel, core.Fact) {
	if fact := reason(in.GetReason()); fact != nil {
		return nil, fact
	}
	if in.GetRate() > core.MaxBulkRate {
		return nil, edge.Beyond("rate", "bulk_rate", core.MaxBulkRate, "is out of range")
	}
	return &core.BatchCancel{ID: id, Reason: in.GetReason(), Rate: cmp.Or(in.GetRate(), core.DefaultBulkRate), Force: in.GetForce()}, nil
}

// reachesBatchOp refuses an op on a batch that the caller's token does not reach. The queues of the tasks that a new batch makes were
// judged when they were read.
func (t *Translator) reachesBatchOp(op core.Op) core.Fact {
	id, _ := core.BatchOf(op)
	if op.Kind() == core.OpBatchOpen {
		if !id.IsZero() {
			t.opens = append(t.opens, id)
		}
		return nil
	}
	return t.findBatchSoon(id)
}

// findBatchSoon is findBatch within the time that a translation has.
func (t *Translator) findBatchSoon(id core.TaskID) core.Fact {
	// Not the caller's context: translation has none. The time is short.
	ctx, cancel := context.WithTimeout(t.edge.ctx, lookupWait)
	defer cancel()
	err := t.findBatch(ctx, id)
	if err == nil {
		return nil
	}
	if fact, ok := errors.AsType[core.Fact](edge.FactOf(err, false)); ok {
		return fact
	}
	return core.Unavailable{Reason: "store"}
}

// findBatch refuses a caller whose token does not reach a batch, as if there were no such batch. One that the commit opens is reached, if it
// is not there yet.
func (t *Translator) findBatch(ctx context.Context, id core.TaskID) error {
	unknown := core.NotFound{Kind: "batch", ID: id.String()}
	p, ok := t.partOf(id)
	if !ok {
		return unknown
	}
	opens := slices.Contains(t.opens, id)
	if t.space == "" { // the namespace is not there
		if opens {
			return nil
		}
		return unknown
	}
	b, _, err := t.edge.s.node.batches.Batch(ctx, p, id, core.ReadOptions{})
	switch {
	case err == nil && !t.reachesBatch(&b):
		return unknown
	case opens && edge.Is[core.NotFound](err):
		return nil
	}
	return err
}
