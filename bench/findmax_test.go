package bench

import (
	"errors"
	"testing"
	"time"
)

func TestTheHighestRateIsFoundWithinFivePercent(t *testing.T) {
	for _, c := range []struct{ first, top, limit float64 }{
		{1000, maxRate, 1000}, {1000, maxRate, 12_345}, {1000, maxRate, 999}, {1000, maxRate, 37}, {1, maxRate, 2_345_678}, {500, 4000, 1e9}, {1000, maxRate, 0.5},
	} {
		tries := 0
		low, high, err := highest(c.first, c.top, func(rate float64) (bool, error) {
			tries++
			if rate < 1 || rate > c.top {
				t.Errorf("%v is tried", rate)
			}
			return rate <= c.limit, nil
		})
		if err != nil || tries > 40 {
			t.Fatalf("limit %v: %v after %d tries", c.limit, err, tries)
		}
		switch {
		case c.limit < 1:
			if low != 0 || high != 1 {
				t.Errorf("nothing passes: %v to %v", low, high)
			}
		case c.limit >= c.top:
			if low != c.top || high != 0 {
				t.Errorf("everything passes: %v to %v", low, high)
			}
		case low > c.limit || high <= c.limit || high-low > max(maxWithin*low, 1):
			t.Errorf("limit %v: between %v and %v", c.limit, low, high)
		}
	}
}

func TestTheSearchEndsWithAnError(t *testing.T) {
	broken := errors.New("broken")
	if _, _, err := highest(10, 100, func(rate float64) (bool, error) {
		if rate > 10 {
			return false, broken
		}
		return true, nil
	}); !errors.Is(err, broken) {
		t.Error(err)
	}
}

func TestWhatAnSLOMaySay(t *testing.T) {
	for s, want := range map[string]SLO{
		"p99=10ms": {"", "p99", 10 * time.Millisecond}, "claim.p95=5ms": {"claim", "p95", 5 * time.Millisecond}, "max=1s": {"", "max", time.Second},
	} {
		got, err := ParseSLO(s)
		if err != nil || got != want || got.String() != s {
			t.Errorf("%s: %+v (%s), %v", s, got, got, err)
		}
	}
	for _, s := range []string{"", "p99", "p99=", "p99=fast", "p99=-1ms", "p98=1ms", "=1ms"} {
		_, err := ParseSLO(s)
		if u, ok := errors.AsType[*UsageError](err); !ok || u.Field != "slo" {
			t.Errorf("%q: %v", s, err)
		}
	}
}

func TestARateFailsForWhatItDid(t *testing.T) {
	run := func(change func(*Run)) *Run {
		r := &Run{
			Seconds: 10, Calls: map[string]Calls{"create": {OK: 1000}}, Latency: map[string]Latency{"create": {Count: 1000, P99: 9000}},
			Metrics: map[string]Metric{"creates_per_s": {100, ""}, "cycles_per_s": {100, ""}},
		}
		change(r)
		return r
	}
	slo := SLO{Quantile: "p99", Most: 10 * time.Millisecond}
	for what, c := range map[string]struct {
		change func(*Run)
		why    string
	}{
		"holds":            {func(*Run) {}, ""},
		"is slow":          {func(r *Run) { r.Latency["create"] = Latency{Count: 1, P99: 10_001} }, "p99 of create is 10,001 µs"},
		"falls behind":     {func(r *Run) { r.Calls["create"] = Calls{OK: 980} }, "98.0 % of the arrivals ended well"},
		"leaves a rest":    {func(r *Run) { r.Metrics["cycles_per_s"] = Metric{98, ""} }, "2.0 % of what was created waited at the end"},
		"ends late":        {func(r *Run) { r.Seconds, r.Calls["create"] = 10.009, Calls{OK: 990} }, ""},
		"has errors":       {func(r *Run) { r.Errors = []ErrorClass{{Count: 3}} }, "3 errors"},
		"refuses":          {func(r *Run) { r.Calls["create"] = Calls{OK: 999, Refused: 1} }, "1 errors"},
		"was not measured": {func(r *Run) { r.Latency = nil }, "nothing of create was measured"},
	} {
		try := tryOf("create", 100, run(c.change))
		if why := try.fails(slo); why != c.why {
			t.Errorf("%s: %q, not %q", what, why, c.why)
		}
	}
	late := tryOf("create", 100, run(func(r *Run) {
		r.Excluded = []Exclusion{{Cause: GeneratorSaturated, Detail: "calls began late"}, {Cause: Steal, Detail: "stolen"}}
	}))
	if late.Limited != "calls began late" || late.Spoiled != "stolen" || late.fails(slo) != "" {
		t.Errorf("%+v", late)
	}
}
