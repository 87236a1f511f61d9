package api

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/auth"
	"github.com/millrace/millrace/internal/edge"
	"github.com/millrace/millrace/internal/env"
)

// Options of the edge. Backend and Auth are required; a zero field else means its default.
type Options struct {
	// Backend is the node.
	Backend Backend
	// Auth tells who holds a token.
	Auth edge.Auth
	// Calls ends calls whose token does not allow them any more. All doors of a node share one table;
	// nil: one of its own, by Auth.
	Calls *auth.Calls
	// Refused is told of each token that is refused, as auth.Refusals notes it; nil: nothing is told.
	Refused func(who auth.Principal, from string)
	// Refs is the node as the refs service needs it; nil: the service is off.
	Refs RefBackend
	// Objects looks up objects of repositories; nil: no object is held here.
	Objects Objects
	// Clock and Rand are those of the machine by default. Rand makes the ids of tasks that come
	// without.
	Clock env.Clock
	Rand  env.Rand // for the ids of tasks that come without; default: the machine's
	// Limits are those of requests; zero fields are their defaults.
	Limits edge.Limits
	// Memory is what frames, requests and answers may hold, in bytes.
	Memory edge.Memory
	// Logger gets the text of errors that are INTERNAL to clients.
	Logger *slog.Logger
	// Version is that of the binary.
	Version string
	// Backups makes backups; nil: none can be taken.
	Backups Backups
	// Operator answers who operates the whole cluster; nil: this edge refuses to.
	Operator Operator
	// TLS is nil for plain text.
	TLS *tls.Config

	// Embedder makes vectors of texts; without one texts are refused.
	Embedder Embedder
	// Closed are services that are not open, by the names of AllServices but queue.
	Closed []string
	// NoSearch has calls of search be refused by name.
	NoSearch bool
}

// Keepalive and age of connections. A client may ping every five seconds; a connection is asked to go after an hour,
// so that clients spread over servers again.
const (
	// pingAtLeast is how often a client may ping. Without a sign of a client for PingIdle it is pinged,
	// and has PingTimeout to answer.
	pingAtLeast   = 5 * time.Second
	PingIdle      = 30 * time.Second
	PingTimeout   = 20 * time.Second
	connectionAge = time.Hour
	// handshakeWait is how long a connection may take until it speaks HTTP/2: until then it costs the node one of its
	// connections and does nothing for it.
	handshakeWait = 5 * time.Second
	// shutdownPause is how long connections without an authenticated call under way may stay once the server stops.
	shutdownPause = time.Second
	// headerListBytes bounds the metadata of a call.
	headerListBytes = 16 * kib
)

// Front is another way in to the services, such as REST. Shutdown ends it together with gRPC.
type Front interface {
	Shutdown() // stops accepting, and returns when no request is in hand
	Cut()      // closes all connections
}

// Server is the edge of one node: the services, over gRPC, and what its other ways in share with it. It is safe for concurrent use.
type Server struct {
	*edge.Edge
	o    Options
	grpc *grpc.Server
	// fronts are the other ways in that Shutdown ends.
	fronts []Front
	// codec is that of all messages; shapes are those of messages that a client may send.
	codec  codec
	shapes shapes // of all messages that a client may send
	// node is the node, by what each service asks of it. What passes to keyspaces is counted in keys.
	node parts
	keys *keyCounts // counts what is done in keyspaces
	// counted is who serves the queues of namespaces.
	counted workerCounts
	// seen is how the cluster was a moment ago, and noticed when something was first found to need attention.
	seen    clusterSeen
	noticed noticed
	// turn counts claims that may take from any partition, so that each begins at another one.
	turn atomic.Uint64
	// searches gives searches their turns; embedding bounds the vectors that are being made; searched
	// counts.
	searches  admission
	embedding embedBudget  // of texts that are being embedded
	searched  searchCounts // counts of searches
	// incoming are the calls that are under way, which sweep looks at.
	incoming incoming
	// sweeping is of StartSweep.
	sweeping sync.Once
}

// New makes the edge. It fails on limits out of bounds, and when a method, frame or op has no rule that says who may
// use it.
func New(o Options) (*Server, error) {
	if o.Backend == nil || o.Auth == nil {
		return nil, errors.New("api: Backend and Auth are required")
	}
	if o.Rand == nil {
		o.Rand = env.SystemRand{}
	}
	e, err := edge.New(edge.Options{
		Auth: o.Auth, Calls: o.Calls, Refused: o.Refused, Clock: o.Clock, Limits: o.Limits, Memory: o.Memory, Logger: o.Logger,
	})
	if err != nil {
		return nil, err
	}
	o.Clock, o.Limits = e.Clock, e.Limits
	// Everything goes through it, so that no door is left out of the counts.
	counts := newKeyCounts(o.Backend)
	o.Backend = counts
	s := &Server{Edge: e, keys: counts, node: newParts(counts), o: o, codec: newCodec(), shapes: make(shapes), searches: admission{clock: o.Clock}}
	s.grpc = grpc.NewServer(s.serverOptions()...)
	// The methods of the contract, those of other packages too: rules and methods are held against one
	// another.
	known := make(map[string]bool)
	for _, svc := range s.services() {
		addMethods(known, svc.desc)
		if err := s.Add(svc.desc, svc.impl); err != nil {
			return nil, err
		}
	}
	for _, desc := range added {
		addMethods(known, desc)
	}
	if err := checkRules(known); err != nil {
		return nil, err
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
	return int32(min(max(s.Frames.Most/s.Limits.StreamsTenant, streamWindowLeast), streamWindow))
}

// serverOptions are the bounds and the codec of gRPC's server.
func (s *Server) serverOptions() []grpc.ServerOption {
	out := []grpc.ServerOption{
		grpc.ForceServerCodecV2(s.codec),
		grpc.MaxRecvMsgSize(int(s.Limits.MessageBytes)),
		grpc.MaxConcurrentStreams(uint32(s.Limits.StreamsConnection)),
		grpc.MaxHeaderListSize(headerListBytes),
		grpc.WaitForHandlers(true),
		grpc.InitialWindowSize(s.window()),
		grpc.InitialConnWindowSize(connWindow),
		grpc.WriteBufferSize(ioBuffer),
		grpc.ReadBufferSize(ioBuffer),
		grpc.ConnectionTimeout(handshakeWait),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pingAtLeast, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time: PingIdle, Timeout: PingTimeout, MaxConnectionAge: connectionAge,
			MaxConnectionIdle: time.Duration(s.Limits.GRPCIdleMs) * time.Millisecond,
		}),
	}
	return append(out, grpc.Creds(edge.FrameCredentials(s.o.TLS)))
}

// service is a service of the contract, and what serves it.
type service struct {
	desc *grpc.ServiceDesc // as it was compiled from the contract
	impl any               // has the methods that desc wants
}

// added are the services that other packages serve, by Add: the streams. Their rules are here, with those of all others.
var added = []*grpc.ServiceDesc{&pb.QueueStream_ServiceDesc, &pb.KVStream_ServiceDesc}

// addMethods enters the full names of a service's methods.
func addMethods(names map[string]bool, desc *grpc.ServiceDesc) {
	prefix := "/" + desc.ServiceName + "/"
	for _, m := range desc.Methods {
		names[prefix+m.MethodName] = true
	}
	for _, m := range desc.Streams {
		names[prefix+m.StreamName] = true
	}
}

// services are those that this package serves.
func (s *Server) services() []service {
	return []service{
		{&pb.TaskService_ServiceDesc, s.Tasks()},
		{&pb.CommitService_ServiceDesc, s.Commits()},
		{&pb.KVService_ServiceDesc, s.Keys()},
		{&pb.QueueService_ServiceDesc, s.Queues()},
		{&pb.BulkService_ServiceDesc, s.Bulk()},
		{&pb.CronService_ServiceDesc, s.Crons()},
		{&pb.BatchService_ServiceDesc, s.Batches()},
		{&pb.LimiterService_ServiceDesc, s.Limiters()},
		{&pb.RefService_ServiceDesc, s.Refs()},
		{&pb.ServerService_ServiceDesc, s.Info()},
		{&pb.SearchService_ServiceDesc, s.Searches()},
		{&pb.BackupService_ServiceDesc, &backupService{s: s, backups: s.o.Backups}},
		{&pb.ClusterService_ServiceDesc, s.Cluster()},
		{&pb.KeyspaceService_ServiceDesc, s.Keyspaces()},
		{&pb.TenantService_ServiceDesc, s.Tenants()},
		{&pb.WorkerService_ServiceDesc, s.Workers()},
		{&pb.ErrorService_ServiceDesc, s.Errors()},
		{&pb.OverviewService_ServiceDesc, s.Overviews()},
		{&healthpb.Health_ServiceDesc, &healthService{s: s}},
	}
}

// Backend is the node with what passes to keyspaces counted, for services that other packages serve.
func (s *Server) Backend() Backend { return s.keys }

// Add serves a service of the contract behind the guard, unless it is disabled here. It must come before Serve.
func (s *Server) Add(desc *grpc.ServiceDesc, impl any) error {
	if !s.Enabled("/" + desc.ServiceName + "/") {
		return nil
	}
	return s.register(desc, impl)
}

// register enters a service behind the guard. Its unary methods are served as streams of one message each way, which
// is the same on the wire: so a message that cannot be used is refused by this package, not by the transport.
func (s *Server) register(desc *grpc.ServiceDesc, impl any) error {
	// The compiled description is shared by the whole process, so a copy is changed.
	served := *desc
	served.Methods, served.Streams = nil, nil
	prefix := "/" + desc.ServiceName + "/"
	for _, m := range desc.Methods {
		h := s.guard(prefix+m.MethodName, &s.Calls, true, s.held(prefix+m.MethodName, false, s.unary(m.Handler)))
		served.Streams = append(served.Streams, grpc.StreamDesc{StreamName: m.MethodName, Handler: h})
	}
	for _, m := range desc.Streams {
		m.Handler = s.guard(prefix+m.StreamName, &s.Streams, !m.ClientStreams, s.held(prefix+m.StreamName, true, m.Handler))
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
	in := inbound{msg: msg, limit: s.Limits.MessageBytes}
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
func (s *Server) guard(method string, room *edge.Gauge, one bool, h grpc.StreamHandler) grpc.StreamHandler {
	// Once for each method: counting a call takes no lock.
	outcomes := s.Outcomes.Of(method)
	return func(impl any, ss grpc.ServerStream) error {
		ctx := ss.Context()
		err := s.Safely(func() error {
			admitted, who, fact := s.admit(ctx, method)
			// For the errors below too: they are shown by what the caller may see.
			ctx = admitted
			if fact != nil {
				return fact
			}
			conn := edge.ConnOf(ctx)
			if who.Tenant != "" {
				// From here the connection is not new any more.
				conn.Begin()
				defer conn.End()
				if fact := room.Enter(who.Tenant); fact != nil {
					return fact
				}
				defer room.Leave(who.Tenant)
			}
			g, err := s.guarding(ctx, ss, who.Tenant, one)
			if err != nil {
				return err
			}
			defer g.leave()
			if err = h(impl, g); err == nil && who.Tenant == "" {
				conn.Served()
			}
			return err
		})
		outcomes.Count(err)
		return s.Status(ctx, method, err)
	}
}

// Join adds another way in. It must come before Shutdown.
func (s *Server) Join(f Front) { s.fronts = append(s.fronts, f) }

// Serve accepts connections until Shutdown; then it returns nil. It takes lis over, and bounds its connections.
func (s *Server) Serve(lis net.Listener) error {
	s.StartSweep()
	if err := s.grpc.Serve(s.Limited(lis, false)); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("serve gRPC: %w", err)
	}
	return nil
}

// Shutdown stops serving: new calls are refused, streams get a Goaway and end when their frames are answered, calls
// that wait end. Connections on which nothing was authenticated are closed at once, those without an authenticated call under way
// after shutdownPause. What is not over after grace is cut. It returns when no goroutine of the edge is left.
func (s *Server) Shutdown(grace time.Duration) {
	// Waiting calls end, and new ones are refused, before listeners close.
	s.End()
	over := make(chan struct{})
	go func() {
		defer close(over)
		var both sync.WaitGroup
		both.Go(s.grpc.GracefulStop)
		for _, f := range s.fronts {
			both.Go(f.Shutdown)
		}
		both.Wait()
	}()
	// Nothing was served on them, and a graceful stop would wait for them.
	edge.CloseAll(s.Conns.Without(true))
	pause, timer := s.o.Clock.NewTimer(min(shutdownPause, grace)), s.o.Clock.NewTimer(grace)
	defer pause.Stop()
	defer timer.Stop()
	for waiting := true; waiting; {
		select {
		case <-over:
			waiting = false
		case <-pause.C():
			edge.CloseAll(s.Conns.Without(false))
		case <-timer.C():
			s.grpc.Stop()
			for _, f := range s.fronts {
				f.Cut()
			}
			<-over
			waiting = false
		}
	}
	s.sweeping.Do(func() {}) // a server that was about to serve begins nothing any more
	s.Work.Wait()
	s.Close()
}
