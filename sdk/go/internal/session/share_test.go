package session

import (
	"fmt"
	"testing"
	"time"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func targets(streams []*share) string {
	var out []int
	for _, s := range streams {
		out = append(out, s.target)
	}
	return fmt.Sprint(out)
}

func TestSlotsAreDividedWhereTheWorkIs(t *testing.T) {
	long := noon.Add(-time.Hour)
	idle := func(slots, used int) *share { return &share{slots: slots, used: used, up: true, filled: long} }
	full := func(n int) *share { return &share{slots: n, used: n, up: true, filled: noon} }
	for _, c := range []struct {
		name    string
		total   int
		streams []*share
		want    string
	}{
		{"nothing to do", 10, []*share{idle(0, 0), idle(0, 0), idle(10, 0), idle(0, 0)}, "[3 3 2 2]"},
		{"one lane is full", 10, []*share{full(3), idle(3, 0), idle(2, 0), idle(2, 0)}, "[7 1 1 1]"},
		{"another has some", 16, []*share{full(4), idle(4, 2), idle(4, 0), idle(4, 0)}, "[11 3 1 1]"},
		{"two are full", 16, []*share{full(4), idle(4, 0), full(4), idle(4, 0)}, "[7 1 7 1]"},
		{"all are full", 10, []*share{full(3), full(3), full(2), full(2)}, "[3 3 2 2]"},
		{"one that has most meets another", 16, []*share{full(13), idle(1, 0), full(1), idle(1, 0)}, "[7 1 7 1]"},
		{"one that had most has gone idle", 16, []*share{idle(13, 0), idle(1, 0), idle(1, 0), idle(1, 0)}, "[4 4 4 4]"},
		{"one is not reached", 16, []*share{full(4), {slots: 4}, idle(4, 0), idle(4, 0)}, "[14 0 1 1]"},
	} {
		divide(c.total, c.streams, noon)
		if got := targets(c.streams); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}

// roaming plays a worker with fewer slots than streams: work says at which streams tasks are ready, each of which takes so
// long. It returns the longest that a stream was not looked at, and how many tasks ran at each.
func roaming(t *testing.T, total, n int, work map[int]time.Duration, d time.Duration) (worst time.Duration, ran []int) {
	t.Helper()
	streams, ends := make([]*share, n), make([][]time.Time, n)
	seen := make([]time.Time, n)
	for i := range streams {
		streams[i], seen[i] = &share{up: true}, noon
	}
	ran = make([]int, n)
	const step = time.Millisecond
	next := noon
	for now := noon; now.Before(noon.Add(d)); now = now.Add(step) {
		used := 0
		for i, s := range streams {
			for len(ends[i]) > 0 && !now.Before(ends[i][0]) {
				ends[i] = ends[i][1:]
			}
			for took, ok := work[i]; ok && len(ends[i]) < s.slots; {
				ends[i] = append(ends[i], now.Add(took))
				s.filled = now
				ran[i]++
			}
			s.used = len(ends[i])
			used += s.used
		}
		if used > total {
			t.Fatalf("%d tasks run with %d slots", used, total)
		}
		if !now.Before(next) {
			roam(total, streams, now)
			next = now.Add(stay(total, n))
		}
		claimed := 0
		for _, s := range streams {
			s.set(min(s.slots, s.target), s.used, now)
			claimed += max(s.slots, s.used)
		}
		for i, s := range streams {
			if before := max(s.slots, s.used); s.slots < s.target {
				to := min(s.target, before+total-claimed)
				claimed += max(to, s.used) - before
				s.set(to, s.used, now)
			}
			if s.slots > 0 {
				seen[i] = now
			}
			worst = max(worst, now.Sub(seen[i]))
		}
	}
	return worst, ran
}

// A free slot goes first to the stream whose server told of tasks, however lately it was looked at.
func TestAFreeSlotGoesWhereTasksWait(t *testing.T) {
	now := time.Now()
	streams := make([]*share, 5)
	for i := range streams {
		streams[i] = &share{up: true, looked: now.Add(time.Duration(i-9) * time.Millisecond)}
	}
	streams[0].target = 1
	streams[0].set(1, 0, now)
	streams[3].wanted = true
	now = now.Add(stay(1, len(streams)))
	streams[0].looked = now
	roam(1, streams, now)
	for i, s := range streams {
		if want := i == 3; (s.target == 1) != want {
			t.Errorf("stream %d has a target of %d slots", i, s.target)
		}
	}
	streams[0].set(0, 0, now)
	streams[3].set(1, 0, now)
	roam(1, streams, now)
	if streams[3].wanted {
		t.Error("a stream that has a slot is wanted still")
	}
}

func TestFewSlotsComeByEachPartitionInTime(t *testing.T) {
	for _, c := range []struct {
		slots, streams int
		work           map[int]time.Duration
	}{
		{1, 2, nil},
		{1, 8, nil},
		{3, 20, nil},
		{1, 4, map[int]time.Duration{2: 3 * time.Millisecond}},
		{2, 8, map[int]time.Duration{0: 5 * time.Millisecond, 7: 2 * time.Millisecond}},
		{2, 3, map[int]time.Duration{0: time.Millisecond, 1: time.Millisecond, 2: time.Millisecond}},
		{4, 16, map[int]time.Duration{3: 4 * time.Millisecond, 4: 4 * time.Millisecond, 5: 20 * time.Millisecond}},
	} {
		worst, ran := roaming(t, c.slots, c.streams, c.work, 5*time.Second)
		if worst > LookWithin {
			t.Errorf("%d slots, %d streams, work %v: a lane waited %v", c.slots, c.streams, c.work, worst)
		}
		for i, took := range c.work {
			// Of the time, at least a third of one stream's fair part is spent on its tasks.
			fair := int(5 * time.Second / took / 3 / time.Duration(len(c.work)))
			if ran[i] < fair {
				t.Errorf("%d slots, %d streams, work %v: lane %d ran %d tasks, want at least %d", c.slots, c.streams, c.work, i, ran[i], fair)
			}
		}
	}
}
