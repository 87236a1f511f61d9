package embed

import (
	"sync"
	"time"
)

// When a provider is left alone, and when it is tried again.
const (
	failuresInRow = 5
	windowCalls   = 20 // of the last ones, if half failed within the window
	windowTime    = 10 * time.Second
	probeEvery    = 5 * time.Second
)

// breaker decides whether a provider is asked for texts of one tenant: what fails may be the texts. Times are of the boot clock.
type breaker struct {
	mu     sync.Mutex // guards the fields below
	open   bool
	next   time.Duration // open: when one call may try again
	trying bool          // that call is under way
	row    int           // failures without a success between
	last   []callMark    // at most windowCalls, oldest first
	opened uint64
}

type callMark struct {
	at     time.Duration
	failed bool
}

// allow says whether a call may be made now; if not, after how long one may be.
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

// blocked says how long callers should stay away, without counting as a try.
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

// answered counts an answer that says nothing of the provider's health but that it is there.
func (b *breaker) answered(now time.Duration) {
	b.mu.Lock()
	open := b.open
	b.mu.Unlock()
	if open {
		b.done(now, false)
	}
}

// state says whether the provider is left alone, and how often it was.
func (b *breaker) state() (open bool, opened uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.open, b.opened
}

// done counts the end of a call that was allowed.
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

// halfFailed says whether the window is full and half of it failed; the mutex is held.
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
