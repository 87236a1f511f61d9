package api

import (
	"context"
	"time"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/core"
)

// namespaceWait is how often a waiting claim looks for a namespace that does not exist yet.
const namespaceWait = time.Second

// Claim gives ready tasks to a caller without a stream.
func (ts *taskService) Claim(ctx context.Context, in *pb.ClaimRequest) (*pb.ClaimResponse, error) {
	ctx, cancel := ts.s.waiting(ctx)
	defer cancel()
	spec, fact := ts.s.claimSpec(in)
	if fact != nil {
		return nil, fact
	}
	c, err := ts.s.beginClaim(ctx, &spec)
	if err != nil {
		if unknownNamespace(err) {
			return &pb.ClaimResponse{At: showAt(core.At{})}, nil
		}
		return nil, waited(ctx, err)
	}
	if spec.Worker == "" {
		spec.Worker = c.who.Name
	}
	tasks, at, err := ts.s.o.Backend.Claim(ctx, c.t.part, spec)
	if err != nil {
		return nil, waited(ctx, err)
	}
	tasks = c.fit(tasks)
	return &pb.ClaimResponse{Tasks: showAssigned(tasks, ts.s.o.Backend.Now(c.t.part)), At: showAt(at)}, nil
}

// claimSpec reads a claim.
func (s *Server) claimSpec(in *pb.ClaimRequest) (spec core.ClaimSpec, fact core.Fact) {
	t := translator{l: &s.l}
	if spec.Queues, fact = t.queues(in.GetQueues()); fact != nil {
		return spec, fact
	}
	if int64(in.GetMax()) > s.l.ClaimTasks {
		return spec, beyond("max", "claim_tasks", s.l.ClaimTasks, "is out of range")
	}
	spec.Max = max(in.GetMax(), 1)
	if spec.Lease, fact = millis("lease", in.GetLease(), t.leases()); fact != nil {
		return spec, fact
	}
	if spec.Wait, fact = millis("wait", in.GetWait(), span{0, s.l.ClaimWaitMs, "claim_wait_ms"}); fact != nil {
		return spec, fact
	}
	spec.Worker = in.GetWorker()
	return spec, textUpTo("worker", in.GetWorker(), "worker_bytes", s.l.WorkerBytes)
}

// beginClaim is begin for a claim: it makes no namespace, but waits for one as long as the claim would wait for a
// task, and takes that off the claim's own wait.
func (s *Server) beginClaim(ctx context.Context, spec *core.ClaimSpec) (*call, error) {
	for {
		c, err := s.begin(ctx, false)
		if err == nil || !unknownNamespace(err) || spec.Wait <= 0 {
			return c, err
		}
		pause := min(spec.Wait.Duration(), namespaceWait)
		spec.Wait -= core.MillisOf(pause)
		timer := s.o.Clock.NewTimer(pause)
		select {
		case <-timer.C():
		case <-ctx.Done():
			timer.Stop()
			return nil, ctx.Err()
		}
	}
}

// fit keeps the tasks that one message takes and gives the others back to their queues.
func (c *call) fit(tasks []core.Assigned) []core.Assigned {
	bytes := 0
	for i := range tasks {
		bytes += assignedBytes(&tasks[i])
		if i > 0 && bytes > prevBytes {
			c.s.release(c.t.part, tasks[i:], func() {})
			return tasks[:i]
		}
	}
	return tasks
}

// release gives back tasks that never reached a worker, and calls over when that is done.
func (s *Server) release(p core.Partition, tasks []core.Assigned, over func()) {
	commits := make([]core.Commit, len(tasks))
	for i, t := range tasks {
		op := &core.TaskRelease{Task: t.Task, Token: t.Token, Undelivered: true}
		commits[i] = core.Commit{Partition: p, Ops: []core.Op{op}}
	}
	s.o.Backend.Propose(p, commits, func(done core.Proposed) {
		if done.Err != nil { // their leases end by themselves
			s.log.Warn("tasks that were not delivered stay leased", "tasks", len(tasks), "err", done.Err)
		}
		over()
	})
}

// Heartbeat extends leases.
func (ts *taskService) Heartbeat(ctx context.Context, in *pb.HeartbeatRequest) (*pb.HeartbeatResponse, error) {
	t := translator{l: &ts.s.l}
	if fact := t.items("items", len(in.GetItems())); fact != nil {
		return nil, fact
	}
	holds, fact := t.holds("items", in.GetItems())
	if fact != nil {
		return nil, fact
	}
	extend, fact := millis("extend", in.GetExtend(), t.leases())
	if fact != nil {
		return nil, fact
	}
	c, err := ts.s.begin(ctx, false)
	if unknownNamespace(err) {
		out := &pb.HeartbeatResponse{At: showAt(core.At{})}
		for range holds {
			out.Results = append(out.Results, &pb.HeartbeatResult{Lost: true})
		}
		return out, nil
	}
	if err != nil {
		return nil, err
	}
	p, err := c.propose(ctx, c.t.commitOf([]core.Op{&core.TaskRenew{Items: holds, Extend: extend}}))
	if err != nil {
		return nil, err
	}
	if r := p.Results[0].Refusal; r != nil {
		return nil, refusal{r, 0}
	}
	return &pb.HeartbeatResponse{Results: heartbeats(p.Results), At: showAt(p.At)}, nil
}

// Settle ends attempts.
func (ts *taskService) Settle(ctx context.Context, in *pb.SettleRequest) (*pb.SettleResponse, error) {
	c, err := ts.s.begin(ctx, false)
	missing := unknownNamespace(err)
	if err != nil && !missing {
		return nil, err
	}
	if missing { // its tasks are unknown, and whatever else is wrong with the items is said as ever
		who, _ := callerOf(ctx)
		c = &call{s: ts.s, who: who, t: ts.s.translator(who, core.Partition{})}
	}
	a := c.answers("Settle")
	b, fact := c.t.settles(a, in.GetItems())
	if fact != nil {
		return nil, fact
	}
	p := core.Proposed{}
	switch {
	case missing:
		for _, h := range b.holds {
			f := core.NotFound{Kind: "task", ID: h.Task.String()}
			p.Results = append(p.Results, core.Result{Refusal: &core.Refusal{Fact: f}})
		}
	case len(b.commits) > 0:
		if p, err = c.propose(ctx, b.commits...); err != nil {
			return nil, err
		}
	}
	return &pb.SettleResponse{Results: b.answer(a, p.Results), At: showAt(p.At)}, nil
}

func (c *call) answers(method string) *answers {
	return c.s.answers(method, c.who.Scopes.Has(readsValues))
}
