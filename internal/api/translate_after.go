package api

import (
	"bytes"
	"slices"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// after reads the tasks that a new one waits for, which an op has in order of their ids. What is to follow when one of them is not
// completed means nothing without any.
func (t *Translator) after(op *core.TaskCreate, in *pb.TaskSpec) core.Fact {
	list := in.GetAfter()
	if len(list) > core.MaxAfter {
		return edge.TooLarge("after", "after", core.MaxAfter)
	}
	switch in.GetOnDepFailure() {
	case pb.OnDepFailure_ON_DEP_FAILURE_UNSPECIFIED, pb.OnDepFailure_HOLD:
	case pb.OnDepFailure_CANCEL:
		op.OnDepFailure = core.DepCancel
	case pb.OnDepFailure_RUN:
		op.OnDepFailure = core.DepRun
	default:
		return edge.NotSupported("on_dep_failure")
	}
	if len(list) == 0 {
		op.OnDepFailure = core.DepHold
		return nil
	}
	if fact := t.shared("after"); fact != nil {
		return fact
	}
	op.After = make([]core.After, len(list))
	for i, a := range list {
		field := edge.Item("after", i)
		id, fact := ReadTaskID(field+".id", a.GetId())
		switch {
		case fact != nil:
			return fact
		case id == op.ID:
			return edge.Invalid(field+".id", "must not be the task itself")
		case a.GetOn() != pb.After_COMPLETED && a.GetOn() != pb.After_TERMINAL:
			return edge.NotSupported(field + ".on")
		case slices.ContainsFunc(op.After[:i], func(b core.After) bool { return b.Task == id }):
			return edge.Invalid(field+".id", "must not be named twice")
		case int(id.Partition()) >= max(t.parts, 1):
			return core.NotFound{Kind: "task", ID: id.String()} // the namespace has no such partition
		}
		op.After[i] = core.After{Task: id, Terminal: a.GetOn() == pb.After_TERMINAL}
	}
	slices.SortFunc(op.After, func(a, b core.After) int { return bytes.Compare(a.Task[:], b.Task[:]) })
	return nil
}

// awaits returns the partition of a task that a new one waits for, or of its batch, or of a task that a new batch makes, that is not in a
// place, and the field that names it; false: there is none.
func (t *Translator) awaits(op core.Op, place int) (field string, other int, ok bool) {
	if batch, isBatch := op.(*core.BatchOpen); isBatch {
		return t.followsElsewhere(batch, place)
	}
	create, isCreate := op.(*core.TaskCreate)
	if !isCreate {
		return "", 0, false
	}
	for _, a := range create.After {
		if other := int(a.Task.Partition()); other != place {
			return "after", other, true
		}
	}
	if other := int(create.Batch.Partition()); !create.Batch.IsZero() && other != place {
		return "batch", other, true
	}
	return "", 0, false
}

// showAfter shows the tasks that one was made to wait for.
func showAfter(in []core.AfterState) []*pb.AfterState {
	if len(in) == 0 {
		return nil
	}
	out := make([]*pb.AfterState, len(in))
	for i, a := range in {
		out[i] = &pb.AfterState{Id: a.Task.String(), State: pb.State(a.State), Waits: a.Waits}
		if a.Terminal {
			out[i].On = pb.After_TERMINAL
		}
	}
	return out
}

// showOnDepFailure shows what follows when one of the tasks is not completed that a task waits for; unset where it waits for none.
func showOnDepFailure(t *core.Task) pb.OnDepFailure {
	if len(t.After) == 0 {
		return pb.OnDepFailure_ON_DEP_FAILURE_UNSPECIFIED
	}
	return pb.OnDepFailure_HOLD + pb.OnDepFailure(t.OnDepFailure)
}
