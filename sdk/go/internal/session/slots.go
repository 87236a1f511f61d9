package session

import (
	"time"
)

// division keeps a worker's slots divided over its streams. All of it is guarded by the worker's mu.
type division struct {
	// last is when the slots were balanced last.
	last time.Time
	// owed says that a stream waits for slots that others still use.
	owed bool
	// timer balances at next, zero where it is not set; it is made once.
	timer *time.Timer
	next  time.Time
	// over gives back what came beyond the slots; nil while nothing did.
	over *time.Timer
}

const (
	BalanceLeast = 10 * time.Millisecond  // between two balances
	BalanceEvery = 100 * time.Millisecond // while some stream has more or less than its even share
	SurplusAfter = 250 * time.Millisecond // a task that came beyond the slots waits no longer than this for one
)

// used is how many slots the stream's tasks take. It needs mu.
func (l *workerStream) used() int { return len(l.held) - l.away + l.outlived }

// shares brings the streams' shares up to date.
func (w *Worker) shares() []*share {
	out := make([]*share, len(w.streams))
	for i, l := range w.streams {
		l.share.used = l.used()
		out[i] = &l.share
	}
	return out
}

// balance divides the slots among the streams again. It needs mu.
func (w *Worker) balance(now time.Time) {
	if len(w.streams) == 1 || w.drains || w.over {
		return
	}
	w.slots.last = now
	streams := w.shares()
	wait := BalanceEvery
	switch total := w.opts.Slots; {
	case w.streams[0].s.plain: // it asks for all partitions
		for _, s := range streams[1:] {
			s.target = 0
			total -= s.used
		}
		streams[0].target = max(total, 0)
	case total < len(streams):
		roam(total, streams, now)
		wait = stay(total, len(streams))
	case !divide(total, streams, now):
		wait = 0
	}
	w.resize(now)
	if wait > 0 {
		w.balanceIn(wait, now)
	}
}

// balanceIn balances after d at the latest.
func (w *Worker) balanceIn(d time.Duration, now time.Time) {
	s := &w.slots
	if !s.next.IsZero() && !now.Add(d).Before(s.next) {
		return
	}
	s.next = now.Add(d)
	if s.timer != nil {
		s.timer.Reset(d)
		return
	}
	s.timer = time.AfterFunc(d, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		s.next = time.Time{}
		w.balance(time.Now())
	})
}

// resize brings the windows to their targets: those that shrink at once, those that grow as slots come free, so that no
// more tasks are given out than there are slots. It needs mu.
func (w *Worker) resize(now time.Time) {
	// How many slots are spoken for: by windows, and by tasks that are beyond a window which has shrunk.
	claimed := 0
	for _, l := range w.streams {
		if l.share.slots > l.share.target {
			l.setSlots(l.share.target, now)
		}
		claimed += max(l.share.slots, l.used())
	}
	w.slots.owed = false
	for _, l := range w.streams {
		s, used := &l.share, l.used()
		if s.slots >= s.target {
			continue
		}
		before := max(s.slots, used)
		if to := min(s.target, before+max(w.opts.Slots-claimed, 0)); to > s.slots {
			claimed += max(to, used) - before
			l.setSlots(to, now)
		}
		w.slots.owed = w.slots.owed || s.slots < s.target
	}
}

// setSlots gives the stream another window, and has its server told. It needs mu.
func (l *workerStream) setSlots(n int, now time.Time) {
	l.share.set(n, l.used(), now)
	if l.share.up && !l.w.drains {
		l.restate = true
		l.s.poke()
	}
}

// freed notes that a task gave its slot back. It needs mu.
func (w *Worker) freed() {
	if w.slots.owed && !w.drains {
		w.resize(time.Now())
	}
}

// filled takes in that tasks came to a stream. It needs mu.
func (w *Worker) filled(l *workerStream, now time.Time) {
	if used := l.used(); used > 0 && used >= l.share.slots {
		l.share.filled = now
		w.balanceSoon(now)
	}
	w.noteSurplus()
}

// available takes in that a stream without slots could have tasks. It needs mu.
func (w *Worker) available(l *workerStream, now time.Time) {
	if l.share.slots > 0 {
		return // a slot is there meanwhile
	}
	l.share.wanted = true
	w.balanceSoon(now)
}

// balanceSoon balances now, or as soon as the last time is long enough ago. It needs mu.
func (w *Worker) balanceSoon(now time.Time) {
	if now.Sub(w.slots.last) >= BalanceLeast {
		w.balance(now)
	} else {
		w.balanceIn(BalanceLeast, now)
	}
}

// noteSurplus sees to it that tasks beyond the slots do not wait for long. It needs mu.
func (w *Worker) noteSurplus() {
	if w.surplus() > 0 && w.slots.over == nil {
		w.slots.over = time.AfterFunc(SurplusAfter, w.giveSurplus)
	}
}

// surplus is how many tasks came beyond the slots: a window that shrinks may have been used meanwhile.
func (w *Worker) surplus() int {
	n := -w.opts.Slots
	for _, l := range w.streams {
		n += l.used()
	}
	return n
}

// giveSurplus gives back what no slot came free for.
func (w *Worker) giveSurplus() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.slots.over = nil
	n, i := w.surplus(), 0
	if n <= 0 || w.drains || w.over {
		return
	}
	stays := w.ready.len() - n
	w.ready.keep(func(t *Attempt) bool {
		i++
		if i <= stays || t.lost || t.refusal != nil {
			return true
		}
		w.release(t)
		t.l.s.poke()
		return false
	})
}

// stop ends the division: nothing is given out any more.
func (d *division) stop() {
	for _, t := range []*time.Timer{d.timer, d.over} {
		if t != nil {
			t.Stop()
		}
	}
}
