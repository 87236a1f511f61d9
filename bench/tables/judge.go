package tables

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/millrace/millrace/bench"
)

// minRuns is the least number of valid runs that a verdict, or a judged target, rests on: with two
// of them one outlier is half of what is known.
const minRuns = 3

// maxSpread is the spread beyond which there is no verdict, as a share of the median.
const maxSpread = 0.30

// Judge fills in whether the targets of each row are met, and returns the verdicts, in this order:
//   - each ratio that a side was measured of, per durability;
//   - every row without fsync over itself with fsync, never judged;
//   - when requireReference is set, every headline over its published figures.
//
// A smoke result has no verdicts. judgeTargets judges rates and CPU times too, which are set for 2
// cores. Targets of the other durability leave the row.
func Judge(r *bench.Result, judgeTargets, requireReference bool) []bench.Verdict {
	for i := range r.Suites {
		judgeRow(&r.Suites[i], judgeTargets, r.Env.Host.Cores)
	}
	out := []bench.Verdict{}
	if r.Profile == Smoke {
		return out // a look at the harness, not at the system
	}
	for _, d := range []bench.Durability{bench.Fsync, bench.None} {
		for _, ratio := range Ratios() {
			if v, ok := ratio.judge(r, d); ok {
				out = append(out, v)
			}
		}
	}
	out = append(out, durabilityRatios(r)...)
	if requireReference {
		out = append(out, againstReferences(r)...)
	}
	return out
}

// judgeRow fills in the targets of one row, and drops those of another durability. It may be called
// again on its own result: what it fills in is set afresh.
func judgeRow(row *bench.Row, judgeTargets bool, cores int) {
	var kept []bench.Target
	for _, t := range row.Targets {
		if t.Durability != "" && t.Durability != string(row.Label.Durability) {
			continue
		}
		// What an earlier judgement filled in is taken back first.
		t.Judged, t.MustMet, t.AimMet = false, nil, nil
		f := row.Figures[t.Metric]
		if t.Metric == row.Headline {
			f = row.Summary
		}
		t.BoxBound = false
		if comparable(f) {
			raised := usual(row, t, f)
			// must and aim are the limits for this machine; the target keeps the ones that it was
			// written with.
			must, aim := t.Must*raised, t.Aim*raised
			if cpu, disk := row.BoxBound(); t.BoxMust != 0 && (cpu || disk) {
				must, t.BoxBound = t.BoxMust, true
			}
			t.MustMet, t.AimMet = reached(f, t, must), reached(f, t, aim)
			t.Judged = (t.MachineFree || judgeTargets) && f.Runs() >= minRuns && !fewer(cores, t.Cores)
		}
		kept = append(kept, t)
	}
	row.Targets = kept
}

// fewer reports whether a host is known to have fewer cores than are wanted. An unknown number (0)
// is not fewer.
func fewer(cores, wanted int) bool { return 0 < cores && cores < wanted }

// usual is the factor by which a limit in multiples of the disk's time is raised where the disk is
// faster than the one for which the limit was set: the rest of a call takes as long on any disk. It
// is 1 for all other targets.
func usual(row *bench.Row, t bench.Target, f bench.Figure) float64 {
	// latency is the figure in microseconds that the target's metric is a multiple of.
	latency := row.Figures[strings.TrimSuffix(t.Metric, overSync)+"_us"]
	if t.DiskFloor == 0 || latency.IsZero() || f.Median() <= 0 || latency.Median() <= 0 {
		return 1
	}
	// disk is the time of a sync that the harness measured, in microseconds.
	disk := latency.Median() / f.Median()
	return max(1, t.DiskFloor/disk)
}

// comparable reports whether a figure can be compared with a limit.
func comparable(f bench.Figure) bool {
	if f.IsZero() {
		return false
	}
	switch f.Label().Validity {
	case bench.NoVerdict, bench.Invalid, bench.AuditFailed:
		return false
	}
	return true
}

// reached compares a figure with one limit of a target. nil: there is no limit, a lower bound
// leaves it open, or runs that spread widely lie on both sides of it.
func reached(f bench.Figure, t bench.Target, limit float64) *bool {
	if limit == 0 {
		return nil
	}
	// within reports whether a value is on the good side of the limit.
	within := func(v float64) bool {
		if t.AtMost {
			return v <= limit
		}
		return v >= limit
	}
	ok := within(f.Median())
	if f.Spread() > maxSpread && within(f.Min()) != within(f.Max()) {
		return nil
	}
	if f.Label().Validity == bench.LowerBound && !ok {
		return nil // the system may reach more than the generator could ask
	}
	return &ok
}

// judge returns the verdict for one durability; ok is false when no side was measured so, or when
// the whole suite of a side was not asked for. On a host with few cores the bands for such hosts
// take the place of the others. A side that is missing or too noisy makes the verdict undecided,
// and a side that the generator bounds decides only where every possible value has the same status.
func (r *Ratio) judge(res *bench.Result, d bench.Durability) (v bench.Verdict, ok bool) {
	// The ratio is copied, so that the table stays as it is for the next result.
	if r.Crowded != nil && fewer(res.Env.Host.Cores, crowdedCores) {
		crowded := *r
		crowded.Bands, crowded.Crowded = r.Crowded, nil
		r = &crowded
	}
	over, haveOver := find(res, r.Over, d)
	under, haveUnder := find(res, r.Under, d)
	if r.UnderAny && !haveUnder {
		// A side that keeps nothing has no durability, so it may stand in for the one with fsync.
		under, haveUnder = find(res, r.Under, bench.None)
	}
	if !haveOver && (!haveUnder || r.UnderAny) || !asked(res, r.Over) || !r.alone() && !asked(res, r.Under) {
		return v, false
	}
	v = bench.Verdict{
		Name: r.Name, Status: bench.Undecided, Over: over, Under: under, Reference: r.Reference, Durability: sides(over, under, d),
	}
	if cause := cannotDecide(r, over.Figure, under.Figure); cause != "" {
		v.Cause = cause
		return v, true
	}
	v.Value = over.Figure.Median()
	// A ratio has the unit 1; a figure that is judged alone keeps its own.
	if !r.alone() {
		v.Value /= under.Figure.Median()
	}
	// bounds says that the true value may be on one side of v only.
	bounds := bounded(over.Figure) || bounded(under.Figure)
	band := r.band(v.Value, under.Figure.Median())
	v.LowerBound = bounds
	if bounds && !r.boundDecides(v.Value, over.Figure, under.Figure) {
		v.Cause, v.Next = "the generator was the wall, and the bound cannot decide", "millrace bench run "+r.Over.Suite+" --concurrency 256"
		return v, true
	}
	v.Status, v.Cause, v.Next = band.Status, band.Cause, band.Next
	if !bounds && r.AtBest != nil && r.AtBest(res, d, under.Figure.Median()) {
		v.Status, v.Cause, v.Next = bench.Healthy, cmp.Or(r.Best, "the lower side is at the maximum already"), ""
	}
	// Fewer than five runs give a verdict that is only a look.
	if min(over.Figure.Runs(), runs(r, under.Figure)) < 5 {
		v.Cause += fmt.Sprintf("; %d runs: a look", min(over.Figure.Runs(), runs(r, under.Figure)))
	}
	return v, true
}

// runs is the number of runs of the lower side; a figure that is judged alone has no such side to limit it.
func runs(r *Ratio, under bench.Figure) int {
	if r.alone() {
		return math.MaxInt
	}
	return under.Runs()
}

// find returns a side of a ratio with its figure, and whether its row is in the result. The figure
// may be zero although the row is there.
func find(r *bench.Result, p Pick, d bench.Durability) (bench.Side, bool) {
	s := bench.Side{Suite: p.Suite, Row: p.Row, Metric: p.Metric}
	for i := range r.Suites {
		row := &r.Suites[i]
		if row.Suite != p.Suite || row.Row != p.Row || row.Label.Durability != d {
			continue
		}
		s.Figure = row.Summary
		if p.Metric != "" && p.Metric != row.Headline {
			s.Figure = row.Figures[p.Metric]
		} else {
			// The headline is named, so that reports tell what was compared.
			s.Metric = row.Headline
		}
		return s, true
	}
	return s, false
}

// asked reports whether the result has a row of the suite.
func asked(r *bench.Result, p Pick) bool {
	return slices.ContainsFunc(r.Suites, func(row bench.Row) bool { return row.Suite == p.Suite })
}

// sides names the durability classes of both sides. They differ in their voters when one node is
// compared with three.
func sides(over, under bench.Side, d bench.Durability) string {
	var names []string
	for _, s := range []bench.Side{over, under} {
		if c := s.Figure.Label().Class(); !s.Figure.IsZero() && !slices.Contains(names, c) {
			names = append(names, c)
		}
	}
	if len(names) == 0 {
		return string(d)
	}
	return strings.Join(names, " and ")
}

// cannotDecide says why there is no verdict; empty: there can be one.
func cannotDecide(r *Ratio, over, under bench.Figure) string {
	// A side without a suite is that of a figure that is judged alone.
	for _, s := range []struct {
		pick Pick
		f    bench.Figure
	}{{r.Over, over}, {r.Under, under}} {
		if s.pick.Suite == "" {
			continue
		}
		name := s.pick.Suite + "/" + s.pick.Row
		switch {
		case s.f.IsZero():
			return "one side is missing: " + name
		case s.f.Label().Validity == bench.Invalid || s.f.Label().Validity == bench.AuditFailed:
			return fmt.Sprintf("%s is %s", name, s.f.Label().Validity)
		case s.f.Runs() < minRuns:
			return fmt.Sprintf("%s has %d valid runs, a verdict takes %d", name, s.f.Runs(), minRuns)
		case s.f.Label().Validity == bench.NoVerdict || s.f.Spread() > maxSpread:
			return fmt.Sprintf("%s spreads by %.0f %%: something on the host interferes", name, s.f.Spread()*100)
		case s.f.Median() <= 0:
			return name + " is 0"
		}
	}
	return ""
}

// bounded reports whether a figure is only a lower bound.
func bounded(f bench.Figure) bool { return !f.IsZero() && f.Label().Validity == bench.LowerBound }

// band returns the first band that the ratio v is in. The last band has no limits, so that one is
// always found.
func (r *Ratio) band(v, under float64) Band {
	for _, b := range r.Bands {
		if v >= b.Min && (b.Max == 0 || v <= b.Max) && under >= b.UnderMin {
			return b
		}
	}
	return r.Bands[len(r.Bands)-1]
}

// boundDecides reports whether the status is the same for every value that the true ratio can have:
// from v upwards when the upper side is a lower bound, and downwards when the lower side is. It
// tries v, both ends, and each edge of a band in between with its neighbours; between edges the
// status cannot change.
func (r *Ratio) boundDecides(v float64, over, under bench.Figure) bool {
	low, high := v, v
	if bounded(over) {
		high = math.MaxFloat64
	}
	if bounded(under) {
		low = 0
	}
	// at are the values at which the status is looked up.
	at := []float64{v, low, high}
	for _, b := range r.Bands {
		for _, edge := range []float64{b.Min, b.Max} {
			// An edge belongs to a band, so its neighbours on both sides may be in others.
			for _, x := range []float64{math.Nextafter(edge, 0), edge, math.Nextafter(edge, math.MaxFloat64)} {
				if x > low && x < high {
					at = append(at, x)
				}
			}
		}
	}
	want := r.band(v, under.Median()).Status
	return !slices.ContainsFunc(at, func(x float64) bool { return r.band(x, under.Median()).Status != want })
}

// durabilityRatios prints what fsync costs: every row without it over the same row with it.
func durabilityRatios(r *bench.Result) []bench.Verdict {
	var out []bench.Verdict
	for i := range r.Suites {
		none := &r.Suites[i]
		if none.Label.Durability != bench.None || none.Summary.IsZero() {
			continue
		}
		for k := range r.Suites {
			f := &r.Suites[k]
			if f.Suite != none.Suite || f.Row != none.Row || f.Label.Durability != bench.Fsync ||
				f.Label.Voters != none.Label.Voters || f.Summary.IsZero() || f.Summary.Median() == 0 {
				continue
			}
			// side is the headline of a row as a side of the ratio.
			side := func(row *bench.Row) bench.Side {
				return bench.Side{Suite: row.Suite, Row: row.Row, Metric: row.Headline, Figure: row.Summary}
			}
			out = append(out, bench.Verdict{
				Name: "none ÷ fsync, " + none.Suite + "/" + none.Row, Status: bench.Printed,
				Value: none.Summary.Median() / f.Summary.Median(), Over: side(none), Under: side(f),
				Cause: "what a sync before each acknowledgement costs", Durability: none.Durability + " and " + f.Durability,
				LowerBound: bounded(none.Summary) || bounded(f.Summary),
			})
		}
	}
	return out
}

// againstReferences compares each headline with the published figures of its unit. Ours is
// suspicious when it is slower.
func againstReferences(r *bench.Result) []bench.Verdict {
	var out []bench.Verdict
	for i := range r.Suites {
		row := &r.Suites[i]
		for _, ref := range row.Reference {
			if row.Summary.IsZero() || ref.Unit != row.Summary.Unit() || ref.Value == 0 {
				continue
			}
			v := bench.Verdict{
				Name: fmt.Sprintf("ours ÷ %s, %s", ref.System, ref.Name), Value: row.Summary.Median() / ref.Value,
				Over:      bench.Side{Suite: row.Suite, Row: row.Row, Metric: row.Headline, Figure: row.Summary},
				Reference: fmt.Sprintf("%s %s (%s)", bench.Number(ref.Value), ref.Unit, ref.Note), Durability: row.Durability,
				Status: bench.Healthy, Cause: "published, on other hardware", LowerBound: bounded(row.Summary),
			}
			// fast says that more is better; for a time or a cost less is.
			if fast := strings.HasSuffix(ref.Unit, "/s"); fast && v.Value < 1 || !fast && v.Value > 1 {
				v.Status = bench.Suspicious
			}
			out = append(out, v)
		}
	}
	return out
}
