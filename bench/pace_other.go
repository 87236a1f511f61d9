//go:build !linux

package bench

import "time"

// threadClock waits by the runtime's timers.
type threadClock struct{ began time.Time }

func newPaceClock() (c *threadClock, release func()) {
	return &threadClock{time.Now()}, func() {}
}

func (c *threadClock) now() time.Duration { return time.Since(c.began) }

func (c *threadClock) until(at time.Duration) { time.Sleep(at - c.now()) }
