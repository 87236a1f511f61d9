// Package transport chooses how a client reaches its servers: over gRPC, or over REST where gRPC does not come through; and at
// which node of a cluster.
//
// A Router is a connection like gRPC's. It holds the Endpoint in use, and those of the leaders of other partitions. It follows
// what servers say of leaders and members, leaves a node that is not reached or silent, goes over to REST and back. One mutex
// guards all of it; nothing is called with it held. AckPace estimates how fast a server answers.
package transport

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/sdk/go/internal/rest"
	"github.com/millrace/millrace/sdk/go/internal/retry"
	"github.com/millrace/millrace/sdk/go/internal/wire"
)

// Endpoint is one way to reach the server: a pair of gRPC connections to a node, or REST. Its exported fields do not change.
type Endpoint struct {
	// streams and calls are connections of their own: a wait for a task must not hold up a stream.
	streams, calls grpc.ClientConnInterface
	// Address is host:port of gRPC; empty for REST.
	Address string
	// Plain says that it has no sessions: what must be repeatable carries an id of its own.
	Plain bool
	// Gone ends when another endpoint is taken; leave ends it.
	Gone  context.Context
	leave context.CancelFunc
	// conns are those of streams and calls; nil over REST. more are for more streams than one takes.
	conns [2]*grpc.ClientConn
	more  []*grpc.ClientConn
	// lines are the connections of streams, over gRPC; the first is that of streams.
	lines []*StreamConn
	// owed is what the node has not answered.
	owed owed
	// users counts the calls and streams under way.
	users int
	// proved says that a server accepted a call.
	proved bool
	// failing is since when no call is accepted; zero: calls are accepted.
	failing time.Time
}

// Router chooses how a client reaches its server. It is a connection like gRPC's, of which each call takes the endpoint that
// is the right one when it begins.
//
// Over gRPC two connections are kept: a server bounds the calls of one, and waits must not hold up a stream. When gRPC
// does not come through and REST does, REST is taken, and gRPC is looked for from time to time. While the server is not
// there at all nothing changes.
type Router struct {
	opts Options
	// rest is nil where Mode is Stream.
	rest *rest.Conn
	// ctx ends with Close, by stop; connections are made under it.
	ctx  context.Context
	stop context.CancelFunc
	// done is closed when watch has returned.
	done chan struct{}
	// turn holds a token while somebody finds out whether REST is to be taken.
	turn chan struct{}

	// moves counts how often in a row watch went from node to node and reached none. It is watch's alone.
	moves int
	// asking counts the goroutines that ask other nodes who leads. Close waits for them.
	asking sync.WaitGroup

	mu sync.Mutex // guards the fields below, and what changes of an endpoint
	// now is the endpoint in use, and lead has those of the leaders of partitions.
	now  *Endpoint
	lead leaders
	// members are the addresses of the cluster that the client was not given, as its nodes say.
	members []string
	// unled decides when a node that knows of no leader is left.
	unled retry.Unled
	// left are endpoints that were left and are in use still.
	left []*Endpoint
	// missed is when REST was looked for last, and was not there.
	missed time.Time
	// closed says that nothing is opened any more.
	closed bool
}

const (
	// grpcGrace is how long gRPC may fail that worked before: a restart or a short cut must not change the transport, which
	// leaves commits that are under way unknown.
	grpcGrace = 5 * time.Second
	// askAgain bounds how often REST is looked for.
	askAgain = 500 * time.Millisecond
	// grpcWithin is how long a stream may take to be let in when gRPC is tried again.
	grpcWithin = 15 * time.Second
	// Waits between tries of gRPC, while REST serves, grow from one to the other.
	lookBase = time.Second
	lookMax  = time.Minute
)

// Mode says which transports a Router may use.
type Mode uint8

// The modes.
const (
	Auto   Mode = iota // gRPC, and REST while something between lets no gRPC through
	Stream             // gRPC alone
	REST               // REST alone
)

// Options is what a Router needs to know of its client. All fields are required, but REST where Mode is Stream.
type Options struct {
	// Mode says which transports may be used.
	Mode      Mode
	Addresses []string // host:port of nodes of one cluster, at least one
	// Namespace is named by streams that ask who leads.
	Namespace string
	REST      *rest.Conn // which the Router closes
	// Codec is that of streams.
	Codec     encoding.CodecV2
	Logger    *slog.Logger
	Encrypted bool // TLS is spoken everywhere

	Secure      func(hostPort string) bool                        // whether TLS is wanted there
	DialOptions func(w *Router, address string) []grpc.DialOption // of a connection to a node
	Partitions  func() int                                        // of the namespace; 0: not known yet
	Moved       func()                                            // another endpoint is used from now on
	Lost        func(address string)                              // a try to reach the server failed
	Reached     func(address string)                              // the server was reached
}

// Refusal is what a Router needs to know of the error of a call or stream.
type Refusal struct {
	// Code and Reason are as the contract writes them.
	Code, Reason string
	Leader       string // host:port that the error names; empty: none
	Patient      bool   // the call may be repeated
}

// noLeader reports whether the node that was asked knows of no leader.
func (e *Refusal) noLeader() bool {
	return e != nil && e.Code == wire.Unavailable && e.Reason == wire.ReasonNoLeader
}

// New makes a Router, which begins to connect at once. Errors are those of grpc.NewClient.
func New(o Options) (*Router, error) {
	w := &Router{opts: o, rest: o.REST, done: make(chan struct{}), turn: make(chan struct{}, 1)}
	w.ctx, w.stop = context.WithCancel(context.Background())
	if w.opts.Mode == REST {
		w.now = w.overREST()
		close(w.done)
		return w, nil
	}
	var err error
	if w.now, err = w.overGRPC(o.Addresses[0]); err != nil {
		return nil, err
	}
	w.now.conns[0].Connect()
	go w.watch()
	return w, nil
}

// overREST makes the endpoint of REST, which has no connections of its own: all share rest.Conn.
func (w *Router) overREST() *Endpoint {
	r := &Endpoint{streams: w.rest, calls: w.rest, Plain: true}
	r.Gone, r.leave = context.WithCancel(w.ctx)
	return r
}

// overGRPC makes an endpoint of the node at an address. It does not wait for the node: gRPC connects when it is told to, or with
// the first call.
func (w *Router) overGRPC(address string) (*Endpoint, error) {
	g := &Endpoint{Address: address}
	for i := range g.conns {
		var err error
		if g.conns[i], err = w.connect(address); err != nil {
			g.close()
			return nil, err
		}
	}
	g.streams, g.calls = g.conns[0], g.conns[1]
	g.lines = []*StreamConn{{ClientConnInterface: g.streams}}
	g.Gone, g.leave = context.WithCancel(w.ctx)
	return g, nil
}

// connect makes one connection. The address is not resolved here: the dialer does that, each time that it dials.
func (w *Router) connect(address string) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+address, w.opts.DialOptions(w, address)...)
}

// Ready waits until the connection of g that its streams begin on is up. It returns false when ctx ended first.
func (g *Endpoint) Ready(ctx context.Context) bool {
	for s := g.conns[0].GetState(); s != connectivity.Ready; s = g.conns[0].GetState() {
		if !g.conns[0].WaitForStateChange(ctx, s) {
			return false
		}
	}
	return true
}

// close ends the connections, and what is under way on them.
func (g *Endpoint) close() {
	for _, conn := range g.connections() {
		_ = conn.Close() // it fails for a closed one only
	}
}

// connections lists all that g has. It needs the Router's mutex once streams may add more.
func (g *Endpoint) connections() (out []*grpc.ClientConn) {
	for _, conn := range append(slices.Clip(g.more), g.conns[:]...) {
		if conn != nil {
			out = append(out, conn)
		}
	}
	return out
}

// Acquire returns the endpoint to use; release must follow.
func (w *Router) Acquire() *Endpoint {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now.users++
	return w.now
}

// Release gives back what Acquire or AcquireTo returned. An endpoint that is left is closed with its last user.
func (w *Router) Release(g *Endpoint) {
	w.mu.Lock()
	g.users--
	// One that the pool holds is kept for the next stream to that leader.
	last := g.users == 0 && g != w.now && w.lead.pool[g.Address] != g
	if last {
		w.left = slices.DeleteFunc(w.left, func(old *Endpoint) bool { return old == g })
	}
	w.mu.Unlock()
	if last {
		g.close()
	}
}

// take makes g the endpoint in use, and leaves the one before: what is under way on it ends well.
func (w *Router) take(g *Endpoint) bool {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return false
	}
	old := w.now
	w.now = g
	unused := old.users == 0
	if !unused {
		w.left = append(w.left, old)
	}
	var idle []*Endpoint
	if g.Plain {
		idle = w.drop(all)
	}
	w.mu.Unlock()
	closeEndpoints(idle)
	w.opts.Moved()
	old.leave()
	if old.Plain {
		w.rest.Retire()
	}
	if unused {
		old.close()
	}
	return true
}

// Follow goes to the node that an error names as the leader, and reports whether that is another one than was asked. A node
// that knows of none for long is left.
func (w *Router) Follow(e *Refusal) bool {
	if e.noLeader() {
		w.leaderless()
		return false
	}
	if e == nil || e.Code != wire.NotLeader || e.Leader == "" {
		return false
	}
	w.mu.Lock()
	now := w.now
	w.mu.Unlock()
	return !now.Plain && now.Address != e.Leader && w.move(e.Leader)
}

// move goes to another node over gRPC.
func (w *Router) move(address string) bool {
	if !w.allows(address) {
		return false
	}
	g, err := w.overGRPC(address)
	if err != nil {
		return false
	}
	g.conns[0].Connect()
	if !w.take(g) {
		g.leave()
		g.close()
		return false
	}
	return true
}

// other is the node to try after one that is not reached: the first that was named when a leader was followed, else the
// next one; empty if there is no other.
func (w *Router) other(address string) string {
	all := w.addresses()
	switch i := slices.Index(all, address); {
	case i < 0:
		return all[0]
	case len(all) > 1:
		return all[(i+1)%len(all)]
	}
	return ""
}

// Using is the transport in use.
func (w *Router) Using() Mode {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.now.Plain {
		return REST
	}
	return Stream
}

// Close ends all connections, and what is under way on them.
func (w *Router) Close() {
	w.mu.Lock()
	w.closed = true
	idle := w.drop(all)
	open := append(append(w.left, w.now), idle...)
	w.mu.Unlock()
	w.stop()
	<-w.done
	w.asking.Wait()
	for _, g := range open {
		g.close()
	}
	if w.rest != nil {
		w.rest.Close()
	}
}

// Invoke carries out a unary call. A call that surely did not leave, on an endpoint where no call was accepted yet, goes over
// REST if that answers.
func (w *Router) Invoke(ctx context.Context, method string, in, out any, opts ...grpc.CallOption) error {
	g := w.acquireFor(routeOf(ctx))
	defer w.Release(g)
	if g.Plain {
		return g.calls.Invoke(ctx, method, in, out, opts...)
	}
	// A wait for a task does not count as owed: it takes as long as the task does.
	if ctx.Value(repeatableKey{}) != nil && method != millracev1.TaskService_Wait_FullMethodName {
		w.Owes(g)
		defer g.owed.answered(1)
	}
	if w.opts.Mode != Auto {
		return g.owed.end(g.calls.Invoke(ctx, method, in, out, opts...))
	}
	var met peer.Peer // stays empty for a call that no connection took
	err := g.owed.end(g.calls.Invoke(ctx, method, in, out, append(slices.Clip(opts), grpc.Peer(&met))...))
	if err == nil || ofServer(err) {
		w.markHealthy(g)
		return err
	}
	// Only what surely did not reach a server is tried the other way: anything else might be applied twice.
	unsent := retry.Permanent(err) || status.Code(err) == codes.Unavailable && met.Addr == nil
	if unsent && !w.patient(g, err) && w.TurnToREST(ctx, g) {
		return w.rest.Invoke(ctx, method, in, out, opts...)
	}
	return err
}

// NewStream opens a stream.
func (w *Router) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	g := w.Acquire()
	s, err := g.streams.NewStream(ctx, desc, method, opts...)
	if err != nil {
		w.Release(g)
		return nil, err
	}
	context.AfterFunc(s.Context(), func() { w.Release(g) })
	return heardStream{s, g}, nil
}

// ofServer reports whether Millrace wrote an error: it puts one of the contract into each.
func ofServer(err error) bool {
	for _, d := range status.Convert(err).Details() {
		if _, ok := d.(*millracev1.Error); ok {
			return true
		}
	}
	return false
}

// markHealthy takes in that a server accepted a call on g.
func (w *Router) markHealthy(g *Endpoint) {
	w.mu.Lock()
	g.proved, g.failing = true, time.Time{}
	w.mu.Unlock()
}

// patient reports whether g, which failed with err, is given more time: a server was reached on it before, and may be
// soon again. What something else answered does not become a server's answer by waiting.
func (w *Router) patient(g *Endpoint, err error) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if g.failing.IsZero() {
		g.failing = time.Now()
	}
	return g.proved && !retry.Permanent(err) && time.Since(g.failing) < grpcGrace
}

// Admitted tells how a stream that was to be opened on g fared. It returns the error to go on with: a refusal that is no
// server's own is not the end when REST is there.
func (w *Router) Admitted(ctx context.Context, g *Endpoint, err error) error {
	switch {
	case g.Plain || w.opts.Mode != Auto || g.Gone.Err() != nil:
	case err == nil || ofServer(err):
		w.markHealthy(g)
	case ctx.Err() == nil && !w.patient(g, err) && w.TurnToREST(ctx, g):
		return status.Error(codes.Unavailable, "the client goes over to REST")
	}
	return err
}
