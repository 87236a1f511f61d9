package bench

import (
	"runtime"
	"testing"
	"time"
)

// lateClock is a time that moves when it is waited for, and then by more than was asked for.
type lateClock struct {
	at    time.Duration
	late  func(n int) time.Duration // what the n-th wait is late by
	waits int
	most  time.Duration // the longest wait that was asked for
}

func (c *lateClock) now() time.Duration { return c.at }

func (c *lateClock) until(at time.Duration) {
	c.most = max(c.most, at-c.at)
	c.at = max(c.at, at+c.late(c.waits))
	c.waits++
}

// paced drives a schedule on a clock for a time, and returns when each arrival was due and when it began.
func paced(t *testing.T, c *lateClock, rate float64, d time.Duration, cost time.Duration) (due, began []time.Duration) {
	t.Helper()
	a, err := ParseArrivals("uniform")
	if err != nil {
		t.Fatal(err)
	}
	pace(c, NewSchedule(a, rate, 1), func() bool { return c.at >= d }, func(at time.Duration) {
		due, began = append(due, at), append(began, c.at)
		c.at += cost
	})
	return due, began
}

func TestManyArrivalsASecondShareTheWakes(t *testing.T) {
	c := &lateClock{late: func(int) time.Duration { return 0 }}
	due, began := paced(t, c, 200_000, time.Second, 0)
	if n := len(due); n < 199_980 || n > 200_020 {
		t.Fatalf("%d arrivals in a second at 200,000/s", n)
	}
	if most := int(time.Second/leastWait) + 1; c.waits > most {
		t.Errorf("%d wakes in a second, want at most %d", c.waits, most)
	}
	for i := range due {
		if late := began[i] - due[i]; late < 0 || late > leastWait {
			t.Fatalf("arrival %d was due at %s and began at %s", i, due[i], began[i])
		}
	}
}

func TestWhatOneWaitIsLateByDoesNotMoveTheNextArrival(t *testing.T) {
	c := &lateClock{late: func(int) time.Duration { return 300 * time.Microsecond }}
	due, began := paced(t, c, 1_000, 10*time.Second, 0)
	if n := len(due); n < 10_000 || n > 10_001 {
		t.Fatalf("%d arrivals in 10 s at 1,000/s", n)
	}
	for i := range due {
		if late := began[i] - due[i]; late < 0 || late > 300*time.Microsecond {
			t.Fatalf("arrival %d was due at %s and began at %s", i, due[i], began[i])
		}
	}
	if c.most > longestWait {
		t.Errorf("it waited for %s at a time, and hears of its end no earlier", c.most)
	}
}

func TestAWakeStartsAllThatIsDueByThenAtTheTimesThatWereMeant(t *testing.T) {
	c := &lateClock{late: func(n int) time.Duration {
		if n == 100 {
			return 50 * time.Millisecond // the thread did not run for so long
		}
		return 0
	}}
	due, began := paced(t, c, 1_000, time.Second, 0)
	if n := len(due); n < 1_000 || n > 1_001 {
		t.Fatalf("%d arrivals in a second at 1,000/s", n)
	}
	atOnce := 0
	for i := range due {
		if want := time.Duration(i) * time.Millisecond; due[i] < want-time.Microsecond || due[i] > want+time.Microsecond {
			t.Fatalf("arrival %d was due at %s, want %s whatever held the pacer up", i, due[i], want)
		}
		if i > 0 && began[i] == began[i-1] {
			atOnce++
		}
	}
	if atOnce != 50 {
		t.Errorf("%d arrivals began together after a wake that was 50 ms late, want 50", atOnce)
	}
}

func TestAPacerThatCannotKeepUpIsLateAndDropsNothing(t *testing.T) {
	c := &lateClock{late: func(int) time.Duration { return 0 }}
	due, began := paced(t, c, 1_000, time.Second, 2*time.Millisecond)
	if len(due) == 0 || began[len(began)-1]-due[len(due)-1] < 400*time.Millisecond {
		t.Errorf("%d arrivals; the last was due at %s and began at %s, though each takes twice its gap", len(due), due[len(due)-1], began[len(began)-1])
	}
}

func TestNothingIsStartedBeforeItIsDueByAWaitThatEndsEarly(t *testing.T) {
	c := &lateClock{late: func(n int) time.Duration {
		if n%2 == 0 {
			return -150 * time.Microsecond // a signal ended the sleep
		}
		return 0
	}}
	due, began := paced(t, c, 1_000, time.Second, 0)
	if n := len(due); n < 1_000 || n > 1_001 {
		t.Fatalf("%d arrivals in a second at 1,000/s", n)
	}
	for i := range due {
		if began[i] < due[i] {
			t.Fatalf("arrival %d began at %s, and is due at %s", i, began[i], due[i])
		}
	}
}

func TestThePacersThreadLeavesTheRuntimeAsItWas(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	a, err := ParseArrivals("uniform")
	if err != nil {
		t.Fatal(err)
	}
	var due []time.Time
	inside := 0
	began := time.Now()
	Pace(NewSchedule(a, 10_000, 1), func() bool { return len(due) >= 100 }, func(at time.Time) {
		inside = runtime.GOMAXPROCS(0)
		if early := time.Until(at); early > 0 {
			t.Errorf("an arrival began %s early", early)
		}
		due = append(due, at)
	})
	if got := due[99].Sub(due[0]); got < 9_899*time.Microsecond || got > 9_901*time.Microsecond {
		t.Errorf("a hundred arrivals at 10,000/s are due within %s, want 9.9 ms", got)
	}
	if due[0].Before(began) {
		t.Errorf("the first was due %s before the pacer began", began.Sub(due[0]))
	}
	if after := runtime.GOMAXPROCS(0); after != before || runtime.GOOS == "linux" && inside != before+1 {
		t.Errorf("the runtime had %d places before, %d with the pacer, %d after it", before, inside, after)
	}
}
