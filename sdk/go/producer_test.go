package millrace

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/sdk/go/internal/session"
)

type thumbArgs struct{ URL string }

var thumb = Job[thumbArgs, int]("thumb").Queue("img").Attempts(8).Priority(3)

func TestAddSendsTheDeclarationAndReturnsTheAckedTask(t *testing.T) {
	f := newFake(t)
	c := f.client(Namespace("shop"))
	defer f.end(c)
	type answer struct {
		h   *Handle[int]
		err error
	}
	out := make(chan answer, 1)
	go func() {
		h, err := thumb.Add(t.Context(), c, thumbArgs{"u"}, In(time.Minute), UniqueKey("k", time.Hour), UniqueReject(), Header("a", "b"))
		out <- answer{h, err}
	}()
	st := f.welcome(nil)
	if got := st.hello; got.Version != 1 || len(got.Session) != 16 || got.Namespace != "shop" {
		t.Errorf("got hello %v, want version 1, a session of 16 bytes and namespace shop", got)
	}
	frame := st.create()
	got := frame.Tasks[0]
	if len(got.Id) != 26 {
		t.Errorf("got id %q, want 26 characters", got.Id)
	}
	got.Id = ""
	want := &pb.TaskSpec{
		Queue: "img", Kind: "thumb", Payload: []byte(`{"URL":"u"}`), ContentType: "application/json", MaxAttempts: 8, Priority: 3,
		Delay:   durationpb.New(time.Minute),
		Unique:  &pb.Unique{Key: "k", Ttl: durationpb.New(time.Hour), OnConflict: pb.Unique_REJECT},
		Headers: []*pb.Header{{Name: "a", Value: "b"}},
	}
	if got.String() != want.String() {
		t.Errorf("got task %v, want %v", got, want)
	}
	st.ack(&pb.Ack{Seq: frame.Seq, Created: []*pb.CreateResult{{Id: "other", Replayed: true, PayloadMatches: true}}})
	a := receive(t, out)
	if a.err != nil || a.h.ID != "other" || !a.h.Replayed || !a.h.Matches {
		t.Errorf("got %+v and error %v, want the replayed task other", a.h, a.err)
	}
}

func TestCallsJoinTheFrameThatFollows(t *testing.T) {
	f := newFake(t)
	c := f.client()
	defer f.end(c)
	var wg sync.WaitGroup
	add := func() { wg.Go(func() { must(thumb.Add(t.Context(), c, thumbArgs{})) }) }
	add()
	st := f.welcome(&pb.Welcome{Limits: &pb.Limits{UnackedItems: 1}}) // nothing leaves while a frame is open
	first := st.create()
	const callers = 20
	for range callers {
		add()
	}
	waitFor(t, c, func(s session.ProducersState) bool { return s.Creates == callers })
	st.created(first)
	second := st.create()
	st.created(second)
	wg.Wait()
	if len(first.Tasks) != 1 || len(second.Tasks) != callers {
		t.Errorf("got frames of %d and %d tasks, want 1 and %d", len(first.Tasks), len(second.Tasks), callers)
	}
}

// waitFor waits until the producer's state is as ok says.
func waitFor(t *testing.T, c *Client, ok func(s session.ProducersState) bool) {
	t.Helper()
	late := time.After(testWait)
	for {
		if ok(c.calls.State()) {
			return
		}
		select {
		case <-late:
			t.Fatal("the producer did not come to the state that was waited for")
		case <-time.After(time.Millisecond):
		}
	}
}

func TestLargeBatchesAreSplitIntoFrames(t *testing.T) {
	f := newFake(t)
	c := f.client()
	defer f.end(c)
	sizes := make(chan []int, 1)
	go func() {
		st := f.welcome(nil)
		var got []int
		for sum := 0; sum < 1300; {
			frame := st.create()
			got = append(got, len(frame.Tasks))
			sum += len(frame.Tasks)
			st.created(frame)
		}
		sizes <- got
	}()
	hs, err := thumb.AddMany(t.Context(), c, make([]thumbArgs, 1300))
	if err != nil || len(hs) != 1300 {
		t.Fatalf("got %d handles and error %v", len(hs), err)
	}
	if got := fmt.Sprint(receive(t, sizes)); got != "[512 512 276]" {
		t.Errorf("got frames of %s tasks, want [512 512 276]", got)
	}
}

func TestFramesAimAtOneMebibyte(t *testing.T) {
	f := newFake(t)
	c := f.client()
	defer f.end(c)
	raw := Job[[]byte, []byte]("raw")
	go func() {
		st := f.welcome(nil)
		for range 2 {
			frame := st.create()
			if len(frame.Tasks) != 2 {
				t.Errorf("got a frame of %d tasks, want 2", len(frame.Tasks))
			}
			st.created(frame)
		}
	}()
	big := make([]byte, 400<<10)
	if _, err := raw.AddMany(t.Context(), c, [][]byte{big, big, big, big}); err != nil {
		t.Fatal(err)
	}
}

func TestOneRefusedTaskLeavesTheOthersOfABatch(t *testing.T) {
	f := newFake(t)
	c := f.client()
	defer f.end(c)
	go func() {
		st := f.welcome(nil)
		frame := st.create()
		st.ack(&pb.Ack{Seq: frame.Seq, Created: []*pb.CreateResult{
			{Id: frame.Tasks[0].Id}, {Error: &pb.Error{Code: "INVALID_ARGUMENT", Field: "tasks[1].unique.ttl"}}, {Id: frame.Tasks[2].Id},
		}})
	}()
	hs, err := thumb.AddMany(t.Context(), c, make([]thumbArgs, 3))
	var many *BatchError
	if !errors.As(err, &many) || many.Errors[0] != nil || many.Errors[2] != nil {
		t.Fatalf("got error %v, want a BatchError of task 1 only", err)
	}
	if hs[0] == nil || hs[1] != nil || hs[2] == nil {
		t.Errorf("got handles %v, want nil for task 1 only", hs)
	}
	if e := asError(t, many.Errors[1]); e.Field != "tasks[1].unique.ttl" || OutcomeOf(e) != Refused {
		t.Errorf("got %+v, want refused with field tasks[1].unique.ttl", e)
	}
}

func TestEachTaskOfABatchHasOptionsOfItsOwn(t *testing.T) {
	f := newFake(t)
	c := f.client()
	defer f.end(c)
	keys := make(chan []string, 1)
	go func() {
		st := f.welcome(nil)
		frame := st.create()
		var got []string
		for _, s := range frame.Tasks {
			got = append(got, s.Key+"/"+s.Tag)
		}
		st.created(frame)
		keys <- got
	}()
	own := Each(func(i int) []AddOption { return []AddOption{Key(fmt.Sprint("k", i))} })
	if _, err := thumb.AddMany(t.Context(), c, make([]thumbArgs, 3), Tag("t"), own); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(receive(t, keys)); got != "[k0/t k1/t k2/t]" {
		t.Errorf("got tasks with %s", got)
	}
}

func TestAddAllIsOneAtomicFrame(t *testing.T) {
	f := newFake(t)
	c := f.client()
	defer f.end(c)
	go func() {
		st := f.welcome(nil)
		frame := st.create()
		if !frame.Atomic || len(frame.Tasks) != 3 {
			t.Errorf("got %d tasks, atomic %v, want 3, true", len(frame.Tasks), frame.Atomic)
		}
		st.refuse(frame.Seq, &pb.Error{Code: "ALREADY_EXISTS"})
	}()
	_, err := thumb.AddAll(t.Context(), c, make([]thumbArgs, 3))
	if !errors.Is(err, ErrAlreadyExists) {
		t.Errorf("got %v, want ErrAlreadyExists", err)
	}
	if _, err := thumb.AddAll(t.Context(), c, make([]thumbArgs, 513)); asError(t, err).Limit != "frame_items" {
		t.Errorf("got %v, want a refusal that names frame_items", err)
	}
}

func TestABadCallDoesNotSpoilTheFrameItShares(t *testing.T) {
	f := newFake(t)
	c := f.client()
	defer f.end(c)
	errs := make(chan error, 3)
	for i := range 3 {
		go func() {
			_, err := thumb.Add(t.Context(), c, thumbArgs{}, Priority(i))
			errs <- err
		}()
	}
	waitFor(t, c, func(s session.ProducersState) bool { return s.Creates == 3 })
	st := f.welcome(nil)
	shared := st.create()
	st.refuse(shared.Seq, &pb.Error{Code: "INVALID_ARGUMENT", Field: "tasks[1].priority"})
	for range 3 {
		alone := st.create()
		if len(alone.Tasks) != 1 {
			t.Fatalf("got a frame of %d tasks after the refusal, want 1", len(alone.Tasks))
		}
		if alone.Tasks[0].Priority == 2 {
			st.refuse(alone.Seq, &pb.Error{Code: "INVALID_ARGUMENT", Field: "tasks[0].priority"})
			continue
		}
		st.created(alone)
	}
	bad := 0
	for range 3 {
		if err := receive(t, errs); err != nil {
			bad++
			if e := asError(t, err); e.Field != "priority" {
				t.Errorf("got field %q, want priority", e.Field)
			}
		}
	}
	if bad != 1 {
		t.Errorf("got %d refused calls, want 1", bad)
	}
}

func TestUnacknowledgedCreatesAreSentAgainUnderTheirIDs(t *testing.T) {
	f := newFake(t)
	c := f.client()
	defer f.end(c)
	out := make(chan error, 2)
	for range 2 {
		go func() {
			_, err := thumb.Add(t.Context(), c, thumbArgs{})
			out <- err
		}()
	}
	waitFor(t, c, func(s session.ProducersState) bool { return s.Creates == 2 })
	st := f.welcome(nil)
	before := st.create()
	st.cut()
	again := f.welcome(nil)
	if string(again.hello.Session) != string(st.hello.Session) {
		t.Error("the session id changed with the stream")
	}
	after := again.create()
	if len(before.Tasks) != 2 || len(after.Tasks) != 2 || before.Tasks[0].Id != after.Tasks[0].Id || before.Tasks[1].Id != after.Tasks[1].Id {
		t.Errorf("got %v after %v, want the same tasks in the same order", after.Tasks, before.Tasks)
	}
	again.created(after)
	for range 2 {
		if err := receive(t, out); err != nil {
			t.Error(err)
		}
	}
}

func TestACallThatNeverLeftIsRefusedWhenItsContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := Dial(t.Context(), Address("server.test:1"), Insecure(), Dialer(func(context.Context, string) (net.Conn, error) {
			return nil, errors.New("no route")
		}))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		began := time.Now()
		_, err = thumb.Add(ctx, c, thumbArgs{})
		e := asError(t, err)
		if OutcomeOf(err) != Refused || e.Code != CodeUnavailable || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v with outcome %v, want refused as unavailable, caused by the deadline", err, OutcomeOf(err))
		}
		if want := "server server.test:1 is not reached: no route"; e.Message != want {
			t.Errorf("got message %q, want %q", e.Message, want)
		}
		if d := time.Since(began); d != 3*time.Second {
			t.Errorf("the call ended after %v, want 3s", d)
		}
	})
}

func TestACallThatLeftIsUnknownWhenItsContextEnds(t *testing.T) {
	f := newFake(t)
	c := f.client()
	defer f.end(c)
	ctx, cancel := context.WithCancel(t.Context())
	out := make(chan error, 1)
	go func() {
		_, err := thumb.Add(ctx, c, thumbArgs{})
		out <- err
	}()
	st := f.welcome(nil)
	frame := st.create()
	cancel()
	err := receive(t, out)
	if OutcomeOf(err) != Unknown || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v with outcome %v, want unknown, caused by the cancellation", err, OutcomeOf(err))
	}
	st.created(frame) // no call waits for a late ack
}

func TestAbandonedCallsDoNotPileUpWhileTheServerIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := Dial(t.Context(), Address("server.test:1"), Insecure(), Dialer(func(context.Context, string) (net.Conn, error) {
			return nil, errors.New("no route")
		}))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		for range 1000 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			if _, err := thumb.Add(ctx, c, thumbArgs{}); OutcomeOf(err) != Refused {
				t.Fatalf("got %v, want a refusal", err)
			}
			cancel()
		}
		if n := c.calls.State().Creates; n > 128 {
			t.Errorf("%d dead calls are kept, want at most 128", n)
		}
	})
}

func TestARateLimitIsWaitedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		c := f.client()
		defer f.end(c)
		out := make(chan error, 1)
		began := time.Now()
		go func() {
			_, err := thumb.Add(t.Context(), c, thumbArgs{})
			out <- err
		}()
		st := f.welcome(nil)
		for range 2 {
			frame := st.create()
			st.ack(&pb.Ack{Seq: frame.Seq, Created: []*pb.CreateResult{{Error: &pb.Error{
				Code: "RATE_LIMITED", RetryAfter: durationpb.New(5 * time.Second),
			}}}})
		}
		st.created(st.create())
		if err := <-out; err != nil {
			t.Fatal(err)
		}
		if d := time.Since(began); d != 10*time.Second {
			t.Errorf("the call took %v, want two waits of 5s", d)
		}
	})
}

func TestAQuotaIsReportedAfterAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		c := f.client()
		defer f.end(c)
		go func() {
			st := f.welcome(nil)
			for frame := range st.in {
				if cf := frame.GetCreate(); cf != nil {
					st.ack(&pb.Ack{Seq: cf.Seq, Created: []*pb.CreateResult{{Error: &pb.Error{Code: "RESOURCE_EXHAUSTED", Limit: "queues", Max: 10000}}}})
				}
			}
		}()
		_, err := thumb.Add(t.Context(), c, thumbArgs{})
		if e := asError(t, err); e.Limit != "queues" || e.Max != 10000 || OutcomeOf(err) != Refused {
			t.Errorf("got %+v, want the limit queues of 10000", e)
		}
	})
}

func TestAStreamThatIsRefusedForGoodRefusesTheCalls(t *testing.T) {
	f := newFake(t)
	c := f.client()
	defer f.end(c)
	go func() { f.accept().end(status.Error(codes.Unauthenticated, "no valid token")) }()
	_, err := thumb.Add(t.Context(), c, thumbArgs{})
	if e := asError(t, err); e.Code != CodeUnauthenticated || OutcomeOf(err) != Refused {
		t.Errorf("got %v, want a refusal as UNAUTHENTICATED", err)
	}
	go func() {
		st := f.welcome(nil)
		st.created(st.create())
	}()
	if _, err := thumb.Add(t.Context(), c, thumbArgs{}); err != nil {
		t.Errorf("the next call tries again, got %v", err)
	}
}

func TestGoawayMovesUnacknowledgedCallsToTheNextStream(t *testing.T) {
	f := newFake(t)
	c := f.client()
	defer f.end(c)
	out := make(chan error, 1)
	go func() {
		_, err := thumb.Add(t.Context(), c, thumbArgs{})
		out <- err
	}()
	st := f.welcome(nil)
	before := st.create()
	st.push(&pb.ServerFrame{Frame: &pb.ServerFrame_Goaway{Goaway: &pb.Goaway{Reason: "stopping"}}})
	if f := st.next(); f != nil {
		t.Errorf("got frame %v after goaway, want the end of the stream", f)
	}
	again := f.welcome(nil)
	after := again.create()
	if before.Tasks[0].Id != after.Tasks[0].Id {
		t.Errorf("got id %s, want %s", after.Tasks[0].Id, before.Tasks[0].Id)
	}
	again.created(after)
	if err := receive(t, out); err != nil {
		t.Error(err)
	}
}

func TestAThrottledStreamSendsNoWorkForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		c := f.client()
		defer f.end(c)
		out := make(chan error, 1)
		add := func() {
			_, err := thumb.Add(t.Context(), c, thumbArgs{})
			out <- err
		}
		go add()
		st := f.welcome(nil)
		st.created(st.create())
		<-out
		st.push(&pb.ServerFrame{Frame: &pb.ServerFrame_Throttle{Throttle: &pb.Throttle{Limit: "creates", RetryAfter: durationpb.New(3 * time.Second)}}})
		synctest.Wait()
		began := time.Now()
		go add()
		synctest.Wait()
		st.quiet()
		st.created(st.create())
		if err := <-out; err != nil {
			t.Fatal(err)
		}
		if d := time.Since(began); d != 3*time.Second {
			t.Errorf("the call left after %v, want 3s", d)
		}
	})
}

func TestANewTokenIsToldToTheOpenStream(t *testing.T) {
	f := newFake(t)
	c := f.client(Token("old"))
	defer f.end(c)
	go func() { _, _ = thumb.Add(t.Context(), c, thumbArgs{}) }()
	st := f.welcome(nil)
	frame := st.create()
	c.SetToken("new")
	if got := st.next().GetAuth().GetToken(); got != "new" {
		t.Errorf("got token %q, want new", got)
	}
	st.created(frame)
}

func TestClosedClientRefusesCalls(t *testing.T) {
	f := newFake(t)
	c := f.client()
	f.end(c)
	_, err := thumb.Add(t.Context(), c, thumbArgs{})
	if !errors.Is(err, ErrClosed) || OutcomeOf(err) != Refused {
		t.Errorf("got %v, want ErrClosed, refused", err)
	}
	if err := c.Close(); err != nil {
		t.Errorf("a second close: %v", err)
	}
}

func TestCloseWaitsForCallsUnderWay(t *testing.T) {
	f := newFake(t)
	c := f.client()
	out := make(chan error, 1)
	go func() {
		_, err := thumb.Add(t.Context(), c, thumbArgs{})
		out <- err
	}()
	st := f.welcome(nil)
	frame := st.create()
	closed := make(chan error, 1)
	go func() { closed <- c.Close() }()
	waitFor(t, c, func(s session.ProducersState) bool { return s.Closing })
	st.created(frame)
	if err := receive(t, out); err != nil {
		t.Errorf("the call under way: %v", err)
	}
	if err := receive(t, closed); err != nil {
		t.Errorf("close: %v", err)
	}
	f.stop()
}

func TestACallIsRepeatedForTenMinutesThenUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		c := f.client(Timeout(0))
		defer f.end(c)
		out := make(chan error, 1)
		began := time.Now()
		go func() {
			_, err := thumb.Add(context.Background(), c, thumbArgs{})
			out <- err
		}()
		tries := 0
		for {
			select {
			case opened := <-f.Streams:
				st := f.played(opened)
				st.push(&pb.ServerFrame{Frame: &pb.ServerFrame_Welcome{Welcome: &pb.Welcome{}}})
				if _, ok := <-st.in; ok {
					tries++
				}
				if tries < 10 { // the tenth is never answered
					st.cut()
				}
				continue
			case err := <-out:
				if OutcomeOf(err) != Unknown {
					t.Errorf("got %v with outcome %v, want unknown", err, OutcomeOf(err))
				}
				if d := time.Since(began).Round(time.Second); d != 10*time.Minute {
					t.Errorf("the call ended after %v, want 10m", d)
				}
				if tries != 10 {
					t.Errorf("it was sent %d times, want 10", tries)
				}
			}
			break
		}
	})
}

func TestATokenThatIsSetWhileAStreamOpensIsToldToIt(t *testing.T) {
	f := newFake(t)
	c := f.client(Token("old"))
	defer f.end(c)
	go func() { _, _ = thumb.Add(t.Context(), c, thumbArgs{}) }()
	st := f.accept()
	c.SetToken("new")
	st.push(&pb.ServerFrame{Frame: &pb.ServerFrame_Welcome{Welcome: &pb.Welcome{}}})
	told := ""
	for range 2 {
		frame := st.next()
		if a := frame.GetAuth(); a != nil {
			told = a.Token
		}
		if cr := frame.GetCreate(); cr != nil {
			st.created(cr)
		}
	}
	if told != "new" {
		t.Errorf("got token %q, want new", told)
	}
}
