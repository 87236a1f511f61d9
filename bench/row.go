package bench

import (
	"fmt"
	"slices"
	"strings"
)

// valid is how many runs of a row count.
func valid(row *Row) int { return len(row.ValidRuns()) }

// newRow makes a row without runs, whose label is invalid until finish.
func (u *runner) newRow(spec *runSpec) Row {
	headline := spec.suite.Headline
	if spec.row.Headline != "" {
		headline = spec.row.Headline
	}
	return Row{
		Suite: spec.suite.Name, Row: spec.row.Name, Durability: spec.class(), Title: spec.row.Title, Label: spec.label(Invalid),
		Shape: append(spec.shape.Params(), u.c.loop()...), Headline: headline, Figures: map[string]Figure{}, Runs: []Run{}, Reference: spec.row.References,
		Targets: slices.Clone(spec.row.Targets), Bench: benchName(spec.suite),
	}
}

// finish makes the figures of a row from its runs, from scratch each time: the result is saved
// after every run. Only valid runs make figures. When there is none, the runs that came to their
// end make figures which are labelled invalid, so that something can be seen.
//
// The validity is decided once, for the headline, and holds for all figures of the row.
func (u *runner) finish(spec *runSpec, row *Row) {
	row.Warnings, row.Summary, row.Figures = nil, Figure{}, map[string]Figure{}
	runs, validity := row.ValidRuns(), Valid
	if len(runs) == 0 {
		validity = Invalid // shown, and labelled so
		for i := range row.Runs {
			if run := &row.Runs[i]; !run.Profiled && run.Failed == "" {
				runs = append(runs, run)
			}
		}
	}
	names := map[string]string{}
	for _, run := range runs {
		for name, m := range run.Metrics {
			names[name] = m.Unit
		}
	}
	for _, name := range sortedKeys(names) {
		var values []float64
		for _, run := range runs {
			if m, ok := run.Metrics[name]; ok {
				values = append(values, m.Value)
			}
		}
		if f, err := NewFigure(spec.label(validity), names[name], values...); err == nil {
			row.Figures[name] = f
		}
	}
	f, ok := row.Figures[row.Headline]
	if !ok {
		row.Label = spec.label(Invalid)
		return
	}
	v := validity
	if validity == Valid {
		var w *Warning
		if v, w = judgeSpread(f, spec.runs); w != nil {
			row.Warnings = append(row.Warnings, *w)
		}
		for _, i := range f.Outliers() {
			row.Warnings = append(row.Warnings, Warning{"outlier", fmt.Sprintf("run %d, with %s %s, stands apart", runs[i].Number, Number(f.values[i]), f.unit), f.values[i]})
		}
	}
	v = u.bounds(row, runs, v)
	for name, f := range row.Figures {
		row.Figures[name] = f.With(v)
	}
	row.Label, row.Summary = spec.label(v), row.Figures[row.Headline]
}

// bounds lowers the validity of a row: to audit failed when any run's audit did, to a lower bound
// when the generator was the limit, to host not observed when that is all that speaks against it.
func (u *runner) bounds(row *Row, runs []*Run, v Validity) Validity {
	for i := range row.Runs {
		if a := row.Runs[i].Audit; a != nil && !a.OK {
			return AuditFailed
		}
	}
	bound := row.Bounded(row.Figures[row.Headline].Median())
	for i := range row.Runs {
		bound = bound || row.Runs[i].Bound != "" && v == Invalid
	}
	switch {
	case bound && (v == Valid || v == Unsteady || v == Invalid):
		return LowerBound
	case v == Valid && slices.ContainsFunc(runs, func(r *Run) bool { return !r.Host.Observed }):
		return HostUnobserved
	}
	return v
}

// Bounded notes how near a rate comes to the generator's ceiling, and reports whether it is only a lower bound.
func (r *Row) Bounded(rate float64) bool {
	if r.Ceiling == nil || r.Ceiling.Rate <= 0 {
		return false
	}
	r.Ceiling.Reached = rate / r.Ceiling.Rate
	r.Ceiling.Bound = r.Ceiling.Reached >= ceilingLimit
	return r.Ceiling.Bound
}

// runLine tells a run in one line of progress.
func (u *runner) runLine(row *Row, run *Run) string {
	var b strings.Builder
	switch m, ok := run.Metrics[row.Headline]; {
	case run.Failed != "":
		b.WriteString("failed: " + run.Failed)
	case ok:
		fmt.Fprintf(&b, "%s %s · %s · %s", Number(m.Value), m.Unit, row.Durability, row.Label.Topology)
	}
	for _, e := range run.Excluded {
		fmt.Fprintf(&b, " · left out: %s, %s", e.Cause, e.Detail)
	}
	if a := run.Audit; a != nil {
		if a.OK {
			fmt.Fprintf(&b, " · audit ok, %d read back", a.ReadBack)
		} else {
			fmt.Fprintf(&b, " · AUDIT FAILED: %s", strings.Join(a.Violations[:min(3, len(a.Violations))], "; "))
		}
	}
	if run.Kept != "" {
		b.WriteString(" · data kept in " + run.Kept)
	}
	for _, e := range run.Errors {
		fmt.Fprintf(&b, " · %d × %s %s: %s", e.Count, e.Op, e.Code, e.First)
	}
	return b.String()
}
