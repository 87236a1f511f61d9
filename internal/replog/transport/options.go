package transport

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/millrace/millrace/internal/env"
)

// Options of one node's transport. A zero field means its default where one is named.
type Options struct {
	Cluster ClusterID // required
	Node    NodeID    // this node; required
	Listen  string    // address that peers dial; required
	Formats Formats   // of log entries that this build understands; default 1 to 1
	Shards  int       // that this node hosts, which all nodes of a cluster do alike; default 0: it does not say

	Replica   uint64                                 // of this node, until SetReplica; default 0: it does not say
	Gone      func(node NodeID, replica uint64) bool // whether a replica was removed, so that it is refused for good; default none
	OnRemoved func()                                 // a peer refused this node as removed
	OnUnknown func(node NodeID)                      // a peer does not know this node; called with each attempt, must not wait

	TLS   *Files // certificate files; required unless Plain
	Plain bool   // plain text without identities, on loopback addresses only

	QueueMessages        int // per peer, of class Bulk; beyond it they are dropped; default 16,384
	QueueBytes           int // default 56 MiB: with those of the other classes 64 MiB for each peer
	ControlQueueMessages int // per peer, of class Control; default 4,096
	ControlQueueBytes    int // default 4 MiB
	PartsQueueMessages   int // per peer, of class Parts; default 256: one of each shard, and what is asked for again
	PartsQueueBytes      int // default 4 MiB
	MessageBytes         int // of one message; default 8 MiB: an append holds at least one entry, of up to 4 MiB
	WriteBytes           int // of messages that leave in one write; default 256 KiB, as an entry closes at that

	IdleTimeout      time.Duration // after so long without a byte a peer is taken for dead; default 1.5 s
	StallTimeout     time.Duration // the same for appends, parts of snapshots and streams, which may have to wait; default 10 s
	DialTimeout      time.Duration // of one attempt; default 2 s
	HandshakeTimeout time.Duration // from the connection to the end of the greeting; default 5 s
	BackoffMin       time.Duration // between attempts, doubling; default 50 ms
	BackoffMax       time.Duration // default 1 s
	ReloadEvery      time.Duration // how often the certificate files are looked at; default 10 s

	Handshakes int // connections that may be greeting at once, from where no peer is, and again from where peers are; default 32
	Streams    int // per peer, in each direction; default 16
	Forwards   int // streams of clients' requests, per peer, in each direction; default 128
	Strangers  int // streams of nodes that are not peers, to kinds that are open to them; default 4

	Clock  env.Clock // default the machine's
	Net    env.Net   // default TCP
	Rand   env.Rand  // default the machine's
	FS     env.FS    // of the certificate files; required with TLS
	Logger *slog.Logger
}

// withDefaults fills in the defaults and checks the result.
func (o Options) withDefaults() (Options, error) {
	if o.Formats == (Formats{}) {
		o.Formats = Formats{1, 1}
	}
	o.QueueMessages = cmp.Or(o.QueueMessages, 16384)
	o.QueueBytes = cmp.Or(o.QueueBytes, 56<<20)
	o.ControlQueueMessages = cmp.Or(o.ControlQueueMessages, 4096)
	o.ControlQueueBytes = cmp.Or(o.ControlQueueBytes, 4<<20)
	o.PartsQueueMessages = cmp.Or(o.PartsQueueMessages, 256)
	o.PartsQueueBytes = cmp.Or(o.PartsQueueBytes, 4<<20)
	o.MessageBytes = cmp.Or(o.MessageBytes, 8<<20)
	o.WriteBytes = cmp.Or(o.WriteBytes, 256<<10)
	o.IdleTimeout = cmp.Or(o.IdleTimeout, 1500*time.Millisecond)
	o.StallTimeout = cmp.Or(o.StallTimeout, 10*time.Second)
	o.DialTimeout = cmp.Or(o.DialTimeout, 2*time.Second)
	o.HandshakeTimeout = cmp.Or(o.HandshakeTimeout, 5*time.Second)
	o.BackoffMin = cmp.Or(o.BackoffMin, 50*time.Millisecond)
	o.BackoffMax = cmp.Or(o.BackoffMax, time.Second)
	o.ReloadEvery = cmp.Or(o.ReloadEvery, 10*time.Second)
	o.Handshakes = cmp.Or(o.Handshakes, 32)
	o.Streams = cmp.Or(o.Streams, 16)
	o.Forwards = cmp.Or(o.Forwards, 128)
	o.Strangers = cmp.Or(o.Strangers, 4)
	if o.Clock == nil {
		o.Clock = env.SystemClock{}
	}
	if o.Net == nil {
		o.Net = env.SystemNet{}
	}
	if o.Rand == nil {
		o.Rand = env.SystemRand{}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o, o.check()
}

// check refuses what is not safe or makes no sense, naming the option.
func (o *Options) check() error {
	switch {
	case o.Cluster == ClusterID{}:
		return errors.New("cluster id: none is given")
	case o.Node == 0:
		return errors.New("node id: none is given, and 0 is none")
	case o.TLS == nil && !o.Plain:
		return errors.New("peers: give certificate files, or allow plain text on loopback by name")
	case o.TLS != nil && o.Plain:
		return errors.New("peers: certificate files and plain text exclude each other")
	case o.TLS != nil && o.FS == nil:
		return errors.New("peers: certificate files need a file system")
	case o.Formats.Min > o.Formats.Max:
		return fmt.Errorf("formats: %d to %d is empty", o.Formats.Min, o.Formats.Max)
	case o.MessageBytes < 0 || o.MessageBytes > 1<<30:
		return fmt.Errorf("message bytes: %d is not within 1 to 1 GiB", o.MessageBytes)
	}
	for _, n := range []struct {
		name  string
		value int64
	}{
		{"shards", int64(o.Shards)},
		{"queue messages", int64(o.QueueMessages)},
		{"queue bytes", int64(o.QueueBytes)},
		{"control queue messages", int64(o.ControlQueueMessages)},
		{"control queue bytes", int64(o.ControlQueueBytes)},
		{"parts queue messages", int64(o.PartsQueueMessages)},
		{"parts queue bytes", int64(o.PartsQueueBytes)},
		{"write bytes", int64(o.WriteBytes)},
		{"idle timeout", int64(o.IdleTimeout)},
		{"stall timeout", int64(o.StallTimeout)},
		{"dial timeout", int64(o.DialTimeout)},
		{"handshake timeout", int64(o.HandshakeTimeout)},
		{"backoff", int64(o.BackoffMin)},
		{"longest backoff", int64(o.BackoffMax)},
		{"reload interval", int64(o.ReloadEvery)},
		{"handshakes", int64(o.Handshakes)},
		{"streams", int64(o.Streams)},
		{"forwards", int64(o.Forwards)},
		{"strangers", int64(o.Strangers)},
	} {
		if n.value < 0 {
			return fmt.Errorf("%s: must not be negative", n.name)
		}
	}
	return o.checkAddress(o.Listen)
}

// checkAddress refuses an address that makes no sense, or over which plain text would leave the machine.
func (o *Options) checkAddress(address string) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("peer address %q: %w", address, err)
	}
	if o.Plain && !env.Loopback(host) {
		return fmt.Errorf("peer address %s must be a loopback address: plain text between peers stays on one machine", address)
	}
	return nil
}
