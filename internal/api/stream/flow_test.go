package stream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api/apitest"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

func TestEveryFrameIsAcknowledgedOnceWhateverTheOrderOfResults(t *testing.T) {
	const n = 60
	r := newRig(t, edge.Limits{})
	r.n.Holding = true
	ws, _ := r.greet(apitest.As("acme/all"), 1)
	for seq := range uint64(n) {
		switch seq % 3 {
		case 0:
			ws.send(createFrame(seq, 2))
		case 1:
			ws.send(settleFrame(seq, apitest.DoneItem(byte(seq), 3)))
		default:
			ws.send(commitFrame(&pb.CommitFrame{Seq: seq, Commit: apitest.PutCommit(), CommitSeq: seq}))
		}
	}
	apitest.Eventually(t, "all frames are proposed", func() bool { return r.n.Waiting() == n })
	for i, c := range r.n.Proposed() {
		if c.Seq != 0 && c.Seq != uint64(i/4*3+2) {
			t.Fatalf("commit %d has sequence %d: frames were proposed out of order", i, c.Seq)
		}
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	go func() {
		for left := n; left > 0; left-- {
			r.n.ReleaseHeld(rnd.IntN(left))
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

func TestTheReaderStopsAtTheWindow(t *testing.T) {
	for name, c := range map[string]struct {
		limits edge.Limits
		frame  func(seq uint64) *pb.ClientFrame
		want   int // proposals before it stops
	}{
		"items": {edge.Limits{UnackedItems: 6}, func(seq uint64) *pb.ClientFrame { return createFrame(seq, 2) }, 3},
		"bytes": {edge.Limits{UnackedBytes: 3000}, func(seq uint64) *pb.ClientFrame {
			f := createFrame(seq, 1)
			f.GetCreate().Tasks[0].Payload = make([]byte, 1000)
			return f
		}, 3},
		"commits": {edge.Limits{UnackedCommits: 2}, func(seq uint64) *pb.ClientFrame {
			return commitFrame(&pb.CommitFrame{Seq: seq, Commit: apitest.PutCommit()})
		}, 2},
	} {
		r := newRig(t, c.limits)
		r.n.Holding = true
		ws, _ := r.greet(apitest.As("acme/all"), 1)
		for seq := range uint64(8) {
			ws.send(c.frame(seq))
		}
		apitest.Eventually(t, name+": the window is full", func() bool { return r.n.Waiting() == c.want })
		for seq := range uint64(8) {
			r.n.ReleaseHeld(0)
			if a := ws.ack(); a.GetSeq() != seq || a.GetError() != nil {
				t.Errorf("%s: %v", name, a)
			}
			want := min(c.want, 7-int(seq))
			apitest.Eventually(t, name+": an ack makes room for one frame", func() bool { return r.n.Waiting() == want })
		}
	}
}

func TestStreamsAreBoundedByTenantAndNode(t *testing.T) {
	r := newRig(t, edge.Limits{StreamsTenant: 1, StreamsNode: 2})
	first, _ := r.greet(apitest.As("acme/all"), 1)
	if e := apitest.ErrorOf(t, r.open(apitest.As("acme/all")).end()); e.GetCode() != "RESOURCE_EXHAUSTED" || e.GetLimit() != "streams_tenant" {
		t.Errorf("tenant: %v", e)
	}
	r.greet(apitest.As("rival/all"), 1)
	if e := apitest.ErrorOf(t, r.open(apitest.As("third/all")).end()); e.GetCode() != "UNAVAILABLE" || e.GetLimit() != "streams_node" {
		t.Errorf("node: %v", e)
	}
	first.cancel()
	apitest.Eventually(t, "the first stream is gone", func() bool { return r.s.Stats().Streams == 1 })
	r.greet(apitest.As("acme/all"), 2)
}

func TestAConnectionHoldsItsCallsBack(t *testing.T) {
	r := newRig(t, edge.Limits{StreamsConnection: 1})
	r.greet(apitest.As("acme/all"), 1)
	ctx, cancel := context.WithTimeout(apitest.As("acme/all"), 50*time.Millisecond)
	defer cancel()
	_, err := pb.NewKVServiceClient(r.conn).Get(ctx, &pb.KVGetRequest{Keyspace: "k", Key: []byte("k")})
	if status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("a second call of the connection: %v", err)
	}
}

func TestAssignedTasksArePushedInFramesOfAboutAMebibyte(t *testing.T) {
	r := newRig(t, edge.Limits{})
	ws, ses := r.greet(apitest.As("acme/all"), 1)
	if !ses.Sink.Assign(4, apitest.AssignedTasks(5, 600*kib), core.At{}) {
		t.Fatal("refused")
	}
	ses.Sink.LeaseLost(core.TaskHold{Token: 8}, "expired")
	ses.Sink.Available(6)
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
	if a := ws.recv().GetAvailable(); a.GetSub() != 6 {
		t.Errorf("available: %v", a)
	}
}

// stall opens a stream whose client reads nothing, and fills it until its writer is stuck.
func (r *rig) stall(session byte) (*wireStream, *apitest.Session) {
	r.t.Helper()
	ws, ses := r.greet(apitest.As("acme/all"), session)
	for n := int64(0); ses.Sink.Room(); n++ {
		if n > 4*r.s.Limits.SendBytes/mib {
			r.t.Fatalf("there is room after %d MiB that the client did not read", n)
		}
		if !ses.Sink.Assign(1, apitest.AssignedTasks(1, mib), core.At{}) {
			r.t.Fatal("refused with room")
		}
	}
	return ws, ses
}

func TestTasksAreGrantedOnlyWithRoomToSend(t *testing.T) {
	r := newRig(t, edge.Limits{})
	ws, ses := r.stall(1)
	if ses.Sink.Room() {
		t.Fatal("a full buffer has room")
	}
	for !ses.Sink.Room() {
		ws.recv()
	}
	ws.cancel()
	apitest.Eventually(t, "the session is closed", func() bool { _, _, closed := ses.State(); return closed })
	if ses.Sink.Room() || ses.Sink.Assign(1, apitest.AssignedTasks(1, 1), core.At{}) {
		t.Error("a stream that is gone takes tasks")
	}
}

func TestAReaderThatTakesNothingIsCut(t *testing.T) {
	r := newRig(t, edge.Limits{})
	_, ses := r.stall(1)
	quick, _ := r.greet(apitest.As("acme/all"), 2)
	r.tick(5, streamTick) // less than a minute after its last frame began to be sent
	if _, _, closed := ses.State(); closed {
		t.Error("cut too early")
	}
	apitest.Eventually(t, "the slow one is cut", func() bool {
		r.tick(1, streamTick)
		_, _, closed := ses.State()
		return closed
	})
	// The refusal is counted when the stream's handler returns, which is after its session is closed.
	apitest.Eventually(t, "the refusal is counted", func() bool { return r.s.Stats().Refusals["send_stall_ms"] > 0 })
	if got := r.s.Stats().Refusals["send_stall_ms"]; got != 1 {
		t.Errorf("%d counted", got)
	}
	quick.send(createFrame(1, 1))
	if a := quick.ack(); a.GetError() != nil {
		t.Errorf("the other stream: %v", a)
	}
}

func TestTasksThatWereNotSentAreReleasedBeforeTheSessionOpensAgain(t *testing.T) {
	r := newRig(t, edge.Limits{})
	_, ses := r.stall(1)
	r.n.Mu.Lock()
	r.n.Holding = true
	r.n.Mu.Unlock()
	again := r.open(apitest.As("acme/all"))
	again.send(helloOf(1))
	apitest.Eventually(t, "the old stream gives its tasks back", func() bool { return r.n.Waiting() == 1 })
	select {
	case <-r.n.Opened:
		t.Fatal("the session opened again before its tasks were back")
	default:
	}
	r.n.ReleaseHeld(0)
	if again.recv().GetWelcome() == nil {
		t.Error("no welcome")
	}
	if _, _, closed := ses.State(); !closed {
		t.Error("the old session is open")
	}
	released := r.n.Proposed()
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
