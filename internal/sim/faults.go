package sim

import (
	"context"
	"syscall"
	"time"

	"github.com/millrace/millrace/internal/replog/replogtest"
)

// Fault is a kind of thing that goes wrong in a data centre. The names are part of results.
type Fault string

// The faults.
const (
	Crash       Fault = "crash"        // a host loses power
	Blackout    Fault = "blackout"     // all do
	Stop        Fault = "stop"         // a node hands its shards over, ends in order and is started again
	Pause       Fault = "pause"        // a host stands still as its clock goes on
	Isolate     Fault = "isolate"      // nothing goes to or from a host
	OneWay      Fault = "one_way"      // it is heard and does not hear, or the other way round
	CutPair     Fault = "cut_pair"     // two hosts do not reach each other; others reach both
	Bridge      Fault = "bridge"       // two halves that only one host reaches
	Swizzle     Fault = "swizzle"      // hosts are cut off one after the other, and come back in another order
	Flap        Fault = "flap"         // a host's wires come and go
	StepClock   Fault = "step_clock"   // a wall clock jumps, forward or back
	Drift       Fault = "drift"        // a clock goes wrong by up to 5 %
	Freeze      Fault = "freeze"       // a clock stands still
	Leap        Fault = "leap"         // hours or days pass at once, for all
	FailSync    Fault = "fail_sync"    // a sync fails
	FailWrite   Fault = "fail_write"   // a write fails
	ShortWrite  Fault = "short_write"  // a part of a write is done, and it fails
	SlowDisk    Fault = "slow_disk"    // syncs take long
	HangDisk    Fault = "hang_disk"    // one takes seconds
	FullDisk    Fault = "full_disk"    // there is no room
	BreakStream Fault = "break_stream" // a worker's connection ends
	LoseDisk    Fault = "lose_disk"    // a host comes back with an empty disk; only where membership changes
)

// Faults lists all kinds except LoseDisk, which only plans with changing membership have.
func Faults() []Fault {
	return []Fault{
		Crash, Blackout, Stop, Pause, Isolate, OneWay, CutPair, Bridge, Swizzle, Flap, StepClock, Drift, Freeze, Leap, FailSync, FailWrite,
		ShortWrite, SlowDisk, HangDisk, FullDisk, BreakStream,
	}
}

// misfortune plans the next fault, which plans the one after it, until the world is healthy. Kind,
// host and length are drawn.
func (w *world) misfortune() {
	w.after(w.between(w.plan.FaultEvery/4, w.plan.FaultEvery), "fault", 0, func() {
		if w.healthy {
			return
		}
		kind := w.plan.Kinds[w.rng.IntN(len(w.plan.Kinds))]
		h := w.hosts[w.rng.IntN(len(w.hosts))]
		w.note("fault %s at %d", kind, h.id)
		if w.strike(kind, h, w.between(50*time.Millisecond, 4*time.Second)) {
			w.struck[string(kind)]++
		}
		w.misfortune()
	})
}

// strike makes one fault happen, for d if it is one that passes. It returns false if the fault was
// not possible, such as a crash of a host that is down.
func (w *world) strike(kind Fault, h *host, d time.Duration) bool {
	switch kind {
	case Blackout:
		for _, o := range w.hosts {
			o.crash(w.between(50*time.Millisecond, d))
		}
		return true
	case Leap:
		w.leap(w.between(time.Minute, 60*time.Hour))
		return true
	case StepClock:
		return h.stepClock(d)
	case Drift:
		return h.runAt(trueRate-50+w.rng.Int64N(101), 2*d)
	case Freeze:
		return h.runAt(0, min(d, 2*time.Second))
	case BreakStream:
		return w.breakStream()
	case LoseDisk:
		return w.loseDisk(h)
	case Isolate, OneWay, CutPair, Bridge, Swizzle, Flap:
		return w.cutWires(kind, h, d)
	}
	if h.node == nil {
		return false
	}
	switch kind {
	case Crash:
		h.crash(d)
	case Stop:
		h.stop(d)
	case Pause:
		return h.pause(d)
	case SlowDisk:
		h.slow = w.now + d
	case HangDisk:
		h.stuck = w.now + d
	case FullDisk:
		h.fill(d)
	case FailSync:
		h.breakDisk("sync", syscall.EIO)
	case FailWrite:
		h.breakDisk("write", syscall.EIO)
	case ShortWrite:
		h.breakDisk("write", replogtest.Short{Percent: w.rng.IntN(100), Err: syscall.EIO})
	}
	return true
}

// cutWires cuts wires between hosts for a while, in the pattern of the kind.
func (w *world) cutWires(kind Fault, h *host, d time.Duration) bool {
	if len(w.hosts) == 1 {
		return false
	}
	out := w.chance(500)
	o := w.hosts[w.rng.IntN(len(w.hosts))]
	for _, p := range w.hosts {
		switch kind {
		case Isolate:
			w.partBoth(h.id, p.id, d)
		case OneWay:
			if out {
				w.part(h.id, p.id, d)
			} else {
				w.part(p.id, h.id, d)
			}
		case Bridge: // h reaches all; those below it and those above it only reach their own
			for _, q := range w.hosts {
				if p.id < h.id && q.id > h.id {
					w.partBoth(p.id, q.id, d)
				}
			}
		}
	}
	switch kind {
	case CutPair:
		w.partBoth(h.id, o.id, d)
	case Swizzle:
		for _, i := range w.rng.Perm(len(w.hosts)) {
			w.after(w.between(0, d/2), "swizzle", 0, func() { w.isolate(w.hosts[i], w.between(d/4, d)) })
		}
	case Flap:
		for at := time.Duration(0); at < d; at += w.between(20*time.Millisecond, 500*time.Millisecond) {
			w.after(at, "flap", 0, func() { w.isolate(h, w.between(10*time.Millisecond, 250*time.Millisecond)) })
		}
	}
	return true
}

// isolate cuts a host off from all others for d.
func (w *world) isolate(h *host, d time.Duration) {
	if w.healthy {
		return
	}
	for _, p := range w.hosts {
		w.partBoth(h.id, p.id, d)
	}
}

// stepClock makes a wall clock jump by up to two hours. It refuses to make half of the clocks
// wrong: nodes take the time that most clocks show, so they could not tell the right time any more.
func (h *host) stepClock(d time.Duration) bool {
	w := h.w
	wrong := 0
	for _, o := range w.hosts {
		if o != h && o.clock.wrong {
			wrong++
		}
	}
	if len(w.hosts) > 1 && wrong+1 > (len(w.hosts)-1)/2 {
		return false
	}
	h.clock.step(w.between(-2*time.Hour, 2*time.Hour))
	w.after(2*d, "clock", h.id, func() {
		if !w.healthy {
			h.clock.mend()
			h.tell()
		}
	})
	return true
}

// runAt makes a clock run at another rate for d.
func (h *host) runAt(rate int64, d time.Duration) bool {
	h.clock.setRate(rate)
	h.tell()
	h.w.after(d, "clock", h.id, func() {
		if !h.w.healthy {
			h.clock.setRate(trueRate)
			h.tell()
		}
	})
	return true
}

// leap makes time pass at once on every clock. Events that are planned keep their distance from
// now.
func (w *world) leap(d time.Duration) {
	w.passed += d
	w.ledger.age()
	for _, h := range w.hosts {
		h.tell()
	}
}

// stop makes a node hand its shards over, and ends it in order a little later. back is how long it
// stays down.
func (h *host) stop(back time.Duration) {
	over, cancel := context.WithCancel(context.Background())
	cancel()
	h.node.HandOver(over) // it does not wait, and goes on by itself
	life := h.life
	var end func()
	end = func() {
		switch {
		case h.life != life:
		case h.paused: // it goes on to end when it runs again: a node that leads nothing for ever does not happen
			h.w.after(10*time.Millisecond, "stop", h.id, end)
		default:
			h.check()
			h.release()
			h.w.after(back, "start", h.id, h.restart)
		}
	}
	h.w.after(h.w.between(10*time.Millisecond, 400*time.Millisecond), "stop", h.id, end)
	h.kick()
}

// pause stops a host for d, as a hypervisor does: its clock goes on, and what is sent to it waits.
func (h *host) pause(d time.Duration) bool {
	if h.paused {
		return false
	}
	h.paused = true
	life := h.life
	h.w.after(d, "resume", h.id, func() {
		if h.life == life {
			h.paused = false
			h.kick()
		}
	})
	return true
}

// breakDisk makes one of the log's next five operations of a kind fail. The node must end itself
// then.
func (h *host) breakDisk(kind string, err error) {
	left := 1 + h.w.rng.IntN(5)
	h.fault.Before(func(op replogtest.Op) error {
		if op.Kind != kind {
			return nil
		}
		if left--; left == 0 {
			return err
		}
		return nil
	})
}

// fill leaves the log almost no room to grow for d.
func (h *host) fill(d time.Duration) {
	h.fault.SetQuota(h.fault.Used() + int64(h.w.rng.IntN(64<<10)) + 1)
	life := h.life
	h.w.after(d, "room", h.id, func() {
		if h.life == life {
			h.fault.SetQuota(0)
			h.kick()
		}
	})
}

// breakStream ends the connection of one worker; false if that worker has none.
func (w *world) breakStream() bool {
	k := w.ledger.workers[w.rng.IntN(len(w.ledger.workers))]
	if k.stream == nil {
		return false
	}
	k.lose()
	return true
}

// heal ends all faults: what is down comes back, and nothing goes wrong any more.
func (w *world) heal() {
	w.healthy = true
	w.tidy()
	clear(w.cut)
	for _, h := range w.hosts {
		h.clock.mend()
		h.stuck, h.slow = 0, 0
		if h.fault != nil {
			h.fault.SetQuota(0)
			h.fault.Before(nil)
		}
		h.paused = false
		h.tell()
	}
}
