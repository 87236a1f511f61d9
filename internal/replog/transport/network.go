package transport

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/millrace/millrace/internal/core"
)

// NodeID numbers a node of a cluster, from 1. 0 is none.
type NodeID uint64

// String returns the decimal digits.
func (n NodeID) String() string { return strconv.FormatUint(uint64(n), 10) }

// ClusterID names a cluster: 16 random bytes, drawn when it is made.
type ClusterID [16]byte

// String returns 32 hexadecimal digits.
func (c ClusterID) String() string { return hex.EncodeToString(c[:]) }

// ParseClusterID reads what String returns.
func ParseClusterID(s string) (c ClusterID, err error) {
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != len(c) {
		return c, fmt.Errorf("cluster id %q: want %d hexadecimal digits", s, 2*len(c))
	}
	return ClusterID(b), nil
}

// Class says which of a peer's connections a message takes. A full or slow one does not hold up the others.
type Class uint8

// The classes. Their numbers are on the wire.
const (
	Control Class = 1 // votes, heartbeats, read index: small, and late is useless
	Bulk    Class = 2 // appends of all shards
	Parts   Class = 4 // parts of snapshots: hundreds of MiB, which nothing else may wait behind
)

// The classes of connections that are streams of bytes. Each has a bound of its own: clients' requests, which may wait for
// long, leave room for what nodes ask each other.
const (
	stream  Class = 3 // of a kind, for what nodes do with each other
	forward Class = 5 // requests of clients, which another node must serve
)

// carriesBytes says whether connections of a class are streams of bytes, not of messages.
func (c Class) carriesBytes() bool { return c == stream || c == forward }

// String returns the class's name.
func (c Class) String() string {
	switch c {
	case Control:
		return "control"
	case Bulk:
		return "bulk"
	case stream:
		return "stream"
	case forward:
		return "forward"
	case Parts:
		return "parts"
	}
	return fmt.Sprintf("class %d", uint8(c))
}

// Handler takes a message that arrived. The handler may keep msg. It may share memory with neighbouring messages, so copy
// what is kept for long. Messages of one peer and class come one at a time, in order. While the handler
// runs, nothing more is read of that peer and class: one that takes longer than the idle timeout looks like a dead node.
type Handler func(from NodeID, shard core.ShardID, msg []byte)

// Stream is a connection of its own to a peer. Its bytes are checked on arrival.
type Stream interface {
	net.Conn
	// CloseWrite tells the peer that all was said. Only after that the peer reads io.EOF: a stream that was closed
	// without it, or that broke, ends with another error, so that half a snapshot never passes for a whole one.
	CloseWrite() error
}

// StreamHandler serves a stream that a peer opened. The stream is closed when it returns, which says nothing to the peer:
// a handler that wrote calls CloseWrite.
type StreamHandler func(from NodeID, s Stream)

// Network connects a node with its peers. Transport is the one over TCP; replogtest has one in memory.
type Network interface {
	// Start begins to listen and to dial; h takes what arrives. It is called once.
	Start(h Handler) error
	// Send queues a message, which is not copied and must not change any more. It never blocks. False: it was dropped.
	Send(to NodeID, class Class, shard core.ShardID, msg []byte) bool
	// SetPeer adds a peer, or gives one another address, with new connections. With an empty one a new peer is not dialled
	// until it has another, and a peer that is there keeps its own.
	SetPeer(id NodeID, address string) error
	// RemovePeer closes all connections from and to a peer and forgets it. From then on it is refused.
	RemovePeer(id NodeID)
	// OpenStream opens a stream to the peer's handler of that kind.
	OpenStream(ctx context.Context, to NodeID, kind string) (Stream, error)
	// HandleStream sets the handler of the streams of a kind that peers open; nil: they are refused.
	HandleStream(kind string, h StreamHandler)
	// Status returns what is known of each peer, by id.
	Status() []PeerStatus
	// Close ends all connections and waits for handlers that run.
	Close() error
}

// PeerStatus is what a node knows of one peer.
type PeerStatus struct {
	ID      NodeID
	Address string
	Boot    string  // of the peer's process, hexadecimal; empty while there is no connection
	Formats Formats // of the peer, as of the last connection; zero before the first
	Control LinkStatus
	Bulk    LinkStatus
	Parts   LinkStatus
	Streams int // open ones, in both directions, with those of clients' requests
}

// LinkStatus is what a node knows of its connection of one class to a peer.
type LinkStatus struct {
	Connected bool          // this node can send
	Inbound   bool          // the peer's own connection to this node is there
	Refused   Reason        // why the last attempt was refused, by either side; 0 when it was not
	Error     string        // why the last connection ended or failed; empty once there is one again
	RoundTrip time.Duration // of the last ping

	ClassStats // of this connection and those before it
}

// Formats are the formats of log entries that a build understands.
type Formats struct{ Min, Max uint32 }

// Errors of streams and peers.
var (
	ErrClosed         = errors.New("transport is closed")
	ErrUnknownPeer    = errors.New("no such peer")
	ErrTooManyStreams = errors.New("too many streams to this peer")
)
