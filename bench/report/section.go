package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/millrace/millrace/bench"
)

// section prints one row with everything that was seen of it: headline, settings, targets,
// warnings, figures, runs, latencies, use of the machine and profiles.
func (p *page) section(r *bench.Row) {
	p.line("## %s/%s, %s", r.Suite, r.Row, r.Durability)
	p.line("")
	if r.Title != "" {
		p.line("%s", r.Title)
		p.line("")
	}
	p.line("**%s**", summary(r))
	p.line("")
	// before is where the list begins, so that an empty one leaves no blank line.
	before := p.Len()
	if s := shape(r); s != "" {
		p.line("- Shape: %s", s)
	}
	for _, ref := range r.Reference {
		p.line("- Published: %s: %s", ref.Name, reference(ref))
	}
	for i := range r.Targets {
		p.line("- Target: %s", target(r, &r.Targets[i]))
	}
	if c := r.Ceiling; c != nil {
		p.line("- Generator's ceiling, against a server that only acknowledges: %s %s (durability none, no log); reached %s",
			bench.Number(c.Rate), c.Unit, percent(c.Reached))
	}
	for _, w := range r.Warnings {
		p.line("- WARN %s: %s", w.Code, w.Detail)
	}
	if p.Len() > before {
		p.line("")
	}
	p.figures(r)
	p.runs(r)
	p.latencies(r)
	p.footprint(r)
	p.diagnosis(r.Diagnosis)
}

// figures lists every figure of the row with its spread and interval.
func (p *page) figures(r *bench.Row) {
	if len(r.Figures) == 0 {
		return
	}
	p.head("Figure", "Median", "Min", "Max", "Deviation", "Spread", "95 % interval", "Unit", "Runs", "Holds for")
	for _, name := range slices.Sorted(maps.Keys(r.Figures)) {
		f := r.Figures[name]
		// Few runs have no interval.
		interval := "–"
		if low, high, ok := f.Interval(); ok {
			interval = bench.Number(low) + " to " + bench.Number(high)
		}
		p.row(name, bench.Number(f.Median()), bench.Number(f.Min()), bench.Number(f.Max()), bench.Number(f.MAD()),
			percent(f.Spread()), interval, f.Unit(), fmt.Sprint(f.Runs()), label(f.Label()))
	}
	p.line("")
}

// runs shows every run, those that were left out too, and then what each says besides.
func (p *page) runs(r *bench.Row) {
	if len(r.Runs) == 0 {
		return
	}
	p.head("Run", "Window, s", "Operations", "Headline", "Durability", "State", "Audit")
	for i := range r.Runs {
		run := &r.Runs[i]
		// A run without the headline has a dash.
		headline := "–"
		if m, ok := metricOf(r, run); ok {
			headline = bench.Number(m.Value) + " " + m.Unit
		}
		p.row(fmt.Sprint(run.Number), bench.Number(run.Seconds), fmt.Sprint(run.Ops), headline, r.Durability, state(run),
			audit(run.Audit))
	}
	p.line("")
	// before is where the notes begin, so that a blank line follows only if there are any.
	before := p.Len()
	for i := range r.Runs {
		p.notes(&r.Runs[i])
	}
	if p.Len() > before {
		p.line("")
	}
}

// notes prints what a run says in addition to its figures: warnings, calls that did not end well,
// errors, and kept data.
func (p *page) notes(run *bench.Run) {
	for _, w := range run.Warnings {
		p.line("- Run %d: WARN %s: %s", run.Number, w.Code, w.Detail)
	}
	// Calls that all ended well need no line.
	for _, op := range slices.Sorted(maps.Keys(run.Calls)) {
		if c := run.Calls[op]; c.Refused+c.Unknown+c.Dropped > 0 {
			p.line("- Run %d: %s: %d ok, %d refused, %d unknown, %d dropped", run.Number, op, c.OK, c.Refused, c.Unknown, c.Dropped)
		}
	}
	for _, e := range run.Errors {
		p.line("- Run %d: ERROR %s %s × %d, first: %s", run.Number, e.Op, e.Code, e.Count, e.First)
	}
	if run.Kept != "" {
		p.line("- Run %d: data kept in `%s`", run.Number, run.Kept)
	}
	if !run.Host.Observed {
		p.line("- Run %d: the host was not observed", run.Number)
	}
}

// latencies lists the distribution of each operation in each run.
func (p *page) latencies(r *bench.Row) {
	if !slices.ContainsFunc(r.Runs, func(run bench.Run) bool { return len(run.Latency) > 0 }) {
		return
	}
	p.head("Latency, µs", "Run", "Count", "p50", "p90", "p95", "p99", "p99.9", "Max", "Mean", "Durability")
	for i := range r.Runs {
		run := &r.Runs[i]
		for _, op := range slices.Sorted(maps.Keys(run.Latency)) {
			l := run.Latency[op]
			cells := []string{op, fmt.Sprint(run.Number), fmt.Sprint(l.Count)}
			for _, v := range []float64{l.P50, l.P90, l.P95, l.P99, l.P999, l.Max, l.Mean} {
				cells = append(cells, bench.Number(v))
			}
			p.row(append(cells, r.Durability)...)
		}
	}
	p.line("")
}

// use adds up the footprint of one process over the seconds of the runs that count: CPU as a share
// of one core, memory in bytes.
type use struct {
	// cpuSum and cpuPeak are shares of one core: the sum over all seconds, and the largest.
	cpuSum, cpuPeak float64
	// rssSum and rssPeak are in bytes.
	rssSum, rssPeak float64
	// n is the number of seconds.
	n int
}

// add takes one second.
func (u *use) add(cpu float64, rss uint64) {
	u.cpuSum += cpu
	u.cpuPeak = max(u.cpuPeak, cpu)
	u.rssSum += float64(rss)
	u.rssPeak = max(u.rssPeak, float64(rss))
	u.n++
}

// footprint prints CPU and memory per process, and their total. The peak of the total is that of
// one second, so it may be less than the sum of the peaks.
func (p *page) footprint(r *bench.Row) {
	// by is the use of each process, and all that of all together, second by second.
	by := make(map[string]*use)
	all := new(use)
	for _, run := range r.ValidRuns() {
		for _, s := range run.Series {
			var cpu float64
			var rss uint64
			for _, process := range slices.Sorted(maps.Keys(s.CPU)) { // sums of floats depend on their order
				if by[process] == nil {
					by[process] = new(use)
				}
				by[process].add(s.CPU[process], s.RSS[process])
				cpu += s.CPU[process]
				rss += s.RSS[process]
			}
			all.add(cpu, rss)
		}
	}
	if len(by) == 0 {
		return
	}
	p.head("Footprint", "CPU mean, % of a core", "CPU peak", "RSS mean, MiB", "RSS peak, MiB", "Durability")
	for _, process := range slices.Sorted(maps.Keys(by)) {
		p.use(process, by[process], r.Durability)
	}
	p.use("total", all, r.Durability)
	p.line("")
}

// use prints one line of the footprint.
func (p *page) use(name string, u *use, class string) {
	n := float64(u.n)
	p.row(name, fmt.Sprintf("%.0f", 100*u.cpuSum/n), fmt.Sprintf("%.0f", 100*u.cpuPeak),
		fmt.Sprintf("%.1f", u.rssSum/n/(1<<20)), fmt.Sprintf("%.1f", u.rssPeak/(1<<20)), class)
}

// diagnosis prints what the profiled run showed, and how to look at its first profile.
func (p *page) diagnosis(d *bench.Diagnosis) {
	if d == nil {
		return
	}
	p.line("Profiles of one extra run, which cost %s of the rate:", percent(d.Overhead))
	p.line("")
	p.head("Process", "Profile", "Level", "Name", "Share", "Detail")
	for _, f := range d.Findings {
		p.row(f.Process, f.Kind, strings.ToUpper(f.Level), f.Name, percent(f.Share), f.Detail)
	}
	p.line("")
	if len(d.Files) > 0 {
		p.line("Next: `go tool pprof %s`", d.Files[0])
		p.line("")
	}
}
