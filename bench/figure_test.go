package bench

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"
)

var whole = Label{Durability: Fsync, Voters: 1, Topology: Procs, Validity: Valid}

func TestAFigureIsNotMadeWithoutItsLabel(t *testing.T) {
	for name, spoil := range map[string]func(*Label){
		"durability": func(l *Label) { l.Durability = "" },
		"voters":     func(l *Label) { l.Voters = 0 },
		"topology":   func(l *Label) { l.Topology = "" },
		"validity":   func(l *Label) { l.Validity = "" },
	} {
		l := whole
		spoil(&l)
		if f, err := NewFigure(l, "cycles/s", 1); err == nil {
			t.Errorf("a figure without %s was made: %s", name, f)
		} else if !strings.Contains(err.Error(), name) {
			t.Errorf("without %s: error %q does not name it", name, err)
		}
	}
	for _, v := range []float64{math.NaN(), math.Inf(1)} {
		if _, err := NewFigure(whole, "cycles/s", v); err == nil {
			t.Errorf("a figure of %v was made", v)
		}
	}
	if _, err := NewFigure(whole, "cycles/s"); err == nil {
		t.Error("a figure of no value was made")
	}
}

func figure(t *testing.T, values ...float64) Figure {
	t.Helper()
	f, err := NewFigure(whole, "cycles/s", values...)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestAFigureSumsUpItsRuns(t *testing.T) {
	f := figure(t, 100, 110, 90, 104, 96)
	if f.Median() != 100 || f.Min() != 90 || f.Max() != 110 || f.MAD() != 4 || f.Spread() != 0.2 {
		t.Errorf("median %v min %v max %v deviation %v spread %v", f.Median(), f.Min(), f.Max(), f.MAD(), f.Spread())
	}
	if _, _, ok := f.Interval(); ok {
		t.Error("5 runs have an interval")
	}
	low, high, ok := figure(t, 6, 1, 2, 3, 4, 5).Interval()
	if !ok || low != 1 || high != 6 {
		t.Errorf("the interval of 6 runs is %v to %v, %v; want the extremes", low, high, ok)
	}
	low, high, _ = figure(t, 1, 2, 3, 4, 5, 6, 7, 8, 9).Interval()
	if low != 2 || high != 8 {
		t.Errorf("the interval of 9 runs is %v to %v, want 2 to 8", low, high)
	}
	if got := figure(t, 100, 101, 99, 100, 300).Outliers(); !slices.Equal(got, []int{4}) {
		t.Errorf("outliers %v, want the last", got)
	}
}

func TestAFigurePrintsItsLabel(t *testing.T) {
	f := figure(t, 45120, 45000, 46000)
	if got, want := f.String(), "45,120 cycles/s · fsync×1 · procs · median of 3 (spread 2 %)"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got, want := f.With(LowerBound).String(), "≥ 45,120 cycles/s · fsync×1 · procs · median of 3 (spread 2 %) · at least"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := (Figure{}).String(); got != "not measured" {
		t.Errorf("no figure prints as %q", got)
	}
}

func TestAFigureSurvivesJSON(t *testing.T) {
	f := figure(t, 3, 1, 2).With(Unsteady)
	b, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	var back Figure
	if err := json.Unmarshal(b, &back); err != nil || back.String() != f.String() || !slices.Equal(back.Values(), f.Values()) {
		t.Errorf("%s became %s, err %v", f, back, err)
	}
	if err := json.Unmarshal([]byte(`{"unit":"cycles/s","values":[1]}`), &back); err == nil {
		t.Error("a figure without a label was read")
	}
	for v, want := range map[float64]string{0: "0", 0.0421: "0.0421", 9.876: "9.88", 45.67: "45.7", 999.6: "1,000", 1234567: "1,234,567", -1500: "-1,500"} {
		if got := Number(v); got != want {
			t.Errorf("%v prints as %s, want %s", v, got, want)
		}
	}
}
