package edge

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

// Options are the options of an edge. Auth is required; a zero field else means its default.
type Options struct {
	Auth Auth
	// Calls ends calls whose token does not allow them any more. All doors of a node share one table;
	// nil: the edge makes one of its own, by Auth.
	Calls *auth.Calls
	// Refused is told of each token that is refused, as auth.Refusals notes it; nil: nothing is told.
	Refused func(who auth.Principal, from string)
	// Clock is the machine's by default.
	Clock  env.Clock
	Limits Limits
	Memory Memory
	Logger *slog.Logger
}

// Edge is what all doors of a node share: who calls, how much is under way, and how errors leave. It is safe for concurrent use.
type Edge struct {
	o      Options
	Clock  env.Clock
	Limits Limits
	Log    *slog.Logger
	Conns  connections
	// Calls are unary calls, and requests of REST; Streams are streams that are open.
	Calls   Gauge
	Streams Gauge
	// Events are streams of server-sent events.
	Events Gauge
	// Forwards are requests that another node answers.
	Forwards Gauge
	// Refusals counts answers by the limit that they name, Outcomes counts calls by method and code:
	// both are for metrics.
	Refusals refusals
	Outcomes outcomes
	// Recovers says that panics of calls become errors. Builds that check invariants let them end the
	// process, so that no test passes over one.
	Recovers bool

	// Frames, Requests and Sends are bytes that are held, as Memory says.
	Frames, Requests, Sends *Budget
	// RequestShares and FrameShares are what each tenant has of requests and frames that are on their
	// way: half of the memory at most, so that one tenant that sends slowly does not keep all others
	// out.
	RequestShares, FrameShares tenantShares

	// Live are the calls and streams under way.
	Live *auth.Calls
	// Life ends when the server stops, by End. Calls that wait for something end with it.
	Life context.Context
	End  context.CancelFunc // of life
	// Work counts goroutines that the server waits for at its end.
	Work sync.WaitGroup
}

// New makes an edge. It fails on limits out of bounds.
func New(o Options) (*Edge, error) {
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
	limits, err := o.Limits.WithDefaults()
	if err != nil {
		return nil, err
	}
	e := &Edge{
		o: o, Clock: o.Clock, Limits: limits, Log: o.Logger, Recovers: !errs.Invariants,
		Calls:    newGauge("calls_node", limits.CallsNode, "calls_tenant", limits.CallsTenant),
		Streams:  newGauge("streams_node", limits.StreamsNode, "streams_tenant", limits.StreamsTenant),
		Events:   newGauge("event_streams_node", limits.EventStreamsNode, "event_streams_tenant", limits.EventStreamsTenant),
		Forwards: newGauge(LimitForwards, ForwardsNode, "forwards_tenant", ForwardsTenant),
		Frames:   NewBudget(o.Memory.Frames), Requests: NewBudget(o.Memory.Requests), Sends: NewBudget(o.Memory.Sends),
		Live: o.Calls,
	}
	// A share has room for one message of the largest size, however little memory the node has.
	largest := max(limits.MessageBytes, limits.RESTBodyBytes) + 1
	e.RequestShares = newShares("requests_tenant", max(e.Requests.Most/2, largest))
	e.FrameShares = newShares("frames_tenant", max(e.Frames.Most/2, largest))
	e.Life, e.End = context.WithCancel(context.Background())
	if e.Live == nil {
		e.Live = auth.NewCalls(o.Auth, o.Clock)
	}
	return e, nil
}

// Close ends what the edge has started, once all calls have ended.
func (e *Edge) Close() {
	if e.o.Calls == nil {
		e.Live.Close()
	}
}

// Requests that are forwarded at once, of all tenants and of one: each has a connection to the leader while it is under way,
// and a claim may wait for long.
const (
	ForwardsNode   = 128
	ForwardsTenant = ForwardsNode / 2
	LimitForwards  = "forwards"
	// LimitEventTopics is of the topics of one stream of events.
	LimitEventTopics = "event_topics"
)

// Recovered makes an error of a panic, for deferred use: what panicked costs its own call and no other. Whatever such a call
// holds must therefore be given back by defer. Builds that check invariants let panics pass.
func (e *Edge) Recovered(err *error) {
	if !e.Recovers {
		return
	}
	if p := recover(); p != nil {
		*err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
	}
}

// Safely runs a call, or the part of one that has a goroutine of its own, and makes an error of its panic, which would else end
// the process.
func (e *Edge) Safely(do func() error) (err error) {
	defer e.Recovered(&err)
	return do()
}

// Stopping reports whether Shutdown has begun.
func (e *Edge) Stopping() bool { return e.Life.Err() != nil }
