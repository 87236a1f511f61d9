package millrace

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/millrace/millrace/gen/millrace/v1"
)

// TestAHandlerThatEndsItsGoroutineFailsItsAttempt: package testing's FailNow does so. The other tasks of the process go on.
func TestAHandlerThatEndsItsGoroutineFailsItsAttempt(t *testing.T) {
	exit := func() { runtime.Goexit() }
	r := work(t, func(w *Worker) {
		echo(w)
		w.HandleRaw("exit", func(context.Context, *Task) ([]byte, error) { exit(); return nil, nil })
		w.HandleRaw("deferred", func(context.Context, *Task) ([]byte, error) {
			defer exit()
			panic("first")
		})
		w.HandleBatch("batch", 4, func(context.Context, []*Task) ([][]byte, []error) { exit(); return nil, nil })
		w.HandleRaw("refused", func(_ context.Context, t *Task) ([]byte, error) {
			t.Effects().KV("k").Put("a", "b")
			t.OnRefused(func(context.Context, *Error) error { exit(); return nil })
			return nil, nil
		})
	}, Slots(2), Queues("q"))
	st := r.f.welcome(nil)
	st.subscribe()
	for i, kind := range []string{"exit", "batch", "deferred", "refused", "exit", "exit"} { // more than there are slots
		id := fmt.Sprint("t", i)
		st.assign(task(id, uint64(i+1), kind, ""))
		sf := st.settle()
		if kind == "refused" {
			st.ack(&pb.Ack{Seq: sf.Seq, Settled: []*pb.SettleResult{{Error: &pb.Error{Code: "PRECONDITION_FAILED", Op: proto.Int32(0)}}}})
			sf = st.settle()
		}
		got := sf.Items[0]
		if got.Id != id || got.GetFail().GetError() == nil || got.GetFail().Fatal || !strings.Contains(got.GetFail().Error.Message, "Goexit") {
			t.Errorf("%s: got %v, want a failed attempt", kind, got)
		}
		st.settled(sf)
	}
	st.assign(task("t9", 9, "echo", "x"))
	sf := st.settle()
	if sf.Items[0].GetComplete() == nil {
		t.Errorf("got %v, want a completion", sf)
	}
	st.settled(sf)
	if err := r.end(); err != nil {
		t.Error(err)
	}
}

// TestAHandlerThatIsWaitedForKeepsItsSlot: what runs on after its lease was lost counts as running until it returns.
func TestAHandlerThatIsWaitedForKeepsItsSlot(t *testing.T) {
	gate := make(chan struct{})
	ran := make(chan string, 4)
	r := work(t, func(w *Worker) {
		w.HandleRaw("deaf", func(_ context.Context, t *Task) ([]byte, error) { ran <- t.ID; <-gate; return nil, nil })
	}, Slots(2), WaitForHandlers())
	st := r.f.welcome(nil)
	st.subscribe()
	st.assign(task("t1", 1, "deaf", ""))
	receive(t, ran)
	st.push(&pb.ServerFrame{Frame: &pb.ServerFrame_LeaseLost{LeaseLost: &pb.LeaseLost{Id: "t1", Token: 1}}})
	if got := st.next().GetSlots().GetSlots(); got != 1 {
		t.Errorf("the worker asks for %d tasks at once while a handler without a lease has one of 2 slots, want 1", got)
	}
	st.assign(task("t2", 2, "deaf", ""), task("t3", 3, "deaf", "")) // one more than it asked for: sent before the server heard of it
	receive(t, ran)
	sf := st.settle()
	if got := sf.Items[0]; got.Id != "t3" || got.GetRelease() == nil {
		t.Errorf("got %v, want t3 given back, for no slot came free", sf)
	}
	st.settled(sf)
	if len(ran) > 0 {
		t.Errorf("%s ran as a third one at once", <-ran)
	}
	close(gate)
	for range 2 { // the end of t2, and the slot of t1, in either order
		f := st.next()
		if s := f.GetSettle(); s != nil {
			st.settled(s)
		} else if f.GetSlots().GetSlots() != 2 {
			t.Errorf("got %v once the handlers had returned, want 2 slots", f)
		}
	}
	if err := r.end(); err != nil {
		t.Error(err)
	}
}

// TestAHandlerThatIsWaitedForGivesItsTaskBackAfterwards: at the end of a worker the next attempt must not begin while this one
// still runs.
func TestAHandlerThatIsWaitedForGivesItsTaskBackAfterwards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		returned := false
		r := work(t, func(w *Worker) {
			w.HandleRaw("slow", func(ctx context.Context, _ *Task) ([]byte, error) {
				<-ctx.Done()
				time.Sleep(time.Minute)
				returned = true
				return nil, errors.New("killed")
			})
		}, Slots(1), DrainTimeout(time.Second), WaitForHandlers())
		st := r.f.welcome(nil)
		st.subscribe()
		st.assign(task("t1", 1, "slow", ""))
		r.waitFor(runs("t1", 1))
		r.stop()
		if f := st.next(); f.GetDrain() == nil {
			t.Fatalf("got %v, want Drain", f)
		}
		f := st.next()
		for ; f.GetRenew() != nil; f = st.next() {
			st.ack(&pb.Ack{Seq: f.GetRenew().Seq, Renewed: []*pb.HeartbeatResult{{}}})
		}
		sf := f.GetSettle()
		if sf.Items[0].GetRelease() == nil || !returned {
			t.Errorf("got %v with the handler returned: %v; want a release after it did", sf, returned)
		}
		st.settled(sf)
		if err := r.end(); err != nil {
			t.Error(err)
		}
	})
}

// TestHandlersThatEndWithTheirContextGiveTheirTasksBack: a worker that ends tells handlers so before it gives tasks back.
func TestHandlersThatEndWithTheirContextGiveTheirTasksBack(t *testing.T) {
	var told atomic.Value
	defer func() {
		if wrong := told.Load(); wrong != nil {
			t.Error(wrong)
		}
	}()
	synctest.Test(t, func(t *testing.T) {
		r := work(t, func(w *Worker) {
			w.HandleRaw("heeds", func(ctx context.Context, t *Task) ([]byte, error) {
				<-t.Stopping()
				if ctx.Err() != nil {
					told.Store("the context had ended before the handler heard that the worker stops")
				}
				<-ctx.Done()
				if !errors.Is(context.Cause(ctx), ErrStopped) {
					told.Store(context.Cause(ctx).Error())
				}
				time.Sleep(time.Second) // cleans up
				return nil, context.Cause(ctx)
			})
		}, Slots(1), DrainTimeout(time.Second))
		st := r.f.welcome(nil)
		st.subscribe()
		st.assign(task("t1", 1, "heeds", ""))
		r.waitFor(runs("t1", 1))
		began := time.Now()
		r.stop()
		if f := st.next(); f.GetDrain() == nil {
			t.Fatalf("got %v, want Drain", f)
		}
		sf := st.settle()
		if took := time.Since(began); sf.Items[0].GetRelease() == nil || took != 2*time.Second {
			t.Errorf("got %v after %v, want a release once the handler had returned", sf, took)
		}
		st.settled(sf)
		if err := r.end(); err != nil {
			t.Error(err)
		}
	})
}

// TestAFailureThatIsRefusedIsReportedPlainly: a lease that runs out because its failure could not be told would count as a crash.
func TestAFailureThatIsRefusedIsReportedPlainly(t *testing.T) {
	for name, failure := range map[string]error{
		"late":  RetryIn(48*time.Hour, errors.New("busy")),
		"plain": errors.New("odd"),
		"fatal": Fatal(errors.New("wrong")),
	} {
		r := work(t, func(w *Worker) {
			w.HandleRaw("fails", func(context.Context, *Task) ([]byte, error) { return nil, failure })
		})
		st := r.f.welcome(nil)
		st.subscribe()
		st.assign(task("t1", 1, "fails", ""))
		sf := st.settle()
		st.ack(&pb.Ack{Seq: sf.Seq, Settled: []*pb.SettleResult{{Error: &pb.Error{Code: "INVALID_ARGUMENT", Field: "fail.retry_after", Message: "must be at most 24h"}}}})
		sf = st.settle()
		f := sf.Items[0].GetFail()
		if f == nil || f.RetryAfter != nil || f.Fatal != (name == "fatal") || !strings.Contains(f.GetError().GetMessage(), "24h") {
			t.Errorf("%s: got %v, want a failure that tells why the first one was refused", name, sf)
		}
		st.settled(sf)
		if err := r.end(); err != nil {
			t.Error(err)
		}
	}
}

// TestARefusalOfAnEffectIsNotALostLease: a collection or a repository that is not there is the effect's fault. Taken for a task
// that is gone, its lease would run out and count as a crash.
func TestARefusalOfAnEffectIsNotALostLease(t *testing.T) {
	for _, code := range []string{"NOT_FOUND", "WRONG_STATE", "LEASE_LOST"} {
		for op, settles := range map[*int32]bool{nil: false, proto.Int32(0): true, proto.Int32(1): true} {
			causes := make(chan error, 1)
			r := work(t, func(w *Worker) {
				echo(w)
				w.HandleRaw("put", func(ctx context.Context, t *Task) ([]byte, error) {
					t.Effects().KV("k").Put("a", "1")
					t.Effects().Collection("gone").Remove("a")
					context.AfterFunc(ctx, func() { causes <- context.Cause(ctx) })
					return nil, nil
				})
			}, Slots(1), Queues("q"))
			st := r.f.welcome(nil)
			st.subscribe()
			st.assign(task("t1", 1, "put", ""))
			sf := st.settle()
			st.ack(&pb.Ack{Seq: sf.Seq, Settled: []*pb.SettleResult{{Error: &pb.Error{Code: code, Op: op, Message: "gone"}}}})
			if settles {
				sf = st.settle()
				if f := sf.Items[0].GetFail(); f.GetError().GetCode() != code {
					t.Errorf("%s of op %d: got %v, want a failed attempt", code, *op, sf)
				}
				st.settled(sf)
			} else if e := asError(t, receive(t, causes)); string(e.Code) != code {
				t.Errorf("%s of the task: the handler's context ended with %v", code, e)
			}
			if err := r.end(); err != nil {
				t.Error(err)
			}
		}
	}
}
