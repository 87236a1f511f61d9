package bench

import (
	"fmt"
	"math"
)

// The limits that leave a run out. They judge the host and the generator, never the result: no run
// is left out because it is slow.
const (
	// jumpLimit is how many milliseconds the wall clock may move against the monotonic clock.
	jumpLimit = 50.0
	// boottimeLimit is in milliseconds too. It is not 0, since the two clocks are read one after the other.
	boottimeLimit = 10.0
	// beatLimit is the share of heartbeats that may be missing, or too many; beatSlack is the
	// number of them that the edges of a window cost.
	beatLimit = 0.05
	//
	beatSlack = 1.5
	// stealLimit is the share of the host's CPU that the hypervisor may take in any second.
	stealLimit = 0.02
	// stealSeconds: one in this many seconds of a window may lose more.
	stealSeconds = 200
	// foreignLimit is the share of the host's CPU that other processes may use over the window.
	foreignLimit = 0.15
	// ioLimit is the share of the time before the start in which something may wait for IO. In the
	// window the servers themselves wait.
	ioLimit     = 0.10
	memoryLimit = 0.10
	// lagLimit bounds p99 of the schedule lag ÷ p99 of the latency.
	lagLimit = 0.10
	// driverLimit bounds what the driver used of the CPU that it could have had.
	driverLimit = 0.90
	// offeredLimit is the least share of arrivals that were started of those that were due.
	offeredLimit = 0.99
	// ceilingLimit is the share of the generator's ceiling from which a row is a lower bound.
	ceilingLimit = 0.8
)

// The limits of warnings, as shares. spreadWarn and spreadLimit also decide the validity of a row.
const (
	littleLimit  = 0.10
	steadyLimit  = 0.10
	balanceLimit = 0.05
	spreadWarn   = 0.20
	spreadLimit  = 0.30
)

// judgeHost says why the host spoiled a run of that many seconds; empty: it did not. Clocks and
// heartbeats are judged on every system, the rest only where procfs was read.
func judgeHost(h HostReport, seconds float64) []Exclusion {
	var out []Exclusion
	// The wall clock goes on while the host sleeps: that is one cause, not two.
	if math.Abs(h.Realtime) >= jumpLimit && math.Abs(h.Realtime-h.Boottime) >= jumpLimit {
		out = append(out, Exclusion{
			ClockJump, fmt.Sprintf("the wall clock moved by %s against the monotonic clock", span(h.Realtime)), h.Realtime, jumpLimit, "ms",
		})
	}
	if math.Abs(h.Boottime) >= boottimeLimit {
		out = append(out, Exclusion{
			ClockJump, fmt.Sprintf("the host slept for %s within the window", span(h.Boottime)), h.Boottime, boottimeLimit, "ms",
		})
	}
	due := seconds * 1000 / ms(heartbeat)
	if off := math.Abs(h.Heartbeat-1) * due; due >= 1 && off > max(beatLimit*due, beatSlack) {
		out = append(out, Exclusion{
			HostStall, fmt.Sprintf("%.0f %% of the heartbeats came; the longest pause was %s", h.Heartbeat*100, span(h.LongestGap)),
			h.Heartbeat, 1 - beatLimit, "share",
		})
	}
	if !h.Observed {
		return out
	}
	for _, l := range []struct {
		cause  Cause
		what   string
		v, top float64
	}{
		{Steal, "the hypervisor took %.1f %% of the CPU in one second (limit %.0f %%)", h.Steal, stealLimit},
		{ForeignCPU, "other processes used %.1f %% of the host (limit %.0f %%)", h.Foreign, foreignLimit},
		{HostPressure, "before the start, something waited for IO %.1f %% of the time (limit %.0f %%)", h.IdleIO, ioLimit},
		{HostPressure, "something waited for memory %.1f %% of the time (limit %.0f %%)", h.PressureMem, memoryLimit},
	} {
		if l.cause == Steal && h.forgiven() {
			continue
		}
		if l.v > l.top {
			out = append(out, Exclusion{l.cause, fmt.Sprintf(l.what, l.v*100, l.top*100), l.v, l.top, "share"})
		}
	}
	return out
}

// forgiven reports whether so few seconds of a long window lost more to the hypervisor than they
// may that they decide neither its rate nor its p99.
func (h HostReport) forgiven() bool { return h.Seconds > 0 && h.Stolen <= h.Seconds/stealSeconds }

// stolen warns of the seconds that are forgiven.
func stolen(h HostReport) *Warning {
	if h.Stolen == 0 || !h.forgiven() {
		return nil
	}
	return &Warning{"steal", fmt.Sprintf("the hypervisor took up to %.1f %% of the CPU in %d of %d seconds (limit %.0f %%)",
		h.Steal*100, h.Stolen, h.Seconds, stealLimit*100), h.Steal}
}

// span prints milliseconds in the unit that suits them.
func span(v float64) string {
	switch a := math.Abs(v); {
	case a >= 60_000:
		return fmt.Sprintf("%.1f min", v/60_000)
	case a >= 1000:
		return fmt.Sprintf("%.2f s", v/1000)
	}
	return fmt.Sprintf("%.0f ms", v)
}

// generator is what is known of an open loop's generator after a window.
type generator struct {
	offered offered
	// lag is by how much calls began after they were due.
	lag Latency
	// latency is that of the operation that the loop starts.
	latency Latency
	// driver is the CPU seconds of the driver, and idle those that no process used: together what
	// the driver could have had.
	driver float64
	//
	idle float64
}

// judgeGenerator says why an open loop measured the generator rather than the system. Such a run reads "at least".
func judgeGenerator(g generator) []Exclusion {
	var out []Exclusion
	add := func(v, limit float64, unit, format string, args ...any) {
		out = append(out, Exclusion{GeneratorSaturated, fmt.Sprintf(format, args...), v, limit, unit})
	}
	if g.latency.P99 > 0 && g.lag.P99 > lagLimit*g.latency.P99 {
		add(g.lag.P99/g.latency.P99, lagLimit, "share", "calls began late: p99 of the lag is %.0f µs, of the latency %.0f µs", g.lag.P99, g.latency.P99)
	}
	if g.offered.dropped > 0 {
		add(float64(g.offered.dropped), 0, "arrivals", "%d arrivals were dropped: too many calls were in flight", g.offered.dropped)
	}
	if share := float64(g.offered.started+g.offered.dropped) / float64(max(g.offered.due, 1)); g.offered.due > 0 && share < offeredLimit {
		add(share, offeredLimit, "share", "%.1f %% of the arrivals that were due were offered", share*100)
	}
	if g.driver > 0 && g.driver/(g.driver+g.idle) > driverLimit {
		add(g.driver/(g.driver+g.idle), driverLimit, "share", "the generator used %.0f %% of the CPU that was left to it", 100*g.driver/(g.driver+g.idle))
	}
	return out
}

// little applies Little's law to a closed loop: callers = rate × mean latency of their calls, in
// microseconds. A gap is time that callers spent outside the measured call, so that the rate says
// less about the server than it seems to.
func little(callers, rate, mean float64) *Warning {
	if callers <= 0 || rate <= 0 {
		return nil
	}
	busy := rate * mean / 1e6
	gap := math.Abs(callers-busy) / callers
	if gap <= littleLimit {
		return nil
	}
	missing := (callers/rate - mean/1e6) * 1e3
	return &Warning{"little_law", fmt.Sprintf(
		"%.0f callers at %s calls/s each take %.3f ms, but the mean latency is %.3f ms: %.3f ms per call lie outside the measured call (%.0f %%)",
		callers, Number(rate), callers/rate*1e3, mean/1e3, missing, gap*100), gap}
}

// steady compares the rates of the first and the last third of a window. A system that still warms
// up or fills up differs.
func steady(first, last float64) *Warning {
	if first <= 0 && last <= 0 {
		return nil
	}
	d := math.Abs(first-last) / max(first, last)
	if d <= steadyLimit {
		return nil
	}
	return &Warning{"not_steady", fmt.Sprintf("not steady: %s/s in the first third, %s/s in the last", Number(first), Number(last)), d}
}

// balance compares the rate of creates with that of completions: a backlog that grows or shrinks
// means that one side alone was measured.
func balance(created, completed float64) *Warning {
	if created <= 0 || completed <= 0 {
		return nil
	}
	d := math.Abs(created-completed) / max(created, completed)
	switch {
	case d <= balanceLimit:
		return nil
	case created > completed:
		return &Warning{"producer_outruns", fmt.Sprintf("the producer outruns the worker: %s/s created, %s/s completed", Number(created), Number(completed)), d}
	}
	return &Warning{"worker_outruns", fmt.Sprintf("the worker lives on a backlog: %s/s created, %s/s completed", Number(created), Number(completed)), d}
}

// judgeSpread turns the spread of a headline into its validity, with a warning unless it is valid.
// wanted is how many valid runs the row was to have; 3 are enough for a verdict.
func judgeSpread(f Figure, wanted int) (Validity, *Warning) {
	s := f.Spread()
	switch {
	case f.Runs() < min(wanted, 3):
		return NoVerdict, &Warning{"few_runs", fmt.Sprintf("%d of %d runs are valid", f.Runs(), wanted), float64(f.Runs())}
	case s > spreadLimit:
		return NoVerdict, &Warning{"spread", fmt.Sprintf("spread %.0f %%: too noisy for a verdict", s*100), s}
	case s > spreadWarn:
		return Unsteady, &Warning{"spread", fmt.Sprintf("spread %.0f %%: something on the host interferes", s*100), s}
	}
	return Valid, nil
}
