package api

import (
	"context"
	"errors"

	"google.golang.org/grpc/metadata"

	"github.com/millrace/millrace/internal/core"
)

// namespaceKey is the metadata key that names the namespace of a unary call.
const namespaceKey = "millrace-namespace"

// defaultNamespace is where calls go that name none.
const defaultNamespace = "default"

// call is one unary call: who asks, and in which partition.
type call struct {
	s   *Server
	who caller
	t   translator
}

// begin finds the caller and the partition of a call. A missing namespace is made when create is set, and NotFound
// otherwise.
func (s *Server) begin(ctx context.Context, create bool) (*call, error) {
	if s.stopping() {
		return nil, core.Unavailable{Reason: "stopping"}
	}
	who, ok := callerOf(ctx)
	if !ok {
		return nil, core.Unauthenticated{}
	}
	md, _ := metadata.FromIncomingContext(ctx)
	name, fact := namespaceOf(md)
	if fact != nil {
		return nil, fact
	}
	p, err := s.partition(ctx, who, name, create)
	if err != nil {
		return nil, err
	}
	return &call{s: s, who: who, t: s.translator(who, p)}, nil
}

func (s *Server) translator(who caller, p core.Partition) translator {
	return translator{l: &s.l, who: who.Principal, part: p, now: s.o.Backend.Now(p), rand: s.o.Rand}
}

func namespaceOf(md metadata.MD) (string, core.Fact) {
	switch values := md.Get(namespaceKey); len(values) {
	case 0:
		return defaultNamespace, nil
	case 1:
		return values[0], spaceName("namespace", values[0])
	}
	return "", invalid("namespace", "is given more than once")
}

// partition finds the one partition of a namespace. The tenant is the token's, always.
func (s *Server) partition(ctx context.Context, who caller, name string, create bool) (core.Partition, error) {
	ns, err := s.o.Backend.Namespace(ctx, s.tenantOf(ctx, who), name, create)
	if err != nil {
		return core.Partition{}, err
	}
	if len(ns.Partitions) != 1 {
		return core.Partition{}, core.Invalid{
			Field: "namespace", Reason: "not_supported", Message: "has more than one partition",
		}
	}
	return ns.Partitions[0].Partition, nil
}

// unknownNamespace reports whether err says that the namespace of a call does not exist.
func unknownNamespace(err error) bool {
	f, ok := errors.AsType[core.NotFound](err)
	return ok && f.Kind == "namespace"
}

// noTask makes of an unknown namespace an unknown task: a reader cannot tell which, nor whose.
func noTask(err error, id string) error {
	if unknownNamespace(err) {
		return core.NotFound{Kind: "task", ID: id}
	}
	return err
}

// propose waits for the end of a proposal, or for that of the caller, who then does not know it.
func (c *call) propose(ctx context.Context, commits ...core.Commit) (core.Proposed, error) {
	if err := ctx.Err(); err != nil {
		return core.Proposed{}, factOf(err, false)
	}
	ended := make(chan core.Proposed, 1)
	c.s.o.Backend.Propose(c.t.part, commits, func(p core.Proposed) { ended <- p })
	select {
	case p := <-ended:
		if p.Err != nil {
			return p, p.Err
		}
		return p, checkResults(p, len(commits))
	case <-ctx.Done():
		return core.Proposed{}, factOf(ctx.Err(), true)
	}
}

// proposeOp is propose for a commit of one op, whose refusal is an error.
func (c *call) proposeOp(ctx context.Context, op core.Op) (core.OpResult, core.At, error) {
	p, err := c.propose(ctx, c.t.commitOf([]core.Op{op}))
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
	stop := context.AfterFunc(s.life, func() { cancel(core.Unavailable{Reason: "stopping"}) })
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
	if cause := context.Cause(ctx); is[core.Fact](cause) {
		return cause
	}
	return err
}
