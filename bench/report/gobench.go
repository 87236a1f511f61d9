package report

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace/millrace/bench"
)

// GoBench writes Go benchmark text that plain benchstat reads: one line per run that counts, under
// a name made of durability, nodes, shards and batch. Lines that begin with # are for people;
// benchstat passes over them.
func GoBench(w io.Writer, r *bench.Result) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "goos: %s\ngoarch: %s\npkg: github.com/millrace/millrace/bench\ncpu: %s\n", r.Env.Host.OS, r.Env.Host.Arch,
		cmp.Or(r.Env.Host.CPU, "unknown"))
	fmt.Fprintf(&b, "commit: %s\n", cmp.Or(r.Env.Commit, "unknown"))
	units(&b, r)
	for i := range r.Suites {
		s := &r.Suites[i]
		fmt.Fprintf(&b, "\n# %s/%s: %s (%s)\n", s.Suite, s.Row, summary(s), label(s.Label))
		// Go's own benchmarks end their names with the number of processors.
		name := benchName(s) + "-" + strconv.Itoa(max(r.Env.Host.Cores, 1))
		for k := range s.Runs {
			run := &s.Runs[k]
			// A run that does not count is shown to people, and benchstat does not take it.
			if !run.Counts() {
				fmt.Fprintf(&b, "# run %d: %s\n", run.Number, state(run))
				continue
			}
			b.WriteString(name)
			benchValues(&b, s, run)
		}
	}
	_, err := w.Write(b.Bytes())
	return err
}

// units tells benchstat for which units higher is better: rates. All others are better lower, which
// is its default.
func units(b *bytes.Buffer, r *bench.Result) {
	seen := make(map[string]bool)
	for i := range r.Suites {
		for _, f := range r.Suites[i].Figures {
			// The unit is written as the lines below write it.
			if strings.HasSuffix(f.Unit(), "/s") {
				seen[benchUnit(f.Unit())] = true
			}
		}
	}
	for _, u := range slices.Sorted(maps.Keys(seen)) {
		fmt.Fprintf(b, "Unit %s better=higher\n", u)
	}
}

// told matches names of rows that say no more than batch or shards in the benchmark's name do.
var told = regexp.MustCompile(`^(unbatched|batch-\d+-\d+|shards-\d+)$`)

// benchName returns the name of a row, such as BenchmarkQueueCycle/durability=fsync/nodes=1/shards=1/batch=1. It depends
// on the row alone, so that two results name the same row equally.
func benchName(r *bench.Row) string {
	parts := []string{cmp.Or(r.Bench, "Benchmark"+camel(r.Suite)), "durability=" + string(r.Label.Durability)}
	// The parts that benchstat can compare rows by, in a fixed order.
	for _, p := range []struct{ key, param string }{{"nodes", "nodes"}, {"shards", "shards"}, {"batch", "worker_batch"}} {
		if v := r.Param(p.param); v != "" {
			parts = append(parts, p.key+"="+v)
		}
	}
	// A name that only repeats the parts before it is left out.
	if !told.MatchString(r.Row) {
		parts = append(parts, "row="+clean(r.Row))
	}
	if r.Param("commit") == "single" && !strings.HasPrefix(r.Row, "single") {
		parts = append(parts, "commit=single")
	}
	if r.Label.Topology != bench.Procs {
		parts = append(parts, "topology="+string(r.Label.Topology))
	}
	return strings.Join(parts, "/")
}

// benchValues writes the count, the time per operation, the metrics and the latencies of one run.
// benchstat takes one value per unit and line: the first one of a unit wins, so the headline comes
// before the rest.
func benchValues(b *bytes.Buffer, r *bench.Row, run *bench.Run) {
	ops := max(run.Ops, 1)
	fmt.Fprintf(b, "\t%d", ops)
	if m, ok := metricOf(r, run); !ok || m.Unit != "ns/op" {
		// A run that takes turns with another system knows the time of its own transactions.
		each, timed := run.Metrics[perTransaction]
		if !timed {
			each.Value = run.Seconds * 1e9 / float64(ops)
		}
		fmt.Fprintf(b, "\t%s ns/op", number(each.Value))
	}
	// used are the units that the line has already.
	used := map[string]bool{"ns/op": true}
	// put writes a value unless its unit is used.
	put := func(v float64, unit string) {
		if !used[unit] {
			used[unit] = true
			fmt.Fprintf(b, "\t%s %s", number(v), unit)
		}
	}
	if m, ok := metricOf(r, run); ok {
		// The headline of a suite of nanoseconds is ns/op itself.
		delete(used, benchUnit(m.Unit))
		put(m.Value, benchUnit(m.Unit))
	}
	if _, l, ok := leadingLatency(run); ok {
		put(l.P50, "p50-us")
		put(l.P99, "p99-us")
	}
	for _, op := range slices.Sorted(maps.Keys(run.Latency)) {
		put(run.Latency[op].P99, clean(op)+"-p99-us")
	}
	for _, name := range slices.Sorted(maps.Keys(run.Metrics)) {
		if name != r.Headline && name != perTransaction {
			put(run.Metrics[name].Value, metricUnit(name, run.Metrics[name].Unit))
		}
	}
	b.WriteString("\n")
}

// perTransaction is the metric of suites that time transactions by themselves. Their runs take
// turns with another system, so that window ÷ operations is not the time of one.
const perTransaction = "ns_per_transaction"

// number prints eight digits, which keeps what a float of a rate holds.
func number(v float64) string { return strconv.FormatFloat(v, 'g', 8, 64) }

// benchUnit makes a unit that Go benchmark text can hold. Spaces would end the field.
func benchUnit(unit string) string { return clean(strings.ReplaceAll(unit, "µ", "u")) }

// metricUnit makes a unit of a metric's name, so that metrics with the same unit stay apart: the
// text has units only. Units that benchstat knows stay as they are.
func metricUnit(name, unit string) string {
	switch unit {
	case "B/op", "allocs/op":
		return unit
	}
	return clean(name)
}

// space matches what a unit must not have.
var space = regexp.MustCompile(`\s+`)

// clean joins words by a hyphen.
func clean(s string) string { return space.ReplaceAllString(strings.TrimSpace(s), "-") }

// camel makes QueueCycle of queue.cycle.
func camel(s string) string {
	var b strings.Builder
	// Each part begins with a capital; the marks between them are left out.
	for _, part := range strings.FieldsFunc(s, func(r rune) bool { return r == '.' || r == '-' || r == '_' || r == '/' }) {
		b.WriteString(strings.ToUpper(part[:1]) + part[1:])
	}
	return b.String()
}
