package load

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/replog/transport"
)

// Kinds of relays: what carries a put from the first server to the others. grpc is a call of the
// same service; transport is a message of the transport that nodes use among each other.
const (
	relayGRPC      = "grpc"
	relayTransport = "transport"
)

// bare reports whether a kind is that of a relay, whose servers keep nothing.
func bare(kind string) bool { return kind == relayGRPC || kind == relayTransport }

// Relay says what one server of a ping-pong is. All fields are required, except Peers.
type Relay struct {
	// Kind is grpc or transport.
	Kind string
	// Node counts from 1. The first one takes the puts.
	Node int
	// Peers are where the others are, the last node first. Only the first node uses them.
	Peers []string
}

// PingPong serves puts that are kept nowhere, until ctx ends. The first server hands each put to
// all others, and answers when each of them has answered with nothing. That is the least that
// replication costs: a round trip to each replica, without log, order or disk. peer is where the
// first server reaches this one; empty: at its gRPC address.
func PingPong(ctx context.Context, r Relay, ready func(grpc, peer string)) (err error) {
	if !bare(r.Kind) {
		return fmt.Errorf("kind %q: %w", r.Kind, errKind)
	}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	p := &pingPong{}
	// Only the first server hands puts on.
	if r.Node != 1 {
		r.Peers = nil
	}
	peer := ""
	if r.Kind == relayGRPC {
		var others *grpcRelay
		if others, err = dialRelays(r.Peers); err == nil {
			defer func() { err = errors.Join(err, others.close()) }()
			p.relay = others
		}
	} else {
		var wire *wireRelay
		if wire, err = newWireRelay(ctx, r); err == nil {
			defer func() { err = errors.Join(err, wire.t.Close()) }()
			p.relay, peer = wire, wire.t.Addr().String()
		}
	}
	if err != nil {
		return errors.Join(err, lis.Close())
	}
	s := grpc.NewServer(grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{PermitWithoutStream: true}))
	pb.RegisterKVServiceServer(s, p)
	pb.RegisterServerServiceServer(s, &null{})
	served := make(chan error, 1)
	go func() { served <- s.Serve(lis) }()
	ready(lis.Addr().String(), peer)
	select {
	case <-ctx.Done():
	case err = <-served:
		served <- err
	}
	s.Stop()
	<-served
	return err
}

// relay hands a put to every other server, and returns when each has answered. It may be called
// from many goroutines.
type relay interface {
	// hand may fail after the put has reached some of the servers.
	hand(ctx context.Context, r *pb.KVPutRequest) error
}

// pingPong is one server. Without others, its relay returns at once.
type pingPong struct {
	pb.UnimplementedKVServiceServer
	// relay hands puts to the other servers.
	relay relay
	// puts counts what was acknowledged; it stands for a revision.
	puts atomic.Uint64
}

// Put keeps nothing.
func (p *pingPong) Put(ctx context.Context, r *pb.KVPutRequest) (*pb.KVPutResponse, error) {
	if err := p.relay.hand(ctx, r); err != nil {
		return nil, err
	}
	return &pb.KVPutResponse{Rev: p.puts.Add(1)}, nil
}

// grpcRelay hands puts on, each by a call of its own to each server.
type grpcRelay struct {
	// conns are the connections to the other servers; doors are their services, in the same order.
	conns []*grpc.ClientConn
	doors []pb.KVServiceClient
}

// dialRelays makes the connections, which are opened by their first call.
func dialRelays(addresses []string) (*grpcRelay, error) {
	g := &grpcRelay{}
	for _, a := range addresses {
		c, err := grpc.NewClient("passthrough:///"+a, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return nil, errors.Join(fmt.Errorf("connect to %s: %w", a, err), g.close())
		}
		g.conns, g.doors = append(g.conns, c), append(g.doors, pb.NewKVServiceClient(c))
	}
	return g, nil
}

// close closes all connections.
func (g *grpcRelay) close() error {
	var all []error
	for _, c := range g.conns {
		all = append(all, c.Close())
	}
	return errors.Join(all...)
}

// hand calls the first server on its own goroutine, and only the others on further ones.
func (g *grpcRelay) hand(ctx context.Context, r *pb.KVPutRequest) error {
	if len(g.doors) == 0 {
		return nil
	}
	// errs has a place for each server, so that goroutines share no element.
	errs := make([]error, len(g.doors))
	var others sync.WaitGroup
	for i, d := range g.doors[1:] {
		others.Go(func() { _, errs[i+1] = d.Put(ctx, r) })
	}
	_, errs[0] = g.doors[0].Put(ctx, r)
	others.Wait()
	return errors.Join(errs...)
}

// wireRelay hands puts on as messages of the nodes' transport. The first byte of a message says
// what it is. Messages go from the side that dialled to the side that accepted, so the first server
// begins by telling the others where it is.
type wireRelay struct {
	// t is the transport of this server.
	t *transport.Transport
	// peers are the other servers; empty: this server only answers.
	peers []transport.NodeID
	// next numbers the puts, so that an answer finds its put.
	next atomic.Uint64
	// heard has the servers that know where the first one is.
	heard chan transport.NodeID

	mu sync.Mutex // guards the field below
	// waiting has the puts whose answers are awaited, by number.
	waiting map[uint64]*handed
}

// handed is a put whose answers are awaited: left of them are missing, and done is closed when none is.
type handed struct {
	// left counts down under the lock of the wireRelay.
	left int
	// done is closed by the last answer.
	done chan struct{}
}

// The kinds of messages, sizes and times of a wireRelay.
const (
	// wireWhere begins the address of the sender, and from another server the answer to it.
	wireWhere = 'w'
	// wirePut begins 8 bytes that number the put, its key and its value; or, as an answer, those 8
	// bytes alone.
	wirePut = 'p'

	// wireHead is the length in bytes of what every message about a put begins with.
	wireHead = 1 + 8
	// nowhere is a port at which no server answers. It stands for the first server until that has
	// said where it is.
	nowhere = "127.0.0.1:9"
	// meetLook is the time between two attempts to meet the others, within meetWithin altogether.
	meetLook   = 20 * time.Millisecond
	meetWithin = 10 * time.Second
)

// relayCluster keeps these messages apart from those of real nodes.
var relayCluster = transport.ClusterID{'p', 'i', 'n', 'g', 'p', 'o', 'n', 'g'}

// newWireRelay starts the transport of one server. The first one returns when all others can answer it.
func newWireRelay(ctx context.Context, r Relay) (*wireRelay, error) {
	t, err := transport.New(transport.Options{
		Cluster: relayCluster, Node: transport.NodeID(r.Node), Listen: "127.0.0.1:0", Plain: true,
	})
	if err != nil {
		return nil, err
	}
	w := &wireRelay{t: t, waiting: map[uint64]*handed{}, heard: make(chan transport.NodeID, 64)}
	if err := t.Start(w.take); err != nil {
		return nil, err
	}
	if r.Node != 1 { // a node lets in only those that it knows; where the first one is, that says itself
		if err := t.SetPeer(1, nowhere); err != nil {
			return nil, errors.Join(err, t.Close())
		}
	}
	for i, a := range r.Peers {
		id := transport.NodeID(len(r.Peers) + 1 - i)
		if err := t.SetPeer(id, a); err != nil {
			return nil, errors.Join(err, t.Close())
		}
		w.peers = append(w.peers, id)
	}
	if err := w.meet(ctx); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return w, nil
}

// meet tells the other servers where this one is until each has answered. Messages may be lost, so it repeats.
func (w *wireRelay) meet(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, meetWithin)
	defer cancel()
	// missing are the servers that have not answered.
	missing := map[transport.NodeID]bool{}
	for _, id := range w.peers {
		missing[id] = true
	}
	for len(missing) > 0 {
		for id := range missing {
			w.t.Send(id, transport.Bulk, 0, append([]byte{wireWhere}, w.t.Addr().String()...))
		}
		look, stop := context.WithTimeout(ctx, meetLook)
		select {
		case id := <-w.heard:
			delete(missing, id)
		// After meetLook the question is sent again to all that are missing.
		case <-look.Done():
		}
		stop()
		if ctx.Err() != nil {
			return fmt.Errorf("%d servers did not answer: %w", len(missing), ctx.Err())
		}
	}
	return nil
}

// take does what a message that arrived asks for. It is called by the transport, which it must not hold up.
func (w *wireRelay) take(from transport.NodeID, _ core.ShardID, msg []byte) {
	if len(msg) == 0 {
		return
	}
	// answers says that the message is an answer, since only the first server asks.
	answers := from != 1 // only the first server asks
	switch {
	case msg[0] == wireWhere && answers:
		select {
		case w.heard <- from:
		default: // it has said so often enough
		}
	case msg[0] == wireWhere:
		go w.greet(from, string(msg[1:])) // a handler must not wait
	// A put that is too short for its number is not answered.
	case len(msg) < wireHead:
	case answers:
		w.answered(binary.LittleEndian.Uint64(msg[1:]))
	default:
		w.t.Send(from, transport.Bulk, 0, append([]byte(nil), msg[:wireHead]...))
	}
}

// greet answers the first server, which asks again when the answer is lost.
func (w *wireRelay) greet(id transport.NodeID, address string) {
	if err := w.t.SetPeer(id, address); err == nil {
		w.t.Send(id, transport.Bulk, 0, []byte{wireWhere})
	}
}

// answered counts one answer to a put. An answer that comes after the put was given up is passed over.
func (w *wireRelay) answered(id uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	h := w.waiting[id]
	if h == nil {
		return
	}
	if h.left--; h.left == 0 {
		delete(w.waiting, id)
		close(h.done)
	}
}

// errRelayFull says that the transport had no room for a message. Nothing is sent twice here.
var errRelayFull = errors.New("the way to another server is full")

// hand sends the put to all others and waits for their answers. The put waits before it is sent,
// since an answer may come at once.
func (w *wireRelay) hand(ctx context.Context, r *pb.KVPutRequest) error {
	if len(w.peers) == 0 {
		return nil
	}
	id, put := w.next.Add(1), r.GetPut()
	// The message is made once and sent to all: the transport does not change it.
	msg := make([]byte, wireHead, wireHead+len(put.GetKey())+len(put.GetValue()))
	msg[0] = wirePut
	binary.LittleEndian.PutUint64(msg[1:], id)
	msg = append(append(msg, put.GetKey()...), put.GetValue()...)
	h := &handed{left: len(w.peers), done: make(chan struct{})}
	w.mu.Lock()
	w.waiting[id] = h
	w.mu.Unlock()
	for _, peer := range w.peers {
		if !w.t.Send(peer, transport.Bulk, 0, msg) {
			w.forget(id)
			return errRelayFull
		}
	}
	select {
	case <-h.done:
		return nil
	case <-ctx.Done():
		w.forget(id)
		return ctx.Err()
	}
}

// forget gives up a put whose answers are no longer awaited.
func (w *wireRelay) forget(id uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.waiting, id)
}
