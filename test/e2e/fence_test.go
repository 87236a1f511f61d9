package e2e

import (
	"math"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	millrace "github.com/millrace/millrace/sdk/go"
)

// TestAFencedCommitWhoseAnswerWasLostIsAnsweredAgainAfterTheLeaseIsGone: a commit in mid-task settles nothing, so its
// number in the session tells that it was applied, not its token.
func TestAFencedCommitWhoseAnswerWasLostIsAnsweredAgainAfterTheLeaseIsGone(t *testing.T) {
	t.Parallel()
	l := startLocal(t, holder{"acme", "admin", ""})
	ctx := bounded(t, time.Minute)
	c, r := l.client(0), l.raw(0)
	h, err := millrace.Job[string, string]("q").Add(ctx, c, "x")
	noErr(t, err)
	held, err := c.Claim(ctx, millrace.ClaimQuery{Queues: []string{"q"}})
	noErr(t, err)
	step := func(value string) *millracev1.CommitRequest {
		out := commit(put("steps", h.ID, value))
		out.Fence = &millracev1.Fence{Task: h.ID, Token: held[0].Token}
		return out
	}
	send := func(s *stream, seq uint64, c *millracev1.CommitRequest) *millracev1.Ack {
		s.send(&millracev1.ClientFrame{Frame: &millracev1.ClientFrame_Commit{
			Commit: &millracev1.CommitFrame{Seq: seq, CommitSeq: seq, Commit: c},
		}})
		return s.ack(seq)
	}
	first := r.openStream(t)
	first.hello(9)
	once := send(first, 1, step("one"))
	if once.Error != nil || once.Commit.GetReplayed() {
		t.Fatalf("the first time: %v", once)
	}
	first.close()
	if _, err := c.Complete(ctx, h.ID, held[0].Token, "done"); err != nil {
		t.Fatal(err)
	}
	second := r.openStream(t)
	second.hello(9)
	again := send(second, 1, step("one"))
	if again.Error != nil || !again.Commit.GetReplayed() || again.At.GetIndex() != once.At.GetIndex() ||
		again.Commit.Results[0].Rev != once.Commit.Results[0].Rev {
		t.Errorf("the second time: %v, the first time it was %v", again, once)
	}
	if a := send(second, 2, step("two")); a.Error.GetCode() != "LEASE_LOST" {
		t.Errorf("a new commit under the lease that is gone: %v", a)
	}
	if v, err := c.KV("steps").Get(ctx, h.ID); err != nil || v.String() != "one" {
		t.Errorf("the key is %v, err %v", v, err)
	}
	l.audit()
}

// TestATokenThatNobodyWasGivenHasNoLease sends the largest numbers there are: however large, a token is a number that
// may be guessed, and is answered like any other that is not live.
func TestATokenThatNobodyWasGivenHasNoLease(t *testing.T) {
	t.Parallel()
	l := startLocal(t, holder{"acme", "admin", ""})
	ctx := bounded(t, time.Minute)
	c, r := l.client(0), l.raw(0)
	h, err := millrace.Job[string, string]("q").Add(ctx, c, "x")
	noErr(t, err)
	held, err := c.Claim(ctx, millrace.ClaimQuery{Queues: []string{"q"}})
	noErr(t, err)
	for _, token := range []uint64{held[0].Token + 1, math.MaxInt64, math.MaxInt64 + 1, math.MaxUint64} {
		if a := r.call(t, "TaskService/Settle", completion(h.ID, token)); settleCode(t, a) != "LEASE_LOST" {
			t.Errorf("settle by %d: %d %v %x", token, a.status, a.err(), a.body)
		}
		beat := must(t, r, "TaskService/Heartbeat", &millracev1.HeartbeatRequest{
			Items: []*millracev1.Hold{{Id: h.ID, Token: token}},
		}, &millracev1.HeartbeatResponse{})
		if len(beat.Results) != 1 || !beat.Results[0].Lost {
			t.Errorf("heartbeat by %d: %v", token, beat)
		}
		fenced := commit(put("k", "a", "v"))
		fenced.Fence = &millracev1.Fence{Task: h.ID, Token: token}
		if a := r.call(t, "CommitService/Commit", fenced); a.code() != "LEASE_LOST" {
			t.Errorf("commit fenced by %d: %d %v", token, a.status, a.err())
		}
	}
	if _, err := c.Complete(ctx, h.ID, held[0].Token, "done"); err != nil {
		t.Errorf("the holder's own completion: %v", err)
	}
	l.audit()
}

// settleCode is the code that the one item of a settle was refused with.
func settleCode(t *testing.T, a answer) string {
	t.Helper()
	out := &millracev1.SettleResponse{}
	if a.status != 0 || proto.Unmarshal(a.body, out) != nil || len(out.Results) != 1 {
		return a.code()
	}
	return out.Results[0].GetError().GetCode()
}
