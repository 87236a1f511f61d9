package node

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/env"
	"github.com/millrace/millrace/internal/history"
	"github.com/millrace/millrace/internal/machine/commit"
	"github.com/millrace/millrace/internal/machine/queue"
	"github.com/millrace/millrace/internal/obs"
	"github.com/millrace/millrace/internal/rate"
	"github.com/millrace/millrace/internal/replog"
)

// Node is the shards of one process.
type Node struct {
	// With the defaults in the place of zeros; it does not change.
	o Options
	// Names this run of this node in the entries it proposes: a random number.
	boot uint64
	// The wall clock at Open: for people only.
	started time.Time
	// One for each shard, by number; the list does not change after Open.
	shards []*shard
	// Closed by the first fail or by Close: every goroutine of the node then ends.
	stopping chan struct{}
	// Lets stopping be closed once.
	stopOnce sync.Once
	// The loops, the appliers and all other goroutines. Close waits for them in this order: appliers end when their
	// loop has.
	loops    sync.WaitGroup
	appliers sync.WaitGroup
	upkeep   sync.WaitGroup
	// Holds the first error that ended the node; more are dropped.
	fatal chan error
	// New work is refused for want of disk space. keep changes it, or Step.
	full atomic.Bool
	// Holds a token while a backup is under way, so that there is one at a time.
	backing chan struct{}
	// The node is about to stop: it leads nothing that another can lead. It is never unset.
	leaving atomic.Bool
	// The file system of the store, which makes and takes in snapshots.
	snapFS env.FS
	// Work with files, for one goroutine; of fileWork places. What finds no room is dropped and asked for again.
	files chan func()
	// Fetches of snapshots under way. Only the goroutine that works with files changes it.
	fetches int64
	// How many directories for snapshots were named so far: no two of one run have the same name.
	snapshots atomic.Uint64
	// How many commits each entry had that this node proposed.
	batches *obs.Histogram
	// What the other nodes' clocks showed.
	clocks clocks
	// By replica: those whose Raft messages have come since the start.
	spoke sync.Map
	// Calls that were passed to the leader of a shard and wait for its answer.
	forwards asks[core.Proposed]
	// What it knows of workers that have no session, and which are quiet; and its questions about workers to others.
	workers     workers
	workersAsks asks[workersAnswer]
	// claims are those under way that have a name.
	claims namedClaims
	// Compiled schemas of collections, by their uid.
	schemas schemas
	// Indexes of collections that are yet to be read from the store.
	loads loads
	// The order in which collections were searched last, so that a start reads those first.
	uses uses
	// What keyspaces and tenants take on disk, and when that is measured next.
	quotas quotas
	// What may be put in a second, of keyspaces, namespaces and tenants.
	rates rate.Rates
	// Removals of namespaces that this node goes on with.
	removals removals
	// Bytes of keys of the tenants with a bound, as measured last. The map is replaced, never changed.
	tenants atomic.Pointer[map[core.TenantID]uint64]
	// Is told when the leader of a shard has changed, or serves.
	moved notifier
	// Streams of tenants, of this node and of others.
	streams tenantStreams
	// What tenants have of tasks, at the last look. The map is replaced, never changed.
	taskUse atomic.Pointer[map[core.TenantID]core.TaskUse]
	// The weights of tenants that have one, as all shards know them; owned by who tends the disk.
	weights map[core.TenantID]int64
	// What the counters of queues were. The goroutine that tends samples them; sampledStep is one more than the step of the last sample,
	// and sampledQueues how many queues the largest namespace had in it.
	history       *history.History
	sampledStep   int64
	sampledQueues int
	// What bounds refused at this node.
	refusals *history.Refusals
	// Who the members are, as this node knows it. It is replaced under learning, and read without a lock.
	roster atomic.Pointer[roster]
	// The format that entries are written in; 0 until shard 0 has said it. It only rises.
	format atomic.Uint32
	// What the shards reported of the job under way; shard 0's leader acts on it.
	jobs jobs
	// Held while a directory is taken over, so that an older one does not replace a newer one.
	learning sync.Mutex
	// Guards goodbyes.
	leaves sync.Mutex
	// What is told to nodes that were removed.
	goodbyes []goodbye
	// Lets the node end once for having been removed.
	leaveOnce sync.Once
	// announcing is held while who is to be reached is told.
	announcing sync.Mutex
	// How far the log was written when its shards were cut last; what keeps the log short owns it.
	cuts cuts
	// With Options.Manual: the boot time at which to look after the disk.
	tendAt time.Duration

	// Guards the fields below.
	dirMu sync.RWMutex
	// The directory as this node has read it: namespaces by name, and the shard of each partition.
	namespaces map[nsKey]core.NamespaceInfo
	partitions map[core.Partition]core.ShardID
	// How often something was dropped from the two.
	dirDrops uint64
}

// nsKey names a namespace as clients do.
type nsKey struct{ tenant, name string }

// Open starts a node on an open log and store. It returns when every shard runs; WaitReady tells when they serve.
func Open(o Options) (*Node, error) {
	o = o.withDefaults()
	if o.Log == nil || o.Store == nil || o.FS == nil {
		return nil, errors.New("open node: a log, a store and a file system are required")
	}
	if len(o.Peers) > 0 && o.Network == nil {
		return nil, errors.New("open node: with peers, a network is required")
	}
	n := &Node{
		o: o, boot: o.Rand.Uint64(), started: o.Clock.Wall(), stopping: make(chan struct{}), fatal: make(chan error, 1), backing: make(chan struct{}, 1),
		namespaces: make(map[nsKey]core.NamespaceInfo), partitions: make(map[core.Partition]core.ShardID),
		batches: entryBatches(), files: make(chan func(), fileWork), snapFS: o.Store.FS(),
	}
	n.history, n.refusals = history.New(o.HistoryBytes), history.NewRefusals()
	n.roster.Store(startRoster(&o))
	n.loads.more = make(chan struct{}, 1)
	if err := n.finishInstalls(); err != nil {
		return nil, err
	}
	n.readUses()
	for i := range o.Shards {
		s, err := n.openShard(core.ShardID(i))
		if err != nil {
			return nil, fmt.Errorf("open shard %d: %w", i, err)
		}
		n.shards = append(n.shards, s)
	}
	first := n.o.Rand.Uint64()
	n.forwards.last, n.workersAsks.last = first, first
	n.checkDisk()
	n.cuts.at = make([]uint64, len(n.shards))
	if err := n.tendQuotas(n.o.Clock.Boot()); err != nil { // rates hold from the first put on
		return nil, fmt.Errorf("measure keyspaces: %w", err)
	}
	if o.Manual {
		return n, nil
	}
	for _, s := range n.shards {
		n.loops.Add(1)
		n.appliers.Add(1)
		go s.run()
		go s.applyLoop()
		s.poke()
	}
	if o.Network != nil && o.StoreID != (core.StoreID{}) {
		n.upkeep.Add(1)
		go n.register()
	}
	n.upkeep.Add(2)
	go n.keep()
	n.upkeep.Go(n.keepPoints)
	n.upkeep.Go(n.loadIndexes)
	go n.workFiles()
	return n, nil
}

// openShard opens this node's replica of a shard: its machine with its indexes, its Raft replica at the index that
// the store has applied, and its view for readers. Nothing runs yet.
func (n *Node) openShard(id core.ShardID) (*shard, error) {
	if !n.o.Joining {
		if err := replog.Bootstrap(n.o.Log, id); err != nil {
			return nil, err
		}
	}
	st, err := n.o.Store.Shard(id)
	if err != nil {
		return nil, err
	}
	log := n.o.Log.State(id)
	applied, _ := st.Applied()
	if !n.o.Joining {
		applied = max(applied, replog.FirstIndex)
	}
	if last := max(log.Last, log.CutIndex); last < applied && n.o.Unsynced {
		// Without fsync a power cut may take the log's end and leave the state that was written from it.
		n.o.Logger.Warn("log lost by a power cut; going on from the stored state", "shard", id, "last", last, "applied", applied)
		if err := replog.Reset(n.o.Log, id, applied, max(log.CutTerm, replog.FirstTerm)); err != nil {
			return nil, err
		}
	}
	s := &shard{n: n, id: id, store: st, wake: make(chan struct{}, 1), applyC: make(chan applierWork, 64)}
	m, err := s.openMachine()
	if err != nil {
		return nil, err
	}
	s.applier.machine = m
	if err := s.loadPoints(m); err != nil {
		return nil, err
	}
	conf, err := n.readConf(st)
	if err != nil {
		return nil, err
	}
	c, err := replog.New(replog.Config{
		Shard: id, Replica: n.o.Replica, Conf: conf, Applied: applied, Log: n.o.Log, Logger: n.o.Logger,
		Head: []byte{peerRaft}, May: func(from uint64) bool { return !n.Gone(from) },
	})
	if err != nil {
		return nil, err
	}
	s.loop.core = c
	s.snap.made, s.snap.fetched = make(chan madeSnapshot, 1), make(chan *fetch, 1)
	s.rounds.number = n.boot
	s.disp = newDispatcher(s)
	s.observeApply()
	s.alone.Store(c.Status().Alone)
	// A log that begins in this run, or that a power cut took whole, has given no index that it lacks.
	if began := c.Status().Last <= replog.FirstIndex; n.o.Unsynced && !(began && s.alone.Load()) {
		s.mayLack = unsyncedTail
	}
	s.view.conf.Store(&conf)
	s.loop.confIndex = conf.Index
	if id == 0 {
		if m.LastStamp() != 0 { // commits were applied
			if err := n.takeFormat(m.Format()); err != nil {
				return nil, err
			}
		}
		n.learn(m.Members())
	}
	s.loop.nextTick = n.o.Clock.Boot() + n.o.TickEvery
	s.waits.max = n.o.Waits
	s.view.applied.Store(applied)
	s.view.due.Store(int64(m.Due()))
	s.view.crons.Store(int64(m.CronDue()))
	s.saw(m.LastStamp())
	s.view.shifted.Store(int64(m.Shift()))
	if c.Status().Single {
		if err := c.Campaign(); err != nil {
			return nil, fmt.Errorf("campaign: %w", err)
		}
	}
	return s, nil
}

// hashSeed keeps clients from finding keys that collide in an index.
var hashSeed = maphash.MakeSeed()

// hashKey spreads keys over an index in memory.
func hashKey(key string) uint64 { return maphash.String(hashSeed, key) }

// openMachine returns a machine of the shard, with its indexes rebuilt from what is stored.
func (s *shard) openMachine() (*commit.Machine, error) {
	m := commit.New(commit.Options{Shard: s.id, Queue: queue.Options{Changed: s.waits.changed, Hash: hashKey}})
	if err := s.store.View(m.Open); err != nil {
		return nil, fmt.Errorf("rebuild indexes: %w", err)
	}
	return m, nil
}

// Fatal delivers the error that ends this node: it serves no more, and the process must end without retrying.
func (n *Node) Fatal() <-chan error { return n.fatal }

// fail ends the node with an error: the first one is what Fatal delivers. It does not wait for the goroutines, since
// they call it.
func (n *Node) fail(err error) {
	n.o.Logger.Error("node stops", "error", err)
	select {
	case n.fatal <- err:
	default: // the first one tells why
	}
	n.stopOnce.Do(func() { close(n.stopping) })
}

// Step does, with Options.Manual, everything that can be done now, and reports whether that was anything. It is called
// after anything that may have changed something: a proposal, a message, a write of the log, the time Wake named.
func (n *Node) Step() (worked bool) {
	now := n.o.Clock.Boot()
	for again := true; again; {
		again = false
		for _, s := range n.shards {
			select {
			case <-n.stopping:
				return worked
			case <-s.wake:
			default:
				if now < s.loop.sleepUntil {
					continue
				}
			}
			worked, again = true, true
			if err := s.turn(); err != nil {
				n.fail(fmt.Errorf("shard %d: %w", s.id, err))
				return true
			}
			s.loop.sleepUntil = now + s.sleep()
		}
	}
	if now >= n.tendAt {
		n.tendAt = now + n.o.DiskEvery
		if err := n.tend(); err != nil {
			n.fail(err)
		}
		worked = true
	}
	return worked
}

// Wake returns, with Options.Manual, the boot time at which Step has something to do at the latest.
func (n *Node) Wake() time.Duration {
	wake := n.tendAt
	for _, s := range n.shards {
		wake = min(wake, s.loop.sleepUntil)
	}
	return wake
}

// Close stops the node: what waits is told, what is durable stays. The log and the store are their owner's to close.
func (n *Node) Close() {
	n.stopOnce.Do(func() { close(n.stopping) })
	for _, s := range n.shards {
		if n.o.Manual {
			s.drainAtStop()
			continue
		}
		s.poke()
	}
	n.loops.Wait()
	n.appliers.Wait()
	n.upkeep.Wait()
}

// WaitReady returns when every shard is led: by this node, which then has applied an entry of its own term, or by one it
// hears of.
func (n *Node) WaitReady(ctx context.Context) error {
	for _, s := range n.shards {
		for !s.served() {
			moved := s.advance.wait()
			if s.served() {
				break
			}
			timer := n.o.Clock.NewTimer(10 * time.Millisecond)
			select {
			case <-moved:
			case <-timer.C():
			case <-ctx.Done():
				timer.Stop()
				return ctx.Err()
			case err := <-n.fatal:
				timer.Stop()
				n.fatal <- err
				return err
			}
			timer.Stop()
		}
	}
	return nil
}

// Propose puts independent commits of one partition into the log, in order. done is called exactly once.
func (n *Node) Propose(p core.Partition, commits []core.Commit, done func(core.Proposed)) {
	n.propose(p, commits, nil, done)
}

// propose is Propose, of commits that may end attempts of a session. It refuses a partition whose namespace is not
// known.
func (n *Node) propose(p core.Partition, commits []core.Commit, settles *settling, done func(core.Proposed)) {
	s, err := n.shardOf(p)
	if err != nil {
		(&proposal{commits: commits, done: done, settles: settles}).refuse(core.NotFound{Kind: "namespace"})
		return
	}
	s.offer(p, commits, settles, done)
}

// offer proposes commits of a partition that lies in the shard.
func (s *shard) offer(p core.Partition, commits []core.Commit, settles *settling, done func(core.Proposed)) {
	whole := &proposal{commits: commits, done: done, settles: settles}
	if len(commits) == 0 {
		done(core.Proposed{At: s.at(p)})
		return
	}
	lazy := true
	for i := range commits {
		whole.bytes += commits[i].EncodedSize()
		lazy = lazy && renewsOnly(&commits[i])
	}
	s.take(whole, lazy)
}

// maxProposal bounds what is proposed together, in bytes: with what an entry has besides, the log takes it.
const maxProposal = 6 << 20

// take enqueues a proposal, unless it grows a disk that is full; one that is too large for an entry in as many parts as it
// has commits.
func (s *shard) take(p *proposal, lazy bool) {
	if s.n.full.Load() && slices.ContainsFunc(p.commits, func(c core.Commit) bool { return slices.ContainsFunc(c.Ops, core.Grows) }) {
		full := core.Exhausted{Limit: "disk", Max: int64(s.n.diskReserve())}
		if b, ok := core.BoundOf(p.commits[0].Partition, full); ok {
			s.n.CountRefusal(b)
		}
		p.refuse(full)
		return
	}
	if len(p.commits) > 1 && (s.n.o.OneCommitPerEntry || p.bytes > maxProposal) {
		for _, part := range p.apart() {
			s.enqueue(part, lazy)
		}
		return
	}
	s.enqueue(p, lazy)
}

// renewsOnly reports whether c renews leases and does nothing else, so that it may wait a little for company.
func renewsOnly(c *core.Commit) bool {
	for _, op := range c.Ops {
		if op.Kind() != core.OpTaskRenew {
			return false
		}
	}
	return len(c.Ops) > 0
}

// Status tells what this node is and has done since it started.
func (n *Node) Status() core.NodeStatus {
	log, st := n.o.Log.Stats(), n.o.Store.Stats()
	durability := "fsync"
	if n.o.Unsynced {
		durability = "none"
	}
	return core.NodeStatus{
		Node: n.o.Name, Durability: durability, Shards: len(n.shards), AppliedIndex: n.shards[0].view.applied.Load(),
		Fsyncs: log.Syncs, LogBytes: log.Bytes, Entries: log.Entries, StoreMutations: st.Mutations,
		StartedMillis: n.started.UnixMilli(), DiskFull: n.full.Load(),
	}
}

// Now is the shard time of a partition, as this node reckons it where another one leads.
func (n *Node) Now(p core.Partition) core.ShardTime {
	s, err := n.shardOf(p)
	if err != nil {
		s = n.shards[0]
	}
	return s.clock.reckoned(n.o.Clock.Boot())
}
