package e2e

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	millrace "github.com/millrace/millrace/sdk/go"
)

// counted reads a count from the environment: a campaign asks for more than the tests of a change do.
func counted(name string, usual int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil && n > 0 {
		return n
	}
	return usual
}

// MILLRACE_SEARCHES and MILLRACE_SEARCH_POINTS make more of it; from about 25,000 points on there is a graph as well.
func TestRandomSearchesByEveryDoorNeverLeakNeverMissAndCountExactly(t *testing.T) {
	t.Parallel()
	searches, points := counted("MILLRACE_SEARCHES", 240), counted("MILLRACE_SEARCH_POINTS", 400)
	for _, kernel := range []string{"", "purego"} {
		t.Run("kernel "+kernel, func(t *testing.T) {
			l := startLocal(t, holder{tenant: "acme", role: "admin"})
			if kernel != "" {
				l.stop()
				l.kernel = kernel
				l.start()
			}
			ctx, cancel := context.WithTimeout(t.Context(), 4*time.Hour)
			defer cancel()
			w := newNurses(t, ctx, l, points)
			w.try(t, ctx, searches)
			if w.plans["scan"] == 0 || w.plans["exact"] == 0 {
				t.Errorf("plans %v", w.plans)
			}
			t.Logf("plans %v", w.plans)
		})
	}
}

func newRand(seed int) *rand.Rand { return rand.New(rand.NewPCG(uint64(seed), 5)) }

func newNurses(t *testing.T, ctx context.Context, l *local, points int) *nurseWorld {
	t.Helper()
	w := &nurseWorld{
		r: newRand(counted("MILLRACE_SEED", 1)), nurses: map[string]*nurse{}, ids: points * 4 / 3, plans: map[string]int{},
	}
	for _, mode := range []millrace.TransportMode{millrace.TransportStream, millrace.TransportREST} {
		c := l.client(0, millrace.Transport(mode))
		door, def := nurses(c, "nurses")
		if _, err := door.Create(ctx, def); err != nil {
			t.Fatal(err)
		}
		if _, err := c.PublishRules(ctx, "nurses", "nurses", nurseRules); err != nil {
			t.Fatal(err)
		}
		w.doors = append(w.doors, door)
	}
	noErr(t, w.change(ctx, 2*points))
	return w
}

func (w *nurseWorld) try(t *testing.T, ctx context.Context, searches int) {
	t.Helper()
	for i := range searches {
		if i%20 == 19 {
			noErr(t, w.change(ctx, 1+w.r.IntN(30)))
		}
		s, also := w.ask()
		found, err := w.door().Search(ctx, s)
		if e, ok := errors.AsType[*millrace.Error](err); ok && e.Reason == "unknown_role" && len(w.nurses) < 50 {
			continue
		}
		noErr(t, err)
		w.plans[found.Plan]++
		if err := w.judge(&s, also, found); err != nil {
			t.Fatalf("search %d, %+v: %v", i, s.Gate, err)
		}
		counts, err := w.door().Count(ctx, s.Gate)
		if err != nil || counts != found.Gate {
			t.Fatalf("search %d: count %+v, %v, want %+v", i, counts, err, found.Gate)
		}
		if i%3 == 0 {
			if err := w.narrower(ctx, s, found); err != nil {
				t.Fatalf("search %d, %+v: %v", i, s.Gate, err)
			}
		}
	}
}
