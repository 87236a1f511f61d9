package report

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace/millrace/bench"
)

// scatter shows the headline of every run: how far apart the runs lie, and which were left out. A
// must of the headline is a line across.
func scatter(r *bench.Row) plot {
	p := plot{title: "Runs", x: "run", noLines: true}
	var s series
	for i := range r.Runs {
		run := &r.Runs[i]
		m, ok := metricOf(r, run)
		if !ok {
			continue
		}
		// All runs of a row have the same unit, so the last one's is as good as the first one's.
		p.y = m.Unit + ", " + r.Durability
		s.points = append(s.points, point{
			x: float64(run.Number), y: m.Value, out: !run.Counts(),
			hint: fmt.Sprintf("run %d: %s %s, %s; %s", run.Number, bench.Number(m.Value), m.Unit, r.Durability, state(run)),
		})
	}
	s.name = "each run; hollow: not in the figure"
	p.series = []series{s}
	for i := range r.Targets {
		if t := &r.Targets[i]; t.Metric == r.Headline && t.Must > 0 {
			p.limits = append(p.limits, mark{"must", t.Must})
		}
	}
	return p
}

// shown is the run that the plots over time are of: the one with the median headline among those
// that count; nil when none counts.
func shown(r *bench.Row) *bench.Run {
	runs := r.ValidRuns()
	if len(runs) == 0 {
		return nil
	}
	// The sort keeps the order of runs with equal values, so that the choice is always the same.
	slices.SortStableFunc(runs, func(a, b *bench.Run) int {
		x, y := a.Metrics[r.Headline].Value, b.Metrics[r.Headline].Value
		switch {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return 0
	})
	// Of an even number the lower middle one is taken, which is a run that was measured.
	return runs[(len(runs)-1)/2]
}

// overTime shows what was acknowledged in each second of the shown run. A count that stays 0 has no line.
func overTime(r *bench.Row) plot {
	p := plot{title: "Per second", x: "second of the window", y: "acknowledged/s, " + r.Durability}
	run := shown(r)
	// One second is a point, and no line.
	if run == nil || len(run.Series) < 2 {
		return p
	}
	p.foot = fmt.Sprintf("run %d, %s", run.Number, r.Durability)
	for _, of := range []struct {
		name string
		get  func(bench.Second) uint64
	}{{"created", func(s bench.Second) uint64 { return s.Created }}, {"completed", func(s bench.Second) uint64 { return s.Completed }}} {
		s := series{name: of.name}
		// sum tells whether the count was ever more than 0.
		sum := uint64(0)
		for _, sec := range run.Series {
			v := of.get(sec)
			sum += v
			s.points = append(s.points, point{x: float64(sec.At), y: float64(v), hint: fmt.Sprintf("second %d: %d %s, %s", sec.At, v, of.name, r.Durability)})
		}
		if sum > 0 {
			p.series = append(p.series, s)
		}
	}
	return p
}

// percentiles shows the distribution of each operation's latency in the shown run, in milliseconds.
func percentiles(r *bench.Row) plot {
	p := plot{title: "Latency", x: "percentile", y: "ms, " + r.Durability, names: []string{"p50", "p90", "p95", "p99", "p99.9", "max"}}
	run := shown(r)
	// Without a run that counts the plot stays empty.
	if run == nil {
		return p
	}
	p.foot = fmt.Sprintf("run %d, %s", run.Number, r.Durability)
	for _, op := range slices.Sorted(maps.Keys(run.Latency)) {
		l := run.Latency[op]
		s := series{name: op}
		for i, v := range []float64{l.P50, l.P90, l.P95, l.P99, l.P999, l.Max} {
			s.points = append(s.points, point{x: float64(i), y: v / 1000, hint: fmt.Sprintf("%s %s: %s µs", op, p.names[i], bench.Number(v))})
		}
		p.series = append(p.series, s)
	}
	return p
}

// cpu shows each process's share of the processors in the shown run, on top of each other.
func cpu(r *bench.Row) plot {
	return perProcess(r, plot{title: "CPU", x: "second of the window", y: "% of a core", stacked: true},
		func(s bench.Second, process string) float64 { return 100 * s.CPU[process] })
}

// memory shows each process's resident memory, on top of each other.
func memory(r *bench.Row) plot {
	return perProcess(r, plot{title: "Memory", x: "second of the window", y: "MiB resident", stacked: true},
		func(s bench.Second, process string) float64 { return float64(s.RSS[process]) / (1 << 20) })
}

// perProcess makes a plot with a series for each process. The order of names keeps the colours the
// same from run to run.
func perProcess(r *bench.Row, p plot, get func(bench.Second, string) float64) plot {
	run := shown(r)
	if run == nil || len(run.Series) < 2 {
		return p
	}
	p.foot = fmt.Sprintf("run %d, %s", run.Number, r.Durability)
	// processes are those that any second names, since one may have started late.
	processes := map[string]bool{}
	for _, sec := range run.Series {
		for name := range sec.CPU {
			processes[name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(processes)) {
		s := series{name: name}
		for _, sec := range run.Series {
			s.points = append(s.points, point{x: float64(sec.At), y: get(sec, name)})
		}
		p.series = append(p.series, s)
	}
	return p
}

// numbered matches the name of a row that is one of several with other numbers, such as value-32 or
// update-tx-100: what they share, and the number.
var numbered = regexp.MustCompile(`^(.*)-([0-9]+)$`)

// member is one row of a family: a group of rows that differ in the number at the end of their names.
type member struct {
	// n is the number, by which members are ordered.
	n   float64
	row *bench.Row
}

// families gathers the rows of a suite into families of three or more, each in order of its
// numbers. Only rows that belong and have a figure take part. names are in order.
func families(rows []bench.Row, suite string, belongs func(*bench.Row) bool) (names []string, by map[string][]member) {
	by = map[string][]member{}
	for i := range rows {
		r := &rows[i]
		m := numbered.FindStringSubmatch(r.Row)
		// A row with no figure would be a gap in the curve.
		if m == nil || r.Suite != suite || !belongs(r) || r.Summary.IsZero() {
			continue
		}
		n, err := strconv.ParseFloat(m[2], 64)
		if err != nil || n <= 0 {
			continue
		}
		by[m[1]] = append(by[m[1]], member{n, r})
	}
	for name, all := range by {
		if len(all) < 3 {
			delete(by, name)
			continue
		}
		slices.SortFunc(all, func(a, b member) int { return int(a.n) - int(b.n) })
	}
	return slices.Sorted(maps.Keys(by)), by
}

// singles is the most rows without a curve that show their runs at the top. More would push the
// table of figures off the first screens; each row shows its runs again below.
const singles = 12

// curves draws each family over what sets its rows apart, such as the length of the value, the
// number of followers or of clients, with the published lines next to ours. Of a few rows that
// stand alone it draws the runs.
func (d *document) curves(r *bench.Result) {
	var plots, alone []plot
	// inFamily are the rows that a curve shows.
	inFamily := map[*bench.Row]bool{}
	// done are the suites that were gathered already.
	done := map[string]bool{}
	for i := range r.Suites {
		suite := r.Suites[i].Suite
		if done[suite] {
			continue
		}
		done[suite] = true
		// Rows of the two durabilities never share a curve.
		for _, d := range []bench.Durability{bench.Fsync, bench.None} {
			names, by := families(r.Suites, suite, func(row *bench.Row) bool { return row.Label.Durability == d })
			for _, name := range names {
				for _, m := range by[name] {
					inFamily[m.row] = true
				}
				plots = append(plots, familyPlots(suite, classOf(by[name]), name, by[name])...)
			}
		}
	}
	for i := range r.Suites {
		if row := &r.Suites[i]; !inFamily[row] {
			p := scatter(row)
			p.title = row.Suite + "/" + row.Row
			alone = append(alone, p)
		}
	}
	if len(alone) <= singles {
		plots = append(plots, alone...)
	}
	if len(plots) == 0 {
		return
	}
	d.line(`<section><h2>Plots</h2><div class="plots">`)
	for i := range plots {
		plots[i].draw(&d.Buffer)
	}
	d.line("</div></section>")
}

// classOf names the durability class of a family. Where voters are what sets its rows apart, it
// names the first and the last class: fsync×3 to fsync×8.
func classOf(all []member) string {
	first, last := all[0].row.Durability, all[len(all)-1].row.Durability
	if first == last {
		return first
	}
	return first + " to " + last
}

// familyPlots draws two plots of a family: its headline next to the published figures of the same
// unit, and p50 and p99 of its leading latency. The axis is logarithmic where the numbers span a
// factor of 8 or more.
func familyPlots(suite, class, name string, all []member) []plot {
	unit := all[0].row.Summary.Unit()
	title := suite + "/" + name
	rate := plot{title: title, x: strings.TrimSpace(name), y: unit + ", " + class, logX: all[len(all)-1].n/all[0].n >= 8}
	ours := series{name: "Millrace, " + class}
	// published are lines by system and name, one for each published figure.
	published := map[string]*series{}
	tail := plot{title: title + ", latency", x: rate.x, y: "ms, " + class, logX: rate.logX}
	p50, p99 := series{name: "p50"}, series{name: "p99"}
	for _, m := range all {
		v := m.row.Summary.Median()
		ours.points = append(ours.points, point{x: m.n, y: v, hint: m.row.Row + ": " + m.row.Summary.String()})
		for _, ref := range m.row.Reference {
			// A figure of another unit cannot share the axis.
			if ref.Unit != unit {
				continue
			}
			key := ref.System + ", " + ref.Name
			if published[key] == nil {
				published[key] = &series{name: key + " (published)", published: true}
			}
			published[key].points = append(published[key].points, point{x: m.n, y: ref.Value, hint: reference(ref)})
		}
		// Latencies are of one run, so that both percentiles are of the same calls.
		if run := shown(m.row); run != nil {
			if op, l, ok := leadingLatency(run); ok {
				p50.points = append(p50.points, point{x: m.n, y: l.P50 / 1000, hint: fmt.Sprintf("%s %s p50: %s µs", m.row.Row, op, bench.Number(l.P50))})
				p99.points = append(p99.points, point{x: m.n, y: l.P99 / 1000, hint: fmt.Sprintf("%s %s p99: %s µs", m.row.Row, op, bench.Number(l.P99))})
			}
		}
	}
	rate.series = []series{ours}
	// The lines are in order of their names, so that each keeps its colour.
	for _, key := range slices.Sorted(maps.Keys(published)) {
		rate.series = append(rate.series, *published[key])
	}
	tail.series = []series{p50, p99}
	return []plot{rate, tail}
}
