package sim

import (
	"time"

	"github.com/millrace/millrace/internal/env"
	"github.com/millrace/millrace/internal/replog/replogtest"
)

// clock is a host's clock. It goes on while the host is down or paused. Its boot time never falls.
// Boot time and wall clock run at the same rate, which a fault may change; the wall clock can be
// stepped as well. Both are computed from the time at which the rate was last set, so they cost no
// events.
type clock struct {
	w *world
	// The world's time when the rate was set; the next fields are of that moment.
	at   time.Duration
	boot time.Duration // boot time then
	// What the wall clock showed, as the time since epoch.
	wall time.Duration
	// Thousandths of the true rate; 0: the clock stands still.
	rate int64
	// The world's passed at that moment.
	days time.Duration
	// The wall clock was stepped and not set right since.
	wrong bool
}

// epoch is the true time at which every history begins.
var epoch = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)

// trueRate is the rate of a clock that is right, in thousandths.
const trueRate = 1000

func newClock(w *world) *clock { return &clock{w: w, boot: time.Hour, rate: trueRate} }

// gone returns how far the clock went since its rate was set. Days that pass at once are added in
// full, whatever the rate is.
func (c *clock) gone() time.Duration {
	return (c.w.now-c.at)*time.Duration(c.rate)/trueRate + c.w.passed - c.days
}

// Boot returns the host's boot time.
func (c *clock) Boot() time.Duration { return c.boot + c.gone() }

// Wall returns the host's wall clock.
func (c *clock) Wall() time.Time { return epoch.Add(c.wall + c.gone()) }

// NewTimer returns a timer that never fires: nodes are stepped by hand and tell when they want the
// next step.
func (*clock) NewTimer(time.Duration) env.Timer { return new(replogtest.HandClock).NewTimer(0) }

// setRate makes the clock run at another rate from now on. What it shows does not jump.
func (c *clock) setRate(rate int64) {
	gone := c.gone()
	c.boot, c.wall, c.at, c.days, c.rate = c.boot+gone, c.wall+gone, c.w.now, c.w.passed, rate
}

// step moves the wall clock.
func (c *clock) step(d time.Duration) {
	c.wall += d
	c.wrong = true
}

// mend sets the clock right: the true time at the true rate. Boot time does not jump.
func (c *clock) mend() {
	c.setRate(trueRate)
	c.wall, c.wrong = c.w.time(), false
}

// until returns how long, in the world's time, the clock takes to reach a boot time; false if it
// stands still.
func (c *clock) until(boot time.Duration) (time.Duration, bool) {
	d := boot - c.Boot()
	if d <= 0 {
		return 0, true
	}
	if c.rate == 0 {
		return 0, false
	}
	return (d*trueRate + time.Duration(c.rate) - 1) / time.Duration(c.rate), true
}
