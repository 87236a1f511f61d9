package bench

import "time"

// longestWait is the longest single wait of a pacer, and so the longest time until it notices that
// the loop was ended. leastWait is the shortest wait. Above about 20,000 arrivals a second each
// wake therefore starts several arrivals: a wake for each would take the CPU from the measured
// servers. The delay that this adds is part of the latency.
const (
	longestWait = time.Millisecond
	leastWait   = 50 * time.Microsecond
)

// paceClock is what a pacer reads the time of and waits by. Tests replace it.
type paceClock interface {
	// now is the time since the pacer began.
	now() time.Duration
	// until waits for a time; it may come back earlier, and does come back a little later.
	until(at time.Duration)
}

// Pace calls start for each arrival of a schedule when it is due, one after the other, with the
// time at which it was due. The goroutine is locked to its thread meanwhile. It returns when over
// says so, which it asks before every wait, or when nothing is due any more. start must not block:
// whatever it waits for makes later arrivals late.
func Pace(s *Schedule, over func() bool, start func(due time.Time)) {
	c, release := newPaceClock()
	defer release()
	pace(c, s, over, func(due time.Duration) { start(c.began.Add(due)) })
}

// pace waits for points in time, never for spans: when one wait ends late, the next one does not
// move. Each wake starts all that is due by then.
func pace(c paceClock, s *Schedule, over func() bool, start func(due time.Duration)) {
	next := s.Next()
	for !over() {
		now := c.now()
		for ; next <= now; next = s.Next() {
			start(next)
		}
		now = c.now()
		c.until(min(max(next, now+leastWait), now+longestWait))
	}
}
