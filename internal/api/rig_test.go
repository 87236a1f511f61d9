package api

import (
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/test/bufconn"

	"github.com/millrace/millrace/internal/api/apitest"
	"github.com/millrace/millrace/internal/auth"
	"github.com/millrace/millrace/internal/edge"
	"github.com/millrace/millrace/internal/env"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a server over an in-memory listener, with a client.
type rig struct {
	t      *testing.T
	s      *Server
	n      *apitest.Node
	clock  *apitest.Clock
	auth   *apitest.Auth
	lis    *bufconn.Listener
	conn   *grpc.ClientConn
	logs   *strings.Builder
	served chan error
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
	calls := auth.NewCalls(r.auth, apitest.SweepClock{Clock: r.clock})
	t.Cleanup(calls.Close)
	var err error
	r.s, err = New(Options{
		Backend: r.n, Refs: r.n, Objects: apitest.Objects{Planter: &r.n.Planter}, Auth: r.auth, Calls: calls, Clock: r.clock, Rand: env.NewSeededRand(1), Limits: l, Memory: m, Version: "v1",
		Refused:  func(auth.Principal, string) { r.refused.Add(1) },
		Operator: apitest.Operator{Planter: &r.n.Planter}, Backups: r.n, Embedder: &apitest.Embedder{Planter: &r.n.Planter},
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

func (r *rig) close() {
	_ = r.conn.Close() // already closed by some tests
	r.s.Shutdown(0)
	if err := <-r.served; err != nil {
		r.t.Errorf("serve: %v", err)
	}
}

// rawMessage is a request whose bytes a test chose.
type rawMessage struct{ bytes []byte }

// rawEncoding sends raw messages as they are, and decodes answers as usual.
type rawEncoding struct{ codec }

func (c rawEncoding) Marshal(v any) (mem.BufferSlice, error) {
	if m, ok := v.(*rawMessage); ok {
		return mem.BufferSlice{mem.SliceBuffer(m.bytes)}, nil
	}
	return c.codec.Marshal(v)
}

func rawCodec() grpc.CallOption { return grpc.ForceCodecV2(rawEncoding{newCodec()}) }

func defaultLimits(t testing.TB) *edge.Limits {
	t.Helper()
	l, err := edge.Limits{}.WithDefaults()
	if err != nil {
		t.Fatal(err)
	}
	return &l
}
