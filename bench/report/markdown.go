package report

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/millrace/millrace/bench"
)

// page gathers Markdown in memory. Each of its methods writes one part.
type page struct{ bytes.Buffer }

// line writes one formatted line.
func (p *page) line(format string, args ...any) { fmt.Fprintf(p, format+"\n", args...) }

// row writes one line of a table. A bar or a line break in a cell would end it and is replaced.
func (p *page) row(cells ...string) {
	for i, c := range cells {
		// The first cell also needs the bar on its left.
		c = strings.ReplaceAll(strings.ReplaceAll(c, "|", `\|`), "\n", " ")
		if i == 0 {
			p.WriteString("|")
		}
		p.WriteString(" " + c + " |")
	}
	p.WriteString("\n")
}

// head begins a table with its titles.
func (p *page) head(cells ...string) {
	p.row(cells...)
	p.row(slices.Repeat([]string{"---"}, len(cells))...)
}

// Markdown writes the whole report: overview, verdicts, then each row with its runs, and the environment.
func Markdown(w io.Writer, r *bench.Result) error {
	p := new(page)
	p.line("# Millrace bench %s", r.ID)
	p.line("")
	if r.Partial {
		p.line("**Partial**: the measurement was interrupted. `--resume` goes on with it.")
		p.line("")
	}
	p.line("- Command: `%s`", r.Command)
	p.line("- Seed %d, profile %s, exit code %d (%s)", r.Seed, r.Profile, r.Exit, exitText(r.Exit))
	p.line("- Started %s, finished %s", stamp(r.Started), stamp(r.Finished))
	p.line("- %s; %s, %d cores; durability stands with every figure", commit(r.Env), r.Env.Host.CPU, r.Env.Host.Cores)
	p.line("")
	p.overview(r, "##")
	p.peers(r, "##")
	p.verdicts(r, "##")
	for i := range r.Suites {
		p.section(&r.Suites[i])
	}
	p.environment(&r.Env)
	p.line("Again: `%s`", r.Command)
	_, err := w.Write(p.Bytes())
	return err
}

// commit names the commit that was measured.
func commit(e bench.Env) string {
	out := "commit " + cmp.Or(e.Commit, "unknown")
	if e.Dirty {
		out += " with local changes"
	}
	return out
}

// exitText says in words what an exit code of the bench means.
func exitText(code int) string {
	// The codes are those of package bench, which pages of the bench explain.
	switch code {
	case 0:
		return "measured, audits clean"
	case 1:
		return "failed"
	case 2:
		return "refused"
	case 3:
		return "could not measure"
	case 4:
		return "an audit failed"
	case 5:
		return "no verdict"
	case 6:
		return "host unfit"
	case 130:
		return "interrupted"
	}
	return "unknown"
}

// classes lists the durability classes of a result in the order they came.
func classes(rows []bench.Row) []string {
	var out []string
	for i := range rows {
		if !slices.Contains(out, rows[i].Durability) {
			out = append(out, rows[i].Durability)
		}
	}
	return out
}

// overview has one table per durability class, so that no column mixes classes. heading is the mark
// of its titles, such as ##.
func (p *page) overview(r *bench.Result, heading string) {
	for _, class := range classes(r.Suites) {
		p.line("%s Figures, %s", heading, class)
		p.line("")
		p.head("Row", "Ours", "Published reference", "Must, aim")
		for i := range r.Suites {
			s := &r.Suites[i]
			// The rows of another class have a table of their own.
			if s.Durability != class {
				continue
			}
			p.row(s.Suite+"/"+s.Row, measured(s), references(s.Reference), goals(s))
		}
		p.line("")
	}
}

// goals are the targets of a row in short: those of the headline, and those of other metrics that
// were measured.
func goals(r *bench.Row) string {
	var out []string
	for i := range r.Targets {
		t := &r.Targets[i]
		f := figure(r, t)
		// A target of another metric is told only where that was measured.
		switch {
		case t.Metric == r.Headline:
			out = append(out, limits(t, !f.IsZero()))
		case !f.IsZero():
			out = append(out, t.Metric+" "+limits(t, true))
		}
	}
	return strings.Join(out, "; ")
}

// verdicts lists the ratios; nothing when there are none.
func (p *page) verdicts(r *bench.Result, heading string) {
	if len(r.Verdicts) == 0 {
		return
	}
	p.line("%s Verdicts", heading)
	p.line("")
	for i := range r.Verdicts {
		p.line("- %s", verdict(&r.Verdicts[i]))
	}
	p.line("")
}

// verdict prints one ratio: status, value, both sides with their spreads, the likely cause, and
// what to run next.
func verdict(v *bench.Verdict) string {
	var b strings.Builder
	// A status that fails the measurement is marked, so that it is found in a long list.
	status := string(v.Status)
	if v.Status.Fails() {
		status = "FAIL " + status
	}
	fmt.Fprintf(&b, "**%s** %s", status, v.Name)
	if v.Value != 0 {
		// sign stands between the name of a ratio and its value.
		sign := "="
		if v.LowerBound {
			sign = "(a side is a lower bound) ="
		}
		fmt.Fprintf(&b, " %s %s", sign, bench.Number(v.Value))
	}
	fmt.Fprintf(&b, ": %s over %s", side(v.Over), side(v.Under))
	if v.Reference != "" {
		fmt.Fprintf(&b, "; reference %s", v.Reference)
	}
	if v.Cause != "" {
		fmt.Fprintf(&b, "; %s", v.Cause)
	}
	if v.Next != "" {
		fmt.Fprintf(&b, "; next `%s`", v.Next)
	}
	return b.String()
}

// side prints one side of a ratio with its figure.
func side(s bench.Side) string {
	name := s.Suite + "/" + s.Row
	if s.Metric != "" {
		name += " " + s.Metric
	}
	return name + " (" + s.Figure.String() + ")"
}

// environment prints where and with what was measured, a line for each fact.
func (p *page) environment(e *bench.Env) {
	p.line("## Environment")
	p.line("")
	p.head("What", "Value")
	p.row("commit", commit(*e))
	p.row("version", e.Version)
	p.row("Go", e.Go)
	// Maps are walked in order of their keys, so that the same result gives the same bytes.
	for _, k := range slices.Sorted(maps.Keys(e.Build)) {
		p.row("build "+k, e.Build[k])
	}
	p.row("configuration", e.ConfigHash)
	p.row("host", e.HostHash)
	h := e.Host
	p.row("system", h.OS+"/"+h.Arch+", kernel "+h.Kernel)
	p.row("CPU", fmt.Sprintf("%s, %d cores, governor %s", h.CPU, h.Cores, h.Governor))
	if idle := h.IdleCore(); idle != "" {
		p.row("idle core", idle)
	}
	p.row("CPU flags", strings.Join(h.Flags, " "))
	p.row("memory", fmt.Sprintf("%.1f GiB", float64(h.RAM)/(1<<30)))
	p.row("file system", h.FileSystem)
	p.row("clock source", h.ClockSource)
	p.row("cgroup", h.Cgroup)
	p.row("load", h.Load)
	p.row("fdatasync", fmt.Sprintf("p50 %s µs, p99 %s µs", bench.Number(h.FdatasyncP50), bench.Number(h.FdatasyncP99)))
	p.row("loopback round trip", fmt.Sprintf("p50 %s µs, p99 %s µs", bench.Number(h.LoopbackP50), bench.Number(h.LoopbackP99)))
	for _, k := range slices.Sorted(maps.Keys(e.Tools)) {
		p.row(k, e.Tools[k])
	}
	p.line("")
}
