package rest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api"
	"github.com/millrace/millrace/internal/api/apitest"
	"github.com/millrace/millrace/internal/auth"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
	"github.com/millrace/millrace/internal/env"
)

// notBuilt are methods of the contract that answer nothing yet, and with what.
var notBuilt = map[string]codes.Code{
	"/grpc.health.v1.Health/List":  codes.Unimplemented,
	"/grpc.health.v1.Health/Watch": codes.Unimplemented,
}

func (r *rig) addTask(tenant, id string) {
	ns, err := r.n.Namespace(context.Background(), tenant, "default", true)
	if err != nil {
		r.t.Fatal(err)
	}
	task, err := core.ParseTaskID(id)
	if err != nil {
		r.t.Fatal(err)
	}
	r.n.Mu.Lock()
	defer r.n.Mu.Unlock()
	p := ns.Partitions[0].Partition
	if r.n.Stored[p] == nil {
		r.n.Stored[p] = make(map[core.TaskID]core.Task)
	}
	r.n.Stored[p][task] = core.Task{ID: task, State: core.Completed}
}

func expectCode(t *testing.T, what string, err error, want codes.Code) {
	t.Helper()
	if got := status.Code(err); got != want {
		t.Errorf("%s: got %v (%v), want %v", what, got, err, want)
	}
}

func (r *rig) tasks() pb.TaskServiceClient { return pb.NewTaskServiceClient(r.conn) }

// peer speaks HTTP/2 by hand, so that it may do what no client library does.
type peer struct {
	t    *testing.T
	conn net.Conn
	*http2.Framer
}

func (r *rig) peer() *peer {
	r.t.Helper()
	conn, err := r.lis.Dial()
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = conn.Close() })
	p := &peer{r.t, conn, http2.NewFramer(conn, conn)}
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		r.t.Fatal(err)
	}
	if err := p.WriteSettings(); err != nil {
		r.t.Fatal(err)
	}
	return p
}

// wireStream is the client's side of a stream.
type wireStream struct {
	grpc.BidiStreamingClient[pb.ClientFrame, pb.ServerFrame]
	r      *rig
	cancel context.CancelFunc
}

func helloOf(session byte) *pb.ClientFrame {
	return &pb.ClientFrame{Frame: &pb.ClientFrame_Hello{Hello: &pb.Hello{Version: 1, Session: repeat(16, session)}}}
}

func (ws *wireStream) send(f *pb.ClientFrame) {
	ws.r.t.Helper()
	if err := ws.Send(f); err != nil && !errors.Is(err, io.EOF) { // an ended stream tells why by recv
		ws.r.t.Fatal(err)
	}
}

func (ws *wireStream) ack() *pb.Ack {
	ws.r.t.Helper()
	a := ws.recv().GetAck()
	if a == nil {
		ws.r.t.Fatal("not an ack")
	}
	return a
}

// open begins a call; its id is odd.
func (p *peer) open(id uint32, method, token string) {
	p.t.Helper()
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	for _, f := range [][2]string{
		{":method", "POST"},
		{":scheme", "http"},
		{":path", method},
		{":authority", "x"},
		{"content-type", "application/grpc"},
		{"te", "trailers"},
		{"authorization", "Bearer " + token},
	} {
		if err := e.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}); err != nil {
			p.t.Fatal(err)
		}
	}
	if err := p.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true}); err != nil {
		p.t.Fatal(err)
	}
}

// statuses reads on and passes on the end of each call, until the connection ends. It answers pings.
func (p *peer) statuses() <-chan map[string]string {
	ends := make(chan map[string]string, 1000)
	p.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	go func() {
		defer close(ends)
		for {
			f, err := p.ReadFrame()
			if err != nil {
				return
			}
			switch f := f.(type) {
			case *http2.MetaHeadersFrame:
				fields := make(map[string]string)
				for _, h := range f.Fields {
					fields[h.Name] = h.Value
				}
				if f.StreamEnded() {
					ends <- fields
				}
			case *http2.PingFrame:
				if !f.IsAck() {
					_ = p.WritePing(true, f.Data) // what is wrong shows in the next frame
				}
			}
		}
	}()
	return ends
}

// pass lets rounds of the sweep pass until ok.
func (r *rig) pass(what string, ok func() bool) {
	r.t.Helper()
	apitest.Eventually(r.t, what, func() bool {
		r.clock.Advance(time.Second)
		return ok()
	})
}

// idIn is the id of a task in one of four partitions.
func idIn(place uint16, n byte) string {
	return core.PlacedID(apitest.Now.UnixMilli(), place, 4, [9]byte{n, n, n}).String()
}

func leadersOf(leaders ...string) map[uint16]string {
	out := make(map[uint16]string)
	for i, l := range leaders {
		out[uint16(i)] = l
	}
	return out
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
	r.conn = r.dial()
	t.Cleanup(r.close)
	return r
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

func defaultLimits(t testing.TB) *edge.Limits {
	t.Helper()
	l, err := edge.Limits{}.WithDefaults()
	if err != nil {
		t.Fatal(err)
	}
	return &l
}

func mustID(t *testing.T, s string) core.TaskID {
	t.Helper()
	id, err := core.ParseTaskID(s)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func repeat[T any](n int, v T) []T {
	out := make([]T, n)
	for i := range out {
		out[i] = v
	}
	return out
}

// putsFrame is a frame of puts of keys, each with its own name as the value.
func putsFrame(seq, commitSeq uint64, keys ...string) *pb.ClientFrame {
	f := &pb.PutsFrame{Seq: seq, Keyspace: "ks", CommitSeq: commitSeq}
	for _, key := range keys {
		f.Items = append(f.Items, &pb.PutItem{Key: []byte(key), Value: []byte(key)})
	}
	return &pb.ClientFrame{Frame: &pb.ClientFrame_Puts{Puts: f}}
}

func (r *rig) greetKeys(token string) *wireStream {
	r.t.Helper()
	ss, err := pb.NewKVStreamClient(r.conn).Open(apitest.As(token))
	if err != nil {
		r.t.Fatal(err)
	}
	ws := &wireStream{ss, r, func() {}}
	ws.send(helloOf(1))
	if ws.recv().GetWelcome() == nil {
		r.t.Fatal("the first frame is not a welcome")
	}
	<-r.n.Opened
	return ws
}

// expectReached wants the one partition of a tenant's default namespace to have been reached, and no other.
func (r *rig) expectReached(what, tenant string, got []core.Partition) {
	r.t.Helper()
	r.n.Mu.Lock()
	own := r.n.Spaces[tenant+"/default"].Partitions[0].Partition
	r.n.Mu.Unlock()
	if len(got) != 1 || got[0] != own {
		r.t.Errorf("%s: %s reached %v, want %v alone", what, tenant, got, own)
	}
}

// idle waits until the edge holds nothing of any caller.
func (r *rig) idle(what string) {
	r.t.Helper()
	apitest.Eventually(r.t, what+": all is given back", func() bool {
		st, searches := r.s.Stats(), r.s.SearchStats()
		return st.Calls == 0 && st.Streams == 0 && st.Held == edge.Held{} && searches.Running == 0 && searches.Waiting == 0
	})
	r.n.Mu.Lock()
	defer r.n.Mu.Unlock()
	for _, s := range r.n.Sessions {
		if _, _, closed := s.State(); !closed {
			r.t.Errorf("%s: a session of the node stays open", what)
		}
	}
	r.n.Sessions = nil
	for len(r.n.Opened) > 0 {
		<-r.n.Opened
	}
}

// panicEverywhere makes a call with a panic at its first step below the edge, its second and so on, until it has fewer. After
// each, nothing is held and the call works as it did before.
func (r *rig) panicEverywhere(what string, call func() (outcome string, failed bool)) {
	r.t.Helper()
	want, _ := call()
	r.idle(what)
	for at := int64(1); ; at++ {
		r.n.PanicIn.Store(at)
		_, failed := call()
		r.idle(fmt.Sprintf("%s, a panic at step %d", what, at))
		if r.n.PanicIn.Swap(0) > 0 {
			if at == 1 {
				r.t.Errorf("%s reaches nothing that could panic", what)
			}
			return
		}
		if !failed {
			r.t.Errorf("%s, a panic at step %d, succeeds", what, at)
		}
		if got, _ := call(); got != want {
			r.t.Errorf("%s, after a panic at step %d: %s, before %s", what, at, got, want)
		}
		r.idle(what)
	}
}

func (ws *wireStream) recv() *pb.ServerFrame {
	ws.r.t.Helper()
	f, err := ws.Recv()
	if err != nil {
		ws.r.t.Fatalf("receive: %v", err)
	}
	return f
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
