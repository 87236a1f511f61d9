package load

import (
	"context"
	"testing"
	"time"

	"github.com/millrace/millrace/bench"
)

func TestAnEntrySaysWhichProcessItsTimeGoesTo(t *testing.T) {
	if testing.Short() {
		t.Skip("measures for seconds")
	}
	t.Parallel()
	s := three(KeysUnary, bench.Shape{Producers: 1, Pumps: 1, Payload: 64, Key: 16, Transport: "calls"})
	s.Op = "put"
	c := bench.Defaults()
	c.Select, c.Data, c.Executable, c.Durability, c.Window = []string{s.Name + "/" + s.Rows[0].Name}, t.TempDir(), self(t), "none", time.Second
	h := bench.Harness{
		Suites: []bench.Suite{s}, DrainWithin: time.Minute,
		Sample: func(_ context.Context, admin string, window time.Duration) ([]byte, error) {
			if window != c.Window {
				t.Errorf("%s is profiled for %s", admin, window)
			}
			return []byte(admin), nil
		},
		Parts: func(cpu []byte, us float64) ([]bench.EntryPart, error) {
			return []bench.EntryPart{{Name: "of " + string(cpu), US: us, Share: 1}}, nil
		},
	}
	r, err := bench.Entry(t.Context(), c, h)
	if err != nil {
		t.Fatal(err)
	}
	if r.Entries == 0 || r.CPU <= 0 || len(r.Processes) != 4 || len(r.Parts()) != 4 {
		t.Fatalf("%+v", r)
	}
	for i, role := range []string{"client", "leader", "follower", "follower"} {
		if u := r.Processes[i]; u.Role != role || u.User+u.Kernel <= 0 || u.Sleeps <= 0 || u.Reads <= 0 || u.Writes <= 0 || u.Allocs <= 0 || u.Bytes <= 0 {
			t.Errorf("%+v", u)
		}
	}
	c.Durability = "both"
	if _, err := bench.Entry(t.Context(), c, bench.Harness{Suites: []bench.Suite{s}}); err == nil {
		t.Error("two durabilities were measured as one row")
	}
}
