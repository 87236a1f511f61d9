package sim

import (
	"syscall"
	"time"

	"github.com/millrace/millrace/internal/replog/replogtest"
)

// misfortune plans the next fault, until the world is healthy.
func (w *world) misfortune() {
	w.after(w.between(w.plan.FaultEvery/4, w.plan.FaultEvery), "fault", 0, func() {
		if w.healthy {
			return
		}
		w.strike()
		w.misfortune()
	})
}

// strike does one thing that goes wrong in a data centre.
func (w *world) strike() {
	h := w.hosts[w.rng.IntN(len(w.hosts))]
	back := w.between(50*time.Millisecond, 4*time.Second)
	switch w.rng.IntN(10) {
	case 0, 1:
		h.crash(back)
	case 2:
		h.pause(back)
	case 3: // nothing to or from a host
		for _, o := range w.hosts {
			w.part(h.id, o.id, back)
			w.part(o.id, h.id, back)
		}
	case 4: // it is heard and does not hear, or the other way round
		out := w.chance(500)
		for _, o := range w.hosts {
			if out {
				w.part(h.id, o.id, back)
			} else {
				w.part(o.id, h.id, back)
			}
		}
	case 5: // two hosts do not reach each other; others reach both
		o := w.hosts[w.rng.IntN(len(w.hosts))]
		w.part(h.id, o.id, back)
		w.part(o.id, h.id, back)
	case 6:
		h.stepped += w.between(-2*time.Hour, 2*time.Hour)
	case 7:
		h.breakDisk()
	case 8:
		h.fill(back)
	case 9:
		w.breakStreams()
	}
}

// part cuts one wire for a while.
func (w *world) part(from, to uint64, d time.Duration) {
	if from == to {
		return
	}
	k := [2]uint64{from, to}
	w.cut[k] = true
	w.note("part %d>%d", from, to)
	w.after(d, "join", 0, func() { delete(w.cut, k) })
}

// pause stops a host for a while, as a hypervisor does: its clock goes on, and what it was sent waits.
func (h *host) pause(d time.Duration) {
	if h.node == nil || h.paused {
		return
	}
	h.paused = true
	life := h.life
	h.w.note("pause %d", h.id)
	h.w.after(d, "resume", h.id, func() {
		if h.life == life {
			h.paused = false
			h.kick()
		}
	})
}

// breakDisk lets one of the log's next syncs fail. A node does not outlive it.
func (h *host) breakDisk() {
	if h.node == nil {
		return
	}
	left := 1 + h.w.rng.IntN(5)
	h.fault.Before(func(op replogtest.Op) error {
		if op.Kind != "sync" {
			return nil
		}
		if left--; left == 0 {
			return syscall.EIO
		}
		return nil
	})
}

// fill leaves no room on a host's disk for the log to grow, for a while.
func (h *host) fill(d time.Duration) {
	if h.node == nil {
		return
	}
	h.fault.SetQuota(h.fault.Used() + int64(h.w.rng.IntN(64<<10)) + 1)
	life := h.life
	h.w.note("full %d", h.id)
	h.w.after(d, "room", h.id, func() {
		if h.life == life {
			h.fault.SetQuota(0)
			h.kick()
		}
	})
}

// breakStreams ends the connection of one worker.
func (w *world) breakStreams() {
	k := w.ledger.workers[w.rng.IntN(len(w.ledger.workers))]
	if k.stream != nil {
		k.lose()
	}
}

// heal ends all faults: what is down comes back, and nothing goes wrong any more.
func (w *world) heal() {
	w.healthy = true
	clear(w.cut)
	for _, h := range w.hosts {
		h.stepped = 0
		if h.fault != nil {
			h.fault.SetQuota(0)
			h.fault.Before(nil)
		}
		if h.paused {
			h.paused = false
			h.kick()
		}
	}
}
