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
	Name    string // of this node, for people
	Replica uint64 // this node's number, that of its replica in every shard; default 1
	Peers   []Peer // the other nodes, by number; none: this node is the only one
	Address string // where clients reach this node
	Node    uint64 // this node's number, which messages travel by; default Replica
	// PeerAddress and HTTP are where its peers, and clients of its REST edge, reach it: for the directory of members.
	PeerAddress, HTTP string
	StoreID           core.StoreID // names the data directory, for the directory of members; zeros: no node is told
	Joining           bool         // the node was taken in later: its logs begin with snapshots
	// OnMembers is told who is to be reached, when that changes; it does not wait.
	OnMembers func([]core.Member)
	// OnFormat is told the format of entries that this node is about to write or to read, above FormatFirst, and returns when
	// that is kept.
	OnFormat func(format uint16) error
	// OnRemoved is told that this node was removed, before Fatal is.
	OnRemoved func()

	Network  Network // between the nodes; required with Peers
	Shards   int     // how many shards the node hosts; default 1, at most 64
	Dir      string  // of the data, for the free-space check; required
	FS       env.FS  // beneath Dir; required
	Clock    env.Clock
	Rand     env.Rand
	Logger   *slog.Logger
	Log      *replog.Log  // required
	Store    *store.Store // required
	Ballast  Ballast      // held back for a full disk; none by default
	Manual   bool         // no goroutine: the caller calls Step, and all methods from one goroutine; Log and Store are manual too
	Unsynced bool         // durability none: acknowledged writes survive a killed process, not a power cut

	EntryBytes     int           // an entry closes at this size; default 256 KiB
	EntryCommits   int           // or at this many commits, so that what is answered together stays small; default 512
	QueueBytes     int64         // proposals waiting per shard; default 64 MiB
	QueueProposals int           // default 10,000
	InboxBytes     int64         // messages of peers waiting per shard, beyond which they are dropped as a network drops; default 64 MiB
	TickEvery      time.Duration // Raft's tick; default 100 ms
	PauseAfter     time.Duration // by how much its ticks are late when a node takes itself for one that stood still; default 1 s
	RenewEvery     time.Duration // renewals of leases wait for company this long; default 200 ms
	TimerBatch     uint32        // steps of timed work in one entry; default 1,000
	ReadWait       time.Duration // a read waits this long for its index; default 10 s
	Waits          int           // callers waiting for a task's end; default 10,000
	Claims         int           // unary claims waiting; default 10,000
	Queues         uint32        // of one partition, beyond which this node, where it leads, takes no new one; default core.DefaultQueues
	Namespaces     uint32        // of one tenant, beyond which this node makes no new one; default core.DefaultNamespaces
	RemovalWait    time.Duration // the removal of a namespace that stands still for so long is gone on with; default 5 s
	LogKeep        uint64        // bytes of log written before the store is asked to make its state durable; default 128 MiB
	LogQuota       uint64        // bytes of log kept for nodes that are behind; beyond it they need a snapshot; default 4 GiB, or a tenth of a smaller disk
	SnapshotPart   int           // bytes of a snapshot in one message; default 256 KiB
	SnapshotRate   int64         // bytes per second of snapshots that the node fetches; default 64 MiB
	NearEntries    uint64        // how far a learner may be behind, in every shard, to become a voter; default 1,000
	DiskReserve    uint64        // new work is refused below this much free space; default min(1 % of the disk, 1 GiB)
	SearchBytes    int64         // of indexes for searching, beyond which no more points are taken; 0 = no bound
	NoSearch       bool          // keep no index: this node answers no search
	VectorKernel   string        // vnni, avx2 or purego; default the fastest that the machine has
	DiskEvery      time.Duration // how often free space is read; default 500 ms
	QuotaEvery     time.Duration // how often keyspaces with a bound are measured; default 8 s, so that it is obeyed within 10
	// verify finds out whether the files of a snapshot are what they should be; nil: as the store does.
	verify     func(s *store.Shard, dir string, snap store.Snapshot) error
	measure    measure      // what a range of keys takes; nil: as the store estimates it
	beforeLoad func(string) // is called before each part of a collection's index is read; nil: not set

	OneCommitPerEntry bool // no group commit: for measuring what it is worth
}

// Ballast is room on the disk that is held back, and given up when a write finds the disk full, so that what there is can
// still be settled and deleted. *store.Dir is one.
type Ballast interface {
	ReserveBallast(size int64) error
	ReleaseBallast() (released bool, err error)
	HasBallast() bool
}

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
