package millrace

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	fakeserver "github.com/millrace/millrace/test/sdk/fake"
)

// testWait bounds every wait of a test; it is only reached when something hangs.
const testWait = 20 * time.Second

// fake is a server whose streams are played by a test, over a listener in memory: synctest has no time for a socket.
type fake struct {
	*fakeserver.Server
	pb.UnimplementedTaskServiceServer
	t    *testing.T
	lis  *bufconn.Listener
	stop func()

	wait func(ctx context.Context, id string) (*pb.WaitResponse, error)
	kv   func(r *pb.KVGetRequest) (*pb.KVGetResponse, error)
}

// fakeStream is the server's side of one stream.
type fakeStream struct {
	t     *testing.T
	hello *pb.Hello
	in    chan *pb.ClientFrame // closed when the client closed its side, or the stream broke
	send  func(f *pb.ServerFrame) error
	end   func(err error) // ends the stream; nil ends it well
}

func newFake(t *testing.T) *fake {
	t.Helper()
	f := &fake{t: t, lis: bufconn.Listen(1 << 20)}
	f.Server = fakeserver.Serve(f.lis, func(s grpc.ServiceRegistrar) {
		pb.RegisterTaskServiceServer(s, f)
		pb.RegisterKVServiceServer(s, fakeKV{f: f})
	})
	f.stop = f.Stop
	return f
}

func (f *fake) Wait(ctx context.Context, r *pb.WaitRequest) (*pb.WaitResponse, error) {
	return f.wait(ctx, r.Id)
}

type fakeKV struct {
	pb.UnimplementedKVServiceServer
	f *fake
}

func (k fakeKV) Get(_ context.Context, r *pb.KVGetRequest) (*pb.KVGetResponse, error) {
	return k.f.kv(r)
}

// client dials the fake. Both end with the test, the client first.
func (f *fake) client(opts ...Option) *Client {
	f.t.Helper()
	opts = append([]Option{
		Address("server.test:1"), Insecure(),
		Dialer(func(ctx context.Context, _ string) (net.Conn, error) { return f.lis.DialContext(ctx) }),
		Logger(slog.New(slog.NewTextHandler(io.Discard, nil))),
	}, opts...)
	c, err := Dial(context.Background(), opts...)
	if err != nil {
		f.t.Fatal(err)
	}
	return c
}

// accept waits for the next stream.
func (f *fake) accept() *fakeStream {
	f.t.Helper()
	select {
	case st := <-f.Streams:
		return f.played(st)
	case <-time.After(testWait):
		f.t.Fatal("no stream came")
		return nil
	}
}

// played is a stream that came, with the means of a test.
func (f *fake) played(st *fakeserver.Stream) *fakeStream {
	return &fakeStream{t: f.t, hello: st.Hello, in: st.In, send: st.Send, end: st.End}
}

// welcome accepts the next stream and lets it in.
func (f *fake) welcome(w *pb.Welcome) *fakeStream {
	f.t.Helper()
	st := f.accept()
	if w == nil {
		w = &pb.Welcome{}
	}
	st.push(&pb.ServerFrame{Frame: &pb.ServerFrame_Welcome{Welcome: w}})
	return st
}

func (st *fakeStream) push(f *pb.ServerFrame) {
	st.t.Helper()
	if err := st.send(f); err != nil {
		st.t.Fatalf("send %T: %v", f.Frame, err)
	}
}

func (st *fakeStream) ack(a *pb.Ack) {
	st.t.Helper()
	st.push(&pb.ServerFrame{Frame: &pb.ServerFrame_Ack{Ack: a}})
}

// next returns the next frame of the client; nil when it closed its side.
func (st *fakeStream) next() *pb.ClientFrame {
	st.t.Helper()
	select {
	case f := <-st.in:
		return f
	case <-time.After(testWait):
		st.t.Fatal("no frame came")
		return nil
	}
}

// quiet fails when a frame came. It is for synctest, where all that could run has run.
func (st *fakeStream) quiet() {
	st.t.Helper()
	select {
	case f, ok := <-st.in:
		if ok {
			st.t.Fatalf("got frame %v, want none", f)
		}
	default:
	}
}

func (st *fakeStream) create() *pb.CreateFrame {
	st.t.Helper()
	f := st.next()
	if f.GetCreate() == nil {
		st.t.Fatalf("got frame %v, want a create", f)
	}
	return f.GetCreate()
}

func (st *fakeStream) commit() *pb.CommitFrame {
	st.t.Helper()
	f := st.next()
	if f.GetCommit() == nil {
		st.t.Fatalf("got frame %v, want a commit", f)
	}
	return f.GetCommit()
}

func (st *fakeStream) puts() *pb.PutsFrame {
	st.t.Helper()
	f := st.next()
	if f.GetPuts() == nil {
		st.t.Fatalf("got frame %v, want puts", f)
	}
	return f.GetPuts()
}

func (st *fakeStream) subscribe() *pb.Subscribe {
	st.t.Helper()
	f := st.next()
	if f.GetSubscribe() == nil {
		st.t.Fatalf("got frame %v, want a subscribe", f)
	}
	return f.GetSubscribe()
}

// alive takes the frame by which a worker says that it lives, after it lost a lease.
func (st *fakeStream) alive() {
	st.t.Helper()
	if f := st.next(); f.GetSlots().GetSlots() == 0 {
		st.t.Fatalf("got frame %v, want slots", f)
	}
}

func (st *fakeStream) settle() *pb.SettleFrame {
	st.t.Helper()
	f := st.next()
	if f.GetSettle() == nil {
		st.t.Fatalf("got frame %v, want a settle", f)
	}
	return f.GetSettle()
}

func (st *fakeStream) renew() *pb.RenewFrame {
	st.t.Helper()
	f := st.next()
	if f.GetRenew() == nil {
		st.t.Fatalf("got frame %v, want a renewal", f)
	}
	return f.GetRenew()
}

// created acknowledges a create frame.
func (st *fakeStream) created(f *pb.CreateFrame) {
	st.t.Helper()
	a := &pb.Ack{Seq: f.Seq, At: &pb.At{Index: f.Seq}}
	for _, s := range f.Tasks {
		a.Created = append(a.Created, &pb.CreateResult{Id: s.Id})
	}
	st.ack(a)
}

// committed acknowledges a commit frame.
func (st *fakeStream) committed(f *pb.CommitFrame) {
	st.t.Helper()
	r := &pb.CommitResponse{At: &pb.At{Index: 100 + f.CommitSeq}}
	for range f.Commit.Ops {
		r.Results = append(r.Results, &pb.OpResult{Rev: 100 + f.CommitSeq})
	}
	st.ack(&pb.Ack{Seq: f.Seq, Commit: r})
}

// settled acknowledges a settle frame.
func (st *fakeStream) settled(f *pb.SettleFrame) {
	st.t.Helper()
	a := &pb.Ack{Seq: f.Seq, At: &pb.At{Index: 7}}
	for range f.Items {
		a.Settled = append(a.Settled, &pb.SettleResult{})
	}
	st.ack(a)
}

// refuse acknowledges a frame by an error.
func (st *fakeStream) refuse(seq uint64, e *pb.Error) {
	st.t.Helper()
	st.ack(&pb.Ack{Seq: seq, Error: e})
}

// assign gives tasks with a lease of 30 s.
func (st *fakeStream) assign(tasks ...*pb.Assignment) {
	st.t.Helper()
	for _, a := range tasks {
		if a.LeaseMs == 0 {
			a.LeaseMs, a.LeaseLeftMs = 30_000, 30_000
		}
	}
	st.push(&pb.ServerFrame{Frame: &pb.ServerFrame_Assign{Assign: &pb.Assign{Sub: 1, Tasks: tasks}}})
}

// cut ends the stream as a lost connection does.
func (st *fakeStream) cut() { st.end(status.Error(codes.Unavailable, "connection reset")) }

// must returns v; it is for what a test relies on.
func must[V any](v V, err error) V {
	if err != nil {
		panic(err)
	}
	return v
}

// asError returns err as an *Error.
func asError(t *testing.T, err error) *Error {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("got error %v, want an *Error", err)
	}
	return e
}

// end closes c, then stops the server.
func (f *fake) end(c *Client) {
	f.t.Helper()
	if err := c.Close(); err != nil {
		f.t.Errorf("close: %v", err)
	}
	f.stop()
}

// wait receives from c.
func receive[V any](t *testing.T, c <-chan V) V {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(testWait):
		t.Fatal("nothing came")
		panic("unreachable")
	}
}

var errUnavailable = status.Error(codes.Unavailable, "no leader")
