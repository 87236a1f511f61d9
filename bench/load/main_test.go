package load

import (
	"context"
	"encoding/json"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/bench"
)

// TestMain is also the null server: the bench starts it as a process of its own, from the executable that it is.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && slices.Equal(os.Args[1:3], []string{"bench", "null-server"}) {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		err := NullServer(ctx, func(grpc, http string) {
			_ = json.NewEncoder(os.Stdout).Encode(map[string]string{"grpc": grpc, "http": http})
		})
		if err != nil {
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func TestAThrottledDriverIsReportedAsTheWall(t *testing.T) {
	s := cycle(slow(2 * time.Millisecond))
	s.Rows[0].NoCeiling = false
	r := measure(t, s, startFaulty(t, faults{}), func(_ *bench.Config, h *bench.Harness) {
		h.NullServer = NullServer
	})
	row := r.Suites[0]
	if row.Ceiling == nil || !row.Ceiling.Bound || row.Ceiling.Reached < 0.8 {
		t.Fatalf("ceiling %+v, warnings %+v: want a row that is bound by its generator", row.Ceiling, row.Warnings)
	}
	if v := row.Label.Validity; v != bench.LowerBound {
		t.Errorf("the row is %q, want %q", v, bench.LowerBound)
	}
}

// slow is Queue with pumps that rest before each call.
func slow(rest time.Duration) bench.Driver {
	return func(ctx context.Context, rig *bench.Rig) error {
		q := newQueueRun(rig)
		pump := q.pump()
		q.call = func(ctx context.Context, p *bench.Pump) {
			<-time.After(rest)
			pump(ctx, p)
		}
		return q.run(ctx)
	}
}
