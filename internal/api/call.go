package api

import (
	"context"
	"errors"

	"google.golang.org/grpc/metadata"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// NamespaceKey is the metadata key that names the namespace of a unary call.
const NamespaceKey = "millrace-namespace"

// defaultNamespace is where calls go that name none.
const defaultNamespace = "default"

// call is one unary call: who asks, and in which namespace. The translator's partition is the first one, until the call
// has chosen another.
type call struct {
	s   *Server
	who edge.Caller
	t   translator

	partitions []core.PartitionInfo // of the namespace
}

// begin finds the caller and the namespace of a call. A missing namespace is made when create is set, and NotFound
// otherwise.
func (s *Server) begin(ctx context.Context, create bool) (*call, error) {
	who, name, fact := s.asks(ctx)
	if fact != nil {
		return nil, fact
	}
	ns, err := s.namespace(ctx, who, name, create)
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
	namespace, fact = namespaceOf(md)
	return who, namespace, fact
}

func (s *Server) translator(who edge.Caller, p core.Partition, parts int) translator {
	return translator{
		l: &s.Limits, who: who.Principal, part: p, parts: parts, now: s.o.Backend.Now(p).Add(s.o.Backend.Shift(p)), rand: s.o.Rand,
		leads: s.o.Backend, edge: pointEdge{s, s.Life},
	}
}

func namespaceOf(md metadata.MD) (string, core.Fact) {
	switch values := md.Get(NamespaceKey); len(values) {
	case 0:
		return defaultNamespace, nil
	case 1:
		return values[0], SpaceName("namespace", values[0])
	}
	return "", edge.Invalid("namespace", "must be given only once")
}

var errNoPartition = errors.New("a namespace has no partition")

// namespace finds a namespace, which has a partition. The tenant is the token's, always.
func (s *Server) namespace(ctx context.Context, who edge.Caller, name string, create bool) (core.NamespaceInfo, error) {
	ns, err := s.o.Backend.Namespace(ctx, who.Tenant, name, create)
	if err == nil && len(ns.Partitions) == 0 {
		err = errNoPartition
	}
	return ns, err
}

// goTo chooses the partition of a task. It reports false if the task cannot exist: no partition of the
// namespace could hold its id.
func (c *call) goTo(id core.TaskID) (ok bool) {
	c.t.part, ok = c.t.partOf(id)
	return ok
}

// unknownNamespace reports whether err says that the namespace of a call does not exist.
func unknownNamespace(err error) bool {
	f, ok := errors.AsType[core.NotFound](err)
	return ok && f.Kind == "namespace"
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
	if unknownNamespace(err) {
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
	c.s.o.Backend.Propose(commits[0].Partition, commits, func(p core.Proposed) { ended <- p })
	select {
	case p := <-ended:
		if p.Err != nil {
			return p, p.Err
		}
		return p, checkResults(p, len(commits))
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
	return r.Ops[0], atOf(r, p.At), nil
}

var errResults = errors.New("a proposal ended with another number of results than it has commits")

func checkResults(p core.Proposed, commits int) error {
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
