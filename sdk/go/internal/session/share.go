package session

import (
	"slices"
	"time"
)

// share is one stream as the division of a worker's slots sees it.
type share struct {
	// slots is its window: how many tasks it may have at once. target is what the window is to become, as soon as others have given up
	// what it lacks.
	slots, target int
	// up says that somebody may give it tasks.
	up bool
	// filled is when its window was full last.
	filled time.Time
	// looked is when slots stood open on it last, and opened since when they do; zero: none does.
	looked, opened time.Time

	// wanted says that its server told of tasks while it had no slot.
	wanted bool

	// used is how many tasks take a slot now.
	used int
	// hot says that it uses all that it has.
	hot bool
}

const (
	// lookEvery is how long a partition may wait until a free slot comes by, when there are fewer slots than partitions.
	lookEvery = 250 * time.Millisecond
	// Bounds of how long a travelling slot stays where it finds nothing: the least keeps a worker with many partitions from doing nothing
	// but move slots, the most keeps one with few from looking away for long.
	stayLeast = 5 * time.Millisecond
	stayMost  = 25 * time.Millisecond
	// LookWithin is how long a partition waits for a free slot at most: lookEvery, and what two slots stay elsewhere meanwhile.
	LookWithin = lookEvery + 2*stayMost
	// HotFor and hotRoaming are how long a stream whose window was full counts as one that wants more: longer where slots travel, as it
	// is looked at less often.
	HotFor     = 250 * time.Millisecond
	hotRoaming = time.Second
)

// stay is how long a travelling slot stays where it finds nothing: short enough to come by everywhere in time, with half of
// the slots.
func stay(total, streams int) time.Duration {
	return min(max(lookEvery*time.Duration(total)/time.Duration(2*streams), stayLeast), stayMost)
}

// heat says which streams want more than they have.
func heat(streams []*share, now time.Time, roams bool) (any bool) {
	for _, s := range streams {
		if roams {
			s.hot = s.up && now.Sub(s.filled) < hotRoaming
		} else {
			s.hot = s.up && (now.Sub(s.filled) < HotFor || s.slots > 0 && s.used >= s.slots)
		}
		any = any || s.hot
	}
	return any
}

// divide sets the targets where there is a slot for every stream: an even share for each, unless some stream uses all of its
// own. Then those share evenly what the others have no use for; these keep one slot free, so that no task waits for it.
func divide(total int, streams []*share, now time.Time) (busy bool) {
	if busy = heat(streams, now, false); !busy {
		for i, s := range streams {
			s.target = total / len(streams)
			if i < total%len(streams) {
				s.target++
			}
		}
		return false
	}
	// Round by round, streams that want no more than an even share get what they want; the rest is shared by those that are left.
	left, open := total, len(streams)
	for _, s := range streams {
		s.target = -1
	}
	for found := true; found; {
		found = false
		level := left / open
		for _, s := range streams {
			want := s.used
			if s.up {
				want++
			}
			if s.target < 0 && !s.hot && want <= level {
				s.target, found = want, true
				left -= want
				open--
			}
		}
	}
	for _, s := range streams {
		if s.target < 0 {
			s.target = (left + open - 1) / open
			left -= s.target
			open--
		}
	}
	return true
}

// roam sets the targets where there are fewer slots than streams: the free ones travel, so that each stream is looked at in
// time. Where a slot finds work it stays, but for what it takes to look at the others.
func roam(total int, streams []*share, now time.Time) {
	busy := heat(streams, now, true)
	dwell := stay(total, len(streams))
	dealt := 0
	byAge := make([]*share, 0, len(streams))
	for _, s := range streams {
		switch {
		case !s.up:
			s.target, s.opened = 0, time.Time{}
			continue
		case s.slots <= s.used:
			s.opened = time.Time{}
		default:
			s.looked = now
			if s.opened.IsZero() {
				s.opened = now
			}
		}
		if s.filled.After(s.looked) {
			s.looked = s.filled
		}
		if s.wanted = s.wanted && s.slots == 0; s.wanted {
			s.looked = time.Time{} // tasks wait there
		}
		dealt += s.target
		byAge = append(byAge, s)
	}
	slices.SortStableFunc(byAge, func(a, b *share) int { return a.looked.Compare(b.looked) })
	// While some stream has work, half of the slots stay there and the others look around.
	quota := total
	if busy {
		quota = max(total/2, 1)
	}
	for _, s := range byAge {
		if quota == 0 || now.Sub(s.looked) < lookEvery-dwell {
			break
		}
		if s.target > s.used {
			continue // a slot is on its way
		}
		// A slot that no stream has, or one that another stream gives up.
		if dealt < total {
			dealt++
		} else if d := donor(byAge, s, now, dwell); d != nil {
			d.target--
		} else {
			break
		}
		s.target++
		quota--
	}
	for _, s := range byAge {
		for ; dealt < total && s.target <= s.used; dealt++ {
			s.target++
		}
	}
	if busy {
		gather(byAge, now, dwell)
	}
}

// donor finds the stream that a slot is taken from for another: one where it stands open in vain, else one where it is at
// work, and only then one that wants more.
func donor(streams []*share, but *share, now time.Time, dwell time.Duration) (best *share) {
	rank := func(s *share) int {
		switch {
		case s.hot:
			return 2
		case s.target <= s.used:
			return 1
		}
		return 0
	}
	for _, s := range streams {
		if s == but || s.target == 0 || rank(s) == 0 && !s.idleFor(dwell, now) {
			continue
		}
		if best == nil || rank(s) < rank(best) || rank(s) == rank(best) && s.target > best.target {
			best = s
		}
	}
	return best
}

// set gives s another window.
func (s *share) set(slots, used int, now time.Time) {
	switch s.slots = slots; {
	case slots <= used:
		s.opened = time.Time{}
	case s.opened.IsZero():
		s.opened = now
	}
}

// idleFor reports whether slots have stood open in vain for so long.
func (s *share) idleFor(d time.Duration, now time.Time) bool {
	return !s.opened.IsZero() && now.Sub(s.opened) >= d
}

// gather moves slots that stand open in vain to the streams that want more, in turn.
func gather(streams []*share, now time.Time, dwell time.Duration) {
	for _, s := range streams {
		for !s.hot && s.target > s.used && s.idleFor(dwell, now) {
			var to *share
			for _, x := range streams {
				if x.hot && (to == nil || x.target < to.target) {
					to = x
				}
			}
			s.target--
			to.target++
		}
	}
}
