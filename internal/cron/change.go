package cron

import (
	"fmt"
	"time"
)

// Change is a change of the clocks of a schedule's zone, and what it does to the slots around it.
type Change struct {
	At     time.Time // the first instant after it, in UTC
	By     time.Duration
	Before time.Time // At by the clocks before the change, as if they were UTC
	After  time.Time // and by those after it
	// Slots are the slots that the change moved, or the first of those that come within the time that is repeated. At most 5.
	Slots []time.Time
	Words string
}

// Skips reports whether the clocks go forward: local times are left out.
func (c *Change) Skips() bool { return c.By > 0 }

// changeSlots is how many slots of a change are shown.
const changeSlots = 5

// Changes returns the changes of the clocks between two times, at most n.
func (s *Schedule) Changes(from, to time.Time, n int) (out []Change) {
	for x := floorSecond(from); len(out) < n; {
		_, end, before := s.stretch(x)
		if end > to.Unix() {
			break
		}
		_, _, after := s.stretch(end)
		if x = end; after == before || s.every > 0 {
			continue
		}
		c := Change{
			At: time.Unix(end, 0).UTC(), By: time.Duration(after-before) * time.Second,
			Before: time.Unix(end+before, 0).UTC(), After: time.Unix(end+after, 0).UTC(),
		}
		s.explain(&c, end, before, after)
		out = append(out, c)
	}
	return out
}

// explain says what a change does to the slots of the local times that it skips or repeats.
func (s *Schedule) explain(c *Change, end, before, after int64) {
	low, high := end+before, end+after // skipped
	if !c.Skips() {
		low, high = high, low // repeated
	}
	local, ok := s.nextLocal(low)
	if !ok || local >= high {
		c.Words = "no slot is affected"
		return
	}
	first := clock(local)
	switch {
	case s.elapses() && c.Skips():
		c.Words = fmt.Sprintf("%s is skipped; slots go by time that passes, so none is moved", first)
	case s.elapses():
		c.Words = fmt.Sprintf("%s comes twice; slots go by time that passes, so both fire", first)
		for at, ok := s.nextElapsed(end - 1); ok && at < end+high-low && len(c.Slots) < changeSlots; at, ok = s.nextElapsed(at) {
			c.Slots = append(c.Slots, time.Unix(at, 0).UTC())
		}
	case c.Skips():
		c.Words = fmt.Sprintf("%s is skipped; it fires at %s", first, clock(high))
		c.Slots = []time.Time{c.At}
	default:
		c.Words = fmt.Sprintf("%s comes twice; it fires the first time", first)
		for ; ok && local < high && len(c.Slots) < changeSlots; local, ok = s.nextLocal(local + 1) {
			c.Slots = append(c.Slots, time.Unix(s.instant(local), 0).UTC())
		}
	}
}

// clock is what a clock shows at a local time.
func clock(local int64) string {
	t := time.Unix(local, 0).UTC()
	if t.Second() != 0 {
		return t.Format("15:04:05")
	}
	return t.Format("15:04")
}
