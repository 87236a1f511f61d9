package api

import (
	"context"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// Heartbeat extends leases.
func (ts *TaskService) Heartbeat(ctx context.Context, in *pb.HeartbeatRequest) (*pb.HeartbeatResponse, error) {
	l := &ts.s.Limits
	if fact := Items(l, "items", len(in.GetItems())); fact != nil {
		return nil, fact
	}
	holds, fact := Holds("items", in.GetItems())
	if fact != nil {
		return nil, fact
	}
	// 0 means the length that each lease has.
	extend, fact := Millis("extend", in.GetExtend(), LeaseSpan(l))
	if fact != nil {
		return nil, fact
	}
	c, err := ts.s.begin(ctx, false)
	// Nothing can be held in a namespace that is not there.
	if edge.UnknownNamespace(err) {
		return &pb.HeartbeatResponse{Results: allLost(len(holds)), At: ShowAt(core.At{})}, nil
	}
	if err != nil {
		return nil, err
	}
	reached, lost, fact := c.t.Reached(holds)
	if fact != nil {
		return nil, fact
	}
	if len(lost) == 0 {
		return c.renew(ctx, holds, extend)
	}
	out := &pb.HeartbeatResponse{At: ShowAt(core.At{})}
	if len(reached) > 0 {
		if out, err = c.renew(ctx, reached, extend); err != nil {
			return nil, err
		}
	}
	out.Results = WithLost(out.Results, lost)
	return out, nil
}

// renew extends leases of tasks that the caller's token reaches.
func (c *call) renew(ctx context.Context, holds []core.TaskHold, extend core.Millis) (*pb.HeartbeatResponse, error) {
	if c.t.several() {
		return c.renewEach(ctx, holds, extend)
	}
	// One op for all leases: a heartbeat costs one commit.
	p, err := c.propose(ctx, c.t.commitOf([]core.Op{&core.TaskRenew{Items: holds, Extend: extend}}))
	if err != nil {
		return nil, err
	}
	if r := p.Results[0].Refusal; r != nil {
		return nil, edge.Refused(r, 0)
	}
	return &pb.HeartbeatResponse{Results: Heartbeats(p.Results, c.s.node.places.Shift(c.t.part)), At: ShowAt(p.At)}, nil
}

// allLost answers heartbeats of tasks that cannot be held.
func allLost(n int) []*pb.HeartbeatResult {
	out := make([]*pb.HeartbeatResult, n)
	for i := range out {
		// A worker stops work on such a task.
		out[i] = &pb.HeartbeatResult{Lost: true}
	}
	return out
}

// renewEach extends leases of several partitions. An item has no error of its own, so where one partition does not answer,
// the outcome of the whole is unknown; a repetition does no harm.
func (c *call) renewEach(ctx context.Context, holds []core.TaskHold, extend core.Millis) (*pb.HeartbeatResponse, error) {
	out := &pb.HeartbeatResponse{Results: allLost(len(holds)), At: ShowAt(core.At{})}
	var commits []core.Commit
	var places [][]int // of each commit's items
	// The index of each partition's commit.
	known := make(map[core.Partition]int)
	for i, h := range holds {
		// An id that no partition can hold stays lost, as all are at first.
		p, ok := c.t.partOf(h.Task)
		if !ok {
			continue
		}
		n, ok := known[p]
		if !ok {
			n = len(commits)
			known[p] = n
			commits = append(commits, c.t.commitIn(p, []core.Op{&core.TaskRenew{Extend: extend}}))
			places = append(places, nil)
		}
		renew := commits[n].Ops[0].(*core.TaskRenew) // put just above
		renew.Items, places[n] = append(renew.Items, h), append(places[n], i)
	}
	if len(commits) == 0 {
		return out, nil
	}
	p, err := c.proposeEach(ctx, commits)
	if err != nil {
		return nil, err
	}
	for n, r := range p.Results {
		switch {
		// Then nothing was done, and the refusal is the whole answer's.
		case r.Refusal != nil && len(commits) == 1:
			return nil, edge.Refused(r.Refusal, 0)
		case r.Refusal != nil:
			return nil, halfway(r.Refusal.Fact)
		}
		for i, result := range Heartbeats(p.Results[n:n+1], c.s.node.places.Shift(commits[n].Partition)) {
			out.Results[places[n][i]] = result
		}
	}
	out.At = ShowAt(p.At)
	return out, nil
}

// Settle ends attempts.
func (ts *TaskService) Settle(ctx context.Context, in *pb.SettleRequest) (*pb.SettleResponse, error) {
	c, err := ts.s.begin(ctx, false)
	missing := edge.UnknownNamespace(err)
	if err != nil && !missing {
		return nil, err
	}
	if missing { // its tasks are unknown; other mistakes of the items are reported as usual
		who, _ := edge.CallerOf(ctx)
		c = &call{s: ts.s, who: who, t: ts.s.translator(who, core.Partition{}, 1)}
	}
	a := c.answers("Settle")
	b, fact := c.t.Settles(a, in.GetItems())
	if fact != nil {
		return nil, fact
	}
	p := core.Proposed{}
	switch {
	// Each item gets the answer that its task would get.
	case missing:
		for _, h := range b.Holds {
			f := core.NotFound{Kind: "task", ID: h.Task.String()}
			p.Results = append(p.Results, core.Result{Refusal: &core.Refusal{Fact: f}})
		}
	// Else all items were answered at once.
	case len(b.Commits) > 0:
		if p, err = c.proposeEach(ctx, b.Commits); err != nil {
			return nil, err
		}
	}
	return &pb.SettleResponse{Results: b.Answer(a, p.Results), At: ShowAt(p.At)}, nil
}

// answers begins the answers of the call. method is for the log.
func (c *call) answers(method string) *Answers {
	return c.s.Answers(method, c.who.Scopes.Has(edge.ReadsValues))
}
