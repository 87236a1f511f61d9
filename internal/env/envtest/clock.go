// Package envtest holds test forms of package env's seams. Only tests import it.
package envtest

import (
	"sync"
	"time"

	"github.com/millrace/millrace/internal/env"
)

// Clock is a clock that moves only when a test says so. It is safe for concurrent use.
type Clock struct {
	mu sync.Mutex // guards the fields below
	// wall is the time of the wall clock.
	wall time.Time
	// boot is the time since the machine started; it only grows.
	boot time.Duration
	// timers are those that run.
	timers map[*timer]struct{}
}

// NewClock returns a clock that stands at wall.
func NewClock(wall time.Time) *Clock {
	return &Clock{wall: wall, boot: time.Hour, timers: make(map[*timer]struct{})}
}

// Wall returns the wall clock's time.
func (c *Clock) Wall() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wall
}

// Boot returns the boot clock's time.
func (c *Clock) Boot() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.boot
}

// Advance moves both clocks on and fires the timers that come due.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall = c.wall.Add(d)
	c.boot += d
	for t := range c.timers {
		if t.at <= c.boot {
			t.fire()
		}
	}
}

// StepWall moves the wall clock alone, as an operator or a time server would.
func (c *Clock) StepWall(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall = c.wall.Add(d)
}

// NewTimer returns a timer of this clock.
func (c *Clock) NewTimer(d time.Duration) env.Timer {
	t := &timer{clock: c, c: make(chan time.Time, 1)}
	t.Reset(d)
	return t
}

// timer is a timer of a Clock. The clock's mutex guards it.
type timer struct {
	clock *Clock
	// c has room for one time, so that fire never waits.
	c chan time.Time
	// at is when it fires, by the boot clock, which no step of the wall clock moves.
	at time.Duration
}

// C returns the channel that the time comes on.
func (t *timer) C() <-chan time.Time { return t.c }

// fire sends the time; the clock's mutex is held.
func (t *timer) fire() {
	delete(t.clock.timers, t)
	select {
	case t.c <- t.clock.wall:
	default:
	}
}

// Stop ends the timer, and reports whether it ran.
func (t *timer) Stop() bool {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	return t.stop()
}

// stop ends the timer and takes back a time that was not read. The clock's mutex is held.
func (t *timer) stop() bool {
	_, running := t.clock.timers[t]
	delete(t.clock.timers, t)
	select {
	case <-t.c:
	default:
	}
	return running
}

// Reset starts the timer again. A duration that is not positive fires at once.
func (t *timer) Reset(d time.Duration) bool {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	running := t.stop()
	t.at = t.clock.boot + d
	if d <= 0 {
		t.fire()
	} else {
		t.clock.timers[t] = struct{}{}
	}
	return running
}
