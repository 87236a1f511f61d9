package node

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/env"
	"github.com/millrace/millrace/internal/replog"
	"github.com/millrace/millrace/internal/store"
)

// Options of a node. A zero field means its default where one is named.
type Options struct {
	// Name of this node, for people; default n1.
	Name string
	// This node's number, that of its replica in every shard; default 1.
	Replica uint64
	// The other nodes, by number; none: this node is the only one.
	Peers []Peer
	// Where clients reach this node, as host:port.
	Address string
	// This node's number, which messages travel by; default Replica.
	Node uint64
	// PeerAddress and HTTP are where its peers, and clients of its REST edge, reach it: for the directory of members.
	PeerAddress, HTTP string
	// Names the data directory, for the directory of members; zeros: no node is told.
	StoreID core.StoreID
	// The node was taken in later: its logs begin with snapshots.
	Joining bool
	// The version of the directory of members that Peers are from, with Joining. This node applies older ones before it has caught
	// up, and does not go by them: members that came later are not in them.
	PeersVersion uint64
	// OnMembers is told who is to be reached, when that changes; it does not wait.
	OnMembers func([]core.Member)
	// OnFormat is told the format of entries that this node is about to write or to read, above FormatFirst, and returns when
	// that is kept.
	OnFormat func(format uint16) error
	// OnRemoved is told that this node was removed, before Fatal is.
	OnRemoved func()

	// Network between the nodes; required with Peers.
	Network Network
	// How many shards the node hosts; default 1, at most 64.
	Shards int
	// Directory of the data, for the free-space check; required.
	Dir string
	// File system beneath Dir; required.
	FS env.FS
	// The clock, the source of random numbers and the log of the program; default the system's, and none.
	Clock  env.Clock
	Rand   env.Rand
	Logger *slog.Logger
	// The log of all shards; required. Its owner closes it, after Close.
	Log *replog.Log
	// The state of all shards; required. Its owner closes it, after Close.
	Store *store.Store
	// Room that is held back for a full disk; none by default.
	Ballast Ballast
	// No goroutine: the caller calls Step, and all methods from one goroutine; Log and Store are manual too.
	Manual bool
	// Durability none: acknowledged writes survive a killed process, not a power cut.
	Unsynced bool

	// An entry closes at this size in bytes; default 256 KiB.
	EntryBytes int
	// Or at this many commits, so that what is answered together stays small; default 512.
	EntryCommits int
	// Bytes of proposals waiting per shard, beyond which they are refused; default 64 MiB.
	QueueBytes int64
	// How many proposals wait per shard, beyond which they are refused; default 10,000.
	QueueProposals int
	// Bytes of messages of peers waiting per shard, beyond which they are dropped as a network drops; default 64 MiB.
	InboxBytes int64
	// Raft's tick; default 100 ms.
	TickEvery time.Duration
	// By how much its ticks are late when a node takes itself for one that stood still; default 1 s.
	PauseAfter time.Duration
	// Renewals of leases wait for company this long; default 200 ms.
	RenewEvery time.Duration
	// How long after its stream broke a session may be resumed before its leases end as crashes; 0 = they end by their own time.
	DisconnectGrace time.Duration
	// Steps of timed work in one entry; default 1,000.
	TimerBatch uint32
	// A read waits this long for its index; default 10 s.
	ReadWait time.Duration
	// Callers waiting for a task's end, per shard; default 10,000.
	Waits int
	// Unary claims waiting, per shard; default 10,000.
	Claims int
	// Queues of one partition, beyond which this node, where it leads, takes no new one; default core.DefaultQueues.
	Queues uint32
	// Namespaces of one tenant, beyond which this node makes no new one; default core.DefaultNamespaces.
	Namespaces uint32
	// The removal of a namespace that stands still for this long is gone on with; default 5 s.
	RemovalWait time.Duration
	// Bytes of log written before the store is asked to make its state durable; default 128 MiB.
	LogKeep uint64
	// Bytes of log kept for nodes that are behind; beyond it they need a snapshot; default 4 GiB, or a tenth of a
	// smaller disk.
	LogQuota uint64
	// Bytes of a snapshot in one message; default 256 KiB.
	SnapshotPart int
	// Bytes per second of snapshots that the node fetches; default 64 MiB.
	SnapshotRate int64
	// How many entries a learner may be behind, in every shard, to become a voter; default 1,000.
	NearEntries uint64
	// New work is refused below this many bytes of free space; default min(1 % of the disk, 1 GiB).
	DiskReserve uint64
	// Bytes of indexes for searching, beyond which no more points are taken; 0 = no bound.
	SearchBytes int64
	// Bytes of what the counters of queues were; default 8 MiB.
	HistoryBytes int64
	// Tells how many bytes of memory the process takes; nil: that is not known.
	Resident func() uint64
	// Keep no index: this node answers no search.
	NoSearch bool
	// vnni, avx2 or purego; default the fastest that the machine has.
	VectorKernel string
	// How often free space is read; default 500 ms.
	DiskEvery time.Duration
	// How often keyspaces with a bound are measured; default 8 s, so that it is obeyed within 10.
	QuotaEvery time.Duration
	// verify finds out whether the files of a snapshot are what they should be; nil: as the store does.
	verify func(s *store.Shard, dir string, snap store.Snapshot) error
	// What a range of keys takes; nil: as the store estimates it.
	measure measure
	// Called before each part of a collection's index is read; nil: not set.
	beforeLoad func(string)

	// No group commit: for measuring what it is worth.
	OneCommitPerEntry bool
}

// Ballast is room on the disk that is held back, and given up when a write finds the disk full, so that what there is can
// still be settled and deleted. *store.Dir is one.
type Ballast interface {
	// ReserveBallast takes the room, of size bytes; 0 = the default size. Doing it again does no harm.
	ReserveBallast(size int64) error
	// ReleaseBallast gives the room back; released is false when there was none.
	ReleaseBallast() (released bool, err error)
	// HasBallast reports whether the room is held.
	HasBallast() bool
}

// withDefaults returns o with the defaults in the place of zeros. Those that depend on the disk are found when they
// are needed.
func (o Options) withDefaults() Options {
	o.Name = cmp.Or(o.Name, "n1")
	o.Replica = cmp.Or(o.Replica, 1)
	o.Node = cmp.Or(o.Node, o.Replica)
	o.Shards = cmp.Or(o.Shards, 1)
	o.EntryBytes = cmp.Or(o.EntryBytes, 256<<10)
	o.EntryCommits = cmp.Or(o.EntryCommits, 512)
	if o.OneCommitPerEntry {
		o.EntryCommits = 1
	}
	o.QueueBytes = cmp.Or(o.QueueBytes, 64<<20)
	o.InboxBytes = cmp.Or(o.InboxBytes, 64<<20)
	o.QueueProposals = cmp.Or(o.QueueProposals, 10_000)
	o.TickEvery = cmp.Or(o.TickEvery, 100*time.Millisecond)
	o.PauseAfter = cmp.Or(o.PauseAfter, time.Second)
	o.RenewEvery = cmp.Or(o.RenewEvery, 200*time.Millisecond)
	o.TimerBatch = cmp.Or(o.TimerBatch, 1000)
	o.ReadWait = cmp.Or(o.ReadWait, 10*time.Second)
	o.Waits = cmp.Or(o.Waits, 10_000)
	o.Claims = cmp.Or(o.Claims, 10_000)
	o.Queues = min(cmp.Or(o.Queues, core.DefaultQueues), core.MaxQueues)
	o.Namespaces = min(cmp.Or(o.Namespaces, core.DefaultNamespaces), core.MaxNamespaces)
	o.RemovalWait = cmp.Or(o.RemovalWait, 5*time.Second)
	o.LogKeep = cmp.Or(o.LogKeep, 128<<20)
	o.SnapshotPart = cmp.Or(o.SnapshotPart, 256<<10)
	o.SnapshotRate = cmp.Or(o.SnapshotRate, 64<<20)
	o.NearEntries = cmp.Or(o.NearEntries, 1000)
	o.HistoryBytes = cmp.Or(o.HistoryBytes, 8<<20)
	o.DiskEvery = cmp.Or(o.DiskEvery, 500*time.Millisecond)
	o.QuotaEvery = cmp.Or(o.QuotaEvery, 8*time.Second)
	if o.verify == nil {
		o.verify = (*store.Shard).Verify
	}
	if o.measure == nil {
		o.measure = (*store.Shard).RangeBytes
	}
	if o.Clock == nil {
		o.Clock = env.SystemClock{}
	}
	if o.Rand == nil {
		o.Rand = env.SystemRand{}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// systemPartition holds the directory on shard 0, and every shard's own records.
var systemPartition = core.Partition{}
