package node

import "time"

const (
	// tickShare divides the applier's time: one part of it is for ticks, next to commits of others. With a half, live tasks on two
	// cores took four times as long at p99 while a million became due; with a third, three times.
	tickShare = 3
	// leastTick is the number of timers of the smallest tick next to commits of others.
	leastTick = 200
	// longestRest bounds the time from a tick that left work to the next.
	longestRest = 20 * time.Millisecond
	// quietAfter is how long after the last commits of others ticks take all of the applier's time.
	quietAfter = time.Second
)

// tickPace leaves others their share of the applier while more timers are due than one tick takes: a million may be due in one instant.
// The loop's.
type tickPace struct {
	// at is the boot time when the last tick was proposed, and othersAt that of the last commits of others.
	at, othersAt time.Duration
}

// proposed takes note of an entry: whether it has a tick, and whether it has commits of others.
func (p *tickPace) proposed(now time.Duration, tick, others bool) {
	if tick {
		p.at = now
	}
	if others {
		p.othersAt = now
	}
}

// next returns how many timers, at most most, a tick may take that follows one which left work, and 0 before its time, which is at. cost is
// what a timer cost the applier. A tick that comes later takes more, so entries that wait for a disk have larger ticks.
func (p *tickPace) next(now, cost time.Duration, most uint32) (timers uint32, at time.Duration) {
	if cost <= 0 || now-p.othersAt > quietAfter {
		return most, now
	}
	share := tickShare * cost // of the clock, for each timer
	least := min(leastTick, most)
	if at = p.at + min(share*time.Duration(least), longestRest); now < at {
		return 0, at
	}
	return uint32(min(max((now-p.at)/share, time.Duration(least)), time.Duration(most))), now
}
