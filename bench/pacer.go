package bench

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"sort"
	"strconv"
	"strings"
	"time"
)

// Arrivals is the pattern of an open loop: how the arrivals of each second are spread.
type Arrivals struct {
	// kind is uniform, poisson, burst or step. burst is the factor of a burst's rate, and steps
	// those of a step pattern in rising order.
	kind  string
	burst float64
	steps []step
}

// step is a rate in arrivals a second that holds from a time on, until the next step.
type step struct {
	from time.Duration
	rate float64
}

// burstEvery is the period of bursts. The first burstPart of each period has the higher rate.
const (
	burstEvery = 10 * time.Second
	burstPart  = time.Second
)

// ParseArrivals reads uniform, poisson, burst:5x or step:FILE. A step file has lines "seconds rate", in rising order; the
// rates replace the one that is asked for.
func ParseArrivals(s string) (Arrivals, error) {
	kind, arg, _ := strings.Cut(s, ":")
	switch {
	case s == "" || s == "uniform":
		return Arrivals{kind: "uniform"}, nil
	case s == "poisson":
		return Arrivals{kind: "poisson"}, nil
	case kind == "burst":
		n, err := strconv.ParseFloat(strings.TrimSuffix(arg, "x"), 64)
		if err != nil || n <= 1 || n > 100 {
			return Arrivals{}, usage("arrivals", "%q must be a burst of 1 to 100, such as burst:5x", s)
		}
		return Arrivals{kind: "burst", burst: n}, nil
	case kind == "step":
		return readSteps(arg)
	}
	return Arrivals{}, usage("arrivals", "%q must be one of uniform, poisson, burst:5x, step:FILE", s)
}

// readSteps reads a file of steps, which may be large but not beyond maxStepBytes.
func readSteps(file string) (Arrivals, error) {
	f, err := os.Open(file)
	if err != nil {
		return Arrivals{}, usage("arrivals", "%v", err)
	}
	defer f.Close() //nolint:errcheck // it was only read
	b, err := io.ReadAll(io.LimitReader(f, maxStepBytes+1))
	if err != nil {
		return Arrivals{}, usage("arrivals", "%v", err)
	}
	if len(b) > maxStepBytes {
		return Arrivals{}, usage("arrivals", "%s has more than %d bytes", file, maxStepBytes)
	}
	return parseSteps(file, b)
}

// parseSteps reads the lines of a file of steps. Empty lines and those that begin with # count for
// nothing. The error names file and line.
func parseSteps(file string, b []byte) (Arrivals, error) {
	a := Arrivals{kind: "step"}
	lines := bufio.NewScanner(bytes.NewReader(b))
	for n := 1; lines.Scan(); n++ {
		text := strings.TrimSpace(lines.Text())
		if text == "" || text[0] == '#' {
			continue
		}
		if len(a.steps) == maxStepLines {
			return Arrivals{}, usage("arrivals", "%s:%d: more than %d lines", file, n, maxStepLines)
		}
		var at, rate float64
		if _, err := fmt.Sscan(text, &at, &rate); err != nil || at < 0 || rate < 0 || rate > maxRate || math.IsNaN(at+rate) {
			return Arrivals{}, usage("arrivals", "%s:%d: %q must have the form \"seconds rate\"", file, n, text)
		}
		from := time.Duration(at * float64(time.Second))
		if len(a.steps) > 0 && from <= a.steps[len(a.steps)-1].from {
			return Arrivals{}, usage("arrivals", "%s:%d: times must rise", file, n)
		}
		a.steps = append(a.steps, step{from, rate})
	}
	if err := lines.Err(); err != nil {
		return Arrivals{}, usage("arrivals", "%s: %v", file, err)
	}
	if len(a.steps) == 0 {
		return Arrivals{}, usage("arrivals", "%s has no steps", file)
	}
	return a, nil
}

// Step is a rate of arrivals a second from a time on, counted from when the generator starts.
type Step struct {
	From time.Duration
	Rate float64
}

// Steps is a pattern of steps in rising order, which replace the rate that is asked for.
func Steps(all ...Step) Arrivals {
	a := Arrivals{kind: "step"}
	for _, s := range all {
		a.steps = append(a.steps, step{s.From, s.Rate})
	}
	return a
}

// Schedule makes the intended times of arrivals one after the other, beginning at 0. The same
// pattern, rate and seed make the same times. It is for one goroutine.
type Schedule struct {
	a    Arrivals
	rate float64
	rng  *rand.Rand
	// at is when the next arrival is due, in seconds since the beginning.
	at float64
}

// NewSchedule makes a schedule at a mean rate per second.
func NewSchedule(a Arrivals, rate float64, seed uint64) *Schedule {
	return &Schedule{a: a, rate: rate, rng: rand.New(rand.NewPCG(seed, 0x6d696c6c))}
}

// Next returns when the next arrival is due, as a time since the beginning; the largest Duration
// when none comes any more. The gap after an arrival is that of the rate at its time: a change of
// the rate takes effect with the next arrival.
func (s *Schedule) Next() time.Duration {
	r := s.rateAt(s.at)
	for r <= 0 { // a step that is idle: its end begins the next one
		next, ok := s.nextStep(s.at)
		if !ok {
			return math.MaxInt64
		}
		s.at = next
		r = s.rateAt(s.at)
	}
	gap := 1 / r
	if s.a.kind == "poisson" {
		gap = s.rng.ExpFloat64() / s.rate
	}
	due := s.at
	s.at += gap
	return time.Duration(due * float64(time.Second))
}

// rateAt returns the rate in arrivals a second at a time in seconds.
func (s *Schedule) rateAt(at float64) float64 {
	switch s.a.kind {
	case "burst":
		// The mean over a period is the rate that was asked for.
		low := s.a.low(s.rate)
		if math.Mod(at, burstEvery.Seconds()) < burstPart.Seconds() {
			return low * s.a.burst
		}
		return low
	case "step":
		i := sort.Search(len(s.a.steps), func(i int) bool { return s.a.steps[i].from.Seconds() > at })
		if i == 0 {
			return 0
		}
		return s.a.steps[i-1].rate
	}
	return s.rate
}

// nextStep returns when the step after at begins, in seconds; ok is false when there is none.
func (s *Schedule) nextStep(at float64) (float64, bool) {
	for _, st := range s.a.steps {
		if t := st.from.Seconds(); t > at && s.a.kind == "step" {
			return t, true
		}
	}
	return 0, false
}

// low is the rate between bursts of a pattern whose mean over a period is rate.
func (a Arrivals) low(rate float64) float64 {
	part, every := burstPart.Seconds(), burstEvery.Seconds()
	return rate * every / (part*a.burst + every - part)
}

// bursting is for how many of the first seconds there is a burst. The difference of two such
// numbers is the time of bursts in between.
func bursting(first float64) float64 {
	part, every := burstPart.Seconds(), burstEvery.Seconds()
	whole := math.Floor(first / every)
	return whole*part + min(part, first-whole*every)
}

// Mean returns how many arrivals a second the pattern has over a window that begins the time from
// after the generator starts.
func (a Arrivals) Mean(rate float64, from, window time.Duration) float64 {
	switch a.kind {
	case "burst":
		high := bursting((from + window).Seconds()) - bursting(from.Seconds())
		return a.low(rate) * (1 + (a.burst-1)*high/window.Seconds())
	case "step":
	default:
		return rate
	}
	total, until := 0.0, from+window
	for i, st := range a.steps {
		end := until
		if i+1 < len(a.steps) {
			end = min(a.steps[i+1].from, until)
		}
		if begin := max(st.from, from); end > begin {
			total += st.rate * (end - begin).Seconds()
		}
	}
	return total / window.Seconds()
}
