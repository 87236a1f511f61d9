package report

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/millrace/millrace/bench"
)

// label prints what a value holds for, such as fsync×1 · procs · valid, and its note.
func label(l bench.Label) string {
	out := l.Class() + " · " + string(l.Topology) + " · " + string(l.Validity)
	if l.Note != "" {
		out += " · " + l.Note
	}
	return out
}

// summary is the headline of a row with its label, or says why there is none.
func summary(r *bench.Row) string {
	switch {
	case !r.Summary.IsZero():
		return r.Summary.String()
	case r.Error != "":
		return "not measured: " + r.Error
	case r.Skipped != "":
		return "skipped: " + r.Skipped
	}
	return "not measured: no run is valid"
}

// measured is the headline of a row for a cell of a table. Why there is none is told elsewhere.
func measured(r *bench.Row) string {
	switch {
	case !r.Summary.IsZero():
		return r.Summary.String()
	case r.Skipped != "":
		return "skipped"
	}
	return "not measured"
}

// reference prints a published figure with what is known of its durability, which it names even
// when that is nothing.
func reference(r bench.Reference) string {
	note := r.Note
	// A note names a class by ×, such as none×3, or speaks of durability.
	if !strings.Contains(note, "×") && !strings.Contains(note, "durability") {
		note = strings.TrimPrefix(note+", durability not stated", ", ")
	}
	return fmt.Sprintf("%s %s %s (%s)", r.System, bench.Number(r.Value), r.Unit, note)
}

// references prints several published figures in one line.
func references(all []bench.Reference) string {
	out := make([]string, len(all))
	for i, r := range all {
		out[i] = reference(r)
	}
	return strings.Join(out, "; ")
}

// figure returns the figure that a target is about; it may be zero.
func figure(row *bench.Row, t *bench.Target) bench.Figure {
	if t.Metric == row.Headline {
		return row.Summary
	}
	return row.Figures[t.Metric]
}

// target prints one judgement, such as "cycles_per_s (cycles/s, fsync×1): must ≥ 45,000 met".
func target(row *bench.Row, t *bench.Target) string {
	f := figure(row, t)
	of := row.Durability
	if !f.IsZero() {
		of = f.Unit() + ", " + f.Label().Class()
	}
	out := t.Metric + " (" + of + "): " + limits(t, !f.IsZero())
	if t.Source != "" {
		out += " [" + t.Source + "]"
	}
	if !t.Judged {
		out += ", printed only"
	}
	return out
}

// limits prints must and aim of a target, and whether they are met. known says that the figure was measured.
func limits(t *bench.Target, known bool) string {
	sign := "≥"
	if t.AtMost {
		sign = "≤"
	}
	// limit is must or aim, with whether it is met.
	type limit struct {
		name  string
		value float64
		met   *bool
	}
	must := limit{"must", t.Must, t.MustMet}
	if t.Cores > 0 {
		must.name = fmt.Sprintf("from %d cores on, must", t.Cores)
	}
	// Where the machine was the wall, another limit holds, and its name says so.
	if t.BoxBound {
		must.name, must.value = fmt.Sprintf("must %s %s, where the machine is the wall", sign, bench.Number(t.Must)), t.BoxMust
	}
	var out []string
	for _, l := range []limit{must, {"aim", t.Aim, t.AimMet}} {
		// A limit of 0 is none.
		if l.value != 0 {
			out = append(out, fmt.Sprintf("%s %s %s %s", l.name, sign, bench.Number(l.value), met(l.met, known)))
		}
	}
	return strings.Join(out, ", ")
}

// met names an outcome; nil and known together mean that the runs do not decide.
func met(m *bool, known bool) string {
	switch {
	case m == nil && known:
		// Runs that spread, a spoiled run or a lower bound leave it open.
		return "undecided"
	case m == nil:
		return "not measured"
	case *m:
		return "met"
	}
	return "missed"
}

// state says what became of a run: why it does not count, or that it counts.
func state(r *bench.Run) string {
	var out []string
	for _, e := range r.Excluded {
		out = append(out, "left out: "+exclusion(e))
	}
	if r.Failed != "" {
		out = append(out, "failed: "+r.Failed)
	}
	if r.Profiled {
		out = append(out, "profiled")
	}
	if r.Bound != "" {
		out = append(out, "lower bound: "+r.Bound)
	}
	if len(out) == 0 {
		return "counts"
	}
	return strings.Join(out, "; ")
}

// exclusion prints the cause of a run that was left out, with the value and the limit that decided.
func exclusion(e bench.Exclusion) string {
	return fmt.Sprintf("%s, %s (%s %s, limit %s)", e.Cause, e.Detail, bench.Number(e.Value), e.Unit, bench.Number(e.Limit))
}

// audit tells the result of an audit in one line.
func audit(a *bench.Audit) string {
	switch {
	case a == nil:
		return "none"
	case a.OK:
		return fmt.Sprintf("clean (%s; %d read back)", a.Checked, a.ReadBack)
	}
	return "FAILED: " + strings.Join(a.Violations, "; ")
}

// shape prints the settings of a row.
func shape(r *bench.Row) string {
	out := make([]string, len(r.Shape))
	for i, p := range r.Shape {
		out[i] = p.Name + "=" + p.Value
	}
	return strings.Join(out, " ")
}

// stamp prints a time in UTC, so that it is the same whatever zone it was read in.
func stamp(t time.Time) string {
	if t.IsZero() {
		return "–"
	}
	return t.UTC().Format("2006-01-02 15:04:05 UTC")
}

// percent prints a share as a whole number of percent.
func percent(share float64) string { return fmt.Sprintf("%d %%", int(math.Round(share*100))) }

// metricOf returns a run's value of the row's headline.
func metricOf(row *bench.Row, run *bench.Run) (bench.Metric, bool) {
	m, ok := run.Metrics[row.Headline]
	return m, ok
}

// leading are the operations whose latency stands for a row. The first that a run has is taken.
var leading = []string{"cycle", "create", "put", "search", "update", "claim", "complete"}

// leadingLatency returns the operation and the latency that stand for a row; ok is false when
// several others would.
func leadingLatency(run *bench.Run) (string, bench.Latency, bool) {
	for _, op := range leading {
		if l, ok := run.Latency[op]; ok {
			return op, l, true
		}
	}
	for op, l := range run.Latency { // of other names a row has one
		return op, l, len(run.Latency) == 1
	}
	return "", bench.Latency{}, false
}
