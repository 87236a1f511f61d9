package api

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/auth"
	"github.com/millrace/millrace/internal/env"
	"github.com/millrace/millrace/internal/errs"
)

// Options of the edge. Backend and Auth are required; a zero field else means its default.
type Options struct {
	Backend Backend
	Auth    Auth
	Calls   *auth.Calls                           // ends calls whose token does not allow them any more; default: one of its own, by Auth
	Refused func(who auth.Principal, from string) // is told of each token that is refused, as auth.Refusals notes it; none: nothing is
	Refs    RefBackend                            // the node again; nil: the refs service is off
	Objects Objects                               // of its repositories; none: no object is held
	Git     http.Handler                          // serves git clients, below /git/; none: nothing does
	Clock   env.Clock                             // default: the machine's
	Rand    env.Rand                              // for the ids of tasks that come without; default: the machine's
	Limits  Limits
	Memory  Memory
	Logger  *slog.Logger
	Version string  // of the binary
	Backups Backups // default: none can be taken
	// Operator answers who operates the whole cluster; nil: this edge refuses to.
	Operator Operator
	TLS      *tls.Config // default: plain text

	Forward bool // REST requests for another node are forwarded unless they say otherwise; else their callers are sent there
	// Peers sends what is forwarded, by the bases of PeerOf alone: over connections whose other end has proved which node it is. None:
	// nothing is forwarded.
	Peers *http.Client
	// PeerOf is the base of the URLs by which Peers reaches the node whose gRPC side has an address; empty: it is not known.
	PeerOf func(address string) string
	// Embedder makes vectors of texts; without one texts are refused.
	Embedder Embedder
	Closed   []string // services that are not open, by the names of AllServices but queue
	NoSearch bool     // calls of search are refused by name
	// WebOf is the base of the URLs of a node's REST side, given the address of its gRPC side; empty if it has none, or if this
	// node is alone.
	WebOf func(address string) string
}

// Keepalive and age of connections. A client may ping every five seconds; a connection is asked to go after an hour,
// so that clients spread over servers again.
const (
	pingAtLeast   = 5 * time.Second
	pingIdle      = 30 * time.Second
	pingTimeout   = 20 * time.Second
	connectionAge = time.Hour
	// handshakeWait is how long a connection may take until it speaks HTTP/2: until then it costs the node one of its
	// connections and does nothing for it.
	handshakeWait = 5 * time.Second
	// shutdownPause is how long connections without an authenticated call under way may stay once the server stops.
	shutdownPause = time.Second
	// headerListBytes bounds the metadata of a call.
	headerListBytes = 16 * kib
)

// Server is the edge of one node: gRPC, and REST under the same rules. It is safe for concurrent use.
type Server struct {
	o         Options
	l         Limits
	log       *slog.Logger
	grpc      *grpc.Server
	rest      *rest
	conns     connections
	codec     codec
	shapes    shapes
	calls     gauge
	streams   gauge
	forwards  gauge // requests that another node answers
	refusals  refusals
	outcomes  outcomes
	keys      *keyCounts    // what o.Backend is
	turn      atomic.Uint64 // of claims that may take from any partition
	searches  admission
	embedding embedBudget
	searched  searchCounts
	recovers  bool // panics of calls become errors: not in builds that check invariants

	frames, requests, sends *budget

	live *auth.Calls     // calls and streams under way
	life context.Context // until Shutdown begins
	end  context.CancelFunc
	work sync.WaitGroup // goroutines of streams, and sweep

	incoming                   incoming
	requestShares, frameShares tenantShares // of requests and frames, by tenant, for what is on its way
	sweeping                   sync.Once

	mu       sync.Mutex // guards the fields below
	sessions map[sessionKey]*stream
}

// New makes the edge. It fails on limits out of bounds, and when a method, frame or op has no rule that says who may
// use it.
func New(o Options) (*Server, error) {
	if o.Backend == nil || o.Auth == nil {
		return nil, errors.New("api: Backend and Auth are required")
	}
	if o.Clock == nil {
		o.Clock = env.SystemClock{}
	}
	if o.Rand == nil {
		o.Rand = env.SystemRand{}
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
	counts := newKeyCounts(o.Backend)
	o.Backend = counts
	s := &Server{
		keys: counts,
		o:    o, l: limits, log: o.Logger, codec: newCodec(), shapes: make(shapes),
		sessions: make(map[sessionKey]*stream), recovers: !errs.Invariants,
		calls:    newGauge("calls_node", limits.CallsNode, "calls_tenant", limits.CallsTenant),
		streams:  newGauge("streams_node", limits.StreamsNode, "streams_tenant", limits.StreamsTenant),
		forwards: newGauge(limitForwards, forwardsNode, "forwards_tenant", forwardsTenant),
		frames:   newBudget(o.Memory.Frames), requests: newBudget(o.Memory.Requests), sends: newBudget(o.Memory.Sends),
	}
	largest := max(limits.MessageBytes, limits.RESTBodyBytes) + 1
	s.requestShares = newShares("requests_tenant", max(s.requests.most/2, largest))
	s.frameShares = newShares("frames_tenant", max(s.frames.most/2, largest))
	s.life, s.end = context.WithCancel(context.Background())
	s.grpc = grpc.NewServer(s.serverOptions()...)
	known := make(map[string]bool)
	for _, svc := range s.services() {
		name := "/" + svc.desc.ServiceName + "/"
		for _, m := range svc.desc.Methods {
			known[name+m.MethodName] = true
		}
		for _, m := range svc.desc.Streams {
			known[name+m.StreamName] = true
		}
		if s.shut(name) {
			continue
		}
		if err := s.register(svc.desc, svc.impl); err != nil {
			return nil, err
		}
	}
	if err := checkRules(known); err != nil {
		return nil, err
	}
	if s.rest, err = newREST(s); err != nil {
		return nil, err
	}
	if s.live = o.Calls; s.live == nil {
		s.live = auth.NewCalls(o.Auth, o.Clock)
	}
	return s, nil
}

// Fixed windows: the transport would else measure the path with a ping for every few frames. A connection may have connWindow
// bytes under way, a stream streamWindow at most and streamWindowLeast at least that its handler has not read.
const (
	streamWindow      = 256 << 10
	streamWindowLeast = 64 << 10
	connWindow        = 1 << 20
	ioBuffer          = 64 << 10
)

// window is what a stream may have under way that its handler has not read. All streams of a tenant together have no more of it than the
// node's memory for frames, as far as the protocol allows.
func (s *Server) window() int32 {
	return int32(min(max(s.frames.most/s.l.StreamsTenant, streamWindowLeast), streamWindow))
}

func (s *Server) serverOptions() []grpc.ServerOption {
	out := []grpc.ServerOption{
		grpc.ForceServerCodecV2(s.codec),
		grpc.MaxRecvMsgSize(int(s.l.MessageBytes)),
		grpc.MaxConcurrentStreams(uint32(s.l.StreamsConnection)),
		grpc.MaxHeaderListSize(headerListBytes),
		grpc.WaitForHandlers(true),
		grpc.InitialWindowSize(s.window()),
		grpc.InitialConnWindowSize(connWindow),
		grpc.WriteBufferSize(ioBuffer),
		grpc.ReadBufferSize(ioBuffer),
		grpc.ConnectionTimeout(handshakeWait),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pingAtLeast, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time: pingIdle, Timeout: pingTimeout, MaxConnectionAge: connectionAge,
			MaxConnectionIdle: time.Duration(s.l.GRPCIdleMs) * time.Millisecond,
		}),
	}
	var handshake counting
	if s.o.TLS != nil {
		handshake.inner = credentials.NewTLS(s.o.TLS)
	}
	return append(out, grpc.Creds(handshake))
}

type service struct {
	desc *grpc.ServiceDesc
	impl any
}

func (s *Server) services() []service {
	return []service{
		{&pb.TaskService_ServiceDesc, &taskService{s: s}},
		{&pb.CommitService_ServiceDesc, &commitService{s: s}},
		{&pb.KVService_ServiceDesc, &kvService{s: s}},
		{&pb.QueueService_ServiceDesc, &queueService{s: s}},
		{&pb.RefService_ServiceDesc, &refService{s: s}},
		{&pb.ServerService_ServiceDesc, &serverService{s: s}},
		{&pb.SearchService_ServiceDesc, &searchService{s: s}},
		{&pb.QueueStream_ServiceDesc, &queueStream{s: s}},
		{&pb.BackupService_ServiceDesc, &backupService{s: s}},
		{&pb.ClusterService_ServiceDesc, &clusterService{s: s}},
		{&pb.KVStream_ServiceDesc, &keyStream{s: s}},
		{&pb.KeyspaceService_ServiceDesc, &keyspaceService{s: s}},
		{&pb.TenantService_ServiceDesc, &tenantService{s: s}},
		{&healthpb.Health_ServiceDesc, &healthService{s: s}},
	}
}

// register enters a service behind the guard. Its unary methods are served as streams of one message each way, which
// is the same on the wire: so a message that cannot be used is refused by this package, not by the transport.
func (s *Server) register(desc *grpc.ServiceDesc, impl any) error {
	served := *desc
	served.Methods, served.Streams = nil, nil
	prefix := "/" + desc.ServiceName + "/"
	for _, m := range desc.Methods {
		h := s.guard(prefix+m.MethodName, &s.calls, true, s.held(prefix+m.MethodName, false, s.unary(m.Handler)))
		served.Streams = append(served.Streams, grpc.StreamDesc{StreamName: m.MethodName, Handler: h})
	}
	for _, m := range desc.Streams {
		m.Handler = s.guard(prefix+m.StreamName, &s.streams, !m.ClientStreams, s.held(prefix+m.StreamName, true, m.Handler))
		served.Streams = append(served.Streams, m)
	}
	s.grpc.RegisterService(&served, impl)
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(desc.ServiceName))
	if err != nil {
		return fmt.Errorf("find contract of %s: %w", desc.ServiceName, err)
	}
	sd, ok := found.(protoreflect.ServiceDescriptor)
	if !ok {
		return fmt.Errorf("%s is not a service", desc.ServiceName)
	}
	for i := range sd.Methods().Len() {
		s.shapes.add(sd.Methods().Get(i).Input())
	}
	return nil
}

// unary serves a method of one request and one response.
func (s *Server) unary(h grpc.MethodHandler) grpc.StreamHandler {
	return func(impl any, ss grpc.ServerStream) error {
		out, err := h(impl, ss.Context(), func(m any) error { _, err := s.receive(ss, m); return err }, nil)
		if err != nil {
			return err
		}
		return ss.SendMsg(out)
	}
}

// receive reads a message, and returns its length in bytes.
func (s *Server) receive(ss grpc.ServerStream, m any) (bytes int64, err error) {
	msg, ok := m.(proto.Message)
	if !ok {
		return 0, fmt.Errorf("request is not a message: %T", m)
	}
	in := inbound{msg: msg, limit: s.l.MessageBytes}
	if err := ss.RecvMsg(&in); err != nil {
		return 0, err
	}
	if fact := s.shapes.check(&in); fact != nil {
		return 0, fact
	}
	return int64(in.bytes), nil
}

// guard stands before every method: who calls, whether they may, whether there is room. It gives errors their shape. Of one the
// client sends one message.
func (s *Server) guard(method string, room *gauge, one bool, h grpc.StreamHandler) grpc.StreamHandler {
	outcomes := s.outcomes.of(method)
	return func(impl any, ss grpc.ServerStream) error {
		ctx := ss.Context()
		err := s.safely(func() error {
			admitted, who, fact := s.admit(ctx, method)
			ctx = admitted
			if fact != nil {
				return fact
			}
			conn := connOf(ctx)
			if who.Tenant != "" {
				conn.begin()
				defer conn.end()
				if fact := room.enter(who.Tenant); fact != nil {
					return fact
				}
				defer room.leave(who.Tenant)
			}
			g, err := s.guarding(ctx, ss, who.Tenant, one)
			if err != nil {
				return err
			}
			defer g.leave()
			if err = h(impl, g); err == nil && who.Tenant == "" {
				conn.served()
			}
			return err
		})
		outcomes.count(err)
		return s.status(ctx, method, err)
	}
}

// recovered makes an error of a panic, for deferred use: what panicked costs its own call and no other. Whatever such a call
// holds must therefore be given back by defer. Builds that check invariants let panics pass.
func (s *Server) recovered(err *error) {
	if !s.recovers {
		return
	}
	if p := recover(); p != nil {
		*err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
	}
}

// safely runs a call, or the part of one that has a goroutine of its own, and makes an error of its panic, which would else end
// the process.
func (s *Server) safely(do func() error) (err error) {
	defer s.recovered(&err)
	return do()
}

// Serve accepts connections until Shutdown; then it returns nil. It takes lis over, and bounds its connections.
func (s *Server) Serve(lis net.Listener) error {
	s.startSweep()
	if err := s.grpc.Serve(&limitedListener{Listener: lis, s: s}); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("serve gRPC: %w", err)
	}
	return nil
}

// Shutdown stops serving: new calls are refused, streams get a Goaway and end when their frames are answered, calls
// that wait end. Connections on which nothing was authenticated are closed at once, those without an authenticated call under way
// after shutdownPause. What is not over after grace is cut. It returns when no goroutine of the edge is left.
func (s *Server) Shutdown(grace time.Duration) {
	s.end()
	over := make(chan struct{})
	go func() {
		defer close(over)
		var both sync.WaitGroup
		both.Go(s.grpc.GracefulStop)
		both.Go(s.rest.shutdown)
		both.Wait()
	}()
	closeAll(s.conns.without(true))
	pause, timer := s.o.Clock.NewTimer(min(shutdownPause, grace)), s.o.Clock.NewTimer(grace)
	defer pause.Stop()
	defer timer.Stop()
	for waiting := true; waiting; {
		select {
		case <-over:
			waiting = false
		case <-pause.C():
			closeAll(s.conns.without(false))
		case <-timer.C():
			s.grpc.Stop()
			s.rest.cut()
			<-over
			waiting = false
		}
	}
	s.work.Wait()
	if s.o.Calls == nil {
		s.live.Close()
	}
}

// stopping reports whether Shutdown has begun.
func (s *Server) stopping() bool { return s.life.Err() != nil }
