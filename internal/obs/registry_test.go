package obs

import (
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// counted is what a package might count.
type counted struct {
	done  uint64
	kinds map[string]uint64
	h     *Histogram
}

func table() []Metric[*counted] {
	return []Metric[*counted]{
		{Name: "millrace_test_done_total", Help: "What was done", Value: func(c *counted) float64 { return float64(c.done) }},
		{Name: "millrace_test_open_calls", Help: "What is open", Value: func(*counted) float64 { return -1.5 }},
		{
			Name: "millrace_test_kinds_total", Help: "By kind", Labels: []string{"kind"}, Bound: 5,
			Values: func(c *counted, put func(float64, ...string)) {
				for kind, n := range c.kinds {
					put(float64(n), kind)
				}
			},
		},
		{Name: "millrace_test_wait_seconds", Help: "How long it took", Spread: func(c *counted) Distribution { return c.h.Read(1e-3) }},
	}
}

// families reads what a registry serves, as Prometheus does.
func families(t *testing.T, r *Registry) map[string]*dto.MetricFamily {
	t.Helper()
	rec := httptest.NewRecorder()
	r.Handler().ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
	if rec.Code != http.StatusOK {
		t.Fatalf("%d %s", rec.Code, rec.Body)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	out, err := parser.TextToMetricFamilies(rec.Body)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestATableIsServedAsPrometheusReadsIt(t *testing.T) {
	c := &counted{done: 7, kinds: map[string]uint64{"a": 1, "b\"\n\\": 2}, h: NewHistogram(1, 3)}
	for _, v := range []uint64{0, 1, 2, 3, 4, 9, 100} {
		c.h.Observe(v)
	}
	r := NewRegistry()
	if err := Add(r, func() (*counted, bool) { return c, true }, table()); err != nil {
		t.Fatal(err)
	}
	got := families(t, r)
	if f := got["millrace_test_done_total"]; f.GetType() != dto.MetricType_COUNTER || f.GetMetric()[0].GetCounter().GetValue() != 7 || f.GetHelp() != "What was done." {
		t.Errorf("counter: %v", f)
	}
	if f := got["millrace_test_open_calls"]; f.GetType() != dto.MetricType_GAUGE || f.GetMetric()[0].GetGauge().GetValue() != -1.5 {
		t.Errorf("gauge: %v", f)
	}
	if f := got["millrace_test_kinds_total"]; len(f.GetMetric()) != 2 || f.GetMetric()[1].GetLabel()[0].GetValue() != "b\"\n\\" {
		t.Errorf("labels: %v", f)
	}
	h := got["millrace_test_wait_seconds"].GetMetric()[0].GetHistogram()
	if h.GetSampleCount() != 7 || math.Abs(h.GetSampleSum()-0.119) > 1e-9 {
		t.Errorf("histogram: %v", h)
	}
	for i, want := range []struct {
		bound float64
		below uint64
	}{{0.001, 2}, {0.002, 3}, {0.004, 5}} {
		if b := h.GetBucket()[i]; b.GetUpperBound() != want.bound || b.GetCumulativeCount() != want.below {
			t.Errorf("bucket %d: %v, want %v", i, b, want)
		}
	}
	for _, name := range []string{"go_goroutines", "go_gc_duration_seconds", "process_cpu_seconds_total"} {
		if got[name] == nil {
			t.Errorf("%s is missing", name)
		}
	}
}

func TestSeriesBeyondTheBoundAreAddedUp(t *testing.T) {
	c := &counted{kinds: make(map[string]uint64), h: NewHistogram(1, 1)}
	r := NewRegistry()
	if err := Add(r, func() (*counted, bool) { return c, true }, table()); err != nil {
		t.Fatal(err)
	}
	c.kinds["first"] = 1
	families(t, r)
	for i := range 10_000 {
		c.kinds[fmt.Sprintf("kind %d", i)] = 1
	}
	c.kinds["\xff\xfe"] = 1 // no text
	c.kinds["\xfe\xff"] = 1 // shown the same
	sums := make(map[string]float64)
	for range 3 {
		f := families(t, r)["millrace_test_kinds_total"]
		if len(f.GetMetric()) != 5 {
			t.Fatalf("%d series", len(f.GetMetric()))
		}
		total := 0.0
		for _, m := range f.GetMetric() {
			total += m.GetCounter().GetValue()
			sums[m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
		}
		if total != 10_003 {
			t.Errorf("the series add up to %v", total)
		}
	}
	if len(sums) != 5 || sums["first"] != 1 || sums["other"] < 9998 {
		t.Errorf("other series in another scrape, or one that was there has gone: %v", sums)
	}
}

func TestATableWhoseSourceIsNotThereYetIsEmpty(t *testing.T) {
	there := false
	r := NewRegistry()
	if err := Add(r, func() (*counted, bool) { return &counted{h: NewHistogram(1, 1)}, there }, table()); err != nil {
		t.Fatal(err)
	}
	if f := families(t, r)["millrace_test_done_total"]; f != nil {
		t.Errorf("%v", f)
	}
	there = true
	if f := families(t, r)["millrace_test_done_total"]; f == nil {
		t.Error("it is not served")
	}
}

func TestRulesOfMetricsAreHeld(t *testing.T) {
	one := func(*counted) float64 { return 1 }
	many := func(*counted, func(float64, ...string)) {}
	for name, m := range map[string]Metric[*counted]{
		"without prefix":       {Name: "wal_syncs_total", Help: "H", Value: one},
		"without unit":         {Name: "millrace_wal_syncs", Help: "H", Value: one},
		"in capitals":          {Name: "millrace_wal_Syncs_total", Help: "H", Value: one},
		"package only":         {Name: "millrace_total", Help: "H", Value: one},
		"without help":         {Name: "millrace_wal_syncs_total", Value: one},
		"help with full stop":  {Name: "millrace_wal_syncs_total", Help: "H.", Value: one},
		"no reader":            {Name: "millrace_wal_syncs_total", Help: "H"},
		"two readers":          {Name: "millrace_wal_syncs_total", Help: "H", Value: one, Values: many, Labels: []string{"a"}, Bound: 1},
		"labels without bound": {Name: "millrace_wal_syncs_total", Help: "H", Values: many, Labels: []string{"a"}},
		"labels and one value": {Name: "millrace_wal_syncs_total", Help: "H", Value: one, Labels: []string{"a"}},
		"bound of a million":   {Name: "millrace_wal_syncs_total", Help: "H", Values: many, Labels: []string{"a"}, Bound: 1e6},
		"a spread that grows":  {Name: "millrace_wal_syncs_total", Help: "H", Spread: func(*counted) Distribution { return Distribution{} }},
	} {
		r := NewRegistry()
		if err := Add(r, func() (*counted, bool) { return nil, false }, []Metric[*counted]{m}); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	r := NewRegistry()
	twice := []Metric[*counted]{{Name: "millrace_a_b_total", Help: "H", Value: one}}
	if err := Add(r, func() (*counted, bool) { return nil, false }, twice); err != nil {
		t.Error(err)
	}
	if err := Add(r, func() (*counted, bool) { return nil, false }, twice); err == nil || !strings.Contains(err.Error(), "twice") {
		t.Errorf("a metric that is there already: %v", err)
	}
}

func TestTheReferenceOfARegistryHasItsRows(t *testing.T) {
	r := NewRegistry()
	if err := Add(r, func() (*counted, bool) { return nil, false }, table()); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, row := range r.Rows() {
		got = append(got, fmt.Sprintf("%s %s %v %d", row.Name, row.Type, row.Labels, row.Bound))
	}
	want := []string{
		"millrace_test_done_total counter [] 1", "millrace_test_kinds_total counter [kind] 5",
		"millrace_test_open_calls gauge [] 1", "millrace_test_wait_seconds histogram [] 1",
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("rows %v", got)
	}
}

func TestScrapesAtOnceAreBounded(t *testing.T) {
	entered, leave := make(chan bool, scrapes), make(chan bool)
	r := NewRegistry()
	read := func() (*counted, bool) {
		entered <- true
		<-leave
		return nil, false
	}
	if err := Add(r, read, table()); err != nil {
		t.Fatal(err)
	}
	h := r.Handler()
	var all sync.WaitGroup
	for range scrapes {
		all.Go(func() { h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/metrics", nil)) })
	}
	for range scrapes {
		<-entered
	}
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
	if rec.Code != http.StatusServiceUnavailable {
		b, _ := io.ReadAll(rec.Body)
		t.Errorf("one more: %d %s", rec.Code, b)
	}
	close(leave)
	all.Wait()
}
