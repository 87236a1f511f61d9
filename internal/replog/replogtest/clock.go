package replogtest

import (
	"sync"
	"time"

	"github.com/millrace/millrace/internal/env"
)

// Clock is a clock of package time throughout, so that it follows a bubble of testing/synctest: boot time too.
type Clock struct{ start time.Time }

// NewClock returns a clock whose boot time is zero now.
func NewClock() Clock { return Clock{time.Now()} }

// Wall returns the time.
func (c Clock) Wall() time.Time { return time.Now() }

// Boot returns the time since NewClock.
func (c Clock) Boot() time.Duration { return time.Since(c.start) }

// NewTimer returns a timer.
func (c Clock) NewTimer(d time.Duration) env.Timer { return timer{time.NewTimer(d)} }

// timer is a time.Timer behind the interface.
type timer struct{ t *time.Timer }

func (t timer) C() <-chan time.Time        { return t.t.C }
func (t timer) Stop() bool                 { return t.t.Stop() }
func (t timer) Reset(d time.Duration) bool { return t.t.Reset(d) }

// HandClock stands still until it is moved. Its timers never fire: it is for code that is stepped by hand.
type HandClock struct {
	mu  sync.Mutex // guards now
	now time.Duration
}

// Advance moves the clock.
func (c *HandClock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now += d
}

// Boot returns how far the clock was moved.
func (c *HandClock) Boot() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Wall returns the start of 2026 and Boot.
func (c *HandClock) Wall() time.Time {
	return time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC).Add(c.Boot())
}

// NewTimer returns a timer that never fires.
func (c *HandClock) NewTimer(time.Duration) env.Timer { return idleTimer{} }

// idleTimer is a timer that does not fire and need not be stopped.
type idleTimer struct{}

func (idleTimer) C() <-chan time.Time      { return nil }
func (idleTimer) Stop() bool               { return true }
func (idleTimer) Reset(time.Duration) bool { return true }
