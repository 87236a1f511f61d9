package report

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/millrace/millrace/bench"
)

// Text writes what a terminal shows at the end of a measurement: the ratios and how they are judged, the figures next to
// what was published, judgements of targets and of runs, what the profiles found, and the command that repeats it.
func Text(w io.Writer, r *bench.Result) error {
	var b bytes.Buffer
	for i := range r.Verdicts {
		// The marks of Markdown are taken out: a terminal shows them as they are.
		fmt.Fprintf(&b, "verdict   %s\n", strings.NewReplacer("**", "", "`", "").Replace(verdict(&r.Verdicts[i])))
	}
	if err := textFigures(&b, r); err != nil {
		return err
	}
	for i := range r.Suites {
		s := &r.Suites[i]
		name := s.Suite + "/" + s.Row
		// A row with a figure stands in the table above.
		if s.Summary.IsZero() {
			fmt.Fprintf(&b, "figure    %s %s\n", name, summary(s))
		}
		for k := range s.Targets {
			fmt.Fprintf(&b, "target    %s %s\n", name, target(s, &s.Targets[k]))
		}
		for _, warn := range s.Warnings {
			fmt.Fprintf(&b, "WARN      %s: %s: %s\n", name, warn.Code, warn.Detail)
		}
		for k := range s.Runs {
			textRun(&b, name, &s.Runs[k])
		}
		if s.Diagnosis != nil {
			for _, f := range s.Diagnosis.Findings {
				// Findings that only inform are left to the reports.
				if f.Level != bench.Info {
					fmt.Fprintf(&b, "%-9s %s %s %s: %s\n", strings.ToUpper(f.Level), name, f.Process, f.Kind, f.Detail)
				}
			}
		}
	}
	fmt.Fprintf(&b, "%s; again: %s\n", outcome(r), r.Command)
	_, err := w.Write(b.Bytes())
	return err
}

// textFigures writes the table of figures: a line for each row, and one for each further published
// figure. Spaces at the ends of lines are cut off.
func textFigures(b *bytes.Buffer, r *bench.Result) error {
	if len(r.Suites) == 0 {
		return nil
	}
	var table bytes.Buffer
	// Columns are two spaces apart.
	t := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	// line writes one line of the table; tabs end its cells.
	line := func(cells []string) { fmt.Fprintln(t, strings.Join(cells, "\t")) }
	line(figureColumns)
	for i := range r.Suites {
		lines := figureLines(&r.Suites[i])
		for k := range lines {
			line(lines[k].cells())
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for text := range strings.Lines(table.String()) {
		fmt.Fprintln(b, strings.TrimRight(text, " \n"))
	}
	return nil
}

// textRun writes what a person must know of a run: that it does not count, and its warnings, errors
// and failed audit.
func textRun(b *bytes.Buffer, name string, run *bench.Run) {
	if len(run.Excluded) > 0 || run.Failed != "" {
		fmt.Fprintf(b, "run       %s run %d %s\n", name, run.Number, state(run))
	}
	for _, w := range run.Warnings {
		fmt.Fprintf(b, "WARN      %s run %d: %s: %s\n", name, run.Number, w.Code, w.Detail)
	}
	if run.Audit != nil && !run.Audit.OK {
		fmt.Fprintf(b, "FAIL      %s run %d: audit %s\n", name, run.Number, audit(run.Audit))
	}
	for _, e := range run.Errors {
		fmt.Fprintf(b, "ERROR     %s run %d: %s %s × %d, first: %s\n", name, run.Number, e.Op, e.Code, e.Count, e.First)
	}
}
