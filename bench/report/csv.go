package report

import (
	"encoding/csv"
	"io"
	"maps"
	"slices"
	"strconv"

	"github.com/millrace/millrace/bench"
)

// CSV writes one line per value: every metric and latency of every run, and the median of each
// figure as run "median". Figures come first, then each run with its state, so that a reader of the
// file can leave runs out by cause.
func CSV(w io.Writer, r *bench.Result) error {
	c := csv.NewWriter(w)
	lines := [][]string{{"suite", "row", "durability", "topology", "validity", "run", "state", "metric", "value", "unit"}}
	for i := range r.Suites {
		lines = append(lines, csvRow(&r.Suites[i])...)
	}
	if err := c.WriteAll(lines); err != nil {
		return err
	}
	return c.Error()
}

// csvRow makes the lines of one row. A line of a run carries the label of the row, since a run has
// none of its own.
func csvRow(r *bench.Row) [][]string {
	var out [][]string
	// add appends one line; l is the label of the figure or of the row.
	add := func(run, state, metric string, value float64, unit string, l bench.Label) {
		out = append(out, []string{
			r.Suite, r.Row, r.Durability, string(l.Topology), string(l.Validity), run, state, metric,
			strconv.FormatFloat(value, 'g', -1, 64), unit,
		})
	}
	for _, name := range slices.Sorted(maps.Keys(r.Figures)) {
		f := r.Figures[name]
		add("median", "median of "+strconv.Itoa(f.Runs()), name, f.Median(), f.Unit(), f.Label())
	}
	for i := range r.Runs {
		run := &r.Runs[i]
		number, st := strconv.Itoa(run.Number), state(run)
		add(number, st, "ops", float64(run.Ops), "ops", r.Label)
		add(number, st, "seconds", run.Seconds, "s", r.Label)
		// Names are walked in order, so that the same result gives the same bytes.
		for _, name := range slices.Sorted(maps.Keys(run.Metrics)) {
			add(number, st, name, run.Metrics[name].Value, run.Metrics[name].Unit, r.Label)
		}
		for _, op := range slices.Sorted(maps.Keys(run.Latency)) {
			l := run.Latency[op]
			for _, q := range []struct {
				name  string
				value float64
			}{
				{"p50", l.P50}, {"p90", l.P90}, {"p95", l.P95}, {"p99", l.P99}, {"p99.9", l.P999}, {"max", l.Max}, {"mean", l.Mean},
			} {
				add(number, st, op+" "+q.name, q.value, "µs", r.Label)
			}
		}
	}
	return out
}
