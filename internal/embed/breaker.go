package embed

import (
	"sync"
	"time"
)

// When the breaker opens: after failuresInRow failures without a success between them, or if half
// of the last windowCalls failed and all of them were within windowTime. While it is open, one call
// may try again every probeEvery.
const (
	failuresInRow = 5
	windowCalls   = 20 // of the last ones, if half failed within the window
	windowTime    = 10 * time.Second
	probeEvery    = 5 * time.Second
)

// breaker decides whether the provider is asked for texts of one tenant. There is one per tenant,
// because the texts may be what fails. Times are those of the boot clock.
//
// It is closed or open. An open one lets a single call through at a time, after probeEvery; a
// success closes it, a failure keeps it open.
type breaker struct {
	// mu guards the fields below.
	mu   sync.Mutex
	open bool
	// While it is open: when one call may try again.
	next time.Duration
	// That call is under way.
	trying bool
	// Failures without a success between them.
	row  int
	last []callMark // at most windowCalls, oldest first
	// How often it opened, for metrics.
	opened uint64
}

// callMark is the end of one call: when it ended, and whether it failed.
type callMark struct {
	at     time.Duration
	failed bool
}

// allow reports whether a call may be made now, which done must end; if not, it returns after what
// time one may be.
func (b *breaker) allow(now time.Duration) (after time.Duration, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case !b.open:
		return 0, true
	case b.trying:
		return probeEvery, false
	case now < b.next:
		return b.next - now, false
	}
	b.trying = true
	return 0, true
}

// blocked returns how long callers should stay away. Unlike allow it does not count as a try.
func (b *breaker) blocked(now time.Duration) (after time.Duration, blocked bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case !b.open:
		return 0, false
	case b.trying:
		return probeEvery, true
	case now < b.next:
		return b.next - now, true
	}
	return 0, false
}

// answered records an answer that proves only that the provider is there, such as a refused text.
// It closes an open breaker and is not counted otherwise.
func (b *breaker) answered(now time.Duration) {
	b.mu.Lock()
	open := b.open
	b.mu.Unlock()
	if open {
		b.done(now, false)
	}
}

// state returns whether the breaker is open, and how often it opened.
func (b *breaker) state() (open bool, opened uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.open, b.opened
}

// done records the end of a call that was allowed, and opens or closes the breaker.
func (b *breaker) done(now time.Duration, failed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !failed {
		b.open, b.trying, b.row = false, false, 0
	}
	if b.open { // a call that began before the others failed, or the try
		if b.trying {
			b.trying, b.next = false, now+probeEvery
		}
		return
	}
	b.last = append(b.last, callMark{now, failed})
	if len(b.last) > windowCalls {
		b.last = append(b.last[:0], b.last[1:]...)
	}
	if !failed {
		return
	}
	b.row++
	if b.row >= failuresInRow || b.halfFailed(now) {
		b.open, b.next, b.last = true, now+probeEvery, b.last[:0]
		b.opened++
	}
}

// halfFailed reports whether the window is full, within windowTime, and half of it failed. The
// caller holds mu.
func (b *breaker) halfFailed(now time.Duration) bool {
	if len(b.last) < windowCalls || now-b.last[0].at > windowTime {
		return false
	}
	n := 0
	for _, m := range b.last {
		if m.failed {
			n++
		}
	}
	return 2*n >= windowCalls
}
