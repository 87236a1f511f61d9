package sim

import (
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

// dataDir is where a host's data lies on its disk.
const dataDir = "data"

// host is one machine: a disk, a clock, and now and then a node that runs on them.
type host struct {
	w    *world
	id   uint64
	life uint64 // rises with each start and each crash: what was planned for an earlier life does not happen

	disk  *replogtest.Disk // of the log: what a crash leaves depends on nothing but the seed
	data  *replogtest.Disk // of the store, whose compactions run when they like
	fault *replogtest.Faulty
	log   *replog.Log
	store *store.Store
	node  *node.Node

	paused  bool
	stepped time.Duration // of the wall clock, against virtual time
	turn    bool          // a step is planned
	wake    time.Duration // when the next one is planned for
	syncing bool          // a write of the log is planned

	applied []uint64 // by shard, as last checked
	reads   []read
	streams map[*worker]bool
}

// clock is a host's: it goes on while the host is down.
type clock struct{ h *host }

var epoch = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)

// Boot returns the host's boot time.
func (c clock) Boot() time.Duration { return time.Hour + c.h.w.now }

// Wall returns virtual time and what the clock was stepped by.
func (c clock) Wall() time.Time { return epoch.Add(c.h.w.now + c.h.stepped) }

// NewTimer returns one that never fires: what waits is stepped.
func (clock) NewTimer(time.Duration) env.Timer { return new(replogtest.HandClock).NewTimer(0) }

// wire is a host's end of the network.
type wire struct{ h *host }

// Send plans the arrival of a message, or loses it.
func (n wire) Send(to uint64, shard core.ShardID, bulk bool, msg []byte) bool {
	w, from := n.h.w, n.h.id
	b := append([]byte(nil), msg...)
	w.note("send %d>%d/%d %v %x", from, to, shard, bulk, b)
	copies := 1
	if !w.healthy {
		switch {
		case w.chance(w.plan.Drop):
			copies = 0
		case w.chance(w.plan.Repeat):
			copies = 2
		}
	}
	for range copies {
		w.after(w.delay(), "message", to, func() {
			t := w.host(to)
			if w.cut[[2]uint64{from, to}] || t.node == nil {
				return
			}
			t.whenAwake(func() {
				t.node.Receive(from, shard, append([]byte(nil), b...))
				t.kick()
			})
		})
	}
	return true
}

// delay is how long a message travels: mostly little, now and then so long that others overtake it.
func (w *world) delay() time.Duration {
	if !w.healthy && w.chance(w.plan.Slow) {
		return w.between(20*time.Millisecond, 600*time.Millisecond)
	}
	return w.between(50*time.Microsecond, 2*time.Millisecond)
}

func (w *world) host(id uint64) *host { return w.hosts[id-1] }

// whenAwake does something now, or when the pause is over, unless the host dies first.
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

// start opens the node on what the disk holds.
func (h *host) start() {
	w := h.w
	h.life++
	if err := h.open(); err != nil {
		w.violate("host %d does not start: %v", h.id, err)
		return
	}
	h.applied = make([]uint64, w.plan.Shards)
	h.turn, h.syncing, h.wake = false, false, 0
	w.note("start %d", h.id)
	h.kick()
	h.planFlush()
}

func (h *host) open() error {
	w := h.w
	fs := h.disk.FS
	for name, fs := range map[string]env.FS{"wal": fs, "store": h.data.FS} {
		if err := errors.Join(fs.MkdirAll(filepath.Join(dataDir, name)), env.SyncDir(fs, ""), env.SyncDir(fs, dataDir)); err != nil {
			return err
		}
	}
	h.fault = replogtest.NewFaulty(fs)
	c := clock{h}
	var err error
	if h.store, err = store.Open(store.Options{
		FS: h.data.VFS(), Dir: filepath.Join(dataDir, "store"), Clock: c, MemoryBytes: 64 << 20, Manual: true,
	}); err != nil {
		return fmt.Errorf("open store: %w", err)
	}
	if h.log, err = replog.OpenLog(replog.LogOptions{
		FS: h.fault, Clock: c, Dir: filepath.Join(dataDir, "wal"), SegmentBytes: 256 << 10, Manual: true,
		NoSync: w.plan.NoSync,
	}); err != nil {
		return errors.Join(fmt.Errorf("open log: %w", err), h.store.Close())
	}
	o := node.Options{
		Replica: h.id, Address: fmt.Sprint("n", h.id), Network: wire{h}, Shards: w.plan.Shards, Dir: dataDir, FS: fs,
		Clock: c, Rand: env.NewSeededRand(w.rng.Uint64()), Log: h.log, Store: h.store, Manual: true,
	}
	for _, p := range w.hosts {
		if p != h {
			o.Peers = append(o.Peers, node.Peer{Replica: p.id, Address: fmt.Sprint("n", p.id)})
		}
	}
	if h.node, err = node.Open(o); err != nil {
		return errors.Join(fmt.Errorf("open node: %w", err), h.log.Close(), h.store.Close())
	}
	return nil
}

// crash ends the node as the loss of power does: of what was not synced, the disk keeps what it likes.
func (h *host) crash(back time.Duration) {
	w := h.w
	if h.node == nil {
		return
	}
	keep := []int{0, 50, 100}[w.rng.IntN(3)]
	w.note("crash %d keeps %d", h.id, keep)
	disk, data := h.disk.Crash(keep, w.rng.Uint64()), h.data.Crash(keep, w.rng.Uint64())
	h.release()
	h.disk, h.data = disk, data
	w.after(back, "start", h.id, func() {
		if h.node == nil {
			h.start()
		}
	})
}

// release lets go of a node that is dead. What it does from here on, nobody sees.
func (h *host) release() {
	h.life++
	dead, log, st := h.node, h.log, h.store
	h.node, h.paused, h.reads = nil, false, nil
	h.w.dropStreams(h)
	dead.Close()
	_ = log.Close()
	_ = st.Close()
}

// kick plans a step of the node now.
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

// step lets the node do what it can, and plans what follows.
func (h *host) step() {
	w := h.w
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
	h.planSync()
	if at := h.node.Wake() - time.Hour; at != h.wake {
		h.wake = at
		life := h.life
		w.after(at-w.now, "wake", h.id, func() {
			if h.life == life && h.wake == at {
				h.wake = 0
				h.kick()
			}
		})
	}
}

// died takes in that a node ended itself: it may for want of a disk that works, and for nothing else.
func (h *host) died(err error) {
	h.w.note("died %d: %v", h.id, err)
	if !errors.Is(err, syscall.EIO) {
		h.w.violate("host %d: node ended: %v", h.id, err)
		return
	}
	h.crash(h.w.between(50*time.Millisecond, 3*time.Second))
}

// planSync plans the log's next write.
func (h *host) planSync() {
	if h.syncing {
		return
	}
	h.syncing = true
	w, life := h.w, h.life
	d := w.between(80*time.Microsecond, 2*time.Millisecond)
	if !w.healthy && w.chance(5) {
		d = w.between(20*time.Millisecond, 300*time.Millisecond)
	}
	w.after(d, "sync", h.id, func() {
		if h.life != life {
			return
		}
		h.syncing = false
		if h.log.Step() {
			h.kick()
		}
	})
}

// planFlush lets the store become durable now and then.
func (h *host) planFlush() {
	life := h.life
	h.w.after(h.w.between(50*time.Millisecond, time.Second), "flush", h.id, func() {
		if h.life != life {
			return
		}
		if err := h.store.Flush(); err != nil {
			h.w.violate("host %d: flush: %v", h.id, err)
		}
		h.planFlush()
	})
}

// check holds a host's state to what the others have applied, and to its own log.
func (h *host) check() {
	if h.node == nil {
		return
	}
	for i := range h.applied {
		id := core.ShardID(i)
		sh, err := h.store.Shard(id)
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
		h.applied[i] = index
		if last := h.log.State(id).Last; index > max(last, h.log.State(id).CutIndex) {
			h.w.violate("host %d: shard %d applied entry %d, its log ends at %d", h.id, i, index, last)
		}
		h.w.ledger.applied(h, id, index, hash)
	}
}
