package report

import (
	"fmt"
	"strings"

	"github.com/millrace/millrace/bench"
)

// figureColumns are the titles of the table of figures, of which a figureLine is one line.
var figureColumns = []string{"Row", "Value", "Unit", "Durability", "Spread", "Published reference", "Ratio"}

// figureLine is what a row measured, next to one published figure. Further published figures of a row follow in lines of
// their own, in which all but the last two columns are empty.
type figureLine struct {
	row, value, unit string
	durability       string // class, topology, and what else the value holds for
	spread           string // over the runs that count
	reference        string
	ratio            string // ours ÷ published; empty where the units differ
}

func (l *figureLine) cells() []string {
	return []string{l.row, l.value, l.unit, l.durability, l.spread, l.reference, l.ratio}
}

// figureLines returns the lines of a row, one at least.
func figureLines(r *bench.Row) []figureLine {
	first := figureLine{row: r.Suite + "/" + r.Row, value: measured(r), durability: r.Durability}
	f := r.Summary
	if !f.IsZero() {
		l := f.Label()
		first.value, first.unit, first.spread = bench.Number(f.Median()), f.Unit(), "one run"
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
	for i, ref := range r.Reference {
		if i > 0 {
			out = append(out, figureLine{})
		}
		line := &out[i]
		line.reference = reference(ref)
		if ref.Unit == f.Unit() && ref.Value != 0 {
			line.ratio = bench.Number(f.Median() / ref.Value)
		}
	}
	return out
}

// outcome counts what a person looks for first: targets that were missed or not decided, and ratios that are wrong.
func outcome(r *bench.Result) string {
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
	wrong := 0
	for i := range r.Verdicts {
		if r.Verdicts[i].Status.Fails() {
			wrong++
		}
	}
	return fmt.Sprintf("exit %d (%s); targets: %d met, %d missed, %d undecided; ratios: %d of %d wrong",
		r.Exit, exitText(r.Exit), met, missed, open, wrong, len(r.Verdicts))
}
