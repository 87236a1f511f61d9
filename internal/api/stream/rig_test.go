package stream

import (
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/millrace/millrace/internal/api"
	"github.com/millrace/millrace/internal/api/apitest"
	"github.com/millrace/millrace/internal/auth"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

const (
	kib = 1 << 10
	mib = 1 << 20
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a server with streams over an in-memory listener, with a client.
type rig struct {
	t      *testing.T
	s      *api.Server
	d      *door
	n      *apitest.Node
	clock  *apitest.Clock
	auth   *apitest.Auth
	lis    *bufconn.Listener
	conn   *grpc.ClientConn
	served chan error
	// refused is how many tokens the server has told to be refused.
	refused atomic.Int64
}

func newRig(t *testing.T, l edge.Limits) *rig {
	t.Helper()
	return newRigWith(t, l, edge.Memory{})
}

func newRigWith(t *testing.T, l edge.Limits, m edge.Memory) *rig {
	t.Helper()
	r := &rig{
		t: t, clock: new(apitest.Clock), auth: &apitest.Auth{Revoked: make(map[string]bool)}, lis: bufconn.Listen(1 << 20),
		served: make(chan error, 1),
	}
	r.n = apitest.NewNode(r.clock)
	r.auth.Planter = &r.n.Planter
	calls := auth.NewCalls(r.auth, apitest.SweepClock{Clock: r.clock})
	t.Cleanup(calls.Close)
	var err error
	r.s, err = api.New(api.Options{
		Backend: r.n, Auth: r.auth, Calls: calls, Clock: r.clock, Limits: l, Memory: m, Version: "v1",
		Refused: func(auth.Principal, string) { r.refused.Add(1) },
		Logger:  slog.New(slog.NewTextHandler(&apitest.LockedWriter{W: new(strings.Builder)}, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	if r.d, err = newDoor(r.s, r.n); err != nil {
		t.Fatal(err)
	}
	go func() { r.served <- r.s.Serve(r.lis) }()
	apitest.Eventually(t, "the sweep waits", func() bool { return r.clock.Armed() == 1 }) // so that tests can count their timers
	r.conn = apitest.Dial(t, r.lis)
	t.Cleanup(r.close)
	return r
}

// wideRig is a rig whose namespaces have four partitions, with leaders by partition: "" is this node, "?" no node.
func wideRig(t *testing.T, leaders ...string) *rig {
	t.Helper()
	r := newRig(t, edge.Limits{})
	r.n.Parts, r.n.Leaders = 4, apitest.LeadersOf(leaders...)
	r.n.AddTask(t, "acme", apitest.ID(1))
	return r
}

func (r *rig) close() {
	_ = r.conn.Close() // already closed by some tests
	r.s.Shutdown(0)
	if err := <-r.served; err != nil {
		r.t.Errorf("serve: %v", err)
	}
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

// pass lets rounds of the sweep pass until ok.
func (r *rig) pass(what string, ok func() bool) {
	r.t.Helper()
	apitest.Eventually(r.t, what, func() bool {
		r.clock.Advance(time.Second)
		return ok()
	})
}

// free reports whether the edge holds nothing of any caller.
func (r *rig) free() bool {
	st := r.s.Stats()
	r.d.mu.Lock()
	defer r.d.mu.Unlock()
	return st.Calls == 0 && st.Streams == 0 && st.Held == edge.Held{} && len(r.d.open) == 0
}

// homeOf is a partition of a namespace that has that many.
func homeOf(p core.Partition, of int) home { return home{api.Home{Partition: p, Of: of}} }

func ms(n int64) *durationpb.Duration { return durationpb.New(time.Duration(n) * time.Millisecond) }
