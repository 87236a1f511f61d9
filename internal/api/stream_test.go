package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/core"
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
func (r *rig) greet(ctx context.Context, session byte) (*wireStream, *fakeSession) {
	r.t.Helper()
	ws := r.open(ctx)
	ws.send(helloOf(session))
	if ws.recv().GetWelcome() == nil {
		r.t.Fatal("the first frame is no welcome")
	}
	return ws, <-r.n.opened
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
	tasks := repeat(n, &pb.TaskSpec{Queue: "q"})
	return &pb.ClientFrame{Frame: &pb.ClientFrame_Create{Create: &pb.CreateFrame{Seq: seq, Tasks: tasks}}}
}

func commitFrame(f *pb.CommitFrame) *pb.ClientFrame {
	return &pb.ClientFrame{Frame: &pb.ClientFrame_Commit{Commit: f}}
}

func putCommit() *pb.CommitRequest {
	put := &pb.KVPut{Keyspace: "ks", Key: []byte("k"), Value: []byte("v")}
	return &pb.CommitRequest{Ops: []*pb.Op{{Op: &pb.Op_KvPut{KvPut: put}}}}
}

func settleFrame(seq uint64, items ...*pb.SettleItem) *pb.ClientFrame {
	return &pb.ClientFrame{Frame: &pb.ClientFrame_Settle{Settle: &pb.SettleFrame{Seq: seq, Items: items}}}
}

func doneItem(n byte, token uint64) *pb.SettleItem {
	return &pb.SettleItem{Id: testID(n), Token: token, Outcome: &pb.SettleItem_Complete{Complete: &pb.Complete{}}}
}

func subscribeFrame(sub, slots uint32) *pb.ClientFrame {
	return &pb.ClientFrame{Frame: &pb.ClientFrame_Subscribe{Subscribe: &pb.Subscribe{
		Sub: sub, Slots: slots, Queues: []*pb.QueueWeight{{Name: "q"}},
	}}}
}

func slotsFrame(sub, free uint32) *pb.ClientFrame {
	return &pb.ClientFrame{Frame: &pb.ClientFrame_Slots{Slots: &pb.Slots{Sub: sub, Slots: free}}}
}

func authFrame(token string) *pb.ClientFrame {
	return &pb.ClientFrame{Frame: &pb.ClientFrame_Auth{Auth: &pb.AuthFrame{Token: token}}}
}

func TestWelcomeTellsWhatTheSessionIs(t *testing.T) {
	r := newRig(t, Limits{})
	id, err := core.ParseTaskID(testID(1))
	if err != nil {
		t.Fatal(err)
	}
	r.n.welcome = core.Welcome{
		Kept: []core.TaskHold{{Task: id, Token: 3}}, Lost: []core.TaskHold{{Task: id, Token: 2}}, AppliedSeq: 17,
	}
	ws := r.open(as("acme/all"))
	hello := helloOf(7)
	hello.GetHello().Namespace = "prod"
	hello.GetHello().Worker = &pb.WorkerInfo{Id: "w1", Kinds: []string{"a", "b:c"}, Host: "h"}
	hello.GetHello().Held = []*pb.Hold{{Id: testID(1), Token: 3}, {Id: testID(1), Token: 2}}
	ws.send(hello)
	w := ws.recv().GetWelcome()
	if w.GetTenant() != "acme" || len(w.GetDirectory()) != 1 || w.GetAppliedSeq() != 17 || w.GetShardTime() == nil {
		t.Errorf("welcome: %v", w)
	}
	if len(w.GetKept()) != 1 || w.GetKept()[0].GetToken() != 3 || len(w.GetLost()) != 1 || w.GetLost()[0].GetToken() != 2 {
		t.Errorf("leases: %v", w)
	}
	want := &pb.Limits{FrameItems: 512, FrameBytes: 4 << 20, UnackedItems: 4096, UnackedBytes: 16 << 20, UnackedCommits: 64, Slots: 4096}
	if !proto.Equal(w.GetLimits(), want) {
		t.Errorf("limits: %v", w.GetLimits())
	}
	ses := <-r.n.opened
	if ses.spec.Worker != "w1" || ses.spec.Principal != "someone" || ses.spec.ID != (core.SessionID(repeat(16, byte(7)))) || len(ses.spec.Held) != 2 {
		t.Errorf("session: %+v", ses.spec)
	}
	if _, ok := r.n.spaces["acme/prod"]; !ok {
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
		"too many kinds":   {bad(func(h *pb.Hello) { h.Worker = &pb.WorkerInfo{Kinds: repeat(1001, "k")} }), "hello.worker.kinds"},
		"bad worker":       {bad(func(h *pb.Hello) { h.Worker = &pb.WorkerInfo{Id: "\x00"} }), "hello.worker.id"},
		"bad lease":        {bad(func(h *pb.Hello) { h.Held = []*pb.Hold{{Id: testID(1)}} }), "hello.held[0].token"},
		"an unknown field": {bad(func(h *pb.Hello) { h.ProtoReflect().SetUnknown([]byte{0xf8, 0x3f, 0x01}) }), "hello"},
	} {
		r := newRig(t, Limits{})
		ws := r.open(as("acme/all"))
		ws.send(c.first)
		if e := errorOf(t, ws.end()); e.GetField() != c.field {
			t.Errorf("%s: %v", name, e)
		}
	}
	r := newRig(t, Limits{})
	ws, _ := r.greet(as("acme/all"), 1)
	ws.send(helloOf(1))
	if e := errorOf(t, ws.end()); e.GetCode() != "INVALID_ARGUMENT" || e.GetField() != "hello" {
		t.Errorf("a second hello: %v", e)
	}
}

func TestEveryFrameIsClosedToWhoHasNoRight(t *testing.T) {
	samples := map[string]*pb.ClientFrame{
		"create": createFrame(5, 1), "commit": commitFrame(&pb.CommitFrame{Seq: 5, Commit: putCommit(), CommitSeq: 1}),
		"subscribe": subscribeFrame(1, 1), "slots": slotsFrame(1, 1), "settle": settleFrame(5, doneItem(1, 2)),
		"renew": {Frame: &pb.ClientFrame_Renew{Renew: &pb.RenewFrame{Seq: 5, All: true}}},
	}
	for name, rule := range frames {
		f, ok := samples[name]
		switch {
		case rule.any && name != "commit": // commit's parts have rules
			continue
		case !ok:
			t.Fatalf("frame %s has no sample", name)
		}
		r := newRig(t, Limits{})
		lacking := "task:read,admin,kv:read"
		for _, scope := range []string{"task:create", "task:work"} {
			if !strings.Contains(rule.scope.String(), scope) && !rule.any {
				lacking += "," + scope
			}
		}
		ws, _ := r.greet(as("acme/"+lacking), 1)
		ws.send(f)
		var e *pb.Error
		if name == "subscribe" || name == "slots" {
			e = errorOf(t, ws.end())
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
		if n := len(r.n.proposed()); n != 0 {
			t.Errorf("%s: %d commits were proposed", name, n)
		}
	}
	for name, ctx := range map[string]context.Context{
		"no token": context.Background(), "an expired token": as("acme/all/-1s"), "an unknown token": as("x"),
	} {
		r := newRig(t, Limits{})
		expectCode(t, "open with "+name, r.open(ctx).end(), codes.Unauthenticated)
	}
}

func TestCreatedTasksAreSeparateCommitsUnlessAtomic(t *testing.T) {
	r := newRig(t, Limits{})
	ws, _ := r.greet(as("acme/all"), 1)
	f := createFrame(1, 3)
	f.GetCreate().Tasks[1] = &pb.TaskSpec{Queue: "bad queue", Id: testID(9)}
	ws.send(f)
	a := ws.ack()
	if len(a.GetCreated()) != 3 || a.GetCreated()[0].GetId() == "" || a.GetCreated()[2].GetError() != nil {
		t.Errorf("ack: %v", a)
	}
	if e := a.GetCreated()[1].GetError(); e.GetField() != "tasks[1].queue" {
		t.Errorf("the bad one: %v", e)
	}
	if got := len(r.n.proposed()); got != 2 {
		t.Errorf("%d commits, want 2", got)
	}
	f = createFrame(2, 3)
	f.GetCreate().Atomic = true
	ws.send(f)
	if a = ws.ack(); len(a.GetCreated()) != 3 || a.GetAt().GetIndex() == 0 {
		t.Errorf("atomic: %v", a)
	}
	commits := r.n.proposed()
	if len(commits) != 3 || len(commits[2].Ops) != 3 || commits[2].Principal != "someone" {
		t.Errorf("atomic: %+v", commits)
	}
	f.GetCreate().Tasks[2] = &pb.TaskSpec{Queue: ""}
	ws.send(f)
	if e := ws.ack().GetError(); e.GetField() != "tasks[2].queue" {
		t.Errorf("atomic with a bad one: %v", e)
	}
	r.n.judge = func(core.Commit) core.Result {
		return core.Result{Refusal: &core.Refusal{Op: 1, Fact: core.AlreadyExists{Kind: "task", ID: "x"}}}
	}
	f = createFrame(4, 2)
	f.GetCreate().Atomic = true
	ws.send(f)
	if e := ws.ack().GetError(); e.GetCode() != "ALREADY_EXISTS" || e.GetOp() != 1 {
		t.Errorf("atomic refused: %v", e)
	}
	ws.send(createFrame(5, 2))
	a = ws.ack()
	if e := a.GetCreated()[1].GetError(); e.GetCode() != "ALREADY_EXISTS" || e.Op != nil || a.GetError() != nil {
		t.Errorf("one refused: %v", a)
	}
}

func TestAnEmptyOrOverfullFrameIsRefusedByItsAck(t *testing.T) {
	r := newRig(t, Limits{})
	ws, _ := r.greet(as("acme/all"), 1)
	for seq, n := range []int{0, 513} {
		ws.send(createFrame(uint64(seq), n))
		a := ws.ack()
		if a.GetSeq() != uint64(seq) || a.GetError().GetField() != "tasks" || len(a.GetCreated()) != 0 {
			t.Errorf("%d tasks: %v", n, a)
		}
	}
	f := createFrame(3, 1)
	f.GetCreate().Tasks[0].ProtoReflect().SetUnknown([]byte{0xf8, 0x3f, 0x01})
	ws.send(f)
	if e := ws.ack().GetError(); e.GetReason() != "unknown_field" || e.GetField() != "tasks[0]" {
		t.Errorf("unknown field: %v", e)
	}
	f = createFrame(4, 1)
	f.ProtoReflect().SetUnknown([]byte{0xf8, 0x3f, 0x01})
	ws.send(f)
	if a := ws.ack(); a.GetSeq() != 4 || a.GetError().GetField() != "ClientFrame" {
		t.Errorf("unknown field beside the frame: %v", a)
	}
	ws.send(createFrame(5, 512))
	if a := ws.ack(); len(a.GetCreated()) != 512 {
		t.Errorf("a full frame: %v", a.GetError())
	}
}

func TestASettleIsOneCommitOfTheCompletionAndItsEffects(t *testing.T) {
	r := newRig(t, Limits{})
	ws, ses := r.greet(as("acme/all"), 1)
	full := doneItem(1, 2)
	full.Effects = &pb.Effects{Conditions: []*pb.KVCheck{goodCheck()}, Ops: putCommit().GetOps(), FailOnRefusal: true}
	retry := &pb.SettleItem{Id: testID(3), Token: 4, Outcome: &pb.SettleItem_Fail{Fail: &pb.Fail{
		Error: &pb.TaskError{Code: strings.Repeat("c", 99), Message: "m"}, RetryAfter: ms(0),
	}}}
	snooze := &pb.SettleItem{Id: testID(4), Token: 5, Outcome: &pb.SettleItem_Snooze{Snooze: &pb.Snooze{Delay: ms(9)}}}
	release := &pb.SettleItem{Id: testID(5), Token: 6, Outcome: &pb.SettleItem_Release{Release: &pb.Release{}}}
	none := &pb.SettleItem{Id: testID(6), Token: 7}
	misplaced := &pb.SettleItem{Id: testID(7), Token: 8, Outcome: release.GetOutcome(), Effects: &pb.Effects{}}
	ws.send(settleFrame(1, full, none, retry, snooze, misplaced, release))
	a := ws.ack()
	if len(a.GetSettled()) != 6 || len(a.GetSettled()[0].GetEffects()) != 1 || a.GetSettled()[0].GetEffects()[0].GetRev() != 7 {
		t.Fatalf("ack: %v", a)
	}
	if got := a.GetSettled()[0].GetState(); got != pb.State_COMPLETED {
		t.Errorf("state %v", got)
	}
	if e := a.GetSettled()[1].GetError(); e.GetField() != "items[1]" {
		t.Errorf("without an outcome: %v", e)
	}
	if e := a.GetSettled()[4].GetError(); e.GetReason() != "not_supported" || e.GetField() != "items[4].effects" {
		t.Errorf("effects of a release: %v", e)
	}
	commits := r.n.proposed()
	if len(commits) != 4 || len(ses.settled) != 4 {
		t.Fatalf("%d commits, %d settled", len(commits), len(ses.settled))
	}
	c := commits[0]
	if len(c.Ops) != 2 || len(c.Conditions) != 1 || !c.FailOnRefusal || c.Ops[0].Kind() != core.OpTaskComplete || c.Ops[1].Kind() != core.OpKVPut {
		t.Errorf("commit: %+v", c)
	}
	fail := commits[1].Ops[0].(*core.TaskFail)
	if !fail.HasRetry || fail.RetryAfter != 0 || len(fail.Error.Code) != 64 {
		t.Errorf("fail: %+v", fail)
	}
}

func TestARefusedSettleNamesTheEffect(t *testing.T) {
	r := newRig(t, Limits{})
	ws, _ := r.greet(as("acme/all"), 1)
	refusals := []*core.Refusal{
		{Op: 1, Fact: core.RevMismatch{Rev: 4, Value: []byte("now")}}, {Op: 0, Fact: core.LeaseLost{Given: 2}},
		{Op: core.ConditionOp - 1, Fact: core.RevMismatch{Missing: true}},
	}
	next := 0
	r.n.judge = func(core.Commit) core.Result {
		next++
		return core.Result{Refusal: refusals[next-1], FailedInstead: next == 1}
	}
	ws.send(settleFrame(1, doneItem(1, 2), doneItem(2, 3), doneItem(3, 4)))
	got := ws.ack().GetSettled()
	if e := got[0].GetError(); e.GetCode() != "PRECONDITION_FAILED" || e.GetOp() != 0 || e.Op == nil || e.GetDetails()["value"] != "now" || !got[0].GetFailedInstead() {
		t.Errorf("effect: %v", got[0])
	}
	if e := got[1].GetError(); e.GetCode() != "LEASE_LOST" || e.Op != nil {
		t.Errorf("completion: %v", e)
	}
	if e := got[2].GetError(); e.GetOp() != -3 {
		t.Errorf("condition: %v", e)
	}
}

func TestAStreamCommitCarriesItsSequence(t *testing.T) {
	r := newRig(t, Limits{})
	ws, ses := r.greet(as("acme/all"), 3)
	ws.send(commitFrame(&pb.CommitFrame{Seq: 1, Commit: putCommit(), CommitSeq: 9}))
	if a := ws.ack(); a.GetCommit().GetResults()[0].GetRev() != 7 || a.GetAt().GetIndex() == 0 {
		t.Errorf("ack: %v", a)
	}
	if c := r.n.proposed()[0]; c.Session != ses.spec.ID || c.Seq != 9 {
		t.Errorf("commit: %+v", c)
	}
	fenced := putCommit()
	fenced.Fence = &pb.Fence{Task: testID(1), Token: 2}
	ws.send(commitFrame(&pb.CommitFrame{Seq: 2, Commit: fenced, CommitSeq: 1}))
	if e := ws.ack().GetError(); e.GetField() != "commit_seq" {
		t.Errorf("a sequence beside a fence: %v", e)
	}
	ws.send(commitFrame(&pb.CommitFrame{Seq: 3, Commit: fenced}))
	if a := ws.ack(); a.GetError() != nil || a.GetCommit() == nil {
		t.Errorf("fenced: %v", a)
	}
	ws.send(commitFrame(&pb.CommitFrame{Seq: 4}))
	if e := ws.ack().GetError(); e.GetField() != "ops" {
		t.Errorf("of nothing: %v", e)
	}
	r.n.judge = func(core.Commit) core.Result {
		return core.Result{Refusal: &core.Refusal{Op: 0, Fact: core.SessionExpired{}}}
	}
	ws.send(commitFrame(&pb.CommitFrame{Seq: 5, Commit: putCommit(), CommitSeq: 10}))
	if e := ws.ack().GetError(); e.GetCode() != "WRONG_STATE" || e.GetReason() != "session_expired" {
		t.Errorf("expired: %v", e)
	}
}

func TestRenewAnswersEachLease(t *testing.T) {
	r := newRig(t, Limits{FrameItems: 2})
	ws, ses := r.greet(as("acme/all"), 1)
	renew := func(f *pb.RenewFrame) *pb.Ack {
		ws.send(&pb.ClientFrame{Frame: &pb.ClientFrame_Renew{Renew: f}})
		return ws.ack()
	}
	hold := &pb.Hold{Id: testID(1), Token: 2}
	if a := renew(&pb.RenewFrame{Seq: 1, Items: []*pb.Hold{hold, hold}, Extend: ms(5000)}); len(a.GetRenewed()) != 2 {
		t.Errorf("items: %v", a)
	}
	if op := r.n.proposed()[0].Ops[0].(*core.TaskRenew); op.Extend != 5000 {
		t.Errorf("extend: %+v", op)
	}
	if a := renew(&pb.RenewFrame{Seq: 2, All: true}); len(a.GetRenewed()) != 0 || a.GetError() != nil {
		t.Errorf("all of none: %v", a)
	}
	id, err := core.ParseTaskID(testID(1))
	if err != nil {
		t.Fatal(err)
	}
	ses.mu.Lock()
	ses.held = repeat(5, core.TaskHold{Task: id, Token: 2})
	ses.mu.Unlock()
	if a := renew(&pb.RenewFrame{Seq: 3, All: true}); len(a.GetRenewed()) != 5 {
		t.Errorf("all: %v", a)
	}
	if got := len(r.n.proposed()); got != 4 {
		t.Errorf("%d commits, want 1 and 3", got)
	}
	if e := renew(&pb.RenewFrame{Seq: 4, Items: []*pb.Hold{{Id: testID(1)}}}).GetError(); e.GetField() != "items[0].token" {
		t.Errorf("no token: %v", e)
	}
	if e := renew(&pb.RenewFrame{Seq: 5, All: true, Items: []*pb.Hold{hold}}).GetError(); e.GetField() != "items" {
		t.Errorf("items beside all: %v", e)
	}
	if e := renew(&pb.RenewFrame{Seq: 6, All: true, Extend: ms(1)}).GetError(); e.GetLimit() != "lease_ms" {
		t.Errorf("short: %v", e)
	}
}

func TestEveryFrameIsAcknowledgedOnceWhateverTheOrderOfResults(t *testing.T) {
	const n = 60
	r := newRig(t, Limits{})
	r.n.holding = true
	ws, _ := r.greet(as("acme/all"), 1)
	for seq := range uint64(n) {
		switch seq % 3 {
		case 0:
			ws.send(createFrame(seq, 2))
		case 1:
			ws.send(settleFrame(seq, doneItem(byte(seq), 3)))
		default:
			ws.send(commitFrame(&pb.CommitFrame{Seq: seq, Commit: putCommit(), CommitSeq: seq}))
		}
	}
	eventually(t, "all frames are proposed", func() bool { return r.n.waiting() == n })
	for i, c := range r.n.proposed() {
		if c.Seq != 0 && c.Seq != uint64(i/4*3+2) {
			t.Fatalf("commit %d has sequence %d: frames were proposed out of order", i, c.Seq)
		}
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	go func() {
		for left := n; left > 0; left-- {
			r.n.release(rnd.IntN(left))
		}
	}()
	seen := make(map[uint64]int)
	for range n {
		a := ws.ack()
		seen[a.GetSeq()]++
		if a.GetError() != nil || len(a.GetCreated())+len(a.GetSettled()) == 0 && a.GetCommit() == nil {
			t.Errorf("ack: %v", a)
		}
	}
	if err := ws.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if err := ws.end(); !errors.Is(err, io.EOF) {
		t.Errorf("end: %v", err)
	}
	for seq := range uint64(n) {
		if seen[seq] != 1 {
			t.Errorf("seq %d was acknowledged %d times", seq, seen[seq])
		}
	}
}

func TestAProposalWithoutResultsIsAnsweredAsUnknownOrRefused(t *testing.T) {
	r := newRig(t, Limits{})
	ws, _ := r.greet(as("acme/all"), 1)
	for seq, c := range map[uint64]struct {
		fact    core.Fact
		code    string
		outcome pb.Error_Outcome
	}{
		1: {core.Unavailable{Reason: "stopping", Unknown: true}, "UNAVAILABLE", pb.Error_UNKNOWN},
		2: {core.Unavailable{Reason: "overload", Limit: "proposals"}, "UNAVAILABLE", pb.Error_REFUSED},
		3: {core.DeadlineExceeded{Unknown: true}, "DEADLINE_EXCEEDED", pb.Error_UNKNOWN},
		4: {core.Exhausted{Limit: "disk"}, "RESOURCE_EXHAUSTED", pb.Error_REFUSED},
		5: {core.NotLeader{Leader: "n2"}, "NOT_LEADER", pb.Error_REFUSED},
	} {
		r.n.mu.Lock()
		r.n.ended = func([]core.Commit) core.Fact { return c.fact }
		r.n.mu.Unlock()
		ws.send(createFrame(seq, 2))
		a := ws.ack()
		if a.GetSeq() != seq || a.GetError().GetCode() != c.code || a.GetError().GetOutcome() != c.outcome {
			t.Errorf("%v: %v", c.fact, a)
		}
	}
}

func TestANodeThatAnswersTooLittleIsInternal(t *testing.T) {
	r := newRig(t, Limits{})
	ws, _ := r.greet(as("acme/all"), 1)
	st := r.s.sessions[sessionKey{r.n.sessions[0].part, r.n.sessions[0].spec.ID}]
	p := &pending{seq: 4, commits: 2, answers: r.s.answers("create", false), load: load{frames: 1}}
	st.admit(p.load)
	st.done(p, core.Proposed{})
	if a := ws.ack(); a.GetSeq() != 4 || a.GetError().GetCode() != "INTERNAL" {
		t.Errorf("ack: %v", a)
	}
}

func TestTheReaderStopsAtTheWindow(t *testing.T) {
	for name, c := range map[string]struct {
		limits Limits
		frame  func(seq uint64) *pb.ClientFrame
		want   int // proposals before it stops
	}{
		"items": {Limits{UnackedItems: 6}, func(seq uint64) *pb.ClientFrame { return createFrame(seq, 2) }, 3},
		"bytes": {Limits{UnackedBytes: 3000}, func(seq uint64) *pb.ClientFrame {
			f := createFrame(seq, 1)
			f.GetCreate().Tasks[0].Payload = make([]byte, 1000)
			return f
		}, 3},
		"commits": {Limits{UnackedCommits: 2}, func(seq uint64) *pb.ClientFrame {
			return commitFrame(&pb.CommitFrame{Seq: seq, Commit: putCommit()})
		}, 2},
	} {
		r := newRig(t, c.limits)
		r.n.holding = true
		ws, _ := r.greet(as("acme/all"), 1)
		for seq := range uint64(8) {
			ws.send(c.frame(seq))
		}
		eventually(t, name+": the window is full", func() bool { return r.n.waiting() == c.want })
		for seq := range uint64(8) {
			r.n.release(0)
			if a := ws.ack(); a.GetSeq() != seq || a.GetError() != nil {
				t.Errorf("%s: %v", name, a)
			}
			want := min(c.want, 7-int(seq))
			eventually(t, name+": an ack makes room for one frame", func() bool { return r.n.waiting() == want })
		}
	}
}

func TestStreamFramesBeyondALimitEndTheStream(t *testing.T) {
	sub := func(change func(*pb.Subscribe)) *pb.ClientFrame {
		f := subscribeFrame(1, 1)
		change(f.GetSubscribe())
		return f
	}
	for field, f := range map[string]*pb.ClientFrame{
		"subscribe.slots":          sub(func(s *pb.Subscribe) { s.Slots = 4097 }),
		"subscribe.batch":          sub(func(s *pb.Subscribe) { s.Batch = 129 }),
		"subscribe.queues":         sub(func(s *pb.Subscribe) { s.Queues = repeat(65, s.Queues[0]) }),
		"subscribe.queues[0].name": sub(func(s *pb.Subscribe) { s.Queues = []*pb.QueueWeight{{Name: ""}} }),
		"subscribe.lease":          sub(func(s *pb.Subscribe) { s.Lease = ms(5) }),
		"slots.sub":                slotsFrame(9, 1),
		"slots.free":               slotsFrame(1, 4097),
		"frame":                    {},
	} {
		r := newRig(t, Limits{})
		ws, ses := r.greet(as("acme/all"), 1)
		ws.send(subscribeFrame(1, 4096))
		ws.send(f)
		if e := errorOf(t, ws.end()); e.GetField() != field {
			t.Errorf("%s: %v", field, e)
		}
		eventually(t, "the session is closed", func() bool { _, _, closed := ses.state(); return closed })
	}
	r := newRig(t, Limits{})
	ws, ses := r.greet(as("acme/all"), 1)
	for n := range uint32(16) {
		ws.send(subscribeFrame(n, 1))
	}
	ws.send(subscribeFrame(3, 2)) // again: no further one
	ws.send(slotsFrame(3, 0))
	eventually(t, "the subscriptions are there", func() bool { n, _, _ := ses.state(); return n == 17 })
	if got := ses.subs[0]; got.Batch != 128 || got.Queues[0].Weight != 1 {
		t.Errorf("defaults: %+v", got)
	}
	ws.send(subscribeFrame(99, 1))
	if e := errorOf(t, ws.end()); e.GetCode() != "RESOURCE_EXHAUSTED" || e.GetLimit() != "subscriptions" || e.GetMax() != 16 {
		t.Errorf("a 17th subscription: %v", e)
	}
}

func TestStreamsAreBoundedByTenantAndNode(t *testing.T) {
	r := newRig(t, Limits{StreamsTenant: 1, StreamsNode: 2})
	first, _ := r.greet(as("acme/all"), 1)
	if e := errorOf(t, r.open(as("acme/all")).end()); e.GetCode() != "RESOURCE_EXHAUSTED" || e.GetLimit() != "streams_tenant" {
		t.Errorf("tenant: %v", e)
	}
	r.greet(as("rival/all"), 1)
	if e := errorOf(t, r.open(as("third/all")).end()); e.GetCode() != "UNAVAILABLE" || e.GetLimit() != "streams_node" {
		t.Errorf("node: %v", e)
	}
	first.cancel()
	eventually(t, "the first stream is gone", func() bool { return r.s.Stats().Streams == 1 })
	r.greet(as("acme/all"), 2)
}

func TestAConnectionHoldsItsCallsBack(t *testing.T) {
	r := newRig(t, Limits{StreamsConnection: 1})
	r.greet(as("acme/all"), 1)
	ctx, cancel := context.WithTimeout(as("acme/all"), 50*time.Millisecond)
	defer cancel()
	_, err := pb.NewKVServiceClient(r.conn).Get(ctx, &pb.KVGetRequest{Keyspace: "k", Key: []byte("k")})
	if status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("a second call of the connection: %v", err)
	}
}

func TestAnExpiredTokenEndsTheStreamUnlessItIsReplaced(t *testing.T) {
	r := newRig(t, Limits{})
	kept, _ := r.greet(as("acme/all/30s"), 1)
	lost, _ := r.greet(as("acme/all/30s"), 2)
	gone, _ := r.greet(as("acme/all"), 3)
	kept.send(authFrame("acme/task:create"))
	kept.send(createFrame(1, 1))
	if a := kept.ack(); a.GetError() != nil {
		t.Errorf("after the new token: %v", a)
	}
	kept.send(settleFrame(2, doneItem(1, 2)))
	if a := kept.ack(); a.GetError().GetCode() != "PERMISSION_DENIED" {
		t.Errorf("the new token's scopes do not rule: %v", a)
	}
	r.auth.revoke("acme/all")
	r.tick(3, streamTick) // to the 30th second
	expectCode(t, "expired", lost.end(), codes.Unauthenticated)
	expectCode(t, "revoked", gone.end(), codes.Unauthenticated)
	r.tick(6, streamTick)
	kept.send(createFrame(3, 1))
	if a := kept.ack(); a.GetError() != nil || a.GetSeq() != 3 {
		t.Errorf("a minute later: %v", a)
	}
}

// tick advances the clock in steps, and waits after each until no stream has its timer still to rearm.
func (r *rig) tick(steps int, step time.Duration) {
	for range steps {
		eventually(r.t, "every stream's timer is armed", func() bool {
			return r.clock.armed() >= int(r.s.Stats().Streams)
		})
		r.clock.advance(step)
	}
}

func TestATokenOfAnotherTenantEndsTheStream(t *testing.T) {
	for name, token := range map[string]string{"another tenant": "rival/all", "unknown": "x", "expired": "acme/all/-1s"} {
		r := newRig(t, Limits{})
		ws, _ := r.greet(as("acme/all"), 1)
		ws.send(authFrame(token))
		expectCode(t, name, ws.end(), codes.Unauthenticated)
	}
}

func TestAStreamThatNeverSaysHelloIsEnded(t *testing.T) {
	r := newRig(t, Limits{})
	ws := r.open(as("acme/all"))
	eventually(t, "the stream is open", func() bool { return r.s.Stats().Streams == 1 })
	r.tick(6, streamTick)
	expectCode(t, "silent", ws.end(), codes.DeadlineExceeded)
}

func TestHalfCloseAnswersWhatWasSent(t *testing.T) {
	r := newRig(t, Limits{})
	r.n.holding = true
	ws, ses := r.greet(as("acme/all"), 1)
	for seq := range uint64(3) {
		ws.send(createFrame(seq, 1))
	}
	if err := ws.CloseSend(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the session drains", func() bool { _, drained, _ := ses.state(); return drained && r.n.waiting() == 3 })
	if ses.sink.Assign(1, assignedTasks(1, 1), core.At{}) {
		t.Error("a client that closed its side was given a task")
	}
	for seq := range uint64(3) {
		r.n.release(0)
		if a := ws.ack(); a.GetSeq() != seq {
			t.Errorf("ack: %v", a)
		}
	}
	if err := ws.end(); !errors.Is(err, io.EOF) {
		t.Errorf("end: %v", err)
	}
	eventually(t, "the session is closed", func() bool { _, _, closed := ses.state(); return closed })
}

func TestDrainReachesTheSession(t *testing.T) {
	r := newRig(t, Limits{})
	ws, ses := r.greet(as("acme/all"), 1)
	ws.send(&pb.ClientFrame{Frame: &pb.ClientFrame_Drain{Drain: &pb.Drain{}}})
	eventually(t, "the session drains", func() bool { _, drained, _ := ses.state(); return drained })
	ws.send(createFrame(1, 1))
	if a := ws.ack(); a.GetError() != nil {
		t.Errorf("a draining stream still creates: %v", a)
	}
}

func TestShutdownSaysGoawayAndAnswersWhatWasTaken(t *testing.T) {
	r := newRig(t, Limits{})
	r.n.holding = true
	ws, ses := r.greet(as("acme/all"), 1)
	ws.send(createFrame(1, 1))
	eventually(t, "the frame is proposed", func() bool { return r.n.waiting() == 1 })
	over := make(chan struct{})
	go func() {
		defer close(over)
		r.s.Shutdown(time.Hour)
	}()
	if g := ws.recv().GetGoaway(); g.GetReason() != "stopping" {
		t.Errorf("goaway: %v", g)
	}
	ws.send(createFrame(2, 1)) // comes too late: the client sends it again elsewhere
	eventually(t, "the session drains", func() bool { _, drained, _ := ses.state(); return drained })
	r.n.release(0)
	if a := ws.ack(); a.GetSeq() != 1 || a.GetError() != nil {
		t.Errorf("ack: %v", a)
	}
	if e := errorOf(t, ws.end()); e.GetCode() != "UNAVAILABLE" || e.GetReason() != "stopping" || e.GetOutcome() != pb.Error_REFUSED {
		t.Errorf("end: %v", e)
	}
	<-over
	if got := len(r.n.proposed()); got != 1 {
		t.Errorf("%d commits", got)
	}
}

func TestAssignedTasksArePushedInFramesOfAboutAMebibyte(t *testing.T) {
	r := newRig(t, Limits{})
	ws, ses := r.greet(as("acme/all"), 1)
	if !ses.sink.Assign(4, assignedTasks(5, 600*kib), core.At{}) {
		t.Fatal("refused")
	}
	ses.sink.LeaseLost(core.TaskHold{Token: 8}, "expired")
	var sizes []int
	for n := 0; n < 5; {
		a := ws.recv().GetAssign()
		if a.GetSub() != 4 || a.GetTasks()[0].GetToken() != uint64(n+1) || a.GetTasks()[0].GetLeaseLeftMs() != 4000 || a.GetTasks()[0].GetLeaseMs() != 5000 {
			t.Fatalf("assign: sub %d, %d tasks, left %d", a.GetSub(), len(a.GetTasks()), a.GetTasks()[0].GetLeaseLeftMs())
		}
		n += len(a.GetTasks())
		sizes = append(sizes, len(a.GetTasks()))
	}
	if got := fmt.Sprint(sizes); got != "[2 2 1]" {
		t.Errorf("frames of %s tasks", got)
	}
	if l := ws.recv().GetLeaseLost(); l.GetToken() != 8 || l.GetReason() != "expired" {
		t.Errorf("lease lost: %v", l)
	}
}

func assignedTasks(n, bytes int) []core.Assigned {
	out := make([]core.Assigned, n)
	for i := range out {
		out[i] = core.Assigned{
			Task: core.TaskID{1, byte(i)}, Token: core.Token(i + 1), Payload: make([]byte, bytes), Queue: "q",
			Lease: 5000, LeaseUntil: core.ShardTimeOf(testNow).Add(4000),
		}
	}
	return out
}

// stall opens a stream whose client reads nothing, and fills it until its writer is stuck.
func (r *rig) stall(session byte) (*wireStream, *fakeSession) {
	r.t.Helper()
	ws, ses := r.greet(as("acme/all"), session)
	for ses.sink.Room() {
		if !ses.sink.Assign(1, assignedTasks(1, mib), core.At{}) {
			r.t.Fatal("refused with room")
		}
	}
	return ws, ses
}

func TestTasksAreGrantedOnlyWithRoomToSend(t *testing.T) {
	r := newRig(t, Limits{})
	ws, ses := r.stall(1)
	if ses.sink.Room() {
		t.Fatal("a full buffer has room")
	}
	for !ses.sink.Room() {
		ws.recv()
	}
	ws.cancel()
	eventually(t, "the session is closed", func() bool { _, _, closed := ses.state(); return closed })
	if ses.sink.Room() || ses.sink.Assign(1, assignedTasks(1, 1), core.At{}) {
		t.Error("a stream that is gone takes tasks")
	}
}

func TestAReaderThatTakesNothingIsCut(t *testing.T) {
	r := newRig(t, Limits{})
	_, ses := r.stall(1)
	quick, _ := r.greet(as("acme/all"), 2)
	r.tick(5, streamTick) // less than a minute after its last frame began to be sent
	if _, _, closed := ses.state(); closed {
		t.Error("cut too early")
	}
	eventually(t, "the slow one is cut", func() bool {
		r.tick(1, streamTick)
		_, _, closed := ses.state()
		return closed
	})
	if got := r.s.Stats().Refusals["send_stall_ms"]; got != 1 {
		t.Errorf("%d counted", got)
	}
	quick.send(createFrame(1, 1))
	if a := quick.ack(); a.GetError() != nil {
		t.Errorf("the other stream: %v", a)
	}
}

func TestTasksThatWereNotSentAreReleasedBeforeTheSessionOpensAgain(t *testing.T) {
	r := newRig(t, Limits{})
	_, ses := r.stall(1)
	r.n.mu.Lock()
	r.n.holding = true
	r.n.mu.Unlock()
	again := r.open(as("acme/all"))
	again.send(helloOf(1))
	eventually(t, "the old stream gives its tasks back", func() bool { return r.n.waiting() == 1 })
	select {
	case <-r.n.opened:
		t.Fatal("the session opened again before its tasks were back")
	default:
	}
	r.n.release(0)
	if again.recv().GetWelcome() == nil {
		t.Error("no welcome")
	}
	if _, _, closed := ses.state(); !closed {
		t.Error("the old session is open")
	}
	released := r.n.proposed()
	if len(released) == 0 {
		t.Fatal("nothing was released")
	}
	for i, c := range released {
		op, ok := c.Ops[0].(*core.TaskRelease)
		if !ok || !op.Undelivered || len(c.Ops) != 1 {
			t.Errorf("commit %d: %+v", i, c.Ops[0])
		}
	}
}

func TestAnOversizedFrameEndsTheStreamAndNamesTheLimit(t *testing.T) {
	r := newRig(t, Limits{MessageBytes: 64 * kib})
	ws, _ := r.greet(as("acme/all"), 1)
	f := createFrame(1, 1)
	f.GetCreate().Tasks[0].Payload = make([]byte, 65*kib)
	ws.send(f)
	if e := errorOf(t, ws.end()); e.GetCode() != "TOO_LARGE" || e.GetLimit() != "grpc_message" {
		t.Errorf("end: %v", e)
	}
}

func TestASessionThatCannotOpenEndsItsStreamOnly(t *testing.T) {
	r := newRig(t, Limits{})
	r.n.spaces["acme/wide"] = core.NamespaceInfo{Partitions: make([]core.PartitionInfo, 2)}
	ws := r.open(as("acme/all"))
	f := helloOf(1)
	f.GetHello().Namespace = "wide"
	ws.send(f)
	if e := errorOf(t, ws.end()); e.GetReason() != "not_supported" || e.GetField() != "namespace" {
		t.Errorf("end: %v", e)
	}
	r.greet(as("acme/all"), 1)
}
