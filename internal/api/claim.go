package api

import (
	"cmp"
	"context"
	"errors"
	"time"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
	"github.com/millrace/millrace/internal/env"
)

const (
	// namespaceWait is how often a waiting claim looks for a namespace that does not exist yet.
	namespaceWait = time.Second
	// claimSlice is how long a claim of any partition waits at one of them before it looks at all again.
	claimSlice = 200 * time.Millisecond
	// leaderPatience is for how long a waiting claim looks for somebody who leads before it fails: leaders change.
	leaderPatience = 5 * time.Second
)

// Claim gives ready tasks to a caller without a stream.
func (ts *TaskService) Claim(ctx context.Context, in *pb.ClaimRequest) (*pb.ClaimResponse, error) {
	return ts.ClaimFor(ctx, in, false)
}

// ClaimFor is Claim. With stay it sends its caller to no other node while this one leads a partition: the caller was sent here.
func (ts *TaskService) ClaimFor(ctx context.Context, in *pb.ClaimRequest, stay bool) (*pb.ClaimResponse, error) {
	// A claim that waits ends when the server stops; tasks that are granted at that moment go back.
	ctx, cancel := ts.s.waiting(ctx)
	defer cancel()
	spec, fact := ts.s.claimSpec(in)
	if fact != nil {
		return nil, fact
	}
	name, fact := randomID("claim", in.GetClaim())
	if fact != nil {
		return nil, fact
	}
	c, err := ts.s.beginClaim(ctx, &spec)
	if err != nil {
		// The namespace did not come in time: no task was ready either.
		if edge.UnknownNamespace(err) {
			return &pb.ClaimResponse{At: ShowAt(core.At{})}, nil
		}
		return nil, waited(ctx, err)
	}
	if fact := ReachesQueues(&c.who, spec.Queues); fact != nil {
		return nil, fact
	}
	if name != (core.RequestID{}) {
		var end context.CancelCauseFunc
		ctx, end = context.WithCancelCause(ctx)
		defer ts.tasks.NameClaim(c.t.part, name, end)()
	}
	// Attempts name a worker in any case: the token's name, where the client has none.
	if spec.Worker == "" {
		spec.Worker = c.who.Name
	}
	var tasks []core.Assigned
	var at core.At
	switch {
	case in.Partition != nil && int64(in.GetPartition()) >= int64(len(c.partitions)):
		return nil, edge.Invalid("partition", "must be a partition of the namespace")
	// The client has no preference: any partition will do.
	case in.Partition == nil && c.t.several():
		tasks, at, err = c.claimAny(ctx, spec, stay)
	default:
		c.t.part = c.partitions[in.GetPartition()].Partition
		tasks, at, err = c.claimOne(ctx, spec, stay)
	}
	if err != nil && errors.Is(context.Cause(ctx), core.ErrClaimEnded) { // its client waits for nothing more
		tasks, at, err = nil, core.At{Stamp: ts.s.node.places.Now(c.t.part)}, nil
	}
	if err != nil {
		return nil, waited(ctx, err)
	}
	// What does not fit the answer is given back at once, and not when its lease ends.
	tasks = c.fit(tasks)
	return &pb.ClaimResponse{Tasks: ShowAssigned(tasks, ts.s.node.places.Now(c.t.part)), At: ShowAt(at)}, nil
}

// claimOne claims from the call's partition, and looks for its leader within the claim's wait as leaderSearch says.
func (c *call) claimOne(ctx context.Context, spec core.ClaimSpec, stay bool) ([]core.Assigned, core.At, error) {
	search := leaderSearch{c: c, ends: c.s.o.Clock.Boot() + spec.Wait.Duration()}
	for {
		began := c.s.o.Clock.Boot()
		tasks, at, err := c.s.node.tasks.Claim(ctx, c.t.part, spec)
		now := c.s.o.Clock.Boot()
		if now-began >= claimSlice { // it waited here: this node led
			search.found()
		}
		named := stay && edge.Is[core.NotLeader](err)
		if !named && !leaderless(err) || !search.again(ctx, named) {
			return tasks, at, err
		}
		spec.Wait = core.MillisOf(max(search.ends-c.s.o.Clock.Boot(), 0))
	}
}

// leaderless reports whether a claim took nothing because no node leads the partition.
func leaderless(err error) bool {
	f, ok := errors.AsType[core.Unavailable](err)
	return ok && f.Reason == "no_leader" && !f.Unknown
}

// leaderSearch is the part of a waiting claim's time in which it finds no partition that this node leads. While none leads it
// goes on for leaderPatience: leaders change. Where another node leads, but one has named this node as the leader, it looks once
// more: either may know by then.
type leaderSearch struct {
	c *call
	// Boot time at which the claim's wait is over.
	ends time.Duration
	// Boot time at which the search began, while on.
	since time.Duration
	on    bool
}

// again waits before the next look, and reports whether there is to be one. elsewhere says that another node leads.
func (l *leaderSearch) again(ctx context.Context, elsewhere bool) bool {
	now := l.c.s.o.Clock.Boot()
	if !l.on {
		l.on, l.since = true, now
	}
	patience := leaderPatience
	if elsewhere {
		patience = claimSlice
	}
	left := min(l.ends, l.since+patience) - now
	if left <= 0 {
		return false
	}
	return env.Sleep(ctx, l.c.s.o.Clock, min(left, claimSlice)) == nil
}

// found ends the search: this node leads a partition.
func (l *leaderSearch) found() { l.on = false }

// claimAny claims from whichever partition has ready tasks, those that this node leads first, in turn; then the call's
// partition is that. One led elsewhere sends the caller there. Without ready tasks it waits at one partition after the
// other, and looks at all in between. Where this node leads none, it looks for a leader as leaderSearch says.
func (c *call) claimAny(ctx context.Context, spec core.ClaimSpec, stay bool) ([]core.Assigned, core.At, error) {
	// By the boot clock, which no step of the wall clock moves.
	search := leaderSearch{c: c, ends: c.s.o.Clock.Boot() + spec.Wait.Duration()}
	for {
		l := c.look(spec.Queues)
		// Without waiting: a backlog may be gone by now, and the next partition has some.
		for _, p := range l.ready {
			tasks, at, err := c.claimAt(ctx, p, spec, 0)
			if err != nil || len(tasks) > 0 {
				return tasks, at, err
			}
		}
		switch {
		case len(l.here) > 0:
			search.found()
		case (stay || l.leader == "") && search.again(ctx, l.leader != ""):
			continue
		case l.leader == "":
			return nil, core.At{}, core.Unavailable{Reason: "no_leader"}
		default:
			return nil, core.At{}, core.NotLeader{Leader: cmp.Or(l.busy, l.leader)}
		}
		// Another node has ready tasks. With stay this node has been named by another one, which may know no better.
		if l.busy != "" && !stay {
			return nil, core.At{}, core.NotLeader{Leader: l.busy}
		}
		// Nothing was ready in time: an empty answer, and the time of it.
		left := search.ends - c.s.o.Clock.Boot()
		if left <= 0 || errors.Is(context.Cause(ctx), core.ErrClaimEnded) {
			return nil, core.At{Stamp: c.s.node.places.Now(c.t.part)}, nil
		}
		// A short wait at one partition, since tasks may become ready in any.
		tasks, at, err := c.claimAt(ctx, l.here[0], spec, min(left, claimSlice))
		if err != nil || len(tasks) > 0 {
			return tasks, at, err
		}
	}
}

// claimAt claims from one partition. If another node leads the partition by now, that is not an error: the answer
// has no tasks.
func (c *call) claimAt(ctx context.Context, p core.Partition, spec core.ClaimSpec, wait time.Duration) ([]core.Assigned, core.At, error) {
	c.t.part, spec.Wait = p, core.MillisOf(wait)
	tasks, at, err := c.s.node.tasks.Claim(ctx, p, spec)
	if edge.Is[core.NotLeader](err) || leaderless(err) {
		err = nil
	}
	return tasks, at, err
}

// looked is what a claim finds when it looks at all partitions.
type looked struct {
	// here are the partitions that this node leads, ready those of them with ready tasks.
	here  []core.Partition
	ready []core.Partition
	// busy is the leader of a partition with ready tasks elsewhere, leader that of any partition
	// elsewhere; empty: there is none.
	busy   string
	leader string
}

// look looks at all partitions, from another one on each time.
func (c *call) look(queues []core.GrantQueue) (l looked) {
	// Claims begin at different partitions, so that all partitions are emptied alike.
	first := int(c.s.turn.Add(1) % uint64(c.t.parts))
	for i := range c.t.parts {
		p := c.t.in((first + i) % c.t.parts)
		leader, here, known := c.s.node.places.Leader(p)
		switch {
		case !known:
		case here:
			l.here = append(l.here, p)
			if c.s.node.tasks.Backlog(p, queues) {
				l.ready = append(l.ready, p)
			}
		case leader == "":
		// This node's replica tells, which may lag: it only says where to ask.
		case l.busy == "":
			l.leader = leader
			if c.s.node.tasks.Backlog(p, queues) {
				l.busy = leader
			}
		}
	}
	return l
}

// claimSpec reads a claim.
func (s *Server) claimSpec(in *pb.ClaimRequest) (spec core.ClaimSpec, fact core.Fact) {
	l := &s.Limits
	if spec.Queues, fact = s.GrantQueues(in.GetQueues(), in.GetStrict()); fact != nil {
		return spec, fact
	}
	spec.Strict = in.GetStrict()
	if int64(in.GetMax()) > s.Limits.ClaimTasks {
		return spec, edge.Beyond("max", "claim_tasks", s.Limits.ClaimTasks, "is out of range")
	}
	// 0 means one.
	spec.Max = max(in.GetMax(), 1)
	if spec.Lease, fact = Millis("lease", in.GetLease(), LeaseSpan(l)); fact != nil {
		return spec, fact
	}
	if spec.Wait, fact = Millis("wait", in.GetWait(), Span{0, s.Limits.ClaimWaitMs, "claim_wait_ms"}); fact != nil {
		return spec, fact
	}
	if in.Partition != nil && int64(in.GetPartition()) >= s.Limits.Partitions {
		return spec, edge.Beyond("partition", "partitions", s.Limits.Partitions, "is out of range")
	}
	spec.Worker = in.GetWorker()
	return spec, TextUpTo("worker", in.GetWorker(), "worker_bytes", s.Limits.WorkerBytes)
}

// beginClaim is begin for a claim: it makes no namespace, but waits for one as long as the claim would wait for a
// task, and takes that off the claim's own wait.
func (s *Server) beginClaim(ctx context.Context, spec *core.ClaimSpec) (*call, error) {
	for {
		c, err := s.begin(ctx, false)
		if err == nil || !edge.UnknownNamespace(err) || spec.Wait <= 0 {
			return c, err
		}
		// What is waited here is taken off, so that the whole call waits no longer than it was asked to.
		pause := min(spec.Wait.Duration(), namespaceWait)
		spec.Wait -= core.MillisOf(pause)
		if err := env.Sleep(ctx, s.o.Clock, pause); err != nil {
			return nil, err
		}
	}
}

// fit keeps the tasks that one message takes and gives the others back to their queues.
func (c *call) fit(tasks []core.Assigned) []core.Assigned {
	bytes := 0
	for i := range tasks {
		bytes += AssignedBytes(&tasks[i])
		if i > 0 && bytes > AnswerBytes {
			c.s.Release(c.t.part, tasks[i:], func() {})
			return tasks[:i]
		}
	}
	return tasks
}

// Release gives back tasks that never reached a worker, and calls over when that is done.
func (s *Server) Release(p core.Partition, tasks []core.Assigned, over func()) {
	commits := make([]core.Commit, len(tasks))
	for i, t := range tasks {
		// Undelivered: it counts as no delivery.
		op := &core.TaskRelease{Task: t.Task, Token: t.Token, Undelivered: true}
		commits[i] = core.Commit{Partition: p, Ops: []core.Op{op}}
	}
	s.node.commits.Propose(p, commits, func(done core.Proposed) {
		if done.Err != nil { // their leases end by themselves
			s.Log.Warn("tasks that were not delivered stay leased", "tasks", len(tasks), "err", done.Err)
		}
		over()
	})
}
