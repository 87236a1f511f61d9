package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"
)

// What a rate must do to pass, in addition to its latency.
const (
	// maxAchieved is the least share of arrivals that ended well.
	maxAchieved = 0.99
	// maxBacklog is the largest share of what was created that may be left at the end of the
	// window: a system that falls behind does not hold the rate.
	maxBacklog = 0.01
)

// How find-max looks. The search ends when the lowest rate that failed is within maxWithin of the
// highest that passed.
const (
	// maxWithin is a share of the last rate that passed.
	maxWithin = 0.05
	// maxFirst is where the search begins, in arrivals a second, unless --rate says otherwise.
	maxFirst = 1000
	// maxWindowTime is the window of one rate, unless the command line has another.
	maxWindowTime = 5 * time.Second
	// maxSpoiled is how often a rate is offered again that the host spoiled. The last of these runs
	// is then taken as it is.
	maxSpoiled = 3
)

// DefaultSLOs are what find-max looks for when it is told nothing else.
func DefaultSLOs() []string { return []string{"p99=10ms", "p99=50ms", "p99=200ms"} }

// SLO is a bound of a latency, from when a call was due to its end.
type SLO struct {
	// Op is an operation, such as create or search; empty: what the row's producers call.
	Op string
	// Quantile is one of p50, p90, p95, p99, p999 and max.
	Quantile string
	// Most is the bound: a latency equal to it passes.
	Most time.Duration
}

// ParseSLO reads [OP.]QUANTILE=DURATION, such as p99=10ms or claim.p95=5ms.
func ParseSLO(s string) (SLO, error) {
	name, most, ok := strings.Cut(s, "=")
	d, err := time.ParseDuration(most)
	if !ok || err != nil || d <= 0 {
		return SLO{}, usage("slo", "%q is not QUANTILE=DURATION, such as p99=10ms", s)
	}
	o := SLO{Quantile: name, Most: d}
	if op, q, ok := strings.Cut(name, "."); ok {
		o.Op, o.Quantile = op, q
	}
	if _, ok := (Latency{}).quantile(o.Quantile); !ok {
		return SLO{}, usage("slo", "%q must be one of p50, p90, p95, p99, p999, max", o.Quantile)
	}
	return o, nil
}

func (o SLO) String() string {
	name := o.Quantile
	if o.Op != "" {
		name = o.Op + "." + name
	}
	return name + "=" + o.Most.String()
}

// quantile returns one of the figures, in microseconds; ok is false for another name.
func (l Latency) quantile(name string) (v float64, ok bool) {
	v, ok = map[string]float64{"p50": l.P50, "p90": l.P90, "p95": l.P95, "p99": l.P99, "p999": l.P999, "max": l.Max}[name]
	return v, ok
}

// Try is one rate that was offered for a window.
type Try struct {
	Rate     float64            `json:"rate"`     // arrivals a second
	Achieved float64            `json:"achieved"` // calls that ended well ÷ arrivals
	Backlog  float64            `json:"backlog"`  // share of what was created that was not completed by the end
	Latency  map[string]Latency `json:"latency"`  // by operation, from when it was due
	Errors   uint64             `json:"errors"`
	Limited  string             `json:"limited,omitempty"` // why the generator may be what was measured
	Spoiled  string             `json:"spoiled,omitempty"` // what the host did meanwhile

	// op is what the producers call: the operation that an SLO without one means.
	op string
}

// fails says why a rate does not hold an SLO; empty: it does. Errors, lost arrivals and a backlog
// fail before any latency: a system that drops calls answers the rest fast.
func (t *Try) fails(o SLO) string {
	op := o.Op
	if op == "" {
		op = t.op
	}
	v, _ := t.Latency[op].quantile(o.Quantile)
	switch {
	case t.Errors > 0:
		return fmt.Sprintf("%d errors", t.Errors)
	case t.Achieved < maxAchieved:
		return fmt.Sprintf("%.1f %% of the arrivals ended well", 100*t.Achieved)
	case t.Backlog > maxBacklog:
		return fmt.Sprintf("%.1f %% of what was created waited at the end", 100*t.Backlog)
	case t.Latency[op].Count == 0:
		return "nothing of " + op + " was measured"
	case v > float64(o.Most.Microseconds()):
		return fmt.Sprintf("%s of %s is %s µs", o.Quantile, op, Number(v))
	}
	return ""
}

// Maximum is the highest rate that holds an SLO.
type Maximum struct {
	SLO string `json:"slo"`
	// MaxRate passed; 0: no rate did. FailsAt is the lowest rate above it that did not; 0: none was tried.
	MaxRate float64 `json:"max_rate"`
	FailsAt float64 `json:"fails_at,omitempty"` // the lowest rate above it that did not; 0: none was tried
	// AtLeast says why the maximum may be more: the generator may be what failed.
	AtLeast string `json:"at_least,omitempty"`
	// Why says what failed at FailsAt.
	Why string `json:"why_fails,omitempty"`
}

// FindMaxRow is what was found for a row.
type FindMaxRow struct {
	Suite      string    `json:"suite"`
	Row        string    `json:"row"`
	Durability string    `json:"durability"`
	MaxRate    float64   `json:"max_rate"` // of the first SLO
	Maxima     []Maximum `json:"maxima"`
	Tries      []Try     `json:"tries"` // in the order in which they were made
}

// FindMaxResult is what find-max prints. The runs are in the result below the output directory.
type FindMaxResult struct {
	Command string       `json:"command"`
	Seed    uint64       `json:"seed"`
	Rows    []FindMaxRow `json:"rows"`
	Exit    int          `json:"exit"`
}

// FindMax looks for the highest rate at which each row that c chooses holds each SLO: it doubles the rate, from c's or 1,000,
// until one does not, and halves the range until it is 5 % wide. Each rate is offered in a run of its own to servers of its own,
// in an open loop; top, unless 0, is the highest one. Errors: as of Execute.
func FindMax(ctx context.Context, c Config, h Harness, slos []string, top float64) (*FindMaxResult, error) {
	defer collectRarely()()
	var wanted []SLO
	for _, s := range slos {
		o, err := ParseSLO(s)
		if err != nil {
			return nil, err
		}
		wanted = append(wanted, o)
	}
	first := c.Rate
	if first == 0 {
		first = maxFirst
	}
	if top == 0 {
		top = maxRate
	}
	if top < first || top > maxRate {
		return nil, usage("top", "%s is not in %s..%d, which begins where the search does", short(top), short(first), maxRate)
	}
	c.Rate, c.Runs, c.NoProfile = first, 1, true
	if c.Window == 0 {
		c.Window = maxWindowTime
	}
	if err := c.Check(); err != nil {
		return nil, err
	}
	c.nameOut()
	specs, err := choose(&c, &h)
	if err != nil {
		return nil, err
	}
	for i := range specs {
		if specs[i].suite.Local || specs[i].suite.Peer != "" || specs[i].shape.Producers == 0 && !specs[i].suite.Reads {
			return nil, usage("suite", "%s has no rate of arrivals", specs[i].suite.Name)
		}
	}
	if err := errors.Join(c.checkOut(), c.checkRoom(specs)); err != nil {
		return nil, err
	}
	u, err := newRunner(ctx, &c, &h)
	if err != nil {
		return nil, err
	}
	out := &FindMaxResult{Command: c.Command, Seed: c.Seed}
	for i := range specs {
		f := &finder{u: u, spec: &specs[i], top: top, byRate: make(map[float64]int)}
		row, err := f.find(ctx, first, wanted)
		if row != nil {
			out.Rows = append(out.Rows, *row)
		}
		switch {
		case f.lost:
			out.Exit = ExitAudit
			return out, u.save()
		case err != nil && ctx.Err() == nil:
			return nil, err
		case row.MaxRate == 0:
			out.Exit = ExitNoVerdict
		}
	}
	if ctx.Err() != nil {
		out.Exit = ExitInterrupted
	}
	u.r.Finished = time.Now().UTC()
	return out, u.save()
}

// finder measures rates of one row, each at most once: byRate finds the Try of a rate that was
// offered before, for another SLO.
type finder struct {
	u    *runner
	spec *runSpec
	// top is the highest rate that may be offered, in arrivals a second.
	top float64
	out FindMaxRow
	// byRate is the index in out.Tries, by rate.
	byRate map[float64]int
	// lost says that an audit failed, which ends the command.
	lost bool
}

// find looks for the maximum of each SLO in turn, and returns what it has so far together with an error.
func (f *finder) find(ctx context.Context, first float64, slos []SLO) (*FindMaxRow, error) {
	f.out = FindMaxRow{Suite: f.spec.suite.Name, Row: f.spec.row.Name, Durability: f.spec.class(), Tries: []Try{}}
	for i, o := range slos {
		m := Maximum{SLO: o.String()}
		low, high, err := highest(first, f.top, func(rate float64) (bool, error) {
			t, err := f.offer(ctx, rate)
			if err != nil {
				return false, err
			}
			why := t.fails(o)
			f.u.c.say("%s at %s/s, %s: %s", f.spec, Number(rate), o, verdict(why))
			return why == "", nil
		})
		m.MaxRate, m.FailsAt = low, high
		if k, ok := f.byRate[high]; ok {
			m.Why, m.AtLeast = f.out.Tries[k].fails(o), f.out.Tries[k].Limited
		}
		f.out.Maxima = append(f.out.Maxima, m)
		if i == 0 {
			f.out.MaxRate = low
		}
		if err != nil {
			return &f.out, err
		}
	}
	return &f.out, nil
}

// verdict is why in a line of progress; empty becomes holds.
func verdict(why string) string {
	if why == "" {
		return "holds"
	}
	return why
}

// offer measures a rate, once. A run that the host spoiled is made again, up to maxSpoiled times.
// Each rate has a row of its own in the result, since figures of different rates have no common
// median. A failed run or audit is an error.
func (f *finder) offer(ctx context.Context, rate float64) (*Try, error) {
	if k, ok := f.byRate[rate]; ok {
		return &f.out.Tries[k], nil
	}
	var t Try
	f.u.c.Rate = rate
	row := f.u.newRow(f.spec) // a row of its own: figures of different rates have no median
	row.Row += "@" + short(rate)
	f.u.r.Suites = append(f.u.r.Suites, row)
	for n := 1; ; n++ {
		row := &f.u.r.Suites[len(f.u.r.Suites)-1]
		run, err := f.u.run(ctx, f.spec, n, false)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			return nil, abError("find-max", f.spec, err)
		}
		row.Runs = append(row.Runs, *run)
		f.u.finish(f.spec, row)
		if err := f.u.save(); err != nil {
			return nil, &CannotError{err}
		}
		if run.Failed != "" {
			return nil, &CannotError{fmt.Errorf("%s: %s", f.spec, run.Failed)}
		}
		if run.Audit != nil && !run.Audit.OK {
			f.lost = true
			return nil, &CannotError{fmt.Errorf("%s: the audit failed at %s arrivals a second", f.spec, Number(rate))}
		}
		t = tryOf(f.spec.op(), rate, run)
		if t.Spoiled == "" || n == maxSpoiled {
			break
		}
	}
	f.byRate[rate] = len(f.out.Tries)
	f.out.Tries = append(f.out.Tries, t)
	return &f.out.Tries[len(f.out.Tries)-1], nil
}

// tryOf is what a run says of a rate. Saturation of the generator is kept apart from what the host
// did: the first makes the result a lower bound, the second repeats the run.
func tryOf(op string, rate float64, run *Run) Try {
	t := Try{Rate: rate, Latency: run.Latency, op: op}
	calls := run.Calls[op]
	t.Errors = calls.Refused + calls.Unknown
	for _, e := range run.Errors {
		t.Errors = max(t.Errors, e.Count)
	}
	if run.Seconds > 0 { // of whole arrivals: a window that ends a little late has no part of one more
		t.Achieved = float64(calls.OK) / max(math.Floor(rate*run.Seconds), 1)
	}
	created, cycles := run.Metrics[op+"s_per_s"].Value, run.Metrics["cycles_per_s"].Value
	if _, ok := run.Metrics["cycles_per_s"]; ok && created > 0 {
		t.Backlog = max(0, 1-cycles/created)
	}
	for _, e := range run.Excluded {
		if e.Cause == GeneratorSaturated {
			t.Limited = e.Detail
		} else {
			t.Spoiled = e.Detail
		}
	}
	return t
}

// highest looks for the highest rate up to top that passes: low passed, 0 if none did, and high did
// not, 0 if none was tried.
//
// It doubles the rate while it passes, or halves it while none did, and so finds two rates around
// the limit. Then it halves the range until that is maxWithin wide. It is right as far as passing
// is monotonic in the rate; a rate that fails by chance lowers the result, and never raises it.
func highest(first, top float64, passes func(rate float64) (bool, error)) (low, high float64, err error) {
	for rate := first; ; {
		ok, err := passes(rate)
		switch {
		case err != nil:
			return low, high, err
		case ok:
			low = rate
		default:
			high = rate
		}
		switch {
		case low == 0 && rate <= 1, high == 0 && rate >= top:
			return low, high, nil
		case low == 0:
			rate = max(math.Floor(rate/2), 1)
		case high == 0:
			rate = min(2*rate, top)
		case high-low <= max(maxWithin*low, 1):
			return low, high, nil
		default:
			rate = math.Round((low + high) / 2)
		}
	}
}

// WriteFindMax prints what was found, a line for each SLO.
func WriteFindMax(w io.Writer, r *FindMaxResult) error {
	var b strings.Builder
	for i := range r.Rows {
		row := &r.Rows[i]
		for _, m := range row.Maxima {
			fmt.Fprintf(&b, "%s/%s %s  %s: %s arrivals/s", row.Suite, row.Row, row.Durability, m.SLO, strconv.FormatFloat(m.MaxRate, 'f', 0, 64))
			if m.AtLeast != "" {
				b.WriteString(" at least")
			}
			if m.FailsAt > 0 {
				fmt.Fprintf(&b, "; at %s %s", Number(m.FailsAt), m.Why)
			}
			if m.AtLeast != "" {
				fmt.Fprintf(&b, ", and %s", m.AtLeast)
			}
			b.WriteString("\n")
		}
	}
	fmt.Fprintf(&b, "Again: %s (seed %d)\n", r.Command, r.Seed)
	_, err := io.WriteString(w, b.String())
	return err
}
