package transport

import (
	"context"
	"encoding/hex"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// peer is one other node. It exists from SetPeer to RemovePeer, or for one stream of a node that is
// not a peer.
type peer struct {
	// t is the transport, and id the node.
	t  *Transport
	id NodeID
	// stranger says that the node is not a peer: it has one stream.
	stranger bool
	// ctx ends when the peer is removed, by cancel.
	ctx    context.Context
	cancel context.CancelCauseFunc
	// links are one for each class of messages.
	links []*link
	// seen is the host of its newest connection.
	seen atomic.Pointer[string]
	// silent is for how long no byte came from it on any connection. Only the keeper uses it.
	silent time.Duration

	mu sync.Mutex // guards the fields below
	// address is where the node listens for other nodes; empty: it has not announced it yet.
	address string
	moved   chan struct{} // closed when the address changes
	// gone says that it was removed. No connection joins it then.
	gone bool
	// conns are the connections that were greeted, in both directions.
	conns map[*conn]struct{}
	// opening counts, by class, the streams that are being opened.
	opening map[Class]int
	// formats are those that it announced last.
	formats Formats
}

// newPeer returns a peer whose links do not dial yet.
func newPeer(t *Transport, id NodeID, address string) *peer {
	p := &peer{t: t, id: id, address: address, moved: make(chan struct{}), conns: make(map[*conn]struct{}), opening: make(map[Class]int)}
	p.ctx, p.cancel = context.WithCancelCause(t.ctx)
	p.links = []*link{
		newLink(p, Control, t.o.ControlQueueMessages, t.o.ControlQueueBytes),
		newLink(p, Bulk, t.o.QueueMessages, t.o.QueueBytes),
		newLink(p, Parts, t.o.PartsQueueMessages, t.o.PartsQueueBytes),
	}
	return p
}

// start begins to dial.
func (p *peer) start() {
	for _, l := range p.links {
		p.t.work.Go(l.run)
	}
}

// link returns the link of a class; nil: no messages are of that class.
func (p *peer) link(c Class) *link {
	for _, l := range p.links {
		if l.class == c {
			return l
		}
	}
	return nil
}

// way returns the link that messages of a class take: those of Parts go with appends to a node whose program is older than the
// class, and refuses its greeting.
func (p *peer) way(c Class) *link {
	l := p.link(c)
	if c == Parts && l.refusal() == Malformed {
		return p.link(Bulk)
	}
	return l
}

// where returns the address, and what is closed when that changes.
func (p *peer) where() (address string, moved <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.address, p.moved
}

var (
	// errMoved ends connections to an address that is not the peer's any more. The link dials again
	// at once.
	errMoved     = errors.New("the peer has another address")
	errNoAddress = errors.New("it has not announced its address yet")
)

// setAddress makes the links dial again, elsewhere.
func (p *peer) setAddress(address string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.address == address {
		return
	}
	p.address = address
	close(p.moved)
	p.moved = make(chan struct{})
	for c := range p.conns {
		if c.outbound {
			c.close(errMoved)
		}
	}
}

// end closes all connections and lets no other in.
func (p *peer) end(why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gone = true
	p.cancel(why)
	for c := range p.conns {
		c.close(why)
	}
}

// join makes c one of the peer's connections. It takes the place of an older one of the same
// direction and class. While a connection to another process of the same node lives, c is refused:
// two processes with one id would both vote. A process that ended leaves its connections closed, or
// silent for the idle timeout. Connections of the class and direction that were closed meanwhile do
// not count.
func (p *peer) join(c *conn) error {
	host := hostOf(c.wire.RemoteAddr().String())
	p.seen.Store(&host)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.gone:
		return &RefusedError{Reason: UnknownPeer, Detail: "it was removed"}
	case c.outbound && c.address != p.address:
		return errMoved
	}
	var replaced []*conn
	streams := 0
	for o := range p.conns {
		switch {
		case o.isDead():
		case o.boot != c.boot && time.Duration(o.still.Load()) < p.t.o.IdleTimeout:
			return &RefusedError{
				Reason: DuplicateNode,
				Detail: p.t.between(p.t.o.Cluster, p.id) + ": process " + hex.EncodeToString(c.boot[:4]) + "; process " + hex.EncodeToString(o.boot[:4]) + " of the same node is alive",
			}
		case o.boot != c.boot:
			replaced = append(replaced, o)
		case o.class != c.class || o.outbound != c.outbound:
		case c.class.carriesBytes():
			streams++
		default:
			replaced = append(replaced, o)
		}
	}
	if c.class.carriesBytes() && !c.outbound && streams >= p.t.mostStreams(c.class) {
		return &RefusedError{Reason: TooManyStreams}
	}
	for _, o := range replaced {
		o.close(errors.New("a newer connection took its place"))
	}
	p.conns[c] = struct{}{}
	p.formats = c.formats
	return nil
}

// leave forgets a connection that was closed. It is called once for each connection, when its
// goroutine is done with it; a second call does nothing.
func (p *peer) leave(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

// all returns the connections there are. Some may have been closed by the time that they are looked
// at.
func (p *peer) all() []*conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]*conn, 0, len(p.conns))
	for c := range p.conns {
		out = append(out, c)
	}
	return out
}

// reserve takes a place for a stream of a class to be opened.
func (p *peer) reserve(class Class) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.opening[class]
	for c := range p.conns {
		if c.class == class && c.outbound && !c.isDead() {
			n++
		}
	}
	switch {
	case p.gone:
		return ErrUnknownPeer
	case n >= p.t.mostStreams(class):
		return ErrTooManyStreams
	}
	p.opening[class]++
	return nil
}

// opened gives that place back: the stream is there by now, or not. A stream that is there counts
// among the connections.
func (p *peer) opened(class Class) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.opening[class]--
}

// status returns what is known of the peer.
func (p *peer) status() PeerStatus {
	s := PeerStatus{ID: p.id}
	for _, l := range p.links {
		*s.link(l.class) = l.status()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s.Address, s.Formats = p.address, p.formats
	for c := range p.conns {
		if c.isDead() {
			continue
		}
		s.Boot = hex.EncodeToString(c.boot[:])
		switch {
		case c.class.carriesBytes():
			s.Streams++
		case !c.outbound:
			s.link(c.class).Inbound = true
		}
	}
	return s
}

// link returns where what is known of the connection of a class stands.
func (s *PeerStatus) link(c Class) *LinkStatus {
	switch c {
	case Control:
		return &s.Control
	case Parts:
		return &s.Parts
	}
	return &s.Bulk
}
