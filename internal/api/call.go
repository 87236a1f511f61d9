package api

import (
	"context"
	"errors"

	"google.golang.org/grpc/metadata"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// call is one unary call: who asks, and in which namespace. The translator's partition is the first one, until the call
// has chosen another.
type call struct {
	s   *Server
	who edge.Caller // with the rights that the caller had when the call began
	t   Translator  // reads the call's message

	partitions []core.PartitionInfo // of the namespace
}

// begin finds the caller and the namespace of a call. A missing namespace is made when create is set, and NotFound
// otherwise.
func (s *Server) begin(ctx context.Context, create bool) (*call, error) {
	who, name, fact := s.asks(ctx)
	if fact != nil {
		return nil, fact
	}
	ns, err := s.Namespace(ctx, who, name, create)
	if err != nil {
		return nil, err
	}
	t := s.translator(who, ns.Partitions[0].Partition, len(ns.Partitions))
	t.space = name
	return &call{s: s, who: who, t: t, partitions: ns.Partitions}, nil
}

// asks finds who makes a unary call, and which namespace it names.
func (s *Server) asks(ctx context.Context) (who edge.Caller, namespace string, fact core.Fact) {
	if s.Stopping() {
		return who, "", core.Unavailable{Reason: "stopping"}
	}
	who, ok := edge.CallerOf(ctx)
	if !ok {
		return who, "", core.Unauthenticated{}
	}
	md, _ := metadata.FromIncomingContext(ctx)
	namespace, fact = edge.NamespaceOf(md)
	return who, namespace, fact
}

// Home is the partition in which all that a stream sends must be.
type Home struct {
	Partition core.Partition
	Of        int    // how many partitions its namespace has
	Namespace string // its name
}

// Bound returns a translator for a stream of a caller. It refuses what belongs to another partition than home.
func (s *Server) Bound(who edge.Caller, home Home) Translator {
	t := s.translator(who, home.Partition, home.Of)
	t.bound, t.space = true, home.Namespace
	return t
}

// translator returns a translator for a caller in partition p of a namespace that has that many parts.
func (s *Server) translator(who edge.Caller, p core.Partition, parts int) Translator {
	return Translator{
		l: &s.Limits, who: who.Principal, part: p, parts: parts, now: s.node.places.Now(p).Add(s.node.places.Shift(p)), rand: s.o.Rand,
		leads: s.node.places, pins: s.node.queues, points: s.node.search, edge: pointEdge{s, s.Life},
	}
}

// Namespace finds a namespace, which has a partition. The tenant is the token's, always.
func (s *Server) Namespace(ctx context.Context, who edge.Caller, name string, create bool) (core.NamespaceInfo, error) {
	return edge.FindNamespace(ctx, s.node.spaces, who, name, create)
}

// goTo chooses the partition of a task. Errors: NotFound where no partition of the namespace could hold its id, and for a task of a
// queue that the caller's token does not reach.
func (c *call) goTo(ctx context.Context, id core.TaskID) error {
	p, ok := c.t.partOf(id)
	if !ok {
		return core.NotFound{Kind: "task", ID: id.String()}
	}
	c.t.part = p
	if c.who.AllQueues() {
		return nil
	}
	return c.t.findTask(ctx, id)
}

// ignoreNotFound drops the error that says that what was looked for is not there.
func ignoreNotFound(err error) error {
	if edge.Is[core.NotFound](err) {
		return nil
	}
	return err
}

// noTask makes of an unknown namespace an unknown task: a reader cannot tell which, nor whose.
func noTask(err error, id string) error {
	if edge.UnknownNamespace(err) {
		return core.NotFound{Kind: "task", ID: id}
	}
	return err
}

// propose waits for the end of a proposal of commits of one partition, or for that of the caller, who then does not know
// it.
func (c *call) propose(ctx context.Context, commits ...core.Commit) (core.Proposed, error) {
	if err := ctx.Err(); err != nil {
		return core.Proposed{}, edge.FactOf(err, false)
	}
	ended := make(chan core.Proposed, 1)
	c.s.node.commits.Propose(commits[0].Partition, commits, func(p core.Proposed) { ended <- p })
	select {
	case p := <-ended:
		if p.Err != nil {
			return p, p.Err
		}
		return p, CheckResults(p, len(commits))
	case <-ctx.Done():
		return core.Proposed{}, edge.FactOf(ctx.Err(), true)
	}
}

// proposeOp is propose for a commit of one op, whose refusal is an error.
func (c *call) proposeOp(ctx context.Context, op core.Op) (core.OpResult, core.At, error) {
	return c.proposeOne(ctx, c.t.commitOf([]core.Op{op}))
}

// proposeOne is proposeOp for the commit of that op.
func (c *call) proposeOne(ctx context.Context, commit core.Commit) (core.OpResult, core.At, error) {
	p, err := c.propose(ctx, commit)
	if err != nil {
		return core.OpResult{}, p.At, err
	}
	r := p.Results[0]
	if r.Refusal != nil {
		return core.OpResult{}, p.At, r.Refusal.Fact
	}
	return r.Ops[0], AtOf(r, p.At), nil
}

// errResults is a fault of the node: an answer could be given to the wrong item.
var errResults = errors.New("a proposal ended with another number of results than it has commits")

// CheckResults holds a proposal that has no error to one result for each of its commits.
func CheckResults(p core.Proposed, commits int) error {
	if len(p.Results) != commits {
		return errResults
	}
	return nil
}

// waiting returns a context that also ends when the server stops, for calls that wait.
func (s *Server) waiting(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.Life, func() { cancel(core.Unavailable{Reason: "stopping"}) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// waited turns the error of a call that waited into that of what ended it.
func waited(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil {
		return err
	}
	if cause := context.Cause(ctx); edge.Is[core.Fact](cause) {
		return cause
	}
	return err
}
