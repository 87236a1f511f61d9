package row

import (
	"strings"
	"testing"

	"github.com/millrace/millrace/bench/load"
)

// A run in which anything grows by more than a tenth after its beginning, or a search fails, is found.
func TestASoakInWhichSomethingGrowsIsFound(t *testing.T) {
	series := func(from, to float64) (out []float64) {
		for i := range 100 {
			v := from
			if i >= 20 {
				v += (to - from) * float64(i-20) / 80
			}
			out = append(out, v)
		}
		out[70] = 100 * to // one look alone says nothing
		return out
	}
	flat := func() soakSeries {
		return soakSeries{resident: series(300, 310), goroutines: series(80, 84), files: series(60, 60)}
	}
	for name, grow := range map[string]func(*soakSeries){
		"":                func(*soakSeries) {},
		"resident memory": func(s *soakSeries) { s.resident = series(300, 360) },
		"goroutines":      func(s *soakSeries) { s.goroutines = series(80, 120) },
		"open files":      func(s *soakSeries) { s.files = series(60, 90) },
	} {
		s, o := flat(), newOutcome()
		grow(&s)
		if err := s.judge(o, false); (err == nil) != (name == "") || err != nil && !strings.Contains(err.Error(), name) || o.Invalid != "" {
			t.Errorf("%q: %v, %q", name, err, o.Invalid)
		}
		if err := s.judge(o, true); err != nil {
			t.Errorf("%q in a brief run: %v", name, err)
		}
	}
	few, o := soakSeries{resident: []float64{1}}, newOutcome()
	if err := few.judge(o, false); err != nil || o.Invalid == "" {
		t.Errorf("a run without metrics: %v, %q", err, o.Invalid)
	}
	broken := 1
	for _, f := range []*load.SearchFigures{{Errors: 1}, {Overloaded: 1}, {Violations: &broken}} {
		if failedSearches(f) == nil {
			t.Errorf("%+v does not count as a failure", f)
		}
	}
	if err := failedSearches(&load.SearchFigures{Requests: 9, Violations: new(int)}); err != nil {
		t.Error(err)
	}
}
