package stream

import (
	"testing"
	"time"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api/apitest"
	"github.com/millrace/millrace/internal/edge"
)

// Whatever carries puts is held to their rate: effects of completions are refused, to be sent again, and what has a number
// waits, so that it stays in order.
func TestPutsOfEffectsAndOfCommitsOnStreamsAreHeldToRates(t *testing.T) {
	put := func(key string) *pb.Op {
		return &pb.Op{Op: &pb.Op_KvPut{KvPut: &pb.KVPut{Keyspace: "ks", Key: []byte(key)}}}
	}
	r := newRig(t, edge.Limits{})
	r.n.Rates[0].Store(2)
	ws, _ := r.greet(apitest.As("acme/all"), 1)
	item := apitest.DoneItem(1, 3)
	item.Effects = &pb.Effects{Ops: []*pb.Op{put("a"), put("b"), put("c")}} // more than a second's worth: in debt
	ws.send(settleFrame(1, item))
	if a := ws.ack(); a.GetSettled()[0].GetError() != nil {
		t.Fatalf("the first effects: %v", a)
	}
	plain, other := apitest.DoneItem(3, 3), apitest.DoneItem(2, 3)
	other.Effects = &pb.Effects{Ops: []*pb.Op{put("a")}}
	ws.send(settleFrame(2, other, plain))
	settled := ws.ack().GetSettled()
	if e := settled[0].GetError(); e.GetCode() != "RATE_LIMITED" || e.GetLimit() != "writes_per_second" || e.GetRetryAfter().AsDuration() <= 0 || e.Op != nil || settled[1].GetError() != nil {
		t.Errorf("the next: %v", settled)
	}
	_, err := pb.NewTaskServiceClient(r.conn).Settle(apitest.As("acme/all"), &pb.SettleRequest{Items: []*pb.SettleItem{other}})
	if err != nil {
		t.Errorf("settles of a call: %v", err)
	}
	commit := &pb.CommitRequest{Ops: []*pb.Op{put("z")}}
	ws.send(commitFrame(&pb.CommitFrame{Seq: 3, Commit: commit}))
	if e := ws.ack().GetError(); e.GetCode() != "RATE_LIMITED" {
		t.Errorf("a commit without a number: %v", e)
	}
	before := len(r.n.Proposed())
	ws.send(commitFrame(&pb.CommitFrame{Seq: 4, Commit: commit, CommitSeq: 1}))
	throttle := ws.recv().GetThrottle()
	if throttle.GetLimit() != "writes_per_second" || len(r.n.Proposed()) != before {
		t.Errorf("a commit with a number: %v", throttle)
	}
	apitest.Eventually(t, "it waits", func() bool { return r.clock.Armed() > int(r.s.Stats().Streams)+1 }) // each stream has a timer of its own
	r.clock.Advance(2 * time.Second)
	if a := ws.ack(); a.GetSeq() != 4 || a.GetError() != nil {
		t.Errorf("after the wait: %v", a)
	}
}

// What creates tasks is held to the tenant's rate whichever way it comes: frames of both readers, calls and batches.
func TestCreatesAreHeldToTheRateOfTheTenant(t *testing.T) {
	r := newRig(t, edge.Limits{})
	r.n.CreateRate.Store(3)
	ws, _ := r.greet(apitest.As("acme/all"), 1)
	ws.send(createFrame(1, 2))
	if a := ws.ack(); a.GetError() != nil || len(a.GetCreated()) != 2 {
		t.Fatalf("within the rate: %v", a)
	}
	before := len(r.n.Proposed())
	limited := func(what string, e *pb.Error) {
		if e.GetCode() != "RATE_LIMITED" || e.GetLimit() != "task_creates_per_second" || e.GetRetryAfter().AsDuration() <= 0 || e.GetOutcome() != pb.Error_REFUSED {
			t.Errorf("%s: %v", what, e)
		}
	}
	ws.send(createFrame(2, 2))
	limited("a plain frame", ws.ack().GetError())
	ws.send(&pb.ClientFrame{Frame: &pb.ClientFrame_Create{Create: &pb.CreateFrame{Seq: 3, Atomic: true, Tasks: []*pb.TaskSpec{{Queue: "q"}}}}})
	limited("a frame that is read the long way", ws.ack().GetError())
	tasks := pb.NewTaskServiceClient(r.conn)
	_, err := tasks.Create(apitest.As("acme/all"), &pb.CreateRequest{Task: &pb.TaskSpec{Queue: "q"}})
	limited("a call", apitest.ErrorOf(t, err))
	_, err = tasks.BatchCreate(apitest.As("acme/all"), &pb.BatchCreateRequest{Tasks: []*pb.TaskSpec{{Queue: "q"}, {Queue: "q"}}})
	limited("a batch", apitest.ErrorOf(t, err))
	if got := len(r.n.Proposed()); got != before {
		t.Errorf("%d commits of what was refused were proposed", got-before)
	}
	ws.send(settleFrame(4, apitest.DoneItem(1, 3)))
	if a := ws.ack(); a.GetError() != nil {
		t.Errorf("the end of an attempt: %v", a)
	}
}

// A tenant has as many streams as it may, and one more when one has ended.
func TestStreamsOfATenantAreBounded(t *testing.T) {
	r := newRig(t, edge.Limits{})
	r.n.StreamsMost.Store(1)
	first, _ := r.greet(apitest.As("acme/all"), 1)
	second := r.open(apitest.As("acme/all"))
	second.send(helloOf(2))
	_, err := second.Recv()
	if e := apitest.ErrorOf(t, err); e.GetCode() != "RESOURCE_EXHAUSTED" || e.GetLimit() != "tenant_streams" || e.GetMax() != 1 {
		t.Errorf("a second stream: %v", err)
	}
	r.greet(apitest.As("acme/all"), 1) // takes the place of the first
	if _, err := first.Recv(); err == nil {
		t.Error("the first stream goes on")
	}
	if n := r.n.Streams.Load(); n != 1 {
		t.Errorf("%d streams are counted", n)
	}
}
