package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"

	"github.com/millrace/millrace/internal/auth"
	"github.com/millrace/millrace/internal/env"
	"github.com/millrace/millrace/internal/errs"
)

// edgeOptions are the options of an edge. Auth is required; a zero field else means its default.
type edgeOptions struct {
	Auth    Auth
	Calls   *auth.Calls                           // ends calls whose token does not allow them any more; default: one of its own, by Auth
	Refused func(who auth.Principal, from string) // is told of each token that is refused, as auth.Refusals notes it; none: nothing is
	Clock   env.Clock                             // default: the machine's
	Limits  Limits
	Memory  Memory
	Logger  *slog.Logger
}

// edge is what all doors of a node share: who calls, how much is under way, and how errors leave. It is safe for concurrent use.
type edge struct {
	o        edgeOptions
	l        Limits
	log      *slog.Logger
	conns    connections
	calls    gauge // unary calls, and requests of REST
	streams  gauge
	forwards gauge // requests that another node answers
	refusals refusals
	outcomes outcomes
	recovers bool // panics of calls become errors: not in builds that check invariants

	frames, requests, sends    *budget      // bytes that are held
	requestShares, frameShares tenantShares // of requests and frames, by tenant, for what is on its way

	live *auth.Calls        // calls and streams under way
	life context.Context    // until the server stops
	end  context.CancelFunc // of life
	work sync.WaitGroup     // goroutines that the server waits for
}

// newEdge makes an edge. It fails on limits out of bounds.
func newEdge(o edgeOptions) (*edge, error) {
	if o.Auth == nil {
		return nil, errors.New("edge: Auth is required")
	}
	if o.Clock == nil {
		o.Clock = env.SystemClock{}
	}
	if o.Refused == nil {
		o.Refused = func(auth.Principal, string) {}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	limits, err := o.Limits.withDefaults()
	if err != nil {
		return nil, err
	}
	e := &edge{
		o: o, l: limits, log: o.Logger, recovers: !errs.Invariants,
		calls:    newGauge("calls_node", limits.CallsNode, "calls_tenant", limits.CallsTenant),
		streams:  newGauge("streams_node", limits.StreamsNode, "streams_tenant", limits.StreamsTenant),
		forwards: newGauge(limitForwards, forwardsNode, "forwards_tenant", forwardsTenant),
		frames:   newBudget(o.Memory.Frames), requests: newBudget(o.Memory.Requests), sends: newBudget(o.Memory.Sends),
		live: o.Calls,
	}
	largest := max(limits.MessageBytes, limits.RESTBodyBytes) + 1
	e.requestShares = newShares("requests_tenant", max(e.requests.most/2, largest))
	e.frameShares = newShares("frames_tenant", max(e.frames.most/2, largest))
	e.life, e.end = context.WithCancel(context.Background())
	if e.live == nil {
		e.live = auth.NewCalls(o.Auth, o.Clock)
	}
	return e, nil
}

// close ends what the edge has started, once all calls have ended.
func (e *edge) close() {
	if e.o.Calls == nil {
		e.live.Close()
	}
}

// Requests that are forwarded at once, of all tenants and of one: each has a connection to the leader while it is under way,
// and a claim may wait for long.
const (
	forwardsNode   = 128
	forwardsTenant = forwardsNode / 2
	limitForwards  = "forwards"
)

// recovered makes an error of a panic, for deferred use: what panicked costs its own call and no other. Whatever such a call
// holds must therefore be given back by defer. Builds that check invariants let panics pass.
func (e *edge) recovered(err *error) {
	if !e.recovers {
		return
	}
	if p := recover(); p != nil {
		*err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
	}
}

// safely runs a call, or the part of one that has a goroutine of its own, and makes an error of its panic, which would else end
// the process.
func (e *edge) safely(do func() error) (err error) {
	defer e.recovered(&err)
	return do()
}

// stopping reports whether Shutdown has begun.
func (e *edge) stopping() bool { return e.life.Err() != nil }
