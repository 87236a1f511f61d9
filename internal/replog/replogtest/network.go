package replogtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/replog/transport"
)

// Network joins nodes in memory, without a goroutine and without time: what is sent lies in one list until its owner says
// what becomes of it. So a simulator decides what is late, lost, doubled or out of order, and one seed gives one history.
// It is safe for concurrent use; handlers run in the goroutine that delivers.
type Network struct {
	mu sync.Mutex // guards the fields below
	// nodes are the newest ends of the nodes.
	nodes map[transport.NodeID]*Endpoint
	// packets are on their way, the oldest first, and waiting counts them by link, most of them at
	// most.
	packets []Packet
	waiting map[memLink]int
	most    int
	// next is the number of the packet sent last.
	next uint64
	// cut has the directed pairs of nodes between which all is lost.
	cut  map[[2]transport.NodeID]bool
	wake chan struct{}
}

// Packet is one message, or one stream that is being opened.
type Packet struct {
	N        uint64 // 1 for the first packet sent; a copy has its original's
	From, To transport.NodeID
	Class    transport.Class // 0: a stream
	Shard    core.ShardID
	Data     []byte
	Kind     string // of a stream
	stream   *memStream
}

// memLink is what is bounded: the packets of one class from one node to another.
type memLink struct {
	from, to transport.NodeID
	class    transport.Class
}

// link returns what bounds the packet.
func (p *Packet) link() memLink { return memLink{p.From, p.To, p.Class} }

// ErrWouldBlock says that a stream has nothing to read for now: in a network without goroutines a reader cannot wait.
var ErrWouldBlock = errors.New("nothing to read yet")

// NewNetwork returns a network that holds at most that many packets of each sender, receiver and class; what is sent
// beyond them is dropped. 0: 16,384.
func NewNetwork(most int) *Network {
	if most == 0 {
		most = 16384
	}
	return &Network{
		nodes: make(map[transport.NodeID]*Endpoint), most: most, cut: make(map[[2]transport.NodeID]bool),
		waiting: make(map[memLink]int), wake: make(chan struct{}, 1),
	}
}

// Node returns a new end of the network for a node. A node that restarts asks for it again, and messages on their way to
// the previous end are delivered to the new one.
func (n *Network) Node(id transport.NodeID) *Endpoint {
	n.mu.Lock()
	defer n.mu.Unlock()
	if old := n.nodes[id]; old != nil {
		old.closed = true
	}
	e := &Endpoint{net: n, id: id, peers: make(map[transport.NodeID]string), kinds: make(map[string]transport.StreamHandler)}
	n.nodes[id] = e
	return e
}

// Packets returns what is on its way, oldest first. The data is not copied.
func (n *Network) Packets() []Packet {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.packets)
}

// Len returns how many packets are on their way.
func (n *Network) Len() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.packets)
}

// Wake has a value after something was sent.
func (n *Network) Wake() <-chan struct{} { return n.wake }

// Deliver hands packet i to its receiver. False: it was lost, for the link is cut, or the receiver is not there or does
// not know the sender.
func (n *Network) Deliver(i int) bool {
	n.mu.Lock()
	p := n.remove(i)
	e := n.nodes[p.To]
	ok := !n.cut[[2]transport.NodeID{p.From, p.To}] && e != nil && !e.closed && e.handler != nil && e.knows(p.From)
	var h transport.Handler
	var serve transport.StreamHandler
	if ok {
		h, serve = e.handler, e.kinds[p.Kind]
	}
	n.mu.Unlock()
	switch {
	case p.stream != nil && (!ok || serve == nil):
		p.stream.fail(&transport.RefusedError{Reason: transport.UnknownStream, Remote: true})
		return false
	case !ok:
		return false
	case p.stream != nil:
		s := p.stream.other
		serve(p.From, s)
		_ = s.Close() // as after every handler; a stream in memory closes without errors
	default:
		h(p.From, p.Shard, p.Data)
	}
	return true
}

// DeliverAll delivers, oldest first, until nothing is on its way, or limit packets were taken. It returns how many.
func (n *Network) DeliverAll(limit int) int {
	for i := range limit {
		if n.Len() == 0 {
			return i
		}
		n.Deliver(0)
	}
	return limit
}

// Drop loses packet i.
func (n *Network) Drop(i int) {
	n.mu.Lock()
	p := n.remove(i)
	n.mu.Unlock()
	if p.stream != nil {
		p.stream.fail(io.ErrUnexpectedEOF)
	}
}

// Duplicate puts a copy of packet i at the end. A stream cannot be doubled: nothing happens.
func (n *Network) Duplicate(i int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.packets[i].stream == nil {
		n.waiting[n.packets[i].link()]++
		n.packets = append(n.packets, n.packets[i])
	}
}

// Cut loses, or carries again, all that goes from one node to another. What is on its way is judged when it is delivered.
func (n *Network) Cut(from, to transport.NodeID, lost bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut[[2]transport.NodeID{from, to}] = lost
}

// remove takes packet i off the list. n.mu is held.
func (n *Network) remove(i int) Packet {
	p := n.packets[i]
	n.packets = slices.Delete(n.packets, i, i+1)
	n.waiting[p.link()]--
	return p
}

// send appends a packet, unless there is no room. n.mu is held.
func (n *Network) send(p Packet) bool {
	if n.waiting[p.link()] >= n.most || n.cut[[2]transport.NodeID{p.From, p.To}] {
		return false
	}
	n.next++
	p.N = n.next
	n.waiting[p.link()]++
	n.packets = append(n.packets, p)
	select {
	case n.wake <- struct{}{}:
	default:
	}
	return true
}

// Endpoint is one node's end of a Network.
type Endpoint struct {
	net *Network
	id  transport.NodeID
	// The network's mutex guards the fields below.
	handler transport.Handler
	closed  bool
	peers   map[transport.NodeID]string // addresses
	kinds   map[string]transport.StreamHandler
}

var _ transport.Network = (*Endpoint)(nil)

// knows reports whether a node is a peer. The network's mutex is held.
func (e *Endpoint) knows(id transport.NodeID) bool {
	_, ok := e.peers[id]
	return ok
}

// Start lets messages in.
func (e *Endpoint) Start(h transport.Handler) error {
	e.net.mu.Lock()
	defer e.net.mu.Unlock()
	if e.closed {
		return transport.ErrClosed
	}
	e.handler = h
	return nil
}

// Send puts a message on its way. False: there is no such peer, the link is cut, or too much is on its way.
func (e *Endpoint) Send(to transport.NodeID, class transport.Class, shard core.ShardID, msg []byte) bool {
	e.net.mu.Lock()
	defer e.net.mu.Unlock()
	if e.closed || e.handler == nil || !e.knows(to) {
		return false
	}
	return e.net.send(Packet{From: e.id, To: to, Class: class, Shard: shard, Data: msg})
}

// SetPeer adds a peer. The address is only shown.
func (e *Endpoint) SetPeer(id transport.NodeID, address string) error {
	e.net.mu.Lock()
	defer e.net.mu.Unlock()
	switch {
	case e.closed:
		return transport.ErrClosed
	case id == 0 || id == e.id:
		return fmt.Errorf("node %s is not a peer of node %s", id, e.id)
	}
	e.peers[id] = address
	return nil
}

// RemovePeer forgets a peer; what is on its way from it will be lost.
func (e *Endpoint) RemovePeer(id transport.NodeID) {
	e.net.mu.Lock()
	defer e.net.mu.Unlock()
	delete(e.peers, id)
}

// HandleStream sets the handler of the streams of a kind.
func (e *Endpoint) HandleStream(kind string, h transport.StreamHandler) {
	e.net.mu.Lock()
	defer e.net.mu.Unlock()
	e.kinds[kind] = h
}

// OpenStream puts a stream on its way: its handler runs when it is delivered, and reads what was written by then. So who
// opens it writes all it has to say, and calls CloseWrite, before that; an answer can be read afterwards.
// Reading what is not there is ErrWouldBlock.
func (e *Endpoint) OpenStream(ctx context.Context, to transport.NodeID, kind string) (transport.Stream, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	e.net.mu.Lock()
	defer e.net.mu.Unlock()
	switch {
	case e.closed || e.handler == nil:
		return nil, transport.ErrClosed
	case !e.knows(to):
		return nil, transport.ErrUnknownPeer
	}
	here := memPipe(e.id, to)
	if !e.net.send(Packet{From: e.id, To: to, Kind: kind, stream: here}) {
		return nil, transport.ErrTooManyStreams
	}
	return here, nil
}

// Status returns the peers, which count as connected where their link is not cut.
func (e *Endpoint) Status() []transport.PeerStatus {
	e.net.mu.Lock()
	defer e.net.mu.Unlock()
	var out []transport.PeerStatus
	for _, id := range slices.Sorted(maps.Keys(e.peers)) {
		other := e.net.nodes[id]
		up := other != nil && !other.closed && other.handler != nil
		link := transport.LinkStatus{
			Connected: up && !e.net.cut[[2]transport.NodeID{e.id, id}],
			Inbound:   up && !e.net.cut[[2]transport.NodeID{id, e.id}],
		}
		out = append(out, transport.PeerStatus{ID: id, Address: e.peers[id], Control: link, Bulk: link, Parts: link})
	}
	return out
}

// Close takes the node off the network.
func (e *Endpoint) Close() error {
	e.net.mu.Lock()
	defer e.net.mu.Unlock()
	e.closed = true
	return nil
}

// memStream is one end of a stream in memory.
type memStream struct {
	other *memStream
	from  transport.NodeID
	to    transport.NodeID

	mu *sync.Mutex // of both ends; guards the fields below
	// in is what the other end has written and this one has not read.
	in     []byte
	ended  bool // the other end writes no more
	closed bool
	// err is why the stream has broken; nil: it has not.
	err error
}

// memPipe returns the end at a of a stream to b.
func memPipe(a, b transport.NodeID) *memStream {
	mu := new(sync.Mutex)
	here, there := &memStream{from: a, to: b, mu: mu}, &memStream{from: b, to: a, mu: mu}
	here.other, there.other = there, here
	return here
}

// fail breaks both ends.
func (s *memStream) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err, s.other.err = err, err
}

// Read returns what was written, io.EOF after the end of it, ErrWouldBlock before.
func (s *memStream) Read(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return 0, net.ErrClosed
	case len(s.in) > 0:
		n := copy(b, s.in)
		s.in = s.in[n:]
		return n, nil
	case s.ended:
		return 0, io.EOF
	case s.err != nil:
		return 0, s.err
	}
	return 0, ErrWouldBlock
}

// Write hands b to the other end. It takes any amount.
func (s *memStream) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed || s.other.ended:
		return 0, net.ErrClosed
	case s.err != nil:
		return 0, s.err
	case s.other.closed:
		return 0, io.ErrClosedPipe
	}
	s.other.in = append(s.other.in, b...)
	return len(b), nil
}

// CloseWrite tells the other end that nothing more comes.
func (s *memStream) CloseWrite() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.other.ended = true
	return nil
}

// Close ends both directions. Without CloseWrite before it, the other end reads io.ErrUnexpectedEOF.
func (s *memStream) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed = true; !s.other.ended && s.other.err == nil {
		s.other.err = io.ErrUnexpectedEOF
	}
	return nil
}

// memAddr is a node's address in memory.
type memAddr transport.NodeID

func (a memAddr) Network() string { return "memory" }
func (a memAddr) String() string  { return "node " + transport.NodeID(a).String() }

// LocalAddr returns this node.
func (s *memStream) LocalAddr() net.Addr { return memAddr(s.from) }

// RemoteAddr returns the peer.
func (s *memStream) RemoteAddr() net.Addr { return memAddr(s.to) }

// SetDeadline does nothing, as nothing waits.
func (s *memStream) SetDeadline(time.Time) error { return nil }

// SetReadDeadline does nothing.
func (s *memStream) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline does nothing.
func (s *memStream) SetWriteDeadline(time.Time) error { return nil }
