package report

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/bench"
)

// twoRows is a small result: a rate with two published figures, of which one has its unit, and a row without any.
func twoRows(t *testing.T) *bench.Result {
	t.Helper()
	r := lines(t, 60_000, 1_500)
	r.Suites[0].Reference = append(r.Suites[0].Reference, bench.Reference{System: "Aurora", Name: "bytes", Value: 269, Unit: "B/op", Note: "none×3"})
	r.Suites[1].Reference, r.Suites[1].Summary = nil, r.Suites[1].Summary.With(bench.LowerBound)
	r.Exit = bench.ExitFail
	missed := false
	r.Suites[0].Targets = []bench.Target{{Metric: "puts_per_s", Must: 90_000, MustMet: &missed, Judged: true}}
	r.Verdicts = []bench.Verdict{{Name: "a ÷ b", Status: bench.Inverted, Value: 0.5}}
	return r
}

// wantFigures are the cells of the table of twoRows, line by line.
var wantFigures = [][]string{
	{"Row", "Value", "Unit", "Durability", "Spread", "Published reference", "Ratio"},
	{"kv.aurora.len/value-32", "60,000", "puts/s", "fsync×1 · procs", "one run", "Aurora 20,000 puts/s (none×3)", "3.00"},
	{"", "", "", "", "", "Aurora 269 B/op (none×3)", ""},
	{"kv.aurora.len/value-64", "≥ 1,500", "puts/s", "fsync×1 · procs · at least", "one run", "", ""},
}

// Each cell begins where the title of its column does.
func TestTheTableOfATerminalHasAColumnForEachPartOfAFigure(t *testing.T) {
	var table []string
	for line := range strings.Lines(render(t, "text", twoRows(t))) {
		if line = strings.TrimRight(line, "\n"); strings.HasPrefix(line, "Row ") || len(table) > 0 {
			table = append(table, line)
		}
	}
	if len(table) < len(wantFigures) {
		t.Fatalf("the table has %d lines", len(table))
	}
	title := []rune(table[0])
	for n, want := range wantFigures {
		line := []rune(table[n])
		for k, cell := range want {
			from, to := column(title, wantFigures[0], k), column(title, wantFigures[0], k+1)
			from, to = min(from, len(line)), min(to, len(line))
			if got := strings.TrimSpace(string(line[from:to])); got != cell {
				t.Errorf("line %d, %s: %q, want %q", n, wantFigures[0][k], got, cell)
			}
		}
	}
}

// column is where the k-th column of a line of titles begins; behind the last one, where every line has ended.
func column(line []rune, titles []string, k int) int {
	if k == len(titles) {
		return 1 << 20
	}
	return len([]rune(string(line)[:strings.Index(string(line), titles[k])]))
}

func TestTheTableOfThePageHasAColumnForEachPartOfAFigure(t *testing.T) {
	page := render(t, "html", twoRows(t))
	_, table, _ := strings.Cut(page, `<table class="figures">`)
	table, _, _ = strings.Cut(table, "</table>")
	tag := regexp.MustCompile(`<[^>]*>`)
	var got [][]string
	for _, line := range regexp.MustCompile(`(?s)<tr>(.*?)</tr>`).FindAllStringSubmatch(table, -1) {
		var cells []string
		for _, cell := range regexp.MustCompile(`(?s)<t[hd][^>]*>(.*?)</t[hd]>`).FindAllStringSubmatch(line[1], -1) {
			cells = append(cells, tag.ReplaceAllString(cell[1], ""))
		}
		got = append(got, cells)
	}
	want := [][]string{
		append(slices.Clone(wantFigures[0]), "Must, aim"), append(slices.Clone(wantFigures[1]), "must ≥ 90,000 missed"),
		wantFigures[2][5:], append(slices.Clone(wantFigures[3]), ""),
	}
	if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
		t.Errorf("lines\n%q\nwant\n%q", got, want)
	}
}

func TestAReportBeginsWithItsVerdictAndItsPlots(t *testing.T) {
	const verdict = "exit 1 (failed); targets: 0 met, 1 missed, 0 undecided; ratios: 1 of 1 wrong"
	page := render(t, "html", twoRows(t))
	at := -1
	for _, part := range []string{verdict, "<h2>Ratios</h2>", "<h2>Plots</h2>", "<svg", "<h2>Figures, fsync×1</h2>", `<section id="kv-aurora-len-value-32-fsyncx1">`, "<h2>Environment</h2>"} {
		next := strings.Index(page, part)
		if next <= at {
			t.Errorf("%q is at %d, and what must come before it at %d", part, next, at)
		}
		at = next
	}
	text := render(t, "text", twoRows(t))
	if !strings.HasPrefix(text, "verdict   FAIL inverted a ÷ b = 0.50") || !strings.Contains(text, "\n"+verdict+"; again: ") {
		t.Errorf("the text begins and ends otherwise:\n%s", text)
	}
	// A result of many rows shows curves alone at its top: its table is not pushed away.
	many := twoRows(t)
	for i := range singles {
		row := many.Suites[0]
		row.Suite, row.Row = "queue.cycle", fmt.Sprint("row", i)
		many.Suites = append(many.Suites, row)
	}
	if page := render(t, "html", many); strings.Contains(page, "<h2>Plots</h2>") {
		t.Errorf("the runs of %d rows are drawn above the table", len(many.Suites))
	}
}
