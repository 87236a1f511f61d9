package sim

import (
	"time"

	"github.com/millrace/millrace/internal/env"
	"github.com/millrace/millrace/internal/replog/replogtest"
)

// clock is a host's. It goes on while the host is down or paused. Boot time never falls; both run at the clock's own rate,
// which a fault may change, and the wall clock is stepped besides.
type clock struct {
	w     *world
	at    time.Duration // when the rate was set
	boot  time.Duration // boot time then
	wall  time.Duration // what the wall clock showed then, against the epoch
	rate  int64         // thousandths of the true one; 0: it stands still
	days  time.Duration // of the world's, when the rate was set
	wrong bool          // its wall clock was stepped
}

var epoch = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)

const trueRate = 1000

func newClock(w *world) *clock { return &clock{w: w, boot: time.Hour, rate: trueRate} }

// gone is how far the clock went since its rate was set.
func (c *clock) gone() time.Duration {
	return (c.w.now-c.at)*time.Duration(c.rate)/trueRate + c.w.passed - c.days
}

// Boot returns the host's boot time.
func (c *clock) Boot() time.Duration { return c.boot + c.gone() }

// Wall returns the host's wall clock.
func (c *clock) Wall() time.Time { return epoch.Add(c.wall + c.gone()) }

// NewTimer returns one that never fires: what waits is stepped.
func (*clock) NewTimer(time.Duration) env.Timer { return new(replogtest.HandClock).NewTimer(0) }

// setRate lets the clock run at another rate from now on.
func (c *clock) setRate(rate int64) {
	gone := c.gone()
	c.boot, c.wall, c.at, c.days, c.rate = c.boot+gone, c.wall+gone, c.w.now, c.w.passed, rate
}

// step moves the wall clock.
func (c *clock) step(d time.Duration) {
	c.wall += d
	c.wrong = true
}

// mend sets the clock right: it shows the true time, and runs at the true rate.
func (c *clock) mend() {
	c.setRate(trueRate)
	c.wall, c.wrong = c.w.time(), false
}

// until returns how long it takes the clock to reach a boot time; false = it stands still.
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
