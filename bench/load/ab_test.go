package load

import (
	"context"
	"testing"
	"time"

	"github.com/millrace/millrace/bench"
)

// paced is a driver whose rate depends on which server it is given: of one it makes a twentieth less.
func paced(slow string) bench.Driver {
	return func(ctx context.Context, rig *bench.Rig) error {
		op := rig.Op("create")
		n := 1000
		if rig.Servers[0].Address == slow {
			n = 950
		}
		err := rig.MeasureWork(ctx, func(ctx context.Context) error {
			return bench.Pause(ctx, 20*time.Millisecond)
		})
		op.Count(0, n)
		rig.Metric("tasks", float64(n), "tasks/s")
		return err
	}
}

func TestTwoServersAreMeasuredInPairsAndTheSlowerOneIsFound(t *testing.T) {
	t.Parallel()
	base, head := startFaulty(t, faults{}), startFaulty(t, faults{})
	s := cycle(paced(head))
	s.Headline, s.Rows[0].Shape.Workers = "tasks", 0
	s.Rows[0].Profiles = []string{"look"}
	h := bench.Harness{
		Suites: []bench.Suite{s}, Profiles: []bench.Profile{{Name: "look"}}, Clocks: &steadyClock{}, Observer: &stolen{time.Now(), 0},
		Judge: func(r *bench.Result, _, _ bool) []bench.Verdict {
			return []bench.Verdict{{Name: "runs", Value: float64(len(r.Suites[0].Runs))}}
		},
	}
	for pairs, want := range map[int]struct {
		word string
		exit int
	}{6: {bench.Worse, bench.ExitFail}, 3: {bench.Unclear, bench.ExitNoVerdict}} {
		c := bench.Defaults()
		c.Profile, c.Target, c.Out, c.Token, c.Data = "look", head, t.TempDir(), "none", t.TempDir()
		r, err := bench.Against(t.Context(), c, h, base, pairs)
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Rows) != 1 || r.Rows[0].Word != want.word || r.Exit != want.exit {
			t.Errorf("%d pairs: %+v, exit code %d; want %s and %d", pairs, r.Rows, r.Exit, want.word, want.exit)
		}
		for _, side := range []string{"base", "head"} {
			raw, err := bench.Load(c.Out + "/" + side)
			if err != nil || len(raw.Suites) != 1 || len(raw.Suites[0].Runs) < pairs {
				t.Errorf("%s: %v; want the raw result of each side", side, err)
			} else if v := raw.Verdicts; len(v) != 1 || int(v[0].Value) != len(raw.Suites[0].Runs) {
				t.Errorf("%s: %+v; want each side judged by all of its runs", side, v)
			}
		}
	}
}

// steadyClock is a host whose clocks agree.
type steadyClock struct{}

var clockStart = time.Now()

func (steadyClock) Realtime() time.Duration  { return time.Since(clockStart) }
func (steadyClock) Monotonic() time.Duration { return time.Since(clockStart) }
func (steadyClock) Boottime() time.Duration  { return time.Since(clockStart) }
