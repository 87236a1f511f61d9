package api

import (
	"context"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
	"github.com/millrace/millrace/internal/errs"
)

// GiveBack returns tasks that were granted to a caller who left.
// It does not wait for that: tasks whose return fails come back when their leases end.
func (ts *TaskService) GiveBack(ctx context.Context, tasks []*pb.Assignment) {
	// The caller is gone, and with it the context; the work is for others.
	call, err := ts.s.begin(context.WithoutCancel(ctx), false)
	if err != nil {
		return // their leases end by themselves
	}
	back := make([]core.Assigned, 0, len(tasks))
	for _, t := range tasks {
		id, err := core.ParseTaskID(t.GetId())
		if err != nil {
			_ = errs.Assertf(false, "a granted task has the id %q", t.GetId())
			continue // its lease ends by itself
		}
		back = append(back, core.Assigned{Task: id, Token: core.Token(t.GetToken())})
	}
	if len(back) == 0 {
		return
	}
	if p, ok := call.t.partOf(back[0].Task); ok { // a claim takes tasks of one partition
		ts.s.Release(p, back, func() {})
	}
}

// SettleOne settles one task, whose refusal is the answer's. outcome is what item asks for, and what the fields of errors are
// within; method is for the log.
// Errors: LeaseLost, and what refuses the effects.
func (ts *TaskService) SettleOne(ctx context.Context, item *pb.SettleItem, outcome, method string) (*pb.SettleResult, *pb.At, error) {
	id, fact := ReadTaskID("id", item.GetId())
	if fact != nil {
		return nil, nil, fact
	}
	call, err := ts.s.begin(ctx, false)
	if edge.UnknownNamespace(err) {
		return nil, nil, core.NotFound{Kind: "task", ID: id.String()}
	}
	if err != nil {
		return nil, nil, err
	}
	// A commit of its own, as in a batch of one.
	commit, _, fact := call.t.settle(item)
	if fact != nil {
		return nil, nil, edge.Unprefixed(outcome, fact)
	}
	p, err := call.propose(ctx, commit)
	if err != nil {
		return nil, nil, err
	}
	r := p.Results[0]
	if r.Refusal != nil {
		// The first op is the edge's own, which ends the attempt: ops of effects are counted after it.
		return nil, nil, edge.SettleRefusal{Refusal: edge.Refused(r.Refusal, 1), Failed: r.FailedInstead}
	}
	return call.answers(method).settleResult(r), ShowAt(AtOf(r, p.At)), nil
}
