package report

import (
	"bytes"
	_ "embed"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/millrace/millrace/bench"
)

// styleSheet is part of every page, so that a page needs no second file.
//
//go:embed report.css
var styleSheet string

// document gathers the HTML report in memory. Each of its methods writes one part. Everything that
// comes from a result goes through text, so that it cannot break the page.
type document struct{ bytes.Buffer }

// line writes one formatted line.
func (d *document) line(format string, args ...any) { fmt.Fprintf(d, format+"\n", args...) }

// HTML writes the report as one page with everything in it: no script, no font, nothing from a network.
func HTML(w io.Writer, r *bench.Result) error {
	d := new(document)
	d.line("<!DOCTYPE html>")
	// The whole style sheet stands in the page.
	d.line(`<html lang="en"><head><meta charset="utf-8"/><meta name="viewport" content="width=device-width, initial-scale=1"/>`)
	d.line("<title>Millrace bench %s</title><style>\n%s</style></head><body>", text(r.ID), styleSheet)
	// What decides comes first; what only explains comes last.
	d.header(r)
	d.verdicts(r)
	d.curves(r)
	d.overview(r)
	d.peers(r)
	for i := range r.Suites {
		d.row(&r.Suites[i])
	}
	d.environment(&r.Env)
	d.line("<footer>Again: <code>%s</code></footer>", text(r.Command))
	d.line("</body></html>")
	_, err := w.Write(d.Bytes())
	return err
}

// header says what was run, where, and with which exit code.
func (d *document) header(r *bench.Result) {
	d.line("<header><h1>Millrace bench</h1>")
	if r.Partial {
		d.line(`<p class="bad">Partial: the measurement was interrupted. <code>--resume</code> goes on with it.</p>`)
	}
	d.line("<p><code>%s</code></p>", text(r.Command))
	d.line("<p>%s · %s, %d cores · started %s, finished %s · profile %s · exit code %d (%s)</p>", text(commit(r.Env)), text(r.Env.Host.CPU),
		r.Env.Host.Cores, stamp(r.Started), stamp(r.Finished), text(r.Profile), r.Exit, exitText(r.Exit))
	d.line("<p>Every figure stands with its durability, number of voters, topology and validity. Published figures are of other hardware.</p></header>")
}

// overview has one table per durability class, so that no column mixes them.
func (d *document) overview(r *bench.Result) {
	for _, class := range classes(r.Suites) {
		d.line("<section><h2>Figures, %s</h2><table class=\"figures\"><thead><tr><th>%s</th><th>Must, aim</th></tr></thead><tbody>",
			text(class), strings.Join(escaped(figureColumns), "</th><th>"))
		// A row stands in the table of its own class.
		for i := range r.Suites {
			if s := &r.Suites[i]; s.Durability == class {
				d.figures(s)
			}
		}
		d.line("</tbody></table></section>")
	}
}

// figures writes the lines of a row. The cells of the row itself span the lines of all its
// published figures.
func (d *document) figures(r *bench.Row) {
	lines := figureLines(r)
	for i := range lines {
		l := &lines[i]
		d.WriteString("<tr>")
		if i == 0 {
			// over is how many lines the cells of the row span.
			over := fmt.Sprintf(`rowspan="%d"`, len(lines))
			fmt.Fprintf(d, `<td %s><a href="#%s">%s</a></td><td %s class="figure number">%s</td><td %s>%s</td><td %s>%s</td><td %s class="number">%s</td>`,
				over, anchor(r), text(l.row), over, text(l.value), over, text(l.unit), over, text(l.durability), over, text(l.spread))
		}
		fmt.Fprintf(d, `<td class="reference">%s</td><td class="figure number">%s</td>`, text(l.reference), text(l.ratio))
		if i == 0 {
			fmt.Fprintf(d, `<td class="targets" rowspan="%d">%s</td>`, len(lines), chips(r))
		}
		d.line("</tr>")
	}
}

// anchor makes the id of a row's section, which the table of figures links to.
func anchor(r *bench.Row) string {
	return strings.NewReplacer("/", "-", "×", "x", ".", "-").Replace(r.Suite + "/" + r.Row + "/" + r.Durability)
}

// chips shows the targets of a row, coloured by whether they are met. A target of another metric
// that was not measured is not shown.
func chips(r *bench.Row) string {
	var out []string
	for i := range r.Targets {
		t := &r.Targets[i]
		f := figure(r, t)
		if t.Metric != r.Headline && f.IsZero() {
			continue
		}
		// class is the style: without a judgement the chip has no colour.
		class := "chip"
		switch {
		case t.MustMet == nil:
		case *t.MustMet:
			class += " good"
		default:
			class += " bad"
		}
		// A target of the headline needs no name: it is the row's own figure.
		name := ""
		if t.Metric != r.Headline {
			name = t.Metric + " "
		}
		out = append(out, fmt.Sprintf(`<span class="%s">%s</span>`, class, text(name+limits(t, !f.IsZero()))))
	}
	return strings.Join(out, " ")
}

// verdicts says in one line how the measurement ended, and lists the ratios with how they are judged.
func (d *document) verdicts(r *bench.Result) {
	// The colour of the line follows the exit code, which counts more than single ratios.
	class := "good"
	if r.Exit != bench.ExitOK {
		class = "bad"
	}
	d.line(`<section><h2>Verdict</h2><p class="headline %s">%s</p></section>`, class, text(outcome(r)))
	if len(r.Verdicts) == 0 {
		return
	}
	d.line("<section><h2>Ratios</h2><table><thead><tr><th>Ratio</th><th>Status</th><th>Value</th><th>Reference</th><th>Sides</th><th>Likely cause, and what to run next</th></tr></thead><tbody>")
	for i := range r.Verdicts {
		v := &r.Verdicts[i]
		// A ratio without a value, such as an undecided one, has a dash.
		class, value := "chip", "–"
		switch {
		case v.Status.Fails():
			class += " bad"
		case v.Status == bench.Healthy:
			class += " good"
		}
		if v.Value != 0 {
			value = bench.Number(v.Value)
		}
		if v.LowerBound {
			value += " (a side is a lower bound)"
		}
		next := text(v.Cause)
		if v.Next != "" {
			next += " <code>" + text(v.Next) + "</code>"
		}
		d.line(`<tr><td>%s</td><td><span class="%s">%s</span></td><td>%s</td><td>%s</td><td>%s over %s</td><td>%s</td></tr>`,
			text(v.Name), class, text(string(v.Status)), value, text(v.Reference), text(side(v.Over)), text(side(v.Under)), next)
	}
	d.line("</tbody></table></section>")
}

// row shows one row: its headline, settings and warnings, its plots, its runs, and what the
// profiles showed.
func (d *document) row(r *bench.Row) {
	d.line(`<section id="%s"><h2>%s <small>%s</small></h2>`, anchor(r), text(r.Suite+"/"+r.Row), text(r.Durability))
	if r.Title != "" {
		d.line("<p>%s</p>", text(r.Title))
	}
	d.line(`<p class="headline">%s</p>`, text(summary(r)))
	if s := shape(r); s != "" {
		d.line("<p><code>%s</code></p>", text(s))
	}
	if c := r.Ceiling; c != nil {
		d.line("<p>Generator’s ceiling, against a server that only acknowledges: %s %s (durability none, no log); reached %s</p>",
			bench.Number(c.Rate), text(c.Unit), percent(c.Reached))
	}
	for _, w := range r.Warnings {
		d.line(`<p class="warn">%s: %s</p>`, text(w.Code), text(w.Detail))
	}
	// A plot without points draws nothing.
	d.line(`<div class="plots">`)
	for _, p := range []plot{scatter(r), overTime(r), percentiles(r), cpu(r), memory(r)} {
		p.draw(&d.Buffer)
	}
	d.line("</div>")
	d.runs(r)
	d.findings(r.Diagnosis)
	d.line("</section>")
}

// runs lists all runs, those left out with their cause, and then all figures. Both lists are folded.
func (d *document) runs(r *bench.Row) {
	if len(r.Runs) == 0 {
		return
	}
	d.line("<details><summary>Runs: %d</summary><table><thead><tr><th>Run</th><th>Window, s</th><th>Operations</th><th>Headline</th><th>Durability</th><th>State</th><th>Audit</th><th>Notes</th></tr></thead><tbody>", len(r.Runs))
	for i := range r.Runs {
		run := &r.Runs[i]
		headline := "–"
		if m, ok := metricOf(r, run); ok {
			headline = bench.Number(m.Value) + " " + m.Unit
		}
		// The notes are those of the Markdown report, on lines of their own.
		p := new(page)
		p.notes(run)
		d.line("<tr><td>%d</td><td>%s</td><td>%d</td><td>%s</td><td>%s</td><td>%s</td><td>%s</td><td>%s</td></tr>", run.Number, bench.Number(run.Seconds),
			run.Ops, text(headline), text(r.Durability), text(state(run)), text(audit(run.Audit)), text(strings.TrimSpace(p.String())))
	}
	d.line("</tbody></table></details>")
	if len(r.Figures) == 0 {
		return
	}
	d.line("<details><summary>Figures: %d</summary><table><thead><tr><th>Figure</th><th>Median</th><th>Min</th><th>Max</th><th>Spread</th><th>Unit</th><th>Holds for</th></tr></thead><tbody>", len(r.Figures))
	for _, name := range slices.Sorted(maps.Keys(r.Figures)) {
		f := r.Figures[name]
		d.line("<tr><td>%s</td><td>%s</td><td>%s</td><td>%s</td><td>%s</td><td>%s</td><td>%s</td></tr>", text(name), bench.Number(f.Median()),
			bench.Number(f.Min()), bench.Number(f.Max()), percent(f.Spread()), text(f.Unit()), text(label(f.Label())))
	}
	d.line("</tbody></table></details>")
}

// findings shows what the profiled run showed, folded.
func (d *document) findings(g *bench.Diagnosis) {
	if g == nil {
		return
	}
	d.line("<details><summary>Profiles of one extra run, which cost %s of the rate</summary><table><thead><tr><th>Process</th><th>Profile</th><th>Level</th><th>Name</th><th>Share</th><th>Detail</th></tr></thead><tbody>", percent(g.Overhead))
	for _, f := range g.Findings {
		d.line("<tr><td>%s</td><td>%s</td><td>%s</td><td>%s</td><td>%s</td><td>%s</td></tr>", text(f.Process), text(f.Kind), text(f.Level), text(f.Name), percent(f.Share), text(f.Detail))
	}
	d.line("</tbody></table></details>")
}

// environment shows where and with what was measured. It takes the lines of the Markdown table, so
// that both pages say the same.
func (d *document) environment(e *bench.Env) {
	p := new(page)
	p.environment(e)
	d.line("<section><h2>Environment</h2><table><tbody>")
	for line := range strings.Lines(p.String()) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		// Lines that are not of two cells, and the head of the table, are passed over.
		if len(cells) != 2 || strings.HasPrefix(strings.TrimSpace(cells[0]), "---") || strings.TrimSpace(cells[0]) == "What" {
			continue
		}
		d.line("<tr><th>%s</th><td>%s</td></tr>", text(strings.TrimSpace(cells[0])), text(strings.TrimSpace(cells[1])))
	}
	d.line("</tbody></table></section>")
}
