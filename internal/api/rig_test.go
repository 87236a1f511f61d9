package api

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
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

// fakeNode is a Backend whose answers a test can script.
type fakeNode struct {
	mu       sync.Mutex
	clock    *fakeClock
	spaces   map[string]core.NamespaceInfo
	made     int // namespaces
	commits  []core.Commit
	held     []func()                      // ends of proposals that wait for the test, with holding
	holding  bool                          // proposals wait for the test
	judge    func(core.Commit) core.Result // default: applied
	ended    func([]core.Commit) core.Fact // a proposal that ends without results
	claim    func(context.Context, core.ClaimSpec) ([]core.Assigned, error)
	tasks    map[core.Partition]map[core.TaskID]core.Task
	page     func(core.ListQuery) ([]core.Task, []byte, error)
	keyErr   error
	sessions []*fakeSession
	opened   chan *fakeSession
	welcome  core.Welcome
}

func newFakeNode(clock *fakeClock) *fakeNode {
	return &fakeNode{
		clock: clock, spaces: make(map[string]core.NamespaceInfo),
		tasks: make(map[core.Partition]map[core.TaskID]core.Task), opened: make(chan *fakeSession, 64),
	}
}

func (n *fakeNode) Namespace(_ context.Context, tenant, name string, create bool) (core.NamespaceInfo, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	ns, ok := n.spaces[tenant+"/"+name]
	if !ok {
		if !create {
			return ns, core.NotFound{Kind: "namespace", ID: name}
		}
		n.made++
		p := core.Partition{Tenant: core.TenantID(len(tenant)), Namespace: core.NamespaceID(n.made)}
		ns = core.NamespaceInfo{Name: name, TenantName: tenant, Partitions: []core.PartitionInfo{{Partition: p}}}
		n.spaces[tenant+"/"+name] = ns
	}
	return ns, nil
}

func (n *fakeNode) Propose(_ core.Partition, commits []core.Commit, done func(core.Proposed)) {
	n.mu.Lock()
	n.commits = append(n.commits, commits...)
	out := core.Proposed{At: core.At{Index: uint64(len(n.commits)), Stamp: core.ShardTimeOf(testNow)}}
	if n.ended != nil {
		out.Err = n.ended(commits)
	}
	for _, c := range commits {
		if out.Err == nil {
			out.Results = append(out.Results, n.result(c))
		}
	}
	if n.holding {
		n.held = append(n.held, func() { done(out) })
		n.mu.Unlock()
		return
	}
	n.mu.Unlock()
	done(out)
}

func (n *fakeNode) result(c core.Commit) core.Result {
	if n.judge != nil {
		return n.judge(c)
	}
	return applied(c)
}

// applied is the result of a commit that nothing refuses.
func applied(c core.Commit) (r core.Result) {
	for _, op := range c.Ops {
		o := core.OpResult{Kind: op.Kind(), State: core.Ready}
		switch op := op.(type) {
		case *core.TaskCreate:
			o.Task = op.ID
		case *core.TaskComplete:
			o.State = core.Completed
		case *core.TaskRenew:
			for range op.Items {
				o.Renewed = append(o.Renewed, core.Renewed{Until: core.ShardTimeOf(testNow)})
			}
		case *core.KVPut:
			o.Rev = 7
		case *core.QueueSet, *core.NamespaceSet:
			o.Version = 3
		}
		r.Ops = append(r.Ops, o)
	}
	return r
}

// proposed is what was proposed so far.
func (n *fakeNode) proposed() []core.Commit {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]core.Commit(nil), n.commits...)
}

// release ends one held proposal, by its place in the order of arrival.
func (n *fakeNode) release(i int) {
	n.mu.Lock()
	f := n.held[i]
	n.held = append(n.held[:i:i], n.held[i+1:]...)
	n.mu.Unlock()
	f()
}

func (n *fakeNode) waiting() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.held)
}

func (n *fakeNode) Session(_ context.Context, p core.Partition, s core.SessionSpec, sink core.Sink) (core.Session, core.Welcome, error) {
	ses := &fakeSession{n: n, part: p, spec: s, sink: sink}
	n.mu.Lock()
	n.sessions = append(n.sessions, ses)
	w := n.welcome
	n.mu.Unlock()
	n.opened <- ses
	return ses, w, nil
}

func (n *fakeNode) Claim(ctx context.Context, _ core.Partition, s core.ClaimSpec) ([]core.Assigned, core.At, error) {
	if n.claim == nil {
		return nil, core.At{}, nil
	}
	tasks, err := n.claim(ctx, s)
	return tasks, core.At{}, err
}

func (n *fakeNode) Task(_ context.Context, p core.Partition, id core.TaskID, _ core.ReadOptions) (core.Task, core.At, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	t, ok := n.tasks[p][id]
	if !ok {
		return t, core.At{}, core.NotFound{Kind: "task", ID: id.String()}
	}
	return t, core.At{Index: 1}, nil
}

func (n *fakeNode) Attempts(ctx context.Context, p core.Partition, id core.TaskID, o core.ReadOptions) ([]core.Attempt, core.At, error) {
	_, at, err := n.Task(ctx, p, id, o)
	return []core.Attempt{{Number: 1, Outcome: core.OutcomeFailed, Error: core.TaskError{Code: "x"}}}, at, err
}

func (n *fakeNode) Tasks(_ context.Context, _ core.Partition, q core.ListQuery) ([]core.Task, []byte, core.At, error) {
	if n.page == nil {
		return nil, nil, core.At{}, nil
	}
	tasks, next, err := n.page(q)
	return tasks, next, core.At{}, err
}

func (n *fakeNode) Wait(ctx context.Context, p core.Partition, id core.TaskID) (core.Task, core.At, error) {
	t, at, err := n.Task(ctx, p, id, core.ReadOptions{})
	if err != nil || t.State.Terminal() {
		return t, at, err
	}
	<-ctx.Done()
	return t, at, ctx.Err()
}

func (n *fakeNode) Key(_ context.Context, _ core.Partition, _ string, key []byte, _ core.ReadOptions) ([]byte, uint64, core.At, error) {
	return key, 5, core.At{}, n.keyErr
}

func (n *fakeNode) Queue(_ context.Context, _ core.Partition, name string, _ core.ReadOptions) (core.QueueStats, core.At, error) {
	if name != "mail" {
		return core.QueueStats{}, core.At{}, core.NotFound{Kind: "queue", ID: name}
	}
	return core.QueueStats{Queue: name, Config: core.QueueConfig{Version: 2, Aging: -1, MaxDeliveries: -1}}, core.At{}, nil
}

func (n *fakeNode) Queues(_ context.Context, _ core.Partition, after string, limit int, _ core.ReadOptions) (out []core.QueueStats, _ core.At, _ error) {
	for i := range 5 {
		if name := fmt.Sprintf("q%d", i); name > after && len(out) < limit {
			out = append(out, core.QueueStats{Queue: name})
		}
	}
	return out, core.At{}, nil
}

func (n *fakeNode) NamespaceConfig(context.Context, core.Partition, core.ReadOptions) (core.NamespaceConfig, core.At, error) {
	return core.NamespaceConfig{Version: 4, NoAutoCreate: true}, core.At{}, nil
}

func (n *fakeNode) Status() core.NodeStatus {
	return core.NodeStatus{Node: "n1", Durability: "fsync", Shards: 1, Fsyncs: 9}
}

func (n *fakeNode) Now(core.Partition) core.ShardTime { return core.ShardTimeOf(n.clock.Wall()) }

// fakeSession records what a stream asks of its session.
type fakeSession struct {
	n    *fakeNode
	part core.Partition
	spec core.SessionSpec
	sink core.Sink

	mu      sync.Mutex
	subs    []core.Subscription
	slots   []uint32
	held    []core.TaskHold
	settled []core.TaskHold
	drained bool
	closed  bool
}

func (s *fakeSession) Subscribe(sub core.Subscription) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.subs = append(s.subs, sub)
}

func (s *fakeSession) Slots(_, free uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slots = append(s.slots, free)
}

func (s *fakeSession) Settle(p core.Partition, commits []core.Commit, holds []core.TaskHold, done func(core.Proposed)) {
	s.mu.Lock()
	s.settled = append(s.settled, holds...)
	s.mu.Unlock()
	s.n.Propose(p, commits, done)
}

func (s *fakeSession) Held() []core.TaskHold {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held
}

func (s *fakeSession) Drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drained = true
}

func (s *fakeSession) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}

func (s *fakeSession) state() (subs int, drained, closed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.subs), s.drained, s.closed
}

// fakeAuth knows tokens by their text: tenant/scope,scope or tenant/scope,scope/expiry in seconds after testNow.
type fakeAuth struct {
	mu      sync.Mutex
	revoked map[string]bool
}

func (a *fakeAuth) Lookup(token string, now time.Time) (auth.Principal, bool) {
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
}

func newRig(t *testing.T, l Limits) *rig {
	t.Helper()
	r := &rig{
		t: t, clock: new(fakeClock), auth: &fakeAuth{revoked: make(map[string]bool)}, lis: bufconn.Listen(1 << 20),
		logs: new(strings.Builder), served: make(chan error, 1),
	}
	r.n = newFakeNode(r.clock)
	var err error
	r.s, err = New(Options{
		Backend: r.n, Auth: r.auth, Clock: r.clock, Rand: env.NewSeededRand(1), Limits: l, Version: "v1",
		Logger: slog.New(slog.NewTextHandler(&lockedWriter{w: r.logs}, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	go func() { r.served <- r.s.Serve(r.lis) }()
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

// rawEncoding sends raw messages as they are, and decodes answers as ever.
type rawEncoding struct{ codec }

func (c rawEncoding) Marshal(v any) (mem.BufferSlice, error) {
	if m, ok := v.(*rawMessage); ok {
		return mem.BufferSlice{mem.SliceBuffer(m.bytes)}, nil
	}
	return c.codec.Marshal(v)
}

func rawCodec() grpc.CallOption { return grpc.ForceCodecV2(rawEncoding{newCodec()}) }
