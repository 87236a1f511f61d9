package transport

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/internal/core"
)

// Transport is a Network over TCP. It is safe for concurrent use. Its goroutines are accept, keep,
// watchFiles, one for each link, and one or two for each connection.
type Transport struct {
	// o are the options, with defaults.
	o   Options
	log *slog.Logger
	// boot tells this process from others of the same node.
	boot bootID
	// ctx ends with the transport, by cancel. All goroutines, which work counts, end then.
	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup
	stats  counters
	// notes keep the log from saying the same thing too often.
	notes notes
	// pending are the connections that are being made.
	pending pending
	// replica is what this node greets with; see SetReplica.
	replica atomic.Uint64
	// format is the oldest format that this node still writes.
	format atomic.Uint32
	// strange is how many streams of nodes that are not peers are served.
	strange atomic.Int64
	// handler takes messages. It is set before anything runs.
	handler Handler

	// creds are the credentials in use; nil: plain text.
	creds atomic.Pointer[credentials]
	// reloading guards the two fields below. One reload runs at a time.
	reloading sync.Mutex
	// bad is the content of files that was complained about, with the error.
	bad string
	// complained is when the end of the certificate was logged last; zero: not yet.
	complained time.Time

	mu      sync.Mutex // guards the fields below
	lis     net.Listener
	started bool
	closed  bool
	// kinds are the handlers of streams that peers may open, by kind.
	kinds map[string]StreamHandler
	// forwards serves requests of clients that peers send on; nil: none are served.
	forwards StreamHandler
	// open are the handlers of kinds that nodes which are not peers may open.
	open map[string]StreamHandler
	// peers is replaced under mu, never changed, so that Send reads it without a lock.
	peers atomic.Pointer[map[NodeID]*peer]
}

var _ Network = (*Transport)(nil)

// New makes a transport that does not listen yet. It reads the certificate files, and refuses what peers would.
func New(o Options) (*Transport, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	t := &Transport{
		o: o, log: o.Logger.With("node", o.Node, "cluster", o.Cluster), kinds: make(map[string]StreamHandler), open: make(map[string]StreamHandler),
		notes: newNotes(o.Clock),
	}
	o.Rand.Fill(t.boot[:])
	t.ctx, t.cancel = context.WithCancel(context.Background())
	t.peers.Store(&map[NodeID]*peer{})
	t.replica.Store(o.Replica)
	t.format.Store(o.Formats.Min)
	t.pending.most, t.pending.limit = o.Handshakes, o.HandshakeTimeout
	if err := t.Reload(); err != nil {
		t.cancel()
		return nil, fmt.Errorf("peer certificate: %w", err)
	}
	return t, nil
}

// Start begins to listen and to dial.
func (t *Transport) Start(h Handler) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.closed:
		return ErrClosed
	case t.started:
		return errors.New("transport runs already")
	}
	lis, err := t.o.Net.Listen(t.o.Listen)
	if err != nil {
		return fmt.Errorf("listen for peers: %w", err)
	}
	t.handler, t.lis, t.started = h, lis, true
	t.work.Go(func() { t.accept(lis) })
	t.work.Go(t.keep)
	if t.o.TLS != nil {
		t.work.Go(t.watchFiles)
	}
	for _, p := range *t.peers.Load() {
		p.start()
	}
	return nil
}

// SetReplica says under which replica id this node greets its peers from now on: one that was just taken in has a new one.
func (t *Transport) SetReplica(replica uint64) { t.replica.Store(replica) }

// SetFormat says that this node writes no format below this one any more, so that connections with nodes that know none of
// those that it writes are refused by name from now on.
func (t *Transport) SetFormat(oldest uint32) { t.format.Store(min(oldest, t.o.Formats.Max)) }

// formats returns what this node writes and understands now.
func (t *Transport) formats() Formats { return Formats{Min: t.format.Load(), Max: t.o.Formats.Max} }

// Addr returns the address that the transport listens on; nil before Start.
func (t *Transport) Addr() net.Addr {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lis == nil {
		return nil
	}
	return t.lis.Addr()
}

// SetPeer adds a peer, or gives one another address. With an empty one a new peer is not dialled until it has another, and a
// peer that is there keeps its own.
func (t *Transport) SetPeer(id NodeID, address string) error {
	switch {
	case id == 0:
		return errors.New("node id: 0 is none")
	case id == t.o.Node:
		return fmt.Errorf("node %s is not a peer of itself", id)
	}
	if err := t.o.checkAddress(address); err != nil && address != "" {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return ErrClosed
	}
	old := *t.peers.Load()
	if p := old[id]; p != nil {
		if address != "" {
			p.setAddress(address)
		}
		return nil
	}
	p := newPeer(t, id, address)
	peers := maps.Clone(old)
	peers[id] = p
	t.peers.Store(&peers)
	if t.started {
		p.start()
	}
	return nil
}

// RemovePeer closes all connections from and to a peer and forgets it.
func (t *Transport) RemovePeer(id NodeID) {
	t.mu.Lock()
	old := *t.peers.Load()
	p := old[id]
	if p != nil {
		peers := maps.Clone(old)
		delete(peers, id)
		t.peers.Store(&peers)
	}
	t.mu.Unlock()
	if p != nil {
		p.end(errors.New("the peer was removed"))
	}
}

// Send queues a message for a peer. It does not wait and does not block: what finds no room, or no
// connection, is counted and dropped.
func (t *Transport) Send(to NodeID, class Class, shard core.ShardID, msg []byte) bool {
	var l *link
	if p := t.peer(to); p != nil {
		l = p.way(class)
	}
	if l == nil || len(msg) > t.o.MessageBytes {
		t.stats.undeliverable.Add(1)
		return false
	}
	switch l.queue.push(message{shard, msg}) {
	case full:
		for _, n := range l.counts {
			n.droppedFull.Add(1)
		}
		return false
	case down:
		l.drop(1)
		return false
	}
	return true
}

// Reaches reports whether votes, heartbeats and appends can be sent to a peer now.
func (t *Transport) Reaches(to NodeID) bool {
	p := t.peer(to)
	return p != nil && p.link(Control).up() && p.link(Bulk).up()
}

// HandleStream sets the handler of the streams of a kind.
func (t *Transport) HandleStream(kind string, h StreamHandler) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if h == nil {
		delete(t.kinds, kind)
		return
	}
	t.kinds[kind] = h
}

// streamHandler returns the handler of a kind; nil: there is none.
func (t *Transport) streamHandler(kind string) StreamHandler {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.kinds[kind]
}

// Status returns what is known of each peer, by id.
func (t *Transport) Status() []PeerStatus {
	peers := t.peerList()
	out := make([]PeerStatus, 0, len(peers))
	for _, p := range peers {
		out = append(out, p.status())
	}
	return out
}

// Close ends all connections, and waits until no handler runs. What is queued is not sent.
func (t *Transport) Close() error {
	t.mu.Lock()
	first, lis := !t.closed, t.lis
	t.closed = true
	t.mu.Unlock()
	t.cancel()
	var err error
	if first && lis != nil {
		err = lis.Close()
	}
	for _, p := range t.peerList() {
		p.end(ErrClosed)
	}
	t.pending.cancelAll(ErrClosed)
	t.work.Wait()
	return err
}

// peer returns a peer, or nil.
func (t *Transport) peer(id NodeID) *peer { return (*t.peers.Load())[id] }

// peerList returns the peers by id.
func (t *Transport) peerList() []*peer {
	peers := *t.peers.Load()
	out := make([]*peer, 0, len(peers))
	for _, id := range slices.Sorted(maps.Keys(peers)) {
		out = append(out, peers[id])
	}
	return out
}
