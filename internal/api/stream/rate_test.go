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
