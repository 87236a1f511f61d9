package bench

import (
	"math"
	"strings"
	"testing"
	"time"
)

// count returns how many arrivals are due within d.
func count(t *testing.T, arrivals string, rate float64, d time.Duration) (n int) {
	t.Helper()
	a, err := ParseArrivals(arrivals)
	if err != nil {
		t.Fatal(err)
	}
	s := NewSchedule(a, rate, 1)
	for last := time.Duration(0); ; n++ {
		at := s.Next()
		if at < last {
			t.Fatalf("arrival %d is due at %s, after one at %s", n, at, last)
		}
		if last = at; at >= d {
			return n
		}
	}
}

func TestArrivalsHaveTheMeanThatWasAskedFor(t *testing.T) {
	if n := count(t, "uniform", 500, 10*time.Second); n < 4999 || n > 5001 {
		t.Errorf("uniform: %d arrivals in 10 s at 500/s", n)
	}
	if n := count(t, "poisson", 500, 100*time.Second); math.Abs(float64(n)-50_000) > 1000 {
		t.Errorf("poisson: %d arrivals in 100 s at 500/s", n)
	}
	if n := count(t, "burst:5x", 500, 10*time.Second); math.Abs(float64(n)-5000) > 20 {
		t.Errorf("burst: %d arrivals in 10 s at a mean of 500/s", n)
	}
	calm, burst := count(t, "burst:5x", 500, burstEvery)-count(t, "burst:5x", 500, burstPart), count(t, "burst:5x", 500, burstPart)
	if ratio := float64(burst) / (float64(calm) / 9); math.Abs(ratio-5) > 0.1 {
		t.Errorf("a burst has %.2f times the rate outside it, want 5", ratio)
	}
}

func TestASeedRepeatsItsArrivals(t *testing.T) {
	a, _ := ParseArrivals("poisson")
	x, y, z := NewSchedule(a, 100, 7), NewSchedule(a, 100, 7), NewSchedule(a, 100, 8)
	same, other := true, true
	for range 100 {
		v := x.Next()
		same, other = same && v == y.Next(), other && v == z.Next()
	}
	if !same || other {
		t.Errorf("the same seed gives the same arrivals: %v; another one too: %v", same, other)
	}
}

func TestStepsAreReadAndFollowed(t *testing.T) {
	a, err := parseSteps("f", []byte("# seconds rate\n0 100\n\n1 0\n2.5 200\n"))
	if err != nil {
		t.Fatal(err)
	}
	s := NewSchedule(a, 0, 1)
	perSecond := [4]int{}
	for {
		at := s.Next()
		if at >= 4*time.Second {
			break
		}
		perSecond[at/time.Second]++
	}
	if perSecond[2] == 101 {
		perSecond[2]-- // whether the last of a step still begins is a matter of rounding
	}
	if perSecond != [4]int{100, 0, 100, 200} {
		t.Errorf("arrivals by second: %v, want 100, 0, 100, 200", perSecond)
	}
	if got := a.Mean(0, 0, 4*time.Second); got != 100 {
		t.Errorf("mean over 4 s is %v, want 100", got)
	}
	if got := a.Mean(0, 2*time.Second, 4*time.Second); got != 175 {
		t.Errorf("mean from 2 s to 6 s is %v, want 175", got)
	}
	for text, want := range map[string]string{
		"":                "has no steps",
		"0 1\n0 2\n":      "f:2: times must rise",
		"0 1\nx 2\n":      "f:2:",
		"0 1\n1 -2\n":     "f:2:",
		"0 99999999999\n": "f:1:",
	} {
		if _, err := parseSteps("f", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("steps %q: error %v, want one with %q", text, err, want)
		}
	}
}

// Windows begin and end somewhere in the period of bursts: as many arrivals are due as the bursts in them bring.
func TestAWindowOfBurstsIsDueWhatItsBurstsBring(t *testing.T) {
	a, err := ParseArrivals("burst:5x")
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range []struct{ from, window time.Duration }{
		{0, 10 * time.Second},
		{5 * time.Second, 45 * time.Second},
		{9500 * time.Millisecond, time.Second},
		{2 * time.Second, 3 * time.Second},
		{10*time.Second + 300*time.Millisecond, 200 * time.Millisecond},
		{3 * time.Second, 27*time.Second + 250*time.Millisecond},
	} {
		const rate = 1000
		s := NewSchedule(a, rate, 1)
		n := 0
		for due := s.Next(); due < w.from+w.window; due = s.Next() {
			if due >= w.from {
				n++
			}
		}
		if got, want := a.Mean(rate, w.from, w.window)*w.window.Seconds(), float64(n); got < want*0.999-3 || got > want*1.001+3 {
			t.Errorf("%v from %v on: %.1f arrivals are due, the schedule has %d", w.window, w.from, got, n)
		}
	}
	if got := a.Mean(1400, 0, 10*time.Second); got != 1400 {
		t.Errorf("of a whole period the mean is %v", got)
	}
}
