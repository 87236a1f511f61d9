package node

import (
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/internal/env"
	"github.com/millrace/millrace/internal/env/envtest"
)

// loopTick is a tick that no other timer of a node has: by it a loopClock knows the timer of a shard's loop.
const loopTick = 70 * time.Millisecond

// loopClock is virtual time that knows when the loop of the only shard has gone to sleep, and how often it woke up.
type loopClock struct {
	*envtest.Clock
	asleep chan struct{} // holds one token while the loop sleeps
	wakes  atomic.Int64
}

func newLoopClock() *loopClock {
	return &loopClock{Clock: envtest.NewClock(time.UnixMilli(1_700_000_000_000)), asleep: make(chan struct{}, 1)}
}

// step moves time on by d, wakes the loop with it, and waits until the loop sleeps again.
func (c *loopClock) step(d time.Duration) {
	select {
	case <-c.asleep:
	default:
	}
	c.Advance(max(d, loopTick))
	<-c.asleep
}

func (c *loopClock) NewTimer(d time.Duration) env.Timer {
	t := c.Clock.NewTimer(d)
	if d == loopTick {
		return loopTimer{t, c}
	}
	return t
}

type loopTimer struct {
	env.Timer
	clock *loopClock
}

func (t loopTimer) Reset(d time.Duration) bool {
	was := t.Timer.Reset(d)
	t.clock.wakes.Add(1)
	select {
	case t.clock.asleep <- struct{}{}:
	default:
	}
	return was
}
