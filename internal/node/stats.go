package node

import (
	"fmt"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/machine/queue"
	"github.com/millrace/millrace/internal/obs"
)

// Stats is what a node has done since it started, and how it stands now.
type Stats struct {
	Full       bool             // new work is refused for want of disk space
	FreeBytes  uint64           // of the disk, for this process
	DiskBytes  uint64           // its size
	Reserve    uint64           // bytes that new work must leave free
	Namespaces int              // that were asked for since the start
	Batches    obs.Distribution // commits of each entry that this node proposed
	Shards     []ShardStats     // by number
	Members    []core.Member    // of the cluster, ascending by replica; this node alone without one
	Job        core.Job         // the change of membership under way, or the last one
}

// ShardStats is how one shard stands on this node.
type ShardStats struct {
	Shard   core.ShardID
	Ready   bool // it leads and serves
	Term    uint64
	Applied uint64
	Durable uint64        // up to here the state survives a power cut without the log
	Overdue time.Duration // how late the earliest timed work is
	Ahead   time.Duration // by how much shard time is before the wall clock, which is negative while it is behind; of a leader

	Proposals     int // waiting for an entry
	ProposalBytes int64
	Entries       int // proposed and not yet applied

	Log          Standing
	InboxBytes   int    // messages of peers that wait
	InboxDropped uint64 // that found no room

	SnapshotsMade      uint64 // for replicas that were behind the log
	SnapshotBytes      uint64 // of those that were sent
	SnapshotsInstalled uint64 // in the place of this replica's state

	Sessions     int
	WaitedQueues int // that someone waits for
	Claims       int // unary, waiting
	Waits        int // callers that wait for a task's end

	Partitions int
	Queues     queue.Totals
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
