package sim

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"syscall"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/env"
	"github.com/millrace/millrace/internal/node"
	"github.com/millrace/millrace/internal/replog"
	"github.com/millrace/millrace/internal/replog/replogtest"
	"github.com/millrace/millrace/internal/store"
)

// dataDir is the directory of a host's data on its disk.
const dataDir = "data"

// host is one machine: a disk, a clock, and a node while one runs.
type host struct {
	w  *world
	id uint64
	// Rises with each start and each end. An event that was planned in an earlier life does
	// nothing.
	life uint64

	// The disk of the log, on which a crash may tear writes.
	disk *replogtest.Sectors
	// The disk of the store. It is separate because compactions of the store run at their own
	// times, outside the history.
	data *replogtest.Disk
	// What makes operations of disk fail.
	fault *replogtest.Faulty
	clock *clock
	// The log; of a host that is down, as it was at its end.
	log   *replog.Log
	state *store.Store
	node  *node.Node

	paused bool
	// The disk hangs, or is slow, until these times.
	stuck time.Duration
	slow  time.Duration // it is slow until then
	// A step of the node is planned.
	turn bool
	// The boot time of the step that the node wants next; 0: none is planned.
	wake time.Duration
	// A write of the log is planned.
	syncing bool

	membership
	// By shard: the last entry applied when the host was last checked.
	applied []uint64
	logs    []shardLog // of its replica
	terms   []led
	// Reads that wait until they may be answered.
	reads []read
	// Streams that wait for the host to be known to lead.
	opens []opening
	// Workers that are connected to it.
	streams map[*worker]bool
}

// newHost returns a host that is down. Hosts beyond the plan's nodes are spares outside of the
// cluster.
func newHost(w *world, id uint64) *host {
	h := &host{
		w: w, id: id, disk: replogtest.NewSectors(), data: replogtest.NewDisk(), clock: newClock(w), streams: make(map[*worker]bool),
		terms: make([]led, w.plan.Shards),
	}
	if id <= uint64(w.plan.Nodes) {
		h.replica = id
	} else {
		h.outside = true
	}
	if w.plan.Spares > 0 {
		h.store = w.newStoreID()
	}
	return h
}

func (w *world) host(id uint64) *host { return w.hosts[id-1] }

// whenAwake calls do now, or when the host's pause is over. It does nothing if the host dies first.
func (h *host) whenAwake(do func()) {
	if !h.paused {
		do()
		return
	}
	life := h.life
	h.w.after(10*time.Millisecond, "awake", h.id, func() {
		if h.life == life && h.node != nil {
			h.whenAwake(do)
		}
	})
}

// start opens the node on what the disk holds, and checks that nothing durable is missing. A host
// without a replica id, or one that was removed, does not start.
func (h *host) start() {
	w := h.w
	if h.replica == 0 || h.removed {
		return
	}
	h.life++
	w.note("start %d", h.id)
	h.logs = w.replicaOf(h).logs
	if err := h.open(); err != nil {
		w.violate("host %d does not start: %v", h.id, err)
		return
	}
	h.applied = make([]uint64, w.plan.Shards)
	h.terms = make([]led, w.plan.Shards)
	h.turn, h.syncing, h.wake, h.stuck, h.slow = false, false, 0, 0, 0
	h.checkReopened()
	h.kick()
	h.planFlush()
}

// open opens store, log and node with the limits of the plan. All of them are stepped by hand:
// nothing runs in another goroutine.
func (h *host) open() error {
	w := h.w
	h.fault = replogtest.NewFaulty(h.disk)
	if err := errors.Join(h.disk.MkdirAll(filepath.Join(dataDir, "wal")), h.data.MkdirAll(filepath.Join(dataDir, "store")), env.SyncDir(h.data, ""), env.SyncDir(h.data, dataDir)); err != nil {
		return err
	}
	var err error
	if h.state, err = store.Open(store.Options{
		FS: h.data.VFS(), Dir: filepath.Join(dataDir, "store"), Clock: h.clock, MemoryBytes: 16 << 20, Manual: true,
	}); err != nil {
		return fmt.Errorf("open store: %w", err)
	}
	log, err := replog.OpenLog(replog.LogOptions{
		FS: h.fault, Clock: h.clock, Dir: filepath.Join(dataDir, "wal"), SegmentBytes: w.plan.SegmentBytes,
		QueueBytes: w.plan.LogQueue, Manual: true, NoSync: w.plan.NoSync,
	})
	if err != nil {
		return errors.Join(fmt.Errorf("open log: %w", err), h.state.Close())
	}
	h.log = log
	o := node.Options{
		Replica: h.replica, Node: h.id, Joining: h.joined, Peers: h.peers(), PeersVersion: h.version, Address: address(h.id), Network: wire{h},
		NearEntries: nearEntries, OnRemoved: func() { h.removed = true }, Shards: w.plan.Shards, Dir: dataDir, FS: h.fault,
		Clock: h.clock, Rand: env.NewSeededRand(w.rng.Uint64()), Log: h.log, Store: h.state, Manual: true,
		EntryBytes: w.plan.EntryBytes, QueueProposals: w.plan.Proposals, InboxBytes: w.plan.Inbox, DiskReserve: 1,
		LogQuota: cmp.Or(w.plan.LogQuota, 1<<40), SnapshotPart: w.plan.SnapshotPart,
		DisconnectGrace: w.plan.Grace,
	}
	if w.plan.LogQuota > 0 {
		o.LogKeep = w.plan.LogQuota / 2
	}
	if h.node, err = node.Open(o); err != nil {
		return errors.Join(fmt.Errorf("open node: %w", err), h.log.Close(), h.state.Close())
	}
	return nil
}

func address(host uint64) string { return fmt.Sprint("n", host) }

// crash ends the node as a loss of power does. Of what was not synced the disk keeps a random part.
// back is how long the host stays down.
func (h *host) crash(back time.Duration) {
	w := h.w
	if h.node == nil {
		return
	}
	h.check() // what it did at the last moment counts
	keep := []int{0, 10, 50, 90, 100}[w.rng.IntN(5)]
	w.note("crash %d keeps %d", h.id, keep)
	disk, data := h.disk.Crash(keep, w.rng.Uint64()), h.data.Crash(keep, w.rng.Uint64())
	h.audit()
	h.release()
	h.disk, h.data = disk, data
	w.after(back, "start", h.id, h.restart)
}

// restart starts a host that is down.
func (h *host) restart() {
	if h.node == nil && !h.removed {
		h.start()
	}
}

// release closes a node that is dead. The disks were replaced before in a crash, so what the
// closing writes has no effect.
func (h *host) release() {
	h.life++
	dead, st := h.node, h.state
	h.node, h.paused, h.reads, h.opens = nil, false, nil, nil
	h.w.dropStreams(h)
	dead.Close()
	_ = h.log.Close()
	_ = st.Close()
}

// kick plans a step of the node now, if none is planned.
func (h *host) kick() {
	if h.turn || h.node == nil {
		return
	}
	h.turn = true
	life := h.life
	h.w.after(0, "step", h.id, func() {
		if h.life != life {
			return
		}
		h.turn = false
		h.whenAwake(h.step)
	})
}

// step lets the node do what it can, and plans what follows: reads, a write of the log, and the
// next step.
func (h *host) step() {
	if h.node == nil {
		return
	}
	h.node.Step()
	select {
	case err := <-h.node.Fatal():
		h.died(err)
		return
	default:
	}
	h.answerReads()
	h.openStreams()
	h.planSync()
	h.planWake()
}

// planWake plans the step that the node wants at the latest.
func (h *host) planWake() {
	at := h.node.Wake()
	d, comes := h.clock.until(at)
	if at == h.wake || !comes {
		return
	}
	h.wake = at
	life := h.life
	h.w.after(d, "wake", h.id, func() {
		if h.life == life && h.wake == at {
			h.wake = 0
			h.kick()
		}
	})
}

// tell makes the host look at its clock again after something has changed it.
func (h *host) tell() {
	h.wake = 0
	h.kick()
}

// died records that a node ended itself. It may do so if it was removed or if its disk failed, and
// for no other reason.
func (h *host) died(err error) {
	h.w.note("died %d: %v", h.id, err)
	if _, gone := errors.AsType[*node.RemovedError](err); gone {
		h.leave()
		return
	}
	if !errors.Is(err, syscall.EIO) {
		h.w.violate("host %d: node ended: %v", h.id, err)
		return
	}
	h.crash(h.w.between(50*time.Millisecond, 3*time.Second))
}

// planSync plans the log's next write, later if the disk is slow or hangs.
func (h *host) planSync() {
	if h.syncing {
		return
	}
	h.syncing = true
	w, life := h.w, h.life
	d := w.between(80*time.Microsecond, 2*time.Millisecond)
	switch {
	case h.stuck > w.now:
		d = h.stuck - w.now
	case h.slow > w.now:
		d = w.between(20*time.Millisecond, 300*time.Millisecond)
	}
	w.after(d, "sync", h.id, func() {
		if h.life != life {
			return
		}
		h.syncing = false
		if h.stuck > w.now && !w.healthy {
			h.planSync()
			return
		}
		h.whenAwake(func() {
			if h.log.Step() {
				h.checkLogs()
				h.kick()
			}
		})
	})
}

// planFlush makes the store durable at random times.
func (h *host) planFlush() {
	life := h.life
	h.w.after(h.w.between(50*time.Millisecond, time.Second), "flush", h.id, func() {
		if h.life != life {
			return
		}
		if err := h.state.Flush(); err != nil {
			h.w.violate("host %d: flush: %v", h.id, err)
		}
		h.planFlush()
	})
}

// check compares a host's state with what other hosts have applied and with its own log. It runs
// after each event of the host.
func (h *host) check() {
	if h.node == nil {
		return
	}
	h.checkMembers()
	for i := range h.applied {
		id := core.ShardID(i)
		h.lead(id)
		sh, err := h.state.Shard(id)
		if err != nil {
			h.w.violate("host %d: shard %d: %v", h.id, i, err)
			return
		}
		index, hash := sh.Applied()
		if index == h.applied[i] {
			continue
		}
		if index < h.applied[i] {
			h.w.violate("host %d: shard %d went back from entry %d to %d", h.id, i, h.applied[i], index)
		}
		from := h.applied[i]
		h.applied[i] = index
		// What came as a snapshot is durable by itself, and the log restarts behind it a little later.
		if last := h.log.State(id).Last; index > max(last, h.log.State(id).CutIndex) && index > sh.Durable() {
			h.w.violate("host %d: shard %d applied entry %d, its log ends at %d", h.id, i, index, last)
		}
		h.w.history.applied(h, id, from, index, hash)
	}
}

// checkBounds checks that what waits at a host is within its limits.
func (h *host) checkBounds() {
	if h.node == nil {
		return
	}
	h.checkConfs()
	for _, st := range h.node.Stats().Shards {
		switch p := h.w.plan; {
		case st.Proposals > node.OthersRoom*p.Proposals: // of several tenants
			h.w.violate("host %d: %d proposals wait for shard %d, and %d may", h.id, st.Proposals, st.Shard, node.OthersRoom*p.Proposals)
		case st.Sessions > p.Workers:
			h.w.violate("host %d: shard %d has %d sessions of %d workers", h.id, st.Shard, st.Sessions, p.Workers)
		case st.InboxBytes > int(p.Inbox) && st.InboxBytes > 1<<20: // one message that is longer than all may be has room
			h.w.violate("host %d: %d bytes of messages wait for shard %d, and %d may", h.id, st.InboxBytes, st.Shard, p.Inbox)
		}
	}
}
