package api

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/auth"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/env"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testNow is the time of every test's clock at first.
var testNow = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

// fakeClock moves only when a test says so.
type fakeClock struct {
	mu     sync.Mutex
	past   time.Duration
	timers []*fakeTimer
}

type fakeTimer struct {
	clock *fakeClock
	due   time.Duration // 0: stopped
	c     chan time.Time
}

func (c *fakeClock) Wall() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return testNow.Add(c.past)
}

func (c *fakeClock) Boot() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Hour + c.past
}

func (c *fakeClock) NewTimer(d time.Duration) env.Timer {
	t := &fakeTimer{clock: c, c: make(chan time.Time, 1)}
	c.mu.Lock()
	defer c.mu.Unlock()
	t.due = c.past + d
	c.timers = append(c.timers, t)
	return t
}

func (t *fakeTimer) C() <-chan time.Time { return t.c }

func (t *fakeTimer) Stop() bool {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	was := t.due != 0
	t.due = 0
	return was
}

func (t *fakeTimer) Reset(d time.Duration) bool {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	was := t.due != 0
	t.due = t.clock.past + d
	return was
}

// armed is how many timers wait.
func (c *fakeClock) armed() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, t := range c.timers {
		if t.due != 0 {
			n++
		}
	}
	return n
}

// advance moves the clock and fires what is due.
func (c *fakeClock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.past += d
	for _, t := range c.timers {
		if t.due != 0 && t.due <= c.past {
			t.due = 0
			t.c <- testNow.Add(c.past)
		}
	}
}

// sweepClock has the same time, but no timers: tests sweep, with Sweep.
type sweepClock struct{ *fakeClock }

func (sweepClock) NewTimer(time.Duration) env.Timer { return new(fakeClock).NewTimer(time.Hour) }

// fakeAuth knows tokens by their text: tenant/scope,scope or tenant/scope,scope/expiry in seconds after testNow.
type fakeAuth struct {
	*planter
	mu      sync.Mutex
	revoked map[string]bool
}

func (a *fakeAuth) Lookup(token string, now time.Time) (auth.Principal, bool) {
	a.step()
	a.mu.Lock()
	defer a.mu.Unlock()
	tenant, rest, ok := strings.Cut(token, "/")
	if !ok || a.revoked[token] {
		return auth.Principal{}, false
	}
	names, life, limited := strings.Cut(rest, "/")
	p := auth.Principal{Name: "someone", Tenant: tenant}
	for name := range strings.SplitSeq(names, ",") {
		scope, _ := auth.ParseScope(name)
		if name == "all" {
			scope = auth.All
		}
		p.Scopes |= scope
	}
	if limited {
		d, err := time.ParseDuration(life)
		if err != nil {
			return p, false
		}
		p.Expires = testNow.Add(d)
		return p, now.Before(p.Expires)
	}
	return p, true
}

func (a *fakeAuth) revoke(token string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.revoked[token] = true
}

// rig is a server over an in-memory listener, with a client.
type rig struct {
	t      *testing.T
	s      *Server
	n      *fakeNode
	clock  *fakeClock
	auth   *fakeAuth
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

// knownToBeRefused are the tokens of the matrices of rights that a look into the table refuses; the others are refused unread.
var knownToBeRefused = map[string]int64{"an unknown token": 1, "an expired token": 1, "a revoked token": 1}

func newRig(t *testing.T, l Limits) *rig {
	t.Helper()
	return newRigWith(t, l, Memory{})
}

func newRigWith(t *testing.T, l Limits, m Memory) *rig {
	t.Helper()
	r := &rig{
		t: t, clock: new(fakeClock), auth: &fakeAuth{revoked: make(map[string]bool)}, lis: bufconn.Listen(1 << 20),
		logs: new(strings.Builder), served: make(chan error, 1),
	}
	r.n = newFakeNode(r.clock)
	r.auth.planter = &r.n.planter
	calls := auth.NewCalls(r.auth, sweepClock{fakeClock: r.clock})
	t.Cleanup(calls.Close)
	var err error
	r.s, err = New(Options{
		Backend: r.n, Refs: r.n, Objects: fakeObjects{&r.n.planter}, Auth: r.auth, Calls: calls, Clock: r.clock, Rand: env.NewSeededRand(1), Limits: l, Memory: m, Version: "v1",
		Refused:  func(auth.Principal, string) { r.refused.Add(1) },
		Operator: fakeOperator{&r.n.planter}, Backups: r.n, Embedder: &fakeEmbedder{planter: &r.n.planter},
		Logger: slog.New(slog.NewTextHandler(&lockedWriter{w: r.logs}, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	go func() { r.served <- r.s.Serve(r.lis) }()
	eventually(t, "the sweep waits", func() bool { return r.clock.armed() == 1 }) // so that tests can count their timers
	r.conn = r.dial()
	t.Cleanup(r.close)
	return r
}

type lockedWriter struct {
	mu sync.Mutex
	w  *strings.Builder
}

func (l *lockedWriter) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}

func (r *rig) dial() *grpc.ClientConn {
	r.t.Helper()
	conn, err := grpc.NewClient("passthrough:///bufconn",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return r.lis.DialContext(ctx) }),
		grpc.WithDefaultCallOptions(grpc.MaxCallSendMsgSize(1<<30)),
	)
	if err != nil {
		r.t.Fatal(err)
	}
	return conn
}

func (r *rig) close() {
	_ = r.conn.Close() // already closed by some tests
	r.s.Shutdown(0)
	if err := <-r.served; err != nil {
		r.t.Errorf("serve: %v", err)
	}
}

// as is a context with a token, and more metadata.
func as(token string, more ...string) context.Context {
	md := []string{"authorization", "Bearer " + token}
	return metadata.AppendToOutgoingContext(context.Background(), append(md, more...)...)
}

// errorOf is the error that a call's status carries.
func errorOf(t *testing.T, err error) *pb.Error {
	t.Helper()
	if err == nil {
		t.Fatal("the call succeeded")
	}
	for _, d := range status.Convert(err).Details() {
		if e, ok := d.(*pb.Error); ok {
			return e
		}
	}
	t.Fatalf("the status carries no error: %v", err)
	return nil
}

// eventually waits until ok, letting other goroutines run; a test that never gets there times out as a whole.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	for !ok() {
		select {
		case <-deadline:
			t.Fatalf("never happened: %s", what)
		case <-time.After(100 * time.Microsecond):
		}
	}
}

// testID is a task id that a producer might have made.
func testID(n byte) string { return core.NewTaskID(testNow.UnixMilli(), 0, [9]byte{n}).String() }

func asMetadata(ctx context.Context, kv ...string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, kv...)
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
