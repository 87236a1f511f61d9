package bench

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// paired judges pairs with these ratios.
func paired(t *testing.T, unit string, ratios ...float64) *AB {
	t.Helper()
	ab := &AB{Unit: unit}
	for _, r := range ratios {
		ab.Pairs = append(ab.Pairs, Pair{Base: 100, Head: 100 * r, Ratio: r})
	}
	spec := &runSpec{suite: &Suite{Name: "s"}, row: &RowSpec{Name: "r"}, durability: Fsync, topology: Procs, group: true}
	if err := ab.judge(spec); err != nil {
		t.Fatal(err)
	}
	return ab
}

func TestSixPairsFindABuildThatIsFivePercentSlower(t *testing.T) {
	slower := []float64{0.95, 0.96, 0.94, 0.955, 0.945, 0.97}
	for _, c := range []struct {
		what   string
		unit   string
		ratios []float64
		word   string
		exit   int
	}{
		{"5 % slower", "cycles/s", slower, Worse, ExitFail},
		{"5 % less time", "µs", slower, Better, ExitOK},
		{"three pairs", "cycles/s", slower[:3], Unclear, ExitNoVerdict},
		{"five pairs", "cycles/s", slower[:5], Unclear, ExitNoVerdict},
		{"noise", "cycles/s", []float64{0.95, 1.04, 0.97, 1.02, 0.99, 1.01}, Unchanged, ExitOK},
		{"sure and small", "cycles/s", []float64{0.98, 0.981, 0.979, 0.982, 0.98, 0.98}, Unchanged, ExitOK},
		{"faster", "cycles/s", []float64{1.08, 1.07, 1.1, 1.09, 1.06, 1.2}, Better, ExitOK},
		{"none", "cycles/s", nil, Unclear, ExitNoVerdict},
	} {
		ab := paired(t, c.unit, c.ratios...)
		r := ABResult{Rows: []AB{*ab}}
		none := &abSide{u: &runner{r: &Result{}}}
		if exit := r.exit([2]*abSide{none, none}); ab.Word != c.word || exit != c.exit {
			t.Errorf("%s: %s, exit code %d (%s); want %s and %d", c.what, ab.Word, exit, ab.Why, c.word, c.exit)
		}
	}
}

func TestTheOtherSideIsAProgramOrAServerAsThisOneIs(t *testing.T) {
	program := filepath.Join(t.TempDir(), "millrace")
	if err := os.WriteFile(program, nil, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ base, target, field string }{
		{program, "", ""}, {"db1:7081", "db2:7081", ""}, {program, "db2:7081", "base"}, {"db1:7081", "", "target"}, {"nothing", "", "base"},
	} {
		config := Config{Target: c.target}
		_, err := config.against(c.base)
		field := ""
		if u, ok := errors.AsType[*UsageError](err); ok {
			field = u.Field
		}
		if field != c.field || (err == nil) != (c.field == "") {
			t.Errorf("base %s, target %q: %v, want a refusal of %q", c.base, c.target, err, c.field)
		}
	}
}
