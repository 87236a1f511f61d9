package bench

import (
	"errors"
	"math"
	"strings"
	"testing"
)

// rated is a result with a row of these rates, of one host.
func rated(t *testing.T, rows map[string][]float64) *Result {
	t.Helper()
	r := &Result{Schema: Schema, Env: Env{HostHash: "h"}}
	for _, name := range sortedKeys(rows) {
		l := Label{Durability: Fsync, Voters: 1, Topology: Procs, Validity: Valid}
		unit := "cycles/s"
		if strings.HasPrefix(name, "latency") {
			unit = "µs"
		}
		f, err := NewFigure(l, unit, rows[name]...)
		if err != nil {
			t.Fatal(err)
		}
		r.Suites = append(r.Suites, Row{Suite: "s", Row: name, Durability: l.Class(), Label: l, Summary: f, Headline: "cycles_per_s"})
	}
	return r
}

func words(t *testing.T, old, new map[string][]float64) string {
	t.Helper()
	all, err := Compare(rated(t, old), rated(t, new), false)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, c := range all {
		out = append(out, c.Row+" "+c.Word)
	}
	return strings.Join(out, ", ")
}

var (
	hundred = []float64{100, 101, 99, 100.5, 99.5, 100.2}
	ninety  = []float64{90, 91, 89, 90.5, 89.5, 90.2}
)

func TestAResultComparedWithItselfHasNotChanged(t *testing.T) {
	if got := words(t, map[string][]float64{"a": hundred, "b": ninety}, map[string][]float64{"a": hundred, "b": ninety}); got != "a no change, b no change" {
		t.Errorf("a result and itself: %s", got)
	}
}

func TestAChangeIsCalledByWhetherMoreIsBetter(t *testing.T) {
	got := words(t, map[string][]float64{"rate": hundred, "latency": hundred}, map[string][]float64{"rate": ninety, "latency": ninety})
	if want := "latency better, rate worse"; got != want {
		t.Errorf("10 %% less: %s, want %s", got, want)
	}
}

func TestASmallChangeIsNoneHoweverSureItIs(t *testing.T) {
	up := make([]float64, len(hundred))
	for i, v := range hundred {
		up[i] = v * 1.025
	}
	if got := words(t, map[string][]float64{"a": hundred}, map[string][]float64{"a": up}); got != "a no change" {
		t.Errorf("2.5 %% more: %s", got)
	}
}

func TestThreeRunsOfASideDecideNothing(t *testing.T) {
	if got := words(t, map[string][]float64{"a": hundred}, map[string][]float64{"a": ninety[:3]}); got != "a cannot decide" {
		t.Errorf("three runs: %s", got)
	}
	all, err := Compare(rated(t, map[string][]float64{"a": hundred}), rated(t, map[string][]float64{"a": ninety[:3]}), false)
	if err != nil || CompareExit(all) != ExitNoVerdict {
		t.Errorf("exit code %d, %v; want %d", CompareExit(all), err, ExitNoVerdict)
	}
}

func TestManyRowsNeedSurerChanges(t *testing.T) {
	old, new := map[string][]float64{}, map[string][]float64{}
	for _, name := range []string{"a", "b", "c", "d"} {
		old[name], new[name] = hundred[:4], ninety[:4] // p = 2/70 each
	}
	if got := words(t, map[string][]float64{"a": old["a"]}, map[string][]float64{"a": new["a"]}); got != "a worse" {
		t.Errorf("one row: %s", got)
	}
	if got := words(t, old, new); strings.Contains(got, "worse") {
		t.Errorf("four rows: %s, want none that is sure", got)
	}
}

func TestResultsOfOtherHostsAreComparedOnlyWhenForced(t *testing.T) {
	a, b := rated(t, map[string][]float64{"a": hundred}), rated(t, map[string][]float64{"a": ninety})
	b.Env.HostHash = "other"
	_, err := Compare(a, b, false)
	if u, ok := errors.AsType[*UsageError](err); !ok || u.Field != "force" {
		t.Errorf("error %v, want a refusal that names force", err)
	}
	if all, err := Compare(a, b, true); err != nil || all[0].Word != Worse || CompareExit(all) != ExitFail {
		t.Errorf("forced: %+v, %v", all, err)
	}
	b.Env.HostHash, b.Suites[0].Durability = "h", "none×1"
	if _, err := Compare(a, b, true); err == nil {
		t.Error("fsync was compared with none")
	}
}

func TestMannWhitneyIsExactForFewAndApproximateForMany(t *testing.T) {
	for _, c := range []struct {
		a, b []float64
		p    float64
	}{
		{[]float64{1, 2, 3, 4}, []float64{5, 6, 7, 8}, 2.0 / 70},
		{[]float64{1, 2, 3, 4, 5, 6}, []float64{7, 8, 9, 10, 11, 12}, 2.0 / 924},
		{[]float64{1, 3, 5, 7}, []float64{2, 4, 6, 8}, 0.6857}, // by tables: U = 6
		{[]float64{5, 5, 5, 5}, []float64{5, 5, 5, 5}, 1},
	} {
		if got := mannWhitney(c.a, c.b); math.Abs(got-c.p) > 1e-3 {
			t.Errorf("%v and %v: p %.4f, want %.4f", c.a, c.b, got, c.p)
		}
	}
	var a, b []float64
	for i := range 30 {
		a, b = append(a, float64(i)), append(b, float64(i)+40)
	}
	if p := mannWhitney(a, b); p > 1e-9 {
		t.Errorf("30 runs that do not overlap: p %v", p)
	}
	if p := mannWhitney(a, a); p < 0.95 {
		t.Errorf("30 runs and themselves: p %v", p)
	}
}
