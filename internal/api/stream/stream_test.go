package stream

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api"
	"github.com/millrace/millrace/internal/api/apitest"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// wireStream is the client's side of a stream.
type wireStream struct {
	grpc.BidiStreamingClient[pb.ClientFrame, pb.ServerFrame]
	r      *rig
	cancel context.CancelFunc
}

// open opens a stream and sends nothing.
func (r *rig) open(ctx context.Context) *wireStream {
	r.t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	r.t.Cleanup(cancel)
	ss, err := pb.NewQueueStreamClient(r.conn).Open(ctx)
	if err != nil {
		r.t.Fatal(err)
	}
	return &wireStream{ss, r, cancel}
}

// greet opens a stream with a Hello, and returns it with its session.
func (r *rig) greet(ctx context.Context, session byte) (*wireStream, *apitest.Session) {
	r.t.Helper()
	ws := r.open(ctx)
	ws.send(helloOf(session))
	if ws.recv().GetWelcome() == nil {
		r.t.Fatal("the first frame is not a welcome")
	}
	return ws, <-r.n.Opened
}

func helloOf(session byte) *pb.ClientFrame {
	return &pb.ClientFrame{Frame: &pb.ClientFrame_Hello{Hello: &pb.Hello{Version: 1, Session: apitest.Repeat(16, session)}}}
}

func (ws *wireStream) send(f *pb.ClientFrame) {
	ws.r.t.Helper()
	if err := ws.Send(f); err != nil && !errors.Is(err, io.EOF) { // an ended stream tells why by recv
		ws.r.t.Fatal(err)
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

func (ws *wireStream) ack() *pb.Ack {
	ws.r.t.Helper()
	a := ws.recv().GetAck()
	if a == nil {
		ws.r.t.Fatal("not an ack")
	}
	return a
}

// end reads to the end of the stream and returns what it ended with.
func (ws *wireStream) end() error {
	for {
		if _, err := ws.Recv(); err != nil {
			return err
		}
	}
}

func createFrame(seq uint64, n int) *pb.ClientFrame {
	tasks := apitest.Repeat(n, &pb.TaskSpec{Queue: "q"})
	return &pb.ClientFrame{Frame: &pb.ClientFrame_Create{Create: &pb.CreateFrame{Seq: seq, Tasks: tasks}}}
}

func commitFrame(f *pb.CommitFrame) *pb.ClientFrame {
	return &pb.ClientFrame{Frame: &pb.ClientFrame_Commit{Commit: f}}
}

func settleFrame(seq uint64, items ...*pb.SettleItem) *pb.ClientFrame {
	return &pb.ClientFrame{Frame: &pb.ClientFrame_Settle{Settle: &pb.SettleFrame{Seq: seq, Items: items}}}
}

func subscribeFrame(sub, slots uint32) *pb.ClientFrame {
	return &pb.ClientFrame{Frame: &pb.ClientFrame_Subscribe{Subscribe: &pb.Subscribe{
		Sub: sub, Slots: slots, Queues: []*pb.QueueWeight{{Name: "q"}},
	}}}
}

func slotsFrame(sub, n uint32) *pb.ClientFrame {
	return &pb.ClientFrame{Frame: &pb.ClientFrame_Slots{Slots: &pb.Slots{Sub: sub, Slots: n}}}
}

func authFrame(token string) *pb.ClientFrame {
	return &pb.ClientFrame{Frame: &pb.ClientFrame_Auth{Auth: &pb.AuthFrame{Token: token}}}
}

func TestATokenThatAStreamIsRefusedIsTold(t *testing.T) {
	r := newRig(t, edge.Limits{})
	ws, _ := r.greet(apitest.As("acme/all"), 1)
	r.tells("a frame with an unknown token", 1, func() {
		ws.send(authFrame("unknown"))
		_, err := ws.Recv()
		apitest.ExpectCode(t, "the stream", err, codes.Unauthenticated)
	})
}

func TestWelcomeTellsWhatTheSessionIs(t *testing.T) {
	r := newRig(t, edge.Limits{})
	id, err := core.ParseTaskID(apitest.ID(1))
	if err != nil {
		t.Fatal(err)
	}
	r.n.Welcome = core.Welcome{
		Kept: []core.TaskHold{{Task: id, Token: 3}}, Lost: []core.TaskHold{{Task: id, Token: 2}}, AppliedSeq: 17,
	}
	ws := r.open(apitest.As("acme/all"))
	hello := helloOf(7)
	hello.GetHello().Namespace = "prod"
	hello.GetHello().Worker = &pb.WorkerInfo{Id: "w1", Kinds: []string{"a", "b:c"}, Host: "h"}
	hello.GetHello().Held = []*pb.Hold{{Id: apitest.ID(1), Token: 3}, {Id: apitest.ID(1), Token: 2}}
	ws.send(hello)
	w := ws.recv().GetWelcome()
	if w.GetTenant() != "acme" || len(w.GetDirectory()) != 1 || w.GetAppliedSeq() != 17 || w.GetShardTime() == nil {
		t.Errorf("welcome: %v", w)
	}
	if len(w.GetKept()) != 1 || w.GetKept()[0].GetToken() != 3 || len(w.GetLost()) != 1 || w.GetLost()[0].GetToken() != 2 {
		t.Errorf("leases: %v", w)
	}
	want := &pb.Limits{FrameItems: 512, FrameBytes: 4 << 20, UnackedItems: 4096, UnackedBytes: 16 << 20, UnackedCommits: 64, Slots: 4096, Waits: 4096}
	if !proto.Equal(w.GetLimits(), want) {
		t.Errorf("limits: %v", w.GetLimits())
	}
	if f := w.GetFeatures(); !slices.IsSorted(f) || !slices.Contains(f, "waits") {
		t.Errorf("features: %v", f)
	}
	ses := <-r.n.Opened
	if ses.Spec.Worker != "w1" || ses.Spec.Principal != "someone" || ses.Spec.ID != core.SessionID(apitest.Repeat(16, byte(7))) || len(ses.Spec.Held) != 2 {
		t.Errorf("session: %+v", ses.Spec)
	}
	if _, ok := r.n.Spaces["acme/prod"]; !ok {
		t.Error("the namespace of the hello was not used")
	}
}

func TestAStreamBeginsWithOneGoodHello(t *testing.T) {
	bad := func(change func(*pb.Hello)) *pb.ClientFrame {
		f := helloOf(1)
		change(f.GetHello())
		return f
	}
	for name, c := range map[string]struct {
		first *pb.ClientFrame
		field string
	}{
		"another frame":    {createFrame(1, 1), "frame"},
		"an empty frame":   {&pb.ClientFrame{}, "frame"},
		"version 2":        {bad(func(h *pb.Hello) { h.Version = 2 }), "hello.version"},
		"short session":    {bad(func(h *pb.Hello) { h.Session = h.Session[:15] }), "hello.session"},
		"zero session":     {bad(func(h *pb.Hello) { h.Session = make([]byte, 16) }), "hello.session"},
		"bad namespace":    {bad(func(h *pb.Hello) { h.Namespace = "a:b" }), "hello.namespace"},
		"bad kind":         {bad(func(h *pb.Hello) { h.Worker = &pb.WorkerInfo{Kinds: []string{"a", ""}} }), "hello.worker.kinds[1]"},
		"too many kinds":   {bad(func(h *pb.Hello) { h.Worker = &pb.WorkerInfo{Kinds: apitest.Repeat(1001, "k")} }), "hello.worker.kinds"},
		"bad worker":       {bad(func(h *pb.Hello) { h.Worker = &pb.WorkerInfo{Id: "\x00"} }), "hello.worker.id"},
		"bad lease":        {bad(func(h *pb.Hello) { h.Held = []*pb.Hold{{Id: apitest.ID(1)}} }), "hello.held[0].token"},
		"an unknown field": {bad(func(h *pb.Hello) { h.ProtoReflect().SetUnknown([]byte{0xf8, 0x3f, 0x01}) }), "hello"},
	} {
		r := newRig(t, edge.Limits{})
		ws := r.open(apitest.As("acme/all"))
		ws.send(c.first)
		if e := apitest.ErrorOf(t, ws.end()); e.GetField() != c.field {
			t.Errorf("%s: %v", name, e)
		}
	}
	r := newRig(t, edge.Limits{})
	ws, _ := r.greet(apitest.As("acme/all"), 1)
	ws.send(helloOf(1))
	if e := apitest.ErrorOf(t, ws.end()); e.GetCode() != "INVALID_ARGUMENT" || e.GetField() != "hello" {
		t.Errorf("a second hello: %v", e)
	}
}

func TestEveryFrameIsClosedToWhoHasNoRight(t *testing.T) {
	samples := map[string]*pb.ClientFrame{
		"create": createFrame(5, 1), "commit": commitFrame(&pb.CommitFrame{Seq: 5, Commit: apitest.PutCommit(), CommitSeq: 1}),
		"subscribe": subscribeFrame(1, 1), "slots": slotsFrame(1, 1), "settle": settleFrame(5, apitest.DoneItem(1, 2)),
		"renew": {Frame: &pb.ClientFrame_Renew{Renew: &pb.RenewFrame{Seq: 5, All: true}}},
		"puts":  putsFrame(5, 0, "k"),
		"waits": waitsFrame(5, apitest.ID(1)),
		"gets":  {Frame: &pb.ClientFrame_Gets{Gets: &pb.GetsFrame{Seq: 5, Keyspace: "ks", Keys: [][]byte{[]byte("k")}}}},
	}
	fields := (&pb.ClientFrame{}).ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		name := string(fields.Get(i).Name())
		rule := api.FrameRule(name)
		f, ok := samples[name]
		switch {
		case rule.Any && name != "commit": // commit's parts have rules
			continue
		case !ok:
			t.Fatalf("frame %s has no sample", name)
		}
		r := newRig(t, edge.Limits{})
		lacking := "task:read,admin,kv:read"
		for _, scope := range []string{"task:create", "task:work"} {
			if !strings.Contains(rule.Scope.String(), scope) && !rule.Any {
				lacking += "," + scope
			}
		}
		if name == "waits" {
			lacking = strings.ReplaceAll(lacking, "task:read", "task:work")
		}
		if name == "gets" {
			lacking = strings.ReplaceAll(lacking, "kv:read", "kv:write")
		}
		ws, _ := r.greet(apitest.As("acme/"+lacking), 1)
		ws.send(f)
		var e *pb.Error
		if name == "subscribe" || name == "slots" {
			e = apitest.ErrorOf(t, ws.end())
		} else {
			a := ws.ack()
			e = a.GetError()
			if a.GetSeq() != 5 {
				t.Errorf("%s: seq %d", name, a.GetSeq())
			}
		}
		if e.GetCode() != "PERMISSION_DENIED" {
			t.Errorf("%s: %v", name, e)
		}
		if n := len(r.n.Proposed()); n != 0 {
			t.Errorf("%s: %d commits were proposed", name, n)
		}
	}
	for name, ctx := range map[string]context.Context{
		"no token": context.Background(), "an expired token": apitest.As("acme/all/-1s"), "an unknown token": apitest.As("x"),
	} {
		r := newRig(t, edge.Limits{})
		apitest.ExpectCode(t, "open with "+name, r.open(ctx).end(), codes.Unauthenticated)
	}
}

func TestAnExpiredTokenEndsTheStreamUnlessItIsReplaced(t *testing.T) {
	r := newRig(t, edge.Limits{})
	kept, _ := r.greet(apitest.As("acme/all/30s"), 1)
	lost, _ := r.greet(apitest.As("acme/all/30s"), 2)
	gone, _ := r.greet(apitest.As("acme/all"), 3)
	kept.send(authFrame("acme/task:create"))
	kept.send(createFrame(1, 1))
	if a := kept.ack(); a.GetError() != nil {
		t.Errorf("after the new token: %v", a)
	}
	kept.send(settleFrame(2, apitest.DoneItem(1, 2)))
	if a := kept.ack(); a.GetError().GetCode() != "PERMISSION_DENIED" {
		t.Errorf("the new token's scopes do not rule: %v", a)
	}
	r.auth.Revoke("acme/all")
	r.tick(3, streamTick) // to the 30th second
	apitest.ExpectCode(t, "expired", lost.end(), codes.Unauthenticated)
	apitest.ExpectCode(t, "revoked", gone.end(), codes.Unauthenticated)
	r.tick(6, streamTick)
	kept.send(createFrame(3, 1))
	if a := kept.ack(); a.GetError() != nil || a.GetSeq() != 3 {
		t.Errorf("a minute later: %v", a)
	}
}

// tick advances the clock in steps, and waits after each until no stream has its timer still to rearm.
func (r *rig) tick(steps int, step time.Duration) {
	for range steps {
		apitest.Eventually(r.t, "every stream's timer is armed", func() bool {
			return r.clock.Armed() > int(r.s.Stats().Streams)
		})
		r.clock.Advance(step)
		r.s.Live.Sweep()
	}
}

func TestATokenOfAnotherTenantEndsTheStream(t *testing.T) {
	for name, token := range map[string]string{"another tenant": "rival/all", "unknown": "x", "expired": "acme/all/-1s"} {
		r := newRig(t, edge.Limits{})
		ws, _ := r.greet(apitest.As("acme/all"), 1)
		ws.send(authFrame(token))
		apitest.ExpectCode(t, name, ws.end(), codes.Unauthenticated)
	}
}

func TestAStreamThatNeverSaysHelloIsEnded(t *testing.T) {
	r := newRig(t, edge.Limits{})
	ws := r.open(apitest.As("acme/all"))
	apitest.Eventually(t, "the stream is open", func() bool { return r.s.Stats().Streams == 1 })
	r.tick(6, streamTick)
	apitest.ExpectCode(t, "silent", ws.end(), codes.DeadlineExceeded)
}

func TestHalfCloseAnswersWhatWasSent(t *testing.T) {
	r := newRig(t, edge.Limits{})
	r.n.Holding = true
	ws, ses := r.greet(apitest.As("acme/all"), 1)
	for seq := range uint64(3) {
		ws.send(createFrame(seq, 1))
	}
	if err := ws.CloseSend(); err != nil {
		t.Fatal(err)
	}
	apitest.Eventually(t, "the session drains", func() bool { _, drained, _ := ses.State(); return drained && r.n.Waiting() == 3 })
	if ses.Sink.Assign(1, apitest.AssignedTasks(1, 1), core.At{}) {
		t.Error("a client that closed its side was given a task")
	}
	for seq := range uint64(3) {
		r.n.ReleaseHeld(0)
		if a := ws.ack(); a.GetSeq() != seq {
			t.Errorf("ack: %v", a)
		}
	}
	if err := ws.end(); !errors.Is(err, io.EOF) {
		t.Errorf("end: %v", err)
	}
	apitest.Eventually(t, "the session is closed", func() bool { _, _, closed := ses.State(); return closed })
	if ses.Broken() {
		t.Error("a stream that its client closed counts as broken")
	}
}

// TestAStreamThatBreaksIsToldFromOneThatIsClosed: the leases of the one end soon, those of the other by their own time.
func TestAStreamThatBreaksIsToldFromOneThatIsClosed(t *testing.T) {
	for name, c := range map[string]struct {
		end          func(*wireStream, *apitest.Session)
		broken, left bool
	}{
		"the client is gone":    {func(ws *wireStream, _ *apitest.Session) { ws.cancel() }, true, false},
		"it broke the protocol": {func(ws *wireStream, _ *apitest.Session) { ws.send(helloOf(1)) }, true, false},
		"the client is done":    {func(ws *wireStream, _ *apitest.Session) { _ = ws.CloseSend() }, false, false},
		"another node leads":    {func(_ *wireStream, s *apitest.Session) { s.Sink.End(core.Unavailable{Reason: "no_leader"}) }, false, false},
		"drained, then it is gone": {func(ws *wireStream, _ *apitest.Session) {
			ws.send(&pb.ClientFrame{Frame: &pb.ClientFrame_Drain{}})
			ws.cancel()
		}, true, false},
		"drained, then the client is done": {func(ws *wireStream, _ *apitest.Session) {
			ws.send(&pb.ClientFrame{Frame: &pb.ClientFrame_Drain{}})
			_ = ws.CloseSend()
		}, false, true},
	} {
		r := newRig(t, edge.Limits{})
		ws, ses := r.greet(apitest.As("acme/all"), 1)
		c.end(ws, ses)
		apitest.Eventually(t, name, func() bool { _, _, closed := ses.State(); return closed })
		apitest.Eventually(t, name, func() bool { return ses.Broken() == c.broken && ses.Left() == c.left })
	}
}

// TestHeadersOfAStreamComeBeforeItHasAWriter holds the session back, so that no frame can take the headers along.
func TestHeadersOfAStreamComeBeforeItHasAWriter(t *testing.T) {
	r := newRig(t, edge.Limits{})
	for range cap(r.n.Opened) {
		r.n.Opened <- nil
	}
	ctx, cancel := context.WithTimeout(apitest.As("acme/all"), 10*time.Second)
	defer cancel()
	ws := r.open(ctx)
	ws.send(helloOf(1))
	if _, err := ws.Header(); err != nil {
		t.Error(err)
	}
	for range cap(r.n.Opened) {
		<-r.n.Opened
	}
	if ws.recv().GetWelcome() == nil {
		t.Error("the first frame is not a welcome")
	}
}

func TestDrainReachesTheSession(t *testing.T) {
	r := newRig(t, edge.Limits{})
	ws, ses := r.greet(apitest.As("acme/all"), 1)
	ws.send(&pb.ClientFrame{Frame: &pb.ClientFrame_Drain{Drain: &pb.Drain{}}})
	apitest.Eventually(t, "the session drains", func() bool { _, drained, _ := ses.State(); return drained })
	ws.send(createFrame(1, 1))
	if a := ws.ack(); a.GetError() != nil {
		t.Errorf("a draining stream still creates: %v", a)
	}
}

func TestShutdownSaysGoawayAndAnswersWhatWasTaken(t *testing.T) {
	r := newRig(t, edge.Limits{})
	r.n.Holding = true
	ws, ses := r.greet(apitest.As("acme/all"), 1)
	ws.send(createFrame(1, 1))
	apitest.Eventually(t, "the frame is proposed", func() bool { return r.n.Waiting() == 1 })
	over := make(chan struct{})
	go func() {
		defer close(over)
		r.s.Shutdown(time.Hour)
	}()
	if g := ws.recv().GetGoaway(); g.GetReason() != "stopping" {
		t.Errorf("goaway: %v", g)
	}
	ws.send(createFrame(2, 1)) // comes too late: the client sends it again elsewhere
	apitest.Eventually(t, "the session drains", func() bool { _, drained, _ := ses.State(); return drained })
	r.n.ReleaseHeld(0)
	if a := ws.ack(); a.GetSeq() != 1 || a.GetError() != nil {
		t.Errorf("ack: %v", a)
	}
	if e := apitest.ErrorOf(t, ws.end()); e.GetCode() != "UNAVAILABLE" || e.GetReason() != "stopping" || e.GetOutcome() != pb.Error_REFUSED {
		t.Errorf("end: %v", e)
	}
	<-over
	if got := len(r.n.Proposed()); got != 1 {
		t.Errorf("%d commits", got)
	}
}

func TestASessionThatCannotOpenEndsItsStreamOnly(t *testing.T) {
	r := newRig(t, edge.Limits{})
	ws := r.open(apitest.As("acme/all"))
	f := helloOf(1)
	f.GetHello().Partition = 1
	ws.send(f)
	if e := apitest.ErrorOf(t, ws.end()); e.GetCode() != "INVALID_ARGUMENT" || e.GetField() != "hello.partition" {
		t.Errorf("end: %v", e)
	}
	r.greet(apitest.As("acme/all"), 1)
}
