package node

import (
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/machine/queue"
	"github.com/millrace/millrace/internal/obs"
)

// Stats is what a node has done since it started, and how it stands now.
type Stats struct {
	// New work is refused for want of disk space.
	Full bool
	// Free bytes of the disk, for this process.
	FreeBytes uint64
	// Size of the disk in bytes.
	DiskBytes uint64
	// Bytes that new work must leave free.
	Reserve uint64
	// Namespaces that were asked for since the start.
	Namespaces int
	// How many commits each entry had that this node proposed.
	Batches obs.Distribution
	// One for each shard, by number.
	Shards []ShardStats
	// Members of the cluster, ascending by replica; this node alone without one.
	Members []core.Member
	// The change of membership under way, or the last one.
	Job core.Job
}

// ShardStats is how one shard stands on this node.
type ShardStats struct {
	// Its number.
	Shard core.ShardID
	// This node leads the shard and serves it.
	Ready bool
	// Term of the first commit that was applied last.
	Term uint64
	// Index of the last applied entry.
	Applied uint64
	// Index up to which the state survives a power cut without the log.
	Durable uint64
	// How late the earliest timed work is; 0 where this node does not serve.
	Overdue time.Duration
	// By how much shard time is before the wall clock, which is negative while it is behind; of a leader.
	Ahead time.Duration

	// Proposals that wait for an entry.
	Proposals int
	// Their size, as the limit of the queue counts it.
	ProposalBytes int64
	// Entries that are proposed and not yet applied.
	Entries int

	// How the log stands.
	Log Standing
	// Bytes of messages of peers that wait.
	InboxBytes int
	// Messages of peers that found no room, since the start.
	InboxDropped uint64

	// Snapshots made for replicas that were behind the log, since the start.
	SnapshotsMade uint64
	// Bytes of those that were sent.
	SnapshotBytes uint64
	// Snapshots installed in the place of this replica's state.
	SnapshotsInstalled uint64

	// Streams that are attached now.
	Sessions int
	// Queues that someone waits for.
	WaitedQueues int
	// Unary claims that wait.
	Claims int
	// Callers that wait for a task's end.
	Waits int

	// That the machine knows, without the system partition.
	Partitions int
	// Tasks of all queues in all partitions.
	Queues queue.Totals
}

// entryBatches suits the commits of an entry: from 1 to 65,536.
func entryBatches() *obs.Histogram { return obs.NewHistogram(1, 17) }

// Stats reads the node's counters. It costs time in proportion to the queues there are, and holds up no shard for more
// than a moment of it.
func (n *Node) Stats() Stats {
	st := Stats{Full: n.full.Load(), Reserve: n.diskReserve(), Batches: n.batches.Read(1)}
	if free, total, err := n.o.FS.Disk(n.o.Dir); err == nil {
		st.FreeBytes, st.DiskBytes = free, total
	}
	n.dirMu.RLock()
	st.Namespaces = len(n.namespaces)
	n.dirMu.RUnlock()
	who := n.who()
	st.Members, st.Job = who.list, who.dir.Job
	for _, s := range n.shards {
		st.Shards = append(st.Shards, s.stats())
	}
	return st
}

// Disk tells how large the disk of the data is, how much of it is free, and what new work must leave free, in bytes. ok is false where
// the system does not tell.
func (n *Node) Disk() (size, free, reserve uint64, ok bool) {
	free, size, err := n.o.FS.Disk(n.o.Dir)
	return size, free, n.diskReserve(), err == nil
}

// PlacedPartition is a partition by the names of what it is of.
type PlacedPartition struct {
	Tenant, Namespace string
	Index             uint16
}

// ShardContent is what lies on a shard.
type ShardContent struct {
	// How many partitions there are. In a cluster of very many namespaces those are left out that nothing was written to yet.
	Count int
	// Some of them, by name.
	Partitions []PlacedPartition
}

const (
	// namedPartitions bounds the partitions that are named of each shard.
	namedPartitions = 100
	// namedSpaces bounds the namespaces that are looked at for that.
	namedSpaces = 1000
)

// errNamed ends the walk over namespaces.
var errNamed = errors.New("enough partitions are named")

// Content tells what lies on each shard, by number, as this node has applied it.
func (n *Node) Content() ([]ShardContent, error) {
	out := make([]ShardContent, len(n.shards))
	seen := 0
	err := n.eachNamespace(func(tenant string, ns core.NamespaceInfo) error {
		if seen++; seen > namedSpaces {
			return errNamed
		}
		for _, p := range ns.Partitions {
			at := int(p.Shard)
			if at >= len(out) {
				continue
			}
			if out[at].Count++; len(out[at].Partitions) < namedPartitions {
				out[at].Partitions = append(out[at].Partitions, PlacedPartition{tenant, ns.Name, p.Partition.Index})
			}
		}
		return nil
	})
	if !errors.Is(err, errNamed) {
		return out, err
	}
	for i, s := range n.shards {
		out[i].Count = max(out[i].Count, s.writtenPartitions())
	}
	return out, nil
}

// writtenPartitions counts the partitions that the machine knows.
func (s *shard) writtenPartitions() int {
	s.applier.machineMu.RLock()
	defer s.applier.machineMu.RUnlock()
	return s.applier.machine.CountPartitions()
}

// Full reports whether new work is refused for want of disk space.
func (n *Node) Full() bool { return n.full.Load() }

// Unready says why the node does not serve all it should; it is empty when it does. A full disk does not count: reads,
// settles and deletes go on, and a node without them would stay full.
func (n *Node) Unready() string {
	select {
	case <-n.stopping:
		return "stopping"
	default:
	}
	for _, s := range n.shards {
		if !s.served() {
			return fmt.Sprintf("shard %d of %d has no leader yet: it replays its log, waits for its term to open, or for a majority of nodes", s.id, len(n.shards))
		}
	}
	return ""
}

// stats reads the counters of one shard, one after another: they are not of one moment.
func (s *shard) stats() ShardStats {
	st := ShardStats{Shard: s.id, Log: s.stand(), Ready: s.view.ready.Load(), Applied: s.view.applied.Load(), Durable: s.store.Durable()}
	if due := core.ShardTime(s.view.due.Load()); due < core.Never && st.Ready {
		st.Overdue = max(core.Millis(s.now()-due).Duration(), 0)
	}
	if st.Ready {
		st.Ahead = s.ahead()
	}
	s.in.stats(&st)
	c := &s.snap.count
	st.SnapshotsMade, st.SnapshotBytes, st.SnapshotsInstalled = c.made.Load(), c.sent.Load(), c.installed.Load()
	st.Entries = s.pending.len()
	s.waits.mu.Lock()
	st.Waits = s.waits.n
	s.waits.mu.Unlock()
	s.disp.stats(&st)
	s.countTasks(&st)
	return st
}

// stats adds who waits for tasks.
func (d *dispatcher) stats(st *ShardStats) {
	d.mu.Lock()
	defer d.mu.Unlock()
	st.Sessions, st.Claims, st.WaitedQueues = len(d.sessions), d.claims, len(d.demands)
}

// totalsStep is how many queues are counted before the applier may go on.
const totalsStep = 1000

// countTasks adds up all queues of the shard. The applier goes on in between, so a task that moves meanwhile may be
// counted twice or not at all.
func (s *shard) countTasks(st *ShardStats) {
	for _, p := range s.countPartitions(st) {
		if p == systemPartition {
			continue
		}
		st.Partitions++
		for at, more := uint32(0), true; more; {
			at, more = s.countSome(p, at, st)
		}
	}
}

// countPartitions returns the partitions that the machine knows, and notes the term.
func (s *shard) countPartitions(st *ShardStats) []core.Partition {
	s.applier.machineMu.RLock()
	defer s.applier.machineMu.RUnlock()
	st.Term, _ = s.applier.machine.Term()
	return s.applier.machine.Partitions()
}

// countSome adds up the next queues of a partition, and returns where to go on, if there are more.
func (s *shard) countSome(p core.Partition, at uint32, st *ShardStats) (next uint32, more bool) {
	s.applier.machineMu.RLock()
	defer s.applier.machineMu.RUnlock()
	if q := s.applier.machine.Queue(p); q != nil {
		return q.AddTotals(&st.Queues, at, totalsStep)
	}
	return at, false
}
