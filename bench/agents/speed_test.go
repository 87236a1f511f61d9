package agents

import (
	"errors"
	"strings"
	"testing"
)

func TestAResultTellsWhichFiguresAreAsTheyMustBe(t *testing.T) {
	r := &Result{}
	add := func(language, load string, rate, cpu, p50 float64) {
		r.Runs = append(r.Runs, Run{Language: language, Load: load, Rate: rate, CPU: cpu, P50: p50})
	}
	// One round far off does not matter: medians are judged.
	for _, off := range []float64{1, 1, 1000} {
		add("go", "cycle", 10_000*off, 20/off, 0)
		add("go", "one", 0, 0, 200)
		add("typescript", "cycle", 6_000*off, 60/off, 0)
		add("typescript", "add_many", 0, 30, 0)
		add("typescript", "unary", 0, 600, 0)
		add("typescript", "one", 0, 0, 400)
	}
	r.Begins = []Begin{{Language: "typescript", FirstCall: 0.2, RSS: 70}}
	r.judge([]Language{{Name: "go"}, {Name: "typescript"}})
	want := map[string]bool{
		"cycles, of Go's": true, "client CPU per cycle, of Go's": true, "client CPU per task of add_many": false,
		"client CPU of a unary cycle, of the stream's": true, "p50 of one add at a time, over Go's": true,
		"start until the first add is answered": true, "RSS of an idle worker": true,
	}
	for _, l := range r.Lines {
		if l.Language == "typescript" && l.Met != want[l.Figure] {
			t.Errorf("%+v", l)
		}
		delete(want, l.Figure)
	}
	if len(want) > 0 {
		t.Errorf("no lines for %v", want)
	}
	if n := r.Missed(); n != 1 {
		t.Errorf("%d figures are missed, not 1", n)
	}
	var b strings.Builder
	if err := r.Table(&b); err != nil {
		t.Fatal(err)
	}
	for _, row := range []string{
		"| typescript | client CPU per cycle, of Go's | 3 × | ≤ 3.5 | 2.5 | met |\n", "| typescript | client CPU per task of add_many | 30 µs | ≤ 20 | 12 | missed |\n",
	} {
		if !strings.Contains(b.String(), row) {
			t.Errorf("the table lacks %q:\n%s", row, b.String())
		}
	}
}

func TestALanguageThatIsNotThereIsRefused(t *testing.T) {
	s := &Speed{Checkout: "../..", Rounds: 1, Languages: []string{"cobol"}}
	if _, err := s.Measure(t.Context()); !errors.Is(err, ErrNoAgent) {
		t.Errorf("cobol: %v", err)
	}
}
