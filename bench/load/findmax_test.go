package load

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/millrace/millrace/bench"
)

// TestTheHighestRateOfARealServerIsFound looks below a rate that any machine holds.
func TestTheHighestRateOfARealServerIsFound(t *testing.T) {
	if testing.Short() {
		t.Skip("measures for seconds")
	}
	t.Parallel()
	c := bench.Defaults()
	c.Select, c.Out, c.Data, c.Executable = []string{"queue.cycle/unbatched"}, t.TempDir(), t.TempDir(), self(t)
	c.Rate, c.Window = 100, time.Second
	r, err := bench.FindMax(t.Context(), c, bench.Harness{Suites: []bench.Suite{cycle(Queue)}, DrainWithin: time.Minute}, []string{"p99=20s"}, 200)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Rows) != 1 || len(r.Rows[0].Maxima) != 1 || r.Exit != bench.ExitOK {
		t.Fatalf("%+v", r)
	}
	row := r.Rows[0]
	if m := row.Maxima[0]; m.MaxRate < 1 || m.MaxRate > 200 || m.MaxRate != row.MaxRate || m.SLO != "p99=20s" || (m.FailsAt == 0) != (m.MaxRate == 200) {
		t.Errorf("%+v", m) // a busy machine may hold less than the top for 99 % of the arrivals
	}
	kept, err := bench.Load(filepath.Join(c.Out, "result.json"))
	if err != nil || len(kept.Suites) != len(row.Tries) {
		t.Fatalf("the result has %d rows for %d tries, %v", len(kept.Suites), len(row.Tries), err)
	}
	for i, try := range row.Tries {
		if want := fmt.Sprintf("unbatched@%v", try.Rate); kept.Suites[i].Row != want || try.Latency["create"].Count == 0 || try.Errors > 0 {
			t.Errorf("try %d: %+v, kept as %s", i, try, kept.Suites[i].Row)
		}
	}
}
