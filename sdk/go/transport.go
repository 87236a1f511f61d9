package millrace

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/sdk/go/internal/rest"
	"github.com/millrace/millrace/sdk/go/internal/retry"
)

// TransportMode says how a client speaks to its server.
type TransportMode uint8

// The modes.
const (
	TransportAuto   TransportMode = iota // gRPC, and REST while something between lets no gRPC through
	TransportStream                      // gRPC alone
	TransportREST                        // REST alone
)

var transportNames = [...]string{TransportAuto: "auto", TransportStream: "stream", TransportREST: "rest"}

// String returns auto, stream or rest.
func (m TransportMode) String() string {
	if int(m) < len(transportNames) {
		return transportNames[m]
	}
	return "unknown"
}

func parseTransport(name string) (TransportMode, error) {
	for m, n := range transportNames {
		if n == name {
			return TransportMode(m), nil
		}
	}
	return 0, fmt.Errorf("transport %q must be one of auto, stream, rest", name)
}

// endpoint is one endpoint to the server: a pair of gRPC connections, or REST.
type endpoint struct {
	streams, calls grpc.ClientConnInterface
	address        string // of gRPC
	plain          bool   // it has no sessions: what must be repeatable carries an id of its own
	conns          [2]*grpc.ClientConn
	more           []*grpc.ClientConn // for more streams than one takes
	lines          []*streamConn      // over gRPC, those of streams: the first is that of streams
	gone           context.Context    // ends when another endpoint is taken
	leave          context.CancelFunc
	owed           owed
	users          int       // calls and streams under way
	proved         bool      // a server accepted a call
	failing        time.Time // since when no call is accepted; zero: calls are accepted
}

// router chooses how a client reaches its server. It is a connection like gRPC's, of which each call takes the endpoint that
// is the right one when it begins.
//
// Over gRPC two connections are kept: a server bounds the calls of one, and waits must not hold up a stream. When gRPC
// does not come through and REST does, REST is taken, and gRPC is looked for from time to time. While the server is not
// there at all nothing changes.
type router struct {
	c    *Client
	mode TransportMode
	rest *rest.Conn // nil with TransportStream
	ctx  context.Context
	stop context.CancelFunc
	done chan struct{} // closed when watch has returned
	turn chan struct{} // holds a token while somebody finds out whether REST is to be taken

	moves  int // from node to node in a row that reached none; of watch alone
	asking sync.WaitGroup

	mu      sync.Mutex // guards the fields below, and what changes of an endpoint
	now     *endpoint
	lead    leaders
	members []string // addresses of the cluster that the client was not given, as its nodes say
	unled   retry.Unled
	left    []*endpoint // that are in use still
	missed  time.Time   // when REST was looked for last, and was not there
	closed  bool
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

func newRouter(c *Client) (*router, error) {
	w := &router{c: c, mode: c.opts.transport, done: make(chan struct{}), turn: make(chan struct{}, 1)}
	w.ctx, w.stop = context.WithCancel(context.Background())
	if w.mode != TransportStream {
		w.rest = rest.New(c.restOptions())
	}
	if w.mode == TransportREST {
		w.now = w.overREST()
		close(w.done)
		return w, nil
	}
	var err error
	if w.now, err = w.overGRPC(c.opts.address); err != nil {
		return nil, err
	}
	w.now.conns[0].Connect()
	go w.watch()
	return w, nil
}

func (w *router) overREST() *endpoint {
	r := &endpoint{streams: w.rest, calls: w.rest, plain: true}
	r.gone, r.leave = context.WithCancel(w.ctx)
	return r
}

func (w *router) overGRPC(address string) (*endpoint, error) {
	g := &endpoint{address: address}
	for i := range g.conns {
		var err error
		if g.conns[i], err = w.connect(address); err != nil {
			g.close()
			return nil, err
		}
	}
	g.streams, g.calls = g.conns[0], g.conns[1]
	g.lines = []*streamConn{{ClientConnInterface: g.streams}}
	g.gone, g.leave = context.WithCancel(w.ctx)
	return g, nil
}

func (w *router) connect(address string) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+address, w.c.dialOptions(w, address)...)
}

func (g *endpoint) close() {
	for _, conn := range g.connections() {
		_ = conn.Close() // it fails for a closed one only
	}
}

func (g *endpoint) connections() (out []*grpc.ClientConn) {
	for _, conn := range append(slices.Clip(g.more), g.conns[:]...) {
		if conn != nil {
			out = append(out, conn)
		}
	}
	return out
}

// acquire returns the endpoint to use; release must follow.
func (w *router) acquire() *endpoint {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now.users++
	return w.now
}

func (w *router) release(g *endpoint) {
	w.mu.Lock()
	g.users--
	last := g.users == 0 && g != w.now && w.lead.pool[g.address] != g
	if last {
		w.left = slices.DeleteFunc(w.left, func(old *endpoint) bool { return old == g })
	}
	w.mu.Unlock()
	if last {
		g.close()
	}
}

// take makes g the endpoint in use, and leaves the one before: what is under way on it ends well.
func (w *router) take(g *endpoint) bool {
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
	var idle []*endpoint
	if g.plain {
		idle = w.drop(all)
	}
	w.mu.Unlock()
	closeEndpoints(idle)
	w.c.dialErr.Store(nil)
	old.leave()
	if old.plain {
		w.rest.Retire()
	}
	if unused {
		old.close()
	}
	return true
}

// follow goes to the node that an error names as the leader, and reports whether that is another one than was asked. A node
// that knows of none for long is left.
func (w *router) follow(e *Error) bool {
	if e.noLeader() {
		w.leaderless()
		return false
	}
	if e == nil || e.Code != CodeNotLeader || e.Leader == "" {
		return false
	}
	w.mu.Lock()
	now := w.now
	w.mu.Unlock()
	return !now.plain && now.address != e.Leader && w.move(e.Leader)
}

// move goes to another node over gRPC.
func (w *router) move(address string) bool {
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
func (w *router) other(address string) string {
	all := w.addresses()
	switch i := slices.Index(all, address); {
	case i < 0:
		return all[0]
	case len(all) > 1:
		return all[(i+1)%len(all)]
	}
	return ""
}

// using is the transport in use.
func (w *router) using() TransportMode {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.now.plain {
		return TransportREST
	}
	return TransportStream
}

// close ends all connections, and what is under way on them.
func (w *router) close() {
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
func (w *router) Invoke(ctx context.Context, method string, in, out any, opts ...grpc.CallOption) error {
	g := w.acquireFor(routeOf(ctx))
	defer w.release(g)
	if g.plain {
		return g.calls.Invoke(ctx, method, in, out, opts...)
	}
	if ctx.Value(owedKey{}) != nil && method != millracev1.TaskService_Wait_FullMethodName {
		w.owes(g)
		defer g.owed.answered(1)
	}
	if w.mode != TransportAuto {
		return g.owed.end(g.calls.Invoke(ctx, method, in, out, opts...))
	}
	var met peer.Peer // stays empty for a call that no connection took
	err := g.owed.end(g.calls.Invoke(ctx, method, in, out, append(slices.Clip(opts), grpc.Peer(&met))...))
	if err == nil || ofServer(err) {
		w.markHealthy(g)
		return err
	}
	unsent := permanent(err) || status.Code(err) == codes.Unavailable && met.Addr == nil
	if unsent && !w.patient(g, err) && w.turnToREST(ctx, g) {
		return w.rest.Invoke(ctx, method, in, out, opts...)
	}
	return err
}

// NewStream opens a stream.
func (w *router) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	g := w.acquire()
	s, err := g.streams.NewStream(ctx, desc, method, opts...)
	if err != nil {
		w.release(g)
		return nil, err
	}
	context.AfterFunc(s.Context(), func() { w.release(g) })
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

func (w *router) markHealthy(g *endpoint) {
	w.mu.Lock()
	g.proved, g.failing = true, time.Time{}
	w.mu.Unlock()
}

// patient reports whether g, which failed with err, is given more time: a server was reached on it before, and may be
// soon again. What something else answered does not become a server's answer by waiting.
func (w *router) patient(g *endpoint, err error) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if g.failing.IsZero() {
		g.failing = time.Now()
	}
	return g.proved && !permanent(err) && time.Since(g.failing) < grpcGrace
}

// admitted tells how a stream that was to be opened on g fared. It returns the error to go on with: a refusal that is no
// server's own is not the end when REST is there.
func (w *router) admitted(ctx context.Context, g *endpoint, err error) error {
	switch {
	case g.plain || w.mode != TransportAuto || g.gone.Err() != nil:
	case err == nil || ofServer(err):
		w.markHealthy(g)
	case ctx.Err() == nil && !w.patient(g, err) && w.turnToREST(ctx, g):
		return status.Error(codes.Unavailable, "the client goes over to REST")
	}
	return err
}

// restOptions is what REST needs to know of the client.
func (c *Client) restOptions() rest.Options {
	return rest.Options{
		Hosts: c.opts.restHosts(), Namespace: c.opts.namespace, TLS: c.opts.tls, Proxy: !c.opts.dials, Dial: c.opts.dial,
		Secure: c.opts.secure, Token: func() string { return *c.token.Load() }, Partitions: c.partitions,
	}
}

// restHosts are the places where REST may be: the one that is named, or each address itself, which may be that of a proxy
// for both, and the port next to gRPC's own.
func (o *options) restHosts() []string {
	hosts := o.restNamed()
	if len(hosts) > 0 {
		return hosts
	}
	for _, address := range o.addresses {
		hosts = append(hosts, address)
		if host, port, err := net.SplitHostPort(address); err == nil && port == grpcPort {
			hosts = append(hosts, net.JoinHostPort(host, restPort))
		}
	}
	return hosts
}

// secure reports whether TLS is spoken at a place of REST.
func (o *options) secure(hostPort string) bool {
	host, _, _ := net.SplitHostPort(hostPort) // checked before
	return o.tls != nil || !o.insecure && !loopback(host)
}

// The ports that a server listens on by default.
const (
	grpcPort = "7081"
	restPort = "7080"
)
