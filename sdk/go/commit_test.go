package millrace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/sdk/go/internal/retry"
	"github.com/millrace/millrace/sdk/go/internal/session"
	"github.com/millrace/millrace/sdk/go/internal/wire"
)

func TestCommitSendsConditionsAndOpsAndReturnsTheAnswer(t *testing.T) {
	f := newFake(t)
	c := f.client()
	defer f.end(c)
	var h *Handle[int]
	go func() {
		st := f.welcome(nil)
		cf := st.commit()
		if cf.CommitSeq != 1 || cf.Commit.Fence != nil || len(cf.Commit.RequestId) != 0 {
			t.Errorf("got %v, want the first sequence number, no fence and no request id", cf)
		}
		st.ack(&pb.Ack{Seq: cf.Seq, Commit: &pb.CommitResponse{
			At:      &pb.At{Partition: 2, Index: 9},
			Results: []*pb.OpResult{{Rev: 41, Prev: []byte("old"), Existed: true}, {Existed: true}, {Task: "holder"}},
		}})
	}()
	out, err := c.CommitResult(t.Context(), func(tx *Tx) {
		tx.KV("orders").Check("7", RevEqual(3))
		tx.KV("orders").Put("7", map[string]int{"n": 1}, IfRev(3), WantPrev())
		tx.KV("orders").Delete("8")
		h = thumb.AddTx(tx, thumbArgs{"u"}, UniqueKey("k", 0))
	})
	if err != nil {
		t.Fatal(err)
	}
	if out.Revs[0] != 41 || string(out.Prev[0]) != "old" || !out.Existed[1] || out.At != (Place{2, 9}) {
		t.Errorf("got %+v", out)
	}
	if h.ID != "holder" {
		t.Errorf("got handle of %s, want that of the task which holds the unique key", h.ID)
	}
}

func TestCommitRefusalNamesTheOp(t *testing.T) {
	f := newFake(t)
	c := f.client()
	defer f.end(c)
	go func() {
		st := f.welcome(nil)
		st.refuse(st.commit().Seq, &pb.Error{Code: "PRECONDITION_FAILED", Op: proto.Int32(-3), Details: map[string]string{"rev": "5"}})
	}()
	err := c.Commit(t.Context(), func(tx *Tx) { tx.KV("k").Put("a", "b") })
	e := asError(t, err)
	if !errors.Is(err, ErrPrecondition) || e.Op != OpCondition-1 || e.Details["rev"] != "5" || !strings.Contains(err.Error(), "conditions[1]") {
		t.Errorf("got %v (%+v), want a failed precondition of conditions[1] at revision 5", err, e)
	}
}

func TestWhatNoServerTakesIsRefusedHere(t *testing.T) {
	f := newFake(t)
	c := f.client()
	defer f.end(c)
	for _, tc := range []struct {
		name  string
		build func(tx *Tx)
		code  Code
	}{
		{"nothing", func(*Tx) {}, CodeInvalidArgument},
		{"too many ops", func(tx *Tx) {
			for i := range 1025 {
				tx.KV("k").Delete(fmt.Sprint(i))
			}
		}, CodeTooLarge},
		{"too many bytes", func(tx *Tx) { tx.KV("k").Put("a", make([]byte, 4<<20)) }, CodeTooLarge},
		{"a keyspace that is not text", func(tx *Tx) { tx.KV("\xff").Delete("a") }, CodeInvalidArgument},
		{"a queue that is not text", func(tx *Tx) { Job[int, int]("\xff").AddTx(tx, 1) }, CodeInvalidArgument},
	} {
		err := c.Commit(t.Context(), tc.build)
		if e := asError(t, err); e.Code != tc.code || OutcomeOf(err) != Refused {
			t.Errorf("%s: got %v, want %s", tc.name, err, tc.code)
		}
	}
	if err := c.Commit(t.Context(), func(tx *Tx) { tx.KV("k").Put("a", func() {}) }); err == nil || OutcomeOf(err) != Refused {
		t.Errorf("got %v for a value that cannot be encoded, want a refusal", err)
	}
}

// commits starts n commits and returns a channel of their errors.
func commits(ctx context.Context, c *Client, n int) chan error {
	out := make(chan error, n)
	for i := range n {
		go func() {
			_, err := c.KV("k").Put(ctx, fmt.Sprint(i), "v")
			out <- err
		}()
	}
	return out
}

func TestUnacknowledgedCommitsAreSentAgainUnderTheirNumbers(t *testing.T) {
	f := newFake(t)
	c := f.client()
	defer f.end(c)
	out := commits(t.Context(), c, 3)
	waitFor(t, c, func(s session.ProducersState) bool { return s.Commits == 3 })
	st := f.welcome(nil)
	var keys []string
	for i := range 3 {
		cf := st.commit()
		if cf.CommitSeq != uint64(i+1) {
			t.Fatalf("got number %d, want %d", cf.CommitSeq, i+1)
		}
		keys = append(keys, string(cf.Commit.Ops[0].GetKvPut().Key))
		if i == 0 {
			st.committed(cf)
		}
	}
	if err := receive(t, out); err != nil {
		t.Fatal(err)
	}
	st.cut()
	again := f.welcome(nil)
	if !bytes.Equal(again.hello.Session, st.hello.Session) {
		t.Error("the session changed")
	}
	for i := 1; i < 3; i++ {
		cf := again.commit()
		if cf.CommitSeq != uint64(i+1) || string(cf.Commit.Ops[0].GetKvPut().Key) != keys[i] {
			t.Errorf("got number %d of key %s, want %d of %s", cf.CommitSeq, cf.Commit.Ops[0].GetKvPut().Key, i+1, keys[i])
		}
		again.committed(cf)
	}
	for range 2 {
		if err := receive(t, out); err != nil {
			t.Error(err)
		}
	}
}

func TestAtMost64CommitsAreUnacknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		c := f.client()
		defer f.end(c)
		out := commits(t.Context(), c, 100)
		st := f.welcome(nil)
		synctest.Wait()
		if n := len(st.in); n != 64 {
			t.Errorf("%d commits left, want 64", n)
		}
		for range 100 {
			st.committed(st.commit())
		}
		for range 100 {
			if err := <-out; err != nil {
				t.Error(err)
			}
		}
	})
}

// Servers keep a session, and the answer to a request, for ten minutes after they have applied something. What is sent for the
// last time must arrive before that is over, or it would be applied again: also the first of a session, and by a slow way.
func TestNothingIsSentAgainWhenServersMayHaveForgottenIt(t *testing.T) {
	const kept, way = 10 * time.Minute, 20 * time.Second
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		c := f.client(Timeout(0))
		defer f.end(c)
		out := commits(t.Context(), c, 1)
		st := f.welcome(nil)
		began, last, tries := time.Now(), time.Duration(0), 0
		for {
			select {
			case frame := <-st.in:
				last, tries = time.Since(began), tries+1
				st.refuse(frame.GetCommit().GetSeq(), &pb.Error{Code: "UNAVAILABLE", Outcome: pb.Error_UNKNOWN})
				continue
			case err := <-out:
				if OutcomeOf(err) != Unknown {
					t.Errorf("it ended with %v", err)
				}
			}
			break
		}
		if tries < 100 || last > kept-way {
			t.Errorf("it was sent %d times, at last after %v, and is remembered for %v", tries, last, kept)
		}
	})
	synctest.Test(t, func(t *testing.T) { // on a stream that breaks late
		f := newFake(t)
		c := f.client()
		defer f.end(c)
		out := commits(t.Context(), c, 1)
		st := f.welcome(nil)
		st.commit()
		time.Sleep(kept - way)
		st.cut()
		again := f.welcome(nil)
		if err := <-out; OutcomeOf(err) != Unknown {
			t.Errorf("it ended with %v", err)
		}
		again.quiet()
	})
}

func TestARefusedNumberBeginsANewSession(t *testing.T) {
	f := newFake(t)
	c := f.client()
	defer f.end(c)
	out := commits(t.Context(), c, 1)
	st := f.welcome(nil)
	st.refuse(st.commit().Seq, &pb.Error{Code: "INVALID_ARGUMENT", Field: "ops[0].key"})
	if err := receive(t, out); !errors.Is(err, ErrInvalid) {
		t.Errorf("got %v, want ErrInvalid", err)
	}
	out = commits(t.Context(), c, 2)
	for _, cf := range []*pb.CommitFrame{st.commit(), st.commit()} { // the number before theirs never counted
		st.refuse(cf.Seq, &pb.Error{Code: "INVALID_ARGUMENT", Field: "commit_seq", Reason: "gap"})
	}
	again := f.welcome(nil)
	if bytes.Equal(again.hello.Session, st.hello.Session) {
		t.Error("the session id stayed")
	}
	for i := range 2 {
		cf := again.commit()
		if cf.CommitSeq != uint64(i+1) {
			t.Errorf("got number %d, want %d", cf.CommitSeq, i+1)
		}
		again.committed(cf)
	}
	for range 2 {
		if err := receive(t, out); err != nil {
			t.Error(err)
		}
	}
}

func TestAForgottenSessionIsReplacedWhenNothingWasApplied(t *testing.T) {
	f := newFake(t)
	c := f.client()
	defer f.end(c)
	out := commits(t.Context(), c, 1)
	st := f.welcome(nil)
	st.refuse(st.commit().Seq, &pb.Error{Code: "WRONG_STATE", Reason: "session_expired"})
	again := f.welcome(nil)
	again.committed(again.commit())
	if err := receive(t, out); err != nil {
		t.Error(err)
	}
}

func TestAForgottenSessionLeavesARepeatedCommitUnknown(t *testing.T) {
	f := newFake(t)
	c := f.client()
	defer f.end(c)
	out := commits(t.Context(), c, 1)
	st := f.welcome(nil)
	st.commit()
	st.cut()
	again := f.welcome(nil)
	again.refuse(again.commit().Seq, &pb.Error{Code: "WRONG_STATE", Reason: "session_expired"})
	if err := receive(t, out); OutcomeOf(err) != Unknown {
		t.Errorf("got %v with outcome %v, want unknown", err, OutcomeOf(err))
	}
	out = commits(t.Context(), c, 1)
	fresh := f.welcome(nil)
	if bytes.Equal(fresh.hello.Session, st.hello.Session) {
		t.Error("the session id stayed")
	}
	fresh.committed(fresh.commit())
	if err := receive(t, out); err != nil {
		t.Error(err)
	}
}

// TestANumberThatOvertakesTheFirstAfterALeaderChangeIsSentAgain has a server that knows nothing of the session yet, as the first
// number was not taken: it cannot tell that from a session that it forgot.
func TestANumberThatOvertakesTheFirstAfterALeaderChangeIsSentAgain(t *testing.T) {
	f := newFake(t)
	c := f.client()
	defer f.end(c)
	out := commits(t.Context(), c, 2)
	st := f.welcome(nil)
	st.commit()
	st.commit()
	st.cut()
	again := f.welcome(nil)
	again.refuse(again.commit().Seq, &pb.Error{Code: "UNAVAILABLE", Reason: "no_leader"})
	again.refuse(again.commit().Seq, &pb.Error{Code: "WRONG_STATE", Reason: "session_expired"})
	for got := map[uint64]bool{}; !got[1] || !got[2]; {
		cf := again.commit()
		switch {
		case cf.CommitSeq == 1:
			again.committed(cf)
		case got[1]:
			again.committed(cf)
		default: // it came before the first once more
			again.refuse(cf.Seq, &pb.Error{Code: "WRONG_STATE", Reason: "session_expired"})
			continue
		}
		got[cf.CommitSeq] = true
	}
	for range 2 {
		if err := receive(t, out); err != nil {
			t.Error(err)
		}
	}
}

// TestAForgottenSessionIsReplacedWhenTheServerOnceKnewIt repeats a commit whose session is forgotten: had it been applied, the
// session would be known.
func TestAForgottenSessionIsReplacedWhenTheServerOnceKnewIt(t *testing.T) {
	f := newFake(t)
	c := f.client()
	defer f.end(c)
	out := commits(t.Context(), c, 1)
	st := f.welcome(nil)
	st.committed(st.commit())
	if err := receive(t, out); err != nil {
		t.Fatal(err)
	}
	out = commits(t.Context(), c, 1)
	st.commit()
	st.cut()
	again := f.welcome(nil)
	again.refuse(again.commit().Seq, &pb.Error{Code: "WRONG_STATE", Reason: "session_expired"})
	fresh := f.welcome(nil)
	cf := fresh.commit()
	if bytes.Equal(fresh.hello.Session, st.hello.Session) || cf.CommitSeq != 1 {
		t.Errorf("number %d, and the same session %v", cf.CommitSeq, bytes.Equal(fresh.hello.Session, st.hello.Session))
	}
	fresh.committed(cf)
	if err := receive(t, out); err != nil {
		t.Error(err)
	}
}

func TestAnAbandonedCommitKeepsItsPlaceInTheSequence(t *testing.T) {
	f := newFake(t)
	c := f.client()
	defer f.end(c)
	ctx, cancel := context.WithCancel(t.Context())
	gone := commits(ctx, c, 1)
	st := f.welcome(nil)
	st.commit()
	cancel()
	if err := receive(t, gone); OutcomeOf(err) != Unknown {
		t.Errorf("got %v, want unknown", err)
	}
	st.cut()
	out := commits(t.Context(), c, 1)
	again := f.welcome(nil)
	for i := range 2 {
		cf := again.commit()
		if cf.CommitSeq != uint64(i+1) {
			t.Errorf("got number %d, want %d", cf.CommitSeq, i+1)
		}
		again.committed(cf)
	}
	if err := receive(t, out); err != nil {
		t.Error(err)
	}
}

// fencedCommit starts a commit in mid-task, under the lease of t1 with token 7.
func fencedCommit(t *testing.T, c *Client) chan error {
	out := make(chan error, 1)
	go func() {
		out <- c.Commit(t.Context(), func(tx *Tx) {
			tx.Fence(&Task{ID: "t1", at: session.Attempt{Lease: wire.Lease{ID: "t1", Token: 7}}})
			tx.KV("k").Put("a", "b")
		})
	}()
	return out
}

func TestAFencedCommitIsSentAgainUnderItsRequestID(t *testing.T) {
	f := newFake(t)
	c := f.client()
	defer f.end(c)
	out := fencedCommit(t, c)
	st := f.welcome(nil)
	first := st.commit()
	if first.CommitSeq != 0 || len(first.Commit.RequestId) != 16 || first.Commit.Fence.GetTask() != "t1" || first.Commit.Fence.GetToken() != 7 {
		t.Errorf("got %v, want the fence t1/7 and a request id", first)
	}
	st.cut()
	again := f.welcome(nil)
	second := again.commit()
	if second.CommitSeq != 0 || !proto.Equal(second.Commit, first.Commit) {
		t.Errorf("got %v after the cut, want %v again", second, first)
	}
	again.committed(second)
	if err := receive(t, out); err != nil {
		t.Error(err)
	}
}

func TestALostLeaseProvesThatAFencedCommitWasNotAppliedBefore(t *testing.T) {
	f := newFake(t)
	c := f.client()
	defer f.end(c)
	out := fencedCommit(t, c)
	st := f.welcome(nil)
	st.commit()
	st.cut()
	again := f.welcome(nil)
	again.refuse(again.commit().Seq, &pb.Error{Code: "LEASE_LOST", Op: proto.Int32(-1)})
	if err := receive(t, out); !errors.Is(err, ErrLeaseLost) || OutcomeOf(err) != Refused {
		t.Errorf("got %v with outcome %v, want a lost lease, refused", err, OutcomeOf(err))
	}
}

func TestAFencedCommitGoesUnderANumberWhereThereIsNoRoomForItsRequestID(t *testing.T) {
	f := newFake(t)
	c := f.client()
	defer f.end(c)
	out := fencedCommit(t, c)
	st := f.welcome(nil)
	first := st.commit()
	st.refuse(first.Seq, &pb.Error{Code: "RESOURCE_EXHAUSTED", Limit: "request_ids", Max: 1e6})
	second := st.commit()
	if second.CommitSeq != 1 || len(second.Commit.RequestId) != 0 || second.Commit.Fence.GetToken() != 7 {
		t.Errorf("got %v, want it under number 1", second)
	}
	st.committed(second)
	if err := receive(t, out); err != nil {
		t.Error(err)
	}
	out = fencedCommit(t, c)
	next := st.commit()
	if next.CommitSeq != 2 {
		t.Errorf("got %v, want the next one under number 2 at once", next)
	}
	st.committed(next)
	if err := receive(t, out); err != nil {
		t.Error(err)
	}
}

// A first try that may be on its way keeps its request id: under a number it could be applied once more.
func TestAFencedCommitThatMayBeOnItsWayKeepsItsRequestID(t *testing.T) {
	f := newFake(t)
	c := f.client()
	defer f.end(c)
	out := fencedCommit(t, c)
	st := f.welcome(nil)
	first := st.commit()
	st.cut()
	again := f.welcome(nil)
	second := again.commit()
	again.refuse(second.Seq, &pb.Error{Code: "RESOURCE_EXHAUSTED", Limit: "request_ids", Max: 1e6})
	third := again.commit()
	if third.CommitSeq != 0 || !proto.Equal(third.Commit, first.Commit) {
		t.Errorf("got %v, want %v again", third, first)
	}
	again.committed(third)
	if err := receive(t, out); err != nil {
		t.Error(err)
	}
}

func TestARequestIDThatIsTakenLeavesAnEarlierTryUnknown(t *testing.T) {
	f := newFake(t)
	c := f.client()
	defer f.end(c)
	out := fencedCommit(t, c)
	st := f.welcome(nil)
	st.commit()
	st.cut()
	again := f.welcome(nil)
	again.refuse(again.commit().Seq, &pb.Error{Code: "ALREADY_EXISTS"})
	if err := receive(t, out); !errors.Is(err, ErrAlreadyExists) || OutcomeOf(err) != Unknown {
		t.Errorf("got %v with outcome %v, want unknown: the first try has taken the id", err, OutcomeOf(err))
	}
}

func TestARefusalByALimitDoesNotSettleAnEarlierTry(t *testing.T) {
	f := newFake(t)
	c := f.client()
	defer f.end(c)
	out := make(chan error, 1)
	go func() {
		_, err := thumb.Add(t.Context(), c, thumbArgs{})
		out <- err
	}()
	st := f.welcome(nil)
	st.create()
	st.cut()
	again := f.welcome(nil)
	frame := again.create()
	again.ack(&pb.Ack{Seq: frame.Seq, Created: []*pb.CreateResult{{Error: &pb.Error{Code: "PERMISSION_DENIED"}}}})
	if err := receive(t, out); OutcomeOf(err) != Unknown {
		t.Errorf("got %v with outcome %v, want unknown: the first try may have been applied", err, OutcomeOf(err))
	}
}

func TestCreatesAndCommitsTakeTurns(t *testing.T) {
	f := newFake(t)
	c := f.client()
	defer f.end(c)
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() { must(thumb.Add(t.Context(), c, thumbArgs{})) })
		wg.Go(func() { must(c.KV("k").Put(t.Context(), "a", "b")) })
	}
	waitFor(t, c, func(s session.ProducersState) bool { return s.Commits == 3 && s.Creates == 3 })
	st := f.welcome(nil)
	var kinds string
	for range 4 {
		fr := st.next()
		if cf := fr.GetCommit(); cf != nil {
			kinds += "m"
			st.committed(cf)
		} else {
			kinds += "c"
			st.created(fr.GetCreate())
		}
	}
	wg.Wait()
	if strings.Index(kinds, "c") > 1 {
		t.Errorf("got frames %s, want the creates among the first two", kinds)
	}
}

func TestKVGetReturnsWhatPutStored(t *testing.T) {
	f := newFake(t)
	f.kv = func(r *pb.KVGetRequest) (*pb.KVGetResponse, error) {
		if string(r.Key) == "none" {
			return &pb.KVGetResponse{At: &pb.At{Index: 4}}, nil
		}
		return &pb.KVGetResponse{Found: true, Value: []byte(`{"N":1}`), Rev: 3, At: &pb.At{Index: 4}}, nil
	}
	c := f.client()
	defer f.end(c)
	v, err := c.KV("k").Get(t.Context(), "a")
	var got struct{ N int }
	if err != nil || v.String() != `{"N":1}` || v.Rev != 3 || v.Decode(&got) != nil || got.N != 1 {
		t.Errorf("got %+v (%+v) and error %v", v, got, err)
	}
	if _, err := c.KV("k").Get(t.Context(), "none"); !errors.Is(err, ErrNotFound) {
		t.Errorf("got %v for an absent key, want ErrNotFound", err)
	}
}

func TestWaitGoesOnOverALostConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		tries := 0
		f.wait = func(context.Context, string) (*pb.WaitResponse, error) {
			if tries++; tries < 3 {
				return nil, fmt.Errorf("%w", errUnavailable)
			}
			return &pb.WaitResponse{Task: &pb.Task{Id: "t1", State: pb.State_COMPLETED, Result: []byte("42")}}, nil
		}
		c := f.client()
		defer f.end(c)
		got, err := thumb.Of(c, "t1").Wait(t.Context())
		if err != nil || got != 42 || tries != 3 {
			t.Errorf("got %d after %d tries and error %v, want 42 after 3", got, tries, err)
		}
	})
}

func TestWaitForATaskThatDiedIsATaskError(t *testing.T) {
	f := newFake(t)
	f.wait = func(context.Context, string) (*pb.WaitResponse, error) {
		return &pb.WaitResponse{Task: &pb.Task{Id: "t1", State: pb.State_DEAD, Reason: "max_attempts", Error: &pb.TaskError{Code: "boom", Message: "it broke"}}}, nil
	}
	c := f.client()
	defer f.end(c)
	_, err := thumb.Of(c, "t1").Wait(t.Context())
	var e *TaskError
	if !errors.As(err, &e) || e.State != Dead || e.Reason != "max_attempts" || e.Code != "boom" {
		t.Errorf("got %v, want a dead task with its last failure", err)
	}
}

func TestTheLedgerHoldsOneLinePerCall(t *testing.T) {
	f := newFake(t)
	var b syncBuffer
	c := f.client(Ledger(&b))
	go func() {
		st := f.welcome(nil)
		st.created(st.create())
		st.committed(st.commit())
		st.refuse(st.commit().Seq, &pb.Error{Code: "PRECONDITION_FAILED"})
	}()
	h := must(thumb.Add(t.Context(), c, thumbArgs{}))
	must(c.KV("k").Put(t.Context(), "a", "v"))
	_ = c.Commit(t.Context(), func(tx *Tx) { tx.KV("k").Delete("a", IfRev(3)) })
	f.end(c)
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	for i, want := range []string{
		`"op":"create","id":"` + h.ID + `","partition":"p0","index":1,"outcome":"ok","queue":"img","answer":"` + h.ID + `"}`,
		`"op":"kv_put","partition":"p0","index":101,"outcome":"ok","key":"k/a","value":"v"}`,
		`"op":"commit","outcome":"refused","code":"PRECONDITION_FAILED"}`,
	} {
		if i >= len(lines) || !strings.HasSuffix(lines[i], want) || !strings.HasPrefix(lines[i], `{"t_invoke":`) {
			t.Errorf("line %d: got %v, want it to end %s", i, lines, want)
		}
	}
}

// syncBuffer is a bytes.Buffer for several goroutines.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func TestBackoffStaysWithinItsBounds(t *testing.T) {
	for n := range 40 {
		most := min(50*time.Millisecond<<min(n, 20), 5*time.Second)
		for range 50 {
			if d := retry.Backoff(n); d < 0 || d > most {
				t.Fatalf("try %d waits %v, want 0 to %v", n, d, most)
			}
		}
	}
}
