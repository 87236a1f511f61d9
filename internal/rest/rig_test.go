package rest

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api"
	"github.com/millrace/millrace/internal/api/apitest"
	"github.com/millrace/millrace/internal/auth"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
	"github.com/millrace/millrace/internal/env"
)

func (r *rig) tasks() pb.TaskServiceClient { return pb.NewTaskServiceClient(r.conn) }

// pass lets rounds of the sweep pass until ok.
func (r *rig) pass(what string, ok func() bool) {
	r.t.Helper()
	apitest.Eventually(r.t, what, func() bool {
		r.clock.Advance(time.Second)
		return ok()
	})
}

// claims makes the node's claims answer with one task of their partition where there is a backlog, else when the clock has
// moved; it returns where they were.
func (r *rig) claims() func() []uint16 {
	var seen []uint16
	r.n.OnClaimAt = func(ctx context.Context, p core.Partition, s core.ClaimSpec) ([]core.Assigned, error) {
		r.n.Mu.Lock()
		seen = append(seen, p.Index)
		ready := r.n.Ready[p.Index]
		r.n.Mu.Unlock()
		if ready {
			return []core.Assigned{{Task: core.PlacedID(1e12, p.Index, 4, [9]byte{1}), Token: 2}}, nil
		}
		if s.Wait == 0 {
			return nil, nil
		}
		timer := r.clock.NewTimer(s.Wait.Duration())
		defer timer.Stop()
		select {
		case <-timer.C():
			return nil, nil
		case <-ctx.Done():
			return nil, core.DeadlineExceeded{}
		}
	}
	return func() []uint16 {
		r.n.Mu.Lock()
		defer r.n.Mu.Unlock()
		out := seen
		seen = nil
		return out
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a server over an in-memory listener, with a client.
type rig struct {
	embedder *apitest.Embedder
	t        *testing.T
	s        *api.Server
	n        *apitest.Node
	clock    *apitest.Clock
	auth     *apitest.Auth
	lis      *bufconn.Listener
	conn     *grpc.ClientConn
	logs     *strings.Builder
	served   chan error
	// refused is how many tokens the server has told to be refused.
	refused atomic.Int64
}

// tells runs f, and expects the server to tell of that number of refused tokens meanwhile.
func (r *rig) tells(what string, refused int64, f func()) {
	r.t.Helper()
	before := r.refused.Load()
	f()
	if got := r.refused.Load() - before; got != refused {
		r.t.Errorf("%s: %d refused tokens are told, want %d", what, got, refused)
	}
}

func newRig(t *testing.T, l edge.Limits) *rig {
	t.Helper()
	return newRigWith(t, l, edge.Memory{})
}

func newRigWith(t *testing.T, l edge.Limits, m edge.Memory) *rig {
	t.Helper()
	r := &rig{
		t: t, clock: new(apitest.Clock), auth: &apitest.Auth{Revoked: make(map[string]bool)}, lis: bufconn.Listen(1 << 20),
		logs: new(strings.Builder), served: make(chan error, 1),
	}
	r.n = apitest.NewNode(r.clock)
	r.auth.Planter = &r.n.Planter
	r.embedder = &apitest.Embedder{Planter: &r.n.Planter}
	calls := auth.NewCalls(r.auth, apitest.SweepClock{Clock: r.clock})
	t.Cleanup(calls.Close)
	var err error
	r.s, err = api.New(api.Options{
		Backend: r.n, Refs: r.n, Objects: apitest.Objects{Planter: &r.n.Planter}, Auth: r.auth, Calls: calls, Clock: r.clock, Rand: env.NewSeededRand(1), Limits: l, Memory: m, Version: "v1",
		Refused:  func(auth.Principal, string) { r.refused.Add(1) },
		Operator: apitest.Operator{Planter: &r.n.Planter}, Backups: r.n, Embedder: r.embedder,
		Logger: slog.New(slog.NewTextHandler(&apitest.LockedWriter{W: r.logs}, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	go func() { r.served <- r.s.Serve(r.lis) }()
	apitest.Eventually(t, "the sweep waits", func() bool { return r.clock.Armed() == 1 }) // so that tests can count their timers
	r.conn = apitest.Dial(r.t, r.lis)
	t.Cleanup(r.close)
	return r
}

func defaultLimits(t testing.TB) *edge.Limits {
	t.Helper()
	l, err := edge.Limits{}.WithDefaults()
	if err != nil {
		t.Fatal(err)
	}
	return &l
}

// free reports whether the edge holds nothing of any caller.
func (r *rig) free() bool {
	st, searches := r.s.Stats(), r.s.SearchStats()
	return st.Calls == 0 && st.Streams == 0 && st.Held == edge.Held{} && searches.Running == 0 && searches.Waiting == 0
}

func (r *rig) close() {
	_ = r.conn.Close() // already closed by some tests
	r.s.Shutdown(0)
	if err := <-r.served; err != nil {
		r.t.Errorf("serve: %v", err)
	}
}

// Methods whose streams a test opens.
const (
	openMethod = "/millrace.v1.QueueStream/Open"
	putMethod  = "/millrace.v1.KVService/Put"
)

// Units of limits, for tests.
const (
	mib    = 1 << 20
	minute = 60 * second
)

// What is kept of the error of a task that failed, in bytes.
const (
	shownCodeBytes    = 64
	shownMessageBytes = 4 * kib
	shownStackBytes   = 16 * kib
)
