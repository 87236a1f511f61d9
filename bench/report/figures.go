package report

import (
	"fmt"
	"strings"

	"github.com/millrace/millrace/bench"
)

// figureColumns are the titles of the table of figures.
var figureColumns = []string{"Row", "Value", "Unit", "Durability", "Spread", "Published reference", "Ratio"}

// figureLine is what a row measured, next to one published figure. Each further published figure of
// the row has a line of its own, in which all but the last two columns are empty.
type figureLine struct {
	// These three are the row's name, its headline and the unit of that.
	row, value, unit string
	// durability names class and topology, and what else the value holds for.
	durability string
	// spread is that of the runs that count.
	spread string
	// reference is the published figure with what is known of how it was measured.
	reference string
	// ratio is ours ÷ published; empty where the units differ.
	ratio string
}

// cells are the columns in the order of figureColumns.
func (l *figureLine) cells() []string {
	return []string{l.row, l.value, l.unit, l.durability, l.spread, l.reference, l.ratio}
}

// figureLines returns the lines of a row. There is at least one, also when nothing was measured.
func figureLines(r *bench.Row) []figureLine {
	first := figureLine{row: r.Suite + "/" + r.Row, value: measured(r), durability: r.Durability}
	f := r.Summary
	if !f.IsZero() {
		l := f.Label()
		first.value, first.unit, first.spread = bench.Number(f.Median()), f.Unit(), "one run"
		// A lower bound says that the generator was the wall.
		if l.Validity == bench.LowerBound {
			first.value = "≥ " + first.value
		}
		if n := f.Runs(); n > 1 {
			first.spread = fmt.Sprintf("%s of %d", percent(f.Spread()), n)
		}
		holds := []string{l.Class(), string(l.Topology)}
		if l.Note != "" {
			holds = append(holds, l.Note)
		}
		if l.Validity != bench.Valid {
			holds = append(holds, string(l.Validity))
		}
		first.durability = strings.Join(holds, " · ")
	}
	out := []figureLine{first}
	// The first published figure stands on the row's own line.
	for i, ref := range r.Reference {
		if i > 0 {
			out = append(out, figureLine{})
		}
		line := &out[i]
		line.reference = reference(ref)
		// Figures of different units do not compare.
		if ref.Unit == f.Unit() && ref.Value != 0 {
			line.ratio = bench.Number(f.Median() / ref.Value)
		}
	}
	return out
}

// outcome says in one line what a person looks for first: the exit code, targets that were missed
// or not decided, and ratios that are wrong.
func outcome(r *bench.Result) string {
	// Counts of targets: met, missed and not decided.
	met, missed, open := 0, 0, 0
	for i := range r.Suites {
		for k := range r.Suites[i].Targets {
			switch t := &r.Suites[i].Targets[k]; {
			case t.MustMet == nil:
				open++
			case *t.MustMet:
				met++
			default:
				missed++
			}
		}
	}
	// wrong counts the ratios whose status fails the measurement.
	wrong := 0
	for i := range r.Verdicts {
		if r.Verdicts[i].Status.Fails() {
			wrong++
		}
	}
	return fmt.Sprintf("exit %d (%s); targets: %d met, %d missed, %d undecided; ratios: %d of %d wrong",
		r.Exit, exitText(r.Exit), met, missed, open, wrong, len(r.Verdicts))
}
