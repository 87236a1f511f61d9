package millrace

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/sdk/go/internal/session"
	"github.com/millrace/millrace/sdk/go/internal/wire"
)

// working is a worker that runs against a fake.
type working struct {
	f    *fake
	c    *Client
	w    *Worker
	stop context.CancelFunc
	out  chan error
}

// work starts w after set gave it handlers.
func work(t *testing.T, set func(w *Worker), opts ...WorkerOption) *working {
	t.Helper()
	f := newFake(t)
	c := f.client()
	w := c.Worker(opts...)
	set(w)
	ctx, stop := context.WithCancel(context.Background())
	r := &working{f: f, c: c, w: w, stop: stop, out: make(chan error, 1)}
	go func() { r.out <- w.Run(ctx) }()
	return r
}

// end stops the worker and returns what Run did.
func (r *working) end() error {
	r.f.t.Helper()
	r.stop()
	err := receive(r.f.t, r.out)
	r.f.end(r.c)
	return err
}

// endWithRelease wants the next settle to give a task back, and ends the worker.
func (r *working) endWithRelease(t *testing.T, st *fakeStream) {
	t.Helper()
	sf := st.settle()
	if sf.Items[0].GetRelease() == nil {
		t.Errorf("got %v, want a release", sf)
	}
	st.settled(sf)
	if err := r.end(); err != nil {
		t.Error(err)
	}
}

func task(id string, token uint64, kind, payload string) *pb.Assignment {
	return &pb.Assignment{Id: id, Token: token, Attempt: 1, Queue: "q", Kind: kind, Payload: []byte(payload)}
}

func echo(w *Worker) {
	w.HandleRaw("echo", func(_ context.Context, t *Task) ([]byte, error) { return t.Payload, nil })
}

func TestWorkerSubscribesRunsAndSettles(t *testing.T) {
	double := Job[int, int]("double").Queue("q")
	r := work(t, func(w *Worker) {
		double.Handle(w, func(_ context.Context, t *Task, n int) (int, error) {
			t.Effects().KV("k").Check("c", Exists())
			t.Effects().KV("k").Put(t.ID, n)
			thumb.AddTx(t.Effects(), thumbArgs{"u"})
			return 2 * n, nil
		})
	}, Slots(3), Name("w1"), Lease(10*time.Second))
	st := r.f.welcome(nil)
	if got := st.hello.Worker; got.Id != "w1" || fmt.Sprint(got.Kinds) != "[double]" {
		t.Errorf("got worker %v, want w1 with kind double", got)
	}
	if got := st.subscribe(); got.Slots != 3 || got.Queues[0].Name != "q" || got.Lease.AsDuration() != 10*time.Second {
		t.Errorf("got %v, want 3 slots on q with a lease of 10s", got)
	}
	st.assign(task("t1", 5, "double", "21"))
	sf := st.settle()
	got := sf.Items[0]
	if got.Id != "t1" || got.Token != 5 || string(got.GetComplete().GetResult()) != "42" || got.GetComplete().ResultType != "application/json" {
		t.Errorf("got %v, want t1 completed with 42", got)
	}
	fx := got.Effects
	if len(fx.Conditions) != 1 || len(fx.Ops) != 2 || !fx.FailOnRefusal || string(fx.Ops[0].GetKvPut().Value) != "21" || fx.Ops[1].GetTaskCreate().Kind != "thumb" {
		t.Errorf("got effects %v", fx)
	}
	st.settled(sf)
	if err := r.end(); err != nil {
		t.Error(err)
	}
}

func TestHandlerErrorsDecideHowTheAttemptEnds(t *testing.T) {
	results := map[string]error{
		"plain": errors.New("boom"), "fatal": Fatal(errors.New("never")), "later": RetryIn(time.Minute, errors.New("busy")),
		"now": RetryIn(0, errors.New("again")), "snooze": Snooze(time.Hour), "release": Release(),
		"wrapped": fmt.Errorf("outer: %w", Fatal(errors.New("inner"))), "nottext": errors.New("bad \xff text"),
	}
	r := work(t, func(w *Worker) {
		for kind, err := range results {
			w.HandleRaw(kind, func(context.Context, *Task) ([]byte, error) { return nil, err })
		}
		w.HandleRaw("panic", func(context.Context, *Task) ([]byte, error) { panic("oh no") })
		Job[int, int]("decode").Handle(w, func(context.Context, *Task, int) (int, error) { return 0, nil })
	}, Queues("q"))
	st := r.f.welcome(nil)
	st.subscribe()
	settle := func(kind string) *pb.SettleItem {
		st.assign(task(kind, 1, kind, "{}"))
		sf := st.settle()
		st.settled(sf)
		if len(sf.Items) != 1 || sf.Items[0].Effects != nil {
			t.Errorf("%s: got %v, want one item without effects", kind, sf)
		}
		return sf.Items[0]
	}
	if f := settle("plain").GetFail(); f.GetError().GetMessage() != "boom" || f.Error.Code != "error" || f.Fatal || f.RetryAfter != nil {
		t.Errorf("plain: got %v", f)
	}
	if f := settle("fatal").GetFail(); !f.GetFatal() || f.Error.Message != "never" {
		t.Errorf("fatal: got %v", f)
	}
	if f := settle("wrapped").GetFail(); !f.GetFatal() || f.Error.Message != "outer: inner" {
		t.Errorf("wrapped: got %v", f)
	}
	if f := settle("later").GetFail(); f.GetRetryAfter().AsDuration() != time.Minute || f.Fatal {
		t.Errorf("later: got %v", f)
	}
	if f := settle("now").GetFail(); f.GetRetryAfter() == nil || f.RetryAfter.AsDuration() != 0 {
		t.Errorf("now: got %v, want retry_after of zero, not none", f)
	}
	if s := settle("snooze").GetSnooze(); s.GetDelay().AsDuration() != time.Hour {
		t.Errorf("snooze: got %v", s)
	}
	if item := settle("release"); item.GetRelease() == nil {
		t.Errorf("release: got %v", item)
	}
	if f := settle("nottext").GetFail(); f.GetError().GetMessage() != "bad  text" {
		t.Errorf("nottext: got %v", f)
	}
	if f := settle("panic").GetFail(); f.GetError().GetCode() != "panic" || f.Error.Message != "panic: oh no" || !strings.Contains(f.Error.Stack, "worker_test.go") {
		t.Errorf("panic: got %v", f)
	}
	if f := settle("decode").GetFail(); !f.GetFatal() || f.Error.Code != "invalid_args" {
		t.Errorf("decode: got %v, want a failure for good with the code invalid_args", f)
	}
	if s := settle("unheard").GetSnooze(); s.GetDelay().AsDuration() != 30*time.Second {
		t.Errorf("a kind without a handler: got %v, want a snooze of 30s", s)
	}
	if err := r.end(); err != nil {
		t.Error(err)
	}
}

func TestSettlesShareFrames(t *testing.T) {
	gate := make(chan struct{})
	var running sync.WaitGroup
	running.Add(8)
	r := work(t, func(w *Worker) {
		w.HandleRaw("echo", func(context.Context, *Task) ([]byte, error) {
			running.Done()
			<-gate
			return nil, nil
		})
	}, Slots(8))
	st := r.f.welcome(&pb.Welcome{Limits: &pb.Limits{UnackedItems: 1}})
	st.subscribe()
	for i := range 8 {
		st.assign(task(fmt.Sprint("t", i), uint64(i+1), "echo", ""))
	}
	running.Wait()
	gate <- struct{}{}
	first := st.settle()
	for range 7 {
		gate <- struct{}{}
	}
	r.waitFor(func(s session.State) bool { return s.Waiting == 7 })
	st.settled(first)
	second := st.settle()
	if len(first.Items) != 1 || len(second.Items) != 7 {
		t.Errorf("got frames of %d and %d settles, want 1 and 7", len(first.Items), len(second.Items))
	}
	st.settled(second)
	if err := r.end(); err != nil {
		t.Error(err)
	}
}

// runs holds when the handler of an attempt runs.
func runs(id string, token uint64) func(s session.State) bool {
	return func(s session.State) bool { return slices.Contains(s.Running, wire.Lease{ID: id, Token: token}) }
}

// waitFor waits until the worker's state is as ok says.
func (r *working) waitFor(ok func(s session.State) bool) {
	r.f.t.Helper()
	late := time.After(testWait)
	for {
		if ok(r.w.engine.State()) {
			return
		}
		select {
		case <-late:
			r.f.t.Fatal("the worker did not come to the state that was waited for")
		case <-time.After(time.Millisecond):
		}
	}
}

func TestALostLeaseEndsTheHandlerAndSettlesNothing(t *testing.T) {
	causes := make(chan error, 2)
	r := work(t, func(w *Worker) {
		echo(w)
		w.HandleRaw("long", func(ctx context.Context, t *Task) ([]byte, error) {
			t.Effects().KV("k").Put("a", "b")
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return nil, nil
		})
	}, Slots(1))
	st := r.f.welcome(nil)
	st.subscribe()
	st.assign(task("t1", 1, "long", ""))
	r.waitFor(runs("t1", 1))
	st.push(&pb.ServerFrame{Frame: &pb.ServerFrame_LeaseLost{LeaseLost: &pb.LeaseLost{Id: "t1", Token: 1, Reason: "expired"}}})
	err := receive(t, causes)
	if e := asError(t, err); !errors.Is(err, ErrLeaseLost) || e.Reason != "expired" {
		t.Errorf("got cause %v, want ErrLeaseLost (expired)", err)
	}
	st.alive()
	st.assign(task("t2", 2, "echo", "x"))
	sf := st.settle()
	if len(sf.Items) != 1 || sf.Items[0].Id != "t2" {
		t.Errorf("got %v, want t2 alone", sf)
	}
	st.settled(sf)
	if err := r.end(); err != nil {
		t.Error(err)
	}
}

func TestAHandlerThatOutlivesItsLeaseHoldsNoSlot(t *testing.T) {
	gate := make(chan struct{})
	r := work(t, func(w *Worker) {
		echo(w)
		w.HandleRaw("deaf", func(context.Context, *Task) ([]byte, error) { <-gate; return nil, nil })
	}, Slots(1))
	st := r.f.welcome(nil)
	st.subscribe()
	st.assign(task("t1", 1, "deaf", ""))
	r.waitFor(runs("t1", 1))
	st.push(&pb.ServerFrame{Frame: &pb.ServerFrame_LeaseLost{LeaseLost: &pb.LeaseLost{Id: "t1", Token: 1}}})
	st.alive()
	st.assign(task("t2", 2, "echo", "x"))
	sf := st.settle()
	if sf.Items[0].Id != "t2" {
		t.Errorf("got %v, want t2", sf)
	}
	st.settled(sf)
	close(gate)
	r.waitFor(func(s session.State) bool { return s.Live == 1 && s.Beyond == 0 })
	if err := r.end(); err != nil {
		t.Error(err)
	}
}

func TestNoMoreHandlersThanSlotsRunAtOnce(t *testing.T) {
	var now, most atomic.Int32
	r := work(t, func(w *Worker) {
		w.HandleRaw("echo", func(context.Context, *Task) ([]byte, error) {
			n := now.Add(1)
			for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
			}
			time.AfterFunc(time.Microsecond, func() {})
			now.Add(-1)
			return nil, nil
		})
	}, Slots(4))
	st := r.f.welcome(nil)
	st.subscribe()
	for i := range 400 {
		st.assign(task(fmt.Sprint("t", i), uint64(i+1), "echo", ""))
	}
	for n := 0; n < 400; {
		sf := st.settle()
		n += len(sf.Items)
		st.settled(sf)
	}
	if most.Load() > 4 {
		t.Errorf("%d handlers ran at once, want at most 4", most.Load())
	}
	r.waitFor(func(s session.State) bool { return s.Live <= 4 })
	if err := r.end(); err != nil {
		t.Error(err)
	}
}

func TestLeasesAreRenewedTogetherAtAThird(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		r := work(t, func(w *Worker) {
			w.HandleRaw("long", func(ctx context.Context, _ *Task) ([]byte, error) {
				select {
				case <-gate:
					return nil, nil
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			})
		}, Slots(4))
		st := r.f.welcome(nil)
		st.subscribe()
		began := time.Now()
		st.assign(task("t1", 1, "long", ""))
		time.AfterFunc(2*time.Second, func() { st.assign(task("t2", 2, "long", "")) })
		for i := range 3 {
			rf := st.renew()
			if d := time.Since(began); d != time.Duration(i+1)*10*time.Second {
				t.Errorf("renewal %d came after %v, want every 10s of a lease of 30s", i, d)
			}
			if got := holds(rf.Items); got != "t1/1 t2/2" {
				t.Errorf("got renewal of %s, want both tasks in one frame", got)
			}
			a := &pb.Ack{Seq: rf.Seq}
			for _, h := range rf.Items {
				a.Renewed = append(a.Renewed, &pb.HeartbeatResult{Lost: i == 2 && h.Id == "t1"})
			}
			st.ack(a)
		}
		synctest.Wait()
		if held := r.w.engine.State().Held; len(held) != 1 || held[0].ID == "t1" {
			t.Errorf("t1 is still held after its renewal was answered lost: %v", held)
		}
		close(gate)
		sf := st.settle()
		if len(sf.Items) != 1 || sf.Items[0].Id != "t2" {
			t.Errorf("got %v, want t2 alone", sf)
		}
		st.settled(sf)
		if err := r.end(); err != nil {
			t.Error(err)
		}
	})
}

func holds(items []*pb.Hold) string {
	var out []string
	for _, h := range items {
		out = append(out, fmt.Sprintf("%s/%d", h.Id, h.Token))
	}
	sort.Strings(out)
	return strings.Join(out, " ")
}

func TestABrokenStreamResumesItsLeases(t *testing.T) {
	gate := make(chan struct{})
	lost := make(chan error, 1)
	r := work(t, func(w *Worker) {
		echo(w)
		w.HandleRaw("long", func(ctx context.Context, t *Task) ([]byte, error) {
			select {
			case <-gate:
				return []byte("done"), nil
			case <-ctx.Done():
				lost <- context.Cause(ctx)
				return nil, ctx.Err()
			}
		})
	}, Slots(4))
	st := r.f.welcome(nil)
	st.subscribe()
	st.assign(task("kept", 1, "long", ""), task("lost", 2, "long", ""), task("fast", 3, "echo", "x"))
	first := st.settle() // its ack never comes
	st.cut()
	again := r.f.accept()
	if string(again.hello.Session) != string(st.hello.Session) {
		t.Error("the session id changed")
	}
	if got := holds(again.hello.Held); got != "fast/3 kept/1 lost/2" {
		t.Errorf("got held %s, want all three: a settle without an ack is held", got)
	}
	again.push(&pb.ServerFrame{Frame: &pb.ServerFrame_Welcome{Welcome: &pb.Welcome{
		Kept: []*pb.Hold{{Id: "kept", Token: 1}}, Lost: []*pb.Hold{{Id: "lost", Token: 2}, {Id: "fast", Token: 3}},
	}}})
	if err := receive(t, lost); !errors.Is(err, ErrLeaseLost) {
		t.Errorf("got cause %v, want ErrLeaseLost", err)
	}
	if got := again.subscribe(); got.Slots != 4 {
		t.Errorf("got %d slots, want the window of 4", got.Slots)
	}
	if got := holds(again.renew().Items); !strings.Contains(got, "kept/1") || strings.Contains(got, "lost") {
		t.Errorf("got renewal of %s, want kept and not lost", got)
	}
	sf := again.settle()
	if len(sf.Items) != 1 || sf.Items[0].Id != "fast" || sf.Items[0].String() != first.Items[0].String() {
		t.Errorf("got %v, want the unacknowledged settle again", sf)
	}
	again.ack(&pb.Ack{Seq: sf.Seq, Settled: []*pb.SettleResult{{Replayed: true}}})
	close(gate)
	sf = again.settle()
	if sf.Items[0].Id != "kept" {
		t.Errorf("got %v, want kept", sf)
	}
	again.settled(sf)
	if err := r.end(); err != nil {
		t.Error(err)
	}
}

func TestATaskThatIsAssignedTwiceRunsOnce(t *testing.T) {
	var runs atomic.Int32
	gate := make(chan struct{})
	r := work(t, func(w *Worker) {
		w.HandleRaw("long", func(context.Context, *Task) ([]byte, error) { runs.Add(1); <-gate; return nil, nil })
	})
	st := r.f.welcome(nil)
	st.subscribe()
	st.assign(task("t1", 1, "long", ""))
	st.assign(task("t1", 1, "long", ""))
	close(gate)
	st.settled(st.settle())
	if err := r.end(); err != nil {
		t.Error(err)
	}
	if runs.Load() != 1 {
		t.Errorf("it ran %d times, want 1", runs.Load())
	}
}

func TestDrainFinishesWhatRunsAndTakesNoMore(t *testing.T) {
	gate := make(chan struct{})
	r := work(t, func(w *Worker) {
		w.HandleRaw("long", func(ctx context.Context, _ *Task) ([]byte, error) {
			<-gate
			return nil, ctx.Err()
		})
	}, Slots(1))
	st := r.f.welcome(nil)
	st.subscribe()
	st.assign(task("runs", 1, "long", ""))
	r.waitFor(runs("runs", 1))
	st.assign(task("waits", 2, "long", ""))
	r.waitFor(func(s session.State) bool { return len(s.Held) == 2 })
	r.stop()
	if f := st.next(); f.GetDrain() == nil {
		t.Errorf("got %v, want a drain", f)
	}
	sf := st.settle()
	if sf.Items[0].Id != "waits" || sf.Items[0].GetRelease() == nil {
		t.Errorf("got %v, want the task that waits released", sf)
	}
	st.settled(sf)
	st.assign(task("late", 3, "long", ""))
	sf = st.settle()
	if sf.Items[0].Id != "late" || sf.Items[0].GetRelease() == nil {
		t.Errorf("got %v, want the late task released", sf)
	}
	st.settled(sf)
	close(gate)
	sf = st.settle()
	if sf.Items[0].Id != "runs" || sf.Items[0].GetComplete() == nil {
		t.Errorf("got %v, want the running task completed: its context did not end", sf)
	}
	st.settled(sf)
	if f := st.next(); f != nil {
		t.Errorf("got %v, want the end of the stream", f)
	}
	if err := r.end(); err != nil {
		t.Error(err)
	}
}

func TestWhatAHandlerGivesBackAsItStopsTheWorkerDoesNotComeAgain(t *testing.T) {
	for range 20 { // without the order, Run's goroutine may still win
		var stop context.CancelFunc
		r := work(t, func(w *Worker) {
			w.HandleRaw("unfit", func(context.Context, *Task) ([]byte, error) {
				stop()
				return nil, Release()
			})
		})
		stop = r.stop
		st := r.f.welcome(nil)
		st.subscribe()
		st.assign(task("t", 1, "unfit", ""))
		if f := st.next(); f.GetDrain() == nil {
			t.Fatalf("got %v, want a drain before the task goes back", f)
		}
		r.endWithRelease(t, st)
	}
}

func TestDrainGivesBackWhatDoesNotFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := work(t, func(w *Worker) {
			w.HandleRaw("long", func(ctx context.Context, _ *Task) ([]byte, error) {
				<-ctx.Done()
				return []byte("too late"), nil
			})
		})
		st := r.f.welcome(nil)
		st.subscribe()
		a := task("t1", 1, "long", "")
		a.LeaseMs, a.LeaseLeftMs = 600_000, 600_000
		st.assign(a)
		synctest.Wait()
		began := time.Now()
		r.stop()
		if f := st.next(); f.GetDrain() == nil {
			t.Errorf("got %v, want a drain", f)
		}
		f := <-st.in // later than a test waits elsewhere, in the bubble's time
		sf := f.GetSettle()
		if sf == nil || len(sf.Items) != 1 || sf.Items[0].GetRelease() == nil {
			t.Fatalf("got %v, want a release", f)
		}
		if d := time.Since(began); d != 25*time.Second {
			t.Errorf("it was given back after %v, want 25s", d)
		}
		st.settled(sf)
		if err := r.end(); err != nil {
			t.Error(err)
		}
	})
}

func TestRefusedEffectsAreTheHandlersToDecide(t *testing.T) {
	refusals := make(chan *Error, 1)
	r := work(t, func(w *Worker) {
		w.HandleRaw("put", func(_ context.Context, t *Task) ([]byte, error) {
			t.Effects().KV("k").Put("a", "1", IfRev(3))
			t.OnRefused(func(_ context.Context, refused *Error) error {
				refusals <- refused
				t.Effects().Reset()
				t.Effects().KV("k").Put("a", "2", IfRev(4))
				return nil
			})
			return []byte("r"), nil
		})
	})
	st := r.f.welcome(nil)
	st.subscribe()
	st.assign(task("t1", 1, "put", ""))
	sf := st.settle()
	if sf.Items[0].Effects.FailOnRefusal {
		t.Error("the server was asked to fail the attempt, though the handler decides")
	}
	st.ack(&pb.Ack{Seq: sf.Seq, Settled: []*pb.SettleResult{{Error: &pb.Error{
		Code: "PRECONDITION_FAILED", Op: proto.Int32(0), Details: map[string]string{"rev": "4"},
	}}}})
	if e := receive(t, refusals); e.Op != 0 || e.Details["rev"] != "4" {
		t.Errorf("got %+v, want op 0 at revision 4", e)
	}
	sf = st.settle()
	if got := sf.Items[0]; string(got.GetComplete().GetResult()) != "r" || got.Effects.Ops[0].GetKvPut().GetIfRev() != 4 {
		t.Errorf("got %v, want the same result with the new effects", got)
	}
	st.settled(sf)
	if err := r.end(); err != nil {
		t.Error(err)
	}
}

func TestACompletionThatNoServerTakesFailsTheAttempt(t *testing.T) {
	r := work(t, echo)
	st := r.f.welcome(nil)
	st.subscribe()
	st.assign(task("t1", 1, "echo", "x"))
	sf := st.settle()
	st.ack(&pb.Ack{Seq: sf.Seq, Settled: []*pb.SettleResult{{Error: &pb.Error{Code: "TOO_LARGE", Field: "complete.result", Limit: "result_bytes"}}}})
	sf = st.settle()
	if f := sf.Items[0].GetFail(); f.GetError().GetCode() != "TOO_LARGE" || f.Fatal {
		t.Errorf("got %v, want a failure with the code TOO_LARGE", sf)
	}
	st.settled(sf)
	if err := r.end(); err != nil {
		t.Error(err)
	}
}

func TestASettleIsRepeatedWhileTheServerCannotTakeIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := work(t, echo)
		st := r.f.welcome(nil)
		st.subscribe()
		st.assign(task("t1", 1, "echo", "x"))
		for range 3 {
			st.refuse(st.settle().Seq, &pb.Error{Code: "UNAVAILABLE", Outcome: pb.Error_UNKNOWN})
		}
		sf := st.settle()
		if sf.Items[0].Id != "t1" || sf.Items[0].GetComplete() == nil {
			t.Errorf("got %v, want t1 completed", sf)
		}
		st.settled(sf)
		if err := r.end(); err != nil {
			t.Error(err)
		}
	})
}

func TestASettleWithoutALeaseIsDropped(t *testing.T) {
	r := work(t, echo)
	st := r.f.welcome(nil)
	st.subscribe()
	st.assign(task("t1", 1, "echo", "x"))
	sf := st.settle()
	st.ack(&pb.Ack{Seq: sf.Seq, Settled: []*pb.SettleResult{{Error: &pb.Error{Code: "LEASE_LOST"}}}})
	r.waitFor(func(s session.State) bool { return len(s.Held) == 0 })
	if err := r.end(); err != nil {
		t.Error(err)
	}
}

func TestACancelEndsAHandlerOnceHoweverOftenItComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ended []error
		r := work(t, func(w *Worker) {
			w.HandleRaw("long", func(ctx context.Context, task *Task) ([]byte, error) {
				<-ctx.Done()
				ended = append(ended, context.Cause(ctx))
				if task.CancelReason() != "by hand" {
					t.Errorf("the reason is %q", task.CancelReason())
				}
				time.Sleep(time.Second) // of the test's own time
				return nil, context.Cause(ctx)
			})
		})
		st := r.f.welcome(nil)
		st.subscribe()
		st.assign(task("t1", 1, "long", ""))
		r.waitFor(runs("t1", 1))
		cancel := &pb.ServerFrame{Frame: &pb.ServerFrame_Cancel{Cancel: &pb.Cancel{Id: "t1", Token: 1, Reason: "by hand"}}}
		st.push(cancel)
		st.push(&pb.ServerFrame{Frame: &pb.ServerFrame_Cancel{Cancel: &pb.Cancel{Id: "t1", Token: 1, Reason: "again"}}})
		synctest.Wait()
		st.cut()
		st = r.f.welcome(&pb.Welcome{Kept: []*pb.Hold{{Id: "t1", Token: 1}}})
		st.push(cancel)
		st.subscribe()
		st.ack(&pb.Ack{Seq: st.renew().Seq, Renewed: []*pb.HeartbeatResult{{Cancel: true}}})
		sf := st.settle()
		if stop := sf.Items[0].GetStop(); stop == nil || stop.Error != nil {
			t.Errorf("got %v, want a stop that reports nothing", sf)
		}
		st.settled(sf)
		if err := r.end(); err != nil {
			t.Error(err)
		}
		if len(ended) != 1 || !errors.Is(ended[0], ErrCancelled) {
			t.Errorf("the handler ended by %v, want ErrCancelled", ended)
		}
	})
}

func TestARenewalTellsOfACancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := work(t, func(w *Worker) {
			w.HandleRaw("long", func(ctx context.Context, task *Task) ([]byte, error) {
				<-ctx.Done()
				if !errors.Is(context.Cause(ctx), ErrCancelled) || task.CancelReason() != "" {
					t.Errorf("the handler ended by %v, with the reason %q", context.Cause(ctx), task.CancelReason())
				}
				return nil, Fatal(errors.New("half done"))
			})
		})
		st := r.f.welcome(nil)
		st.subscribe()
		st.assign(task("t1", 1, "long", ""))
		renew := st.renew()
		st.ack(&pb.Ack{Seq: renew.Seq, Renewed: []*pb.HeartbeatResult{{Cancel: true}}})
		sf := st.settle()
		if stop := sf.Items[0].GetStop(); stop.GetError().GetMessage() != "half done" {
			t.Errorf("got %v, want a stop that reports the error", sf)
		}
		st.settled(sf)
		if err := r.end(); err != nil {
			t.Error(err)
		}
	})
}

func TestATaskThatIsCancelledBeforeItsHandlerBeganIsStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		r := work(t, func(w *Worker) {
			w.HandleRaw("long", func(_ context.Context, task *Task) ([]byte, error) {
				if task.ID != "t1" {
					t.Errorf("%s was begun", task.ID)
				}
				<-gate
				return nil, nil
			})
		}, Slots(1))
		st := r.f.welcome(nil)
		st.subscribe()
		st.assign(task("t1", 1, "long", ""), task("t2", 2, "long", ""))
		r.waitFor(runs("t1", 1))
		st.push(&pb.ServerFrame{Frame: &pb.ServerFrame_Cancel{Cancel: &pb.Cancel{Id: "t2", Token: 2}}})
		synctest.Wait()
		close(gate)
		for done := 0; done < 2; {
			sf := st.settle()
			for _, it := range sf.Items {
				if (it.GetStop() != nil) != (it.Id == "t2") {
					t.Errorf("got %v", it)
				}
				done++
			}
			st.settled(sf)
		}
		if err := r.end(); err != nil {
			t.Error(err)
		}
	})
}

func TestAWorkerThatIsRefusedForGoodStops(t *testing.T) {
	ended := make(chan struct{})
	r := work(t, func(w *Worker) {
		w.HandleRaw("long", func(ctx context.Context, _ *Task) ([]byte, error) { <-ctx.Done(); close(ended); return nil, nil })
	})
	st := r.f.welcome(nil)
	st.subscribe()
	st.assign(task("t1", 1, "long", ""))
	r.waitFor(runs("t1", 1))
	st.end(status.Error(codes.Unauthenticated, "expired"))
	err := receive(t, r.out)
	if e := asError(t, err); e.Code != CodeUnauthenticated {
		t.Errorf("got %v, want UNAUTHENTICATED", err)
	}
	receive(t, ended)
	r.stop()
	r.f.end(r.c)
}

func TestCloseDrainsRunningWorkers(t *testing.T) {
	r := work(t, echo)
	st := r.f.welcome(nil)
	st.subscribe()
	st.assign(task("t1", 1, "echo", "x"))
	st.settled(st.settle())
	r.f.end(r.c)
	if err := receive(t, r.out); err != nil {
		t.Error(err)
	}
	r.stop()
}

func TestAWorkerRunsOnceAndNeedsHandlers(t *testing.T) {
	f := newFake(t)
	c := f.client()
	defer f.end(c)
	if err := c.Worker().Run(t.Context()); err == nil {
		t.Error("a worker without handlers ran")
	}
	w := c.Worker(Slots(5000))
	echo(w)
	if err := w.Run(t.Context()); err == nil {
		t.Error("a worker with 5,000 slots ran")
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	w = c.Worker()
	echo(w)
	if err := w.Run(ctx); err != nil {
		t.Errorf("a run that ends at once: %v", err)
	}
	if err := w.Run(ctx); err == nil {
		t.Error("a worker ran twice")
	}
}

func TestTheLedgerHoldsDeliveriesAndSettles(t *testing.T) {
	f := newFake(t)
	var b syncBuffer
	c := f.client(Ledger(&b))
	w := c.Worker(Name("w"))
	echo(w)
	ctx, stop := context.WithCancel(t.Context())
	out := make(chan error, 1)
	go func() { out <- w.Run(ctx) }()
	st := f.welcome(nil)
	st.subscribe()
	st.assign(task("t1", 5, "echo", "x"))
	st.settled(st.settle())
	stop()
	if err := receive(t, out); err != nil {
		t.Error(err)
	}
	f.end(c)
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], `"op":"deliver","id":"t1","token":"5","attempt":1`) ||
		!strings.Contains(lines[1], `"op":"complete","id":"t1","token":"5","attempt":1,"partition":"p0","index":7,"outcome":"ok"`) {
		t.Errorf("got %v, want a delivery and a completion", lines)
	}
}
