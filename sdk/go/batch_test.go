package millrace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	pb "github.com/millrace/millrace/gen/millrace/v1"
)

// batched is a worker whose batches of kind b go through handle; what it is told of settles comes in told.
func batched(t *testing.T, n int, handle func(tasks []*Task) ([][]byte, []error)) (r *working, told chan Settlement) {
	t.Helper()
	told = make(chan Settlement, 100)
	r = work(t, func(w *Worker) {
		w.HandleBatch("b", n, func(_ context.Context, tasks []*Task) ([][]byte, []error) { return handle(tasks) })
	}, Queues("q"), Slots(64), OnSettled(func(s Settlement) { told <- s }))
	return r, told
}

// assignMany pushes n tasks of kind b in one frame.
func assignMany(st *fakeStream, n int) {
	var tasks []*pb.Assignment
	for i := range n {
		tasks = append(tasks, task(fmt.Sprintf("t%02d", i), uint64(i+1), "b", fmt.Sprint(i)))
	}
	st.assign(tasks...)
}

// settleAll acknowledges settle frames until n items came, and returns them by id.
func settleAll(st *fakeStream, n int) map[string]*pb.SettleItem {
	items := map[string]*pb.SettleItem{}
	for len(items) < n {
		f := st.settle()
		for _, item := range f.Items {
			items[item.Id] = item
		}
		st.settled(f)
	}
	return items
}

// TestABatchOfAJobHasItsTypes: arguments and results go through the codec, and a task without arguments that make sense ends alone.
func TestABatchOfAJobHasItsTypes(t *testing.T) {
	r := work(t, func(w *Worker) {
		Job[int, []int]("b").Queue("q").HandleBatch(w, 8, func(_ context.Context, tasks []*Task, args []int) (results [][]int, errs []error) {
			if len(tasks) != len(args) {
				t.Errorf("%d tasks with %d arguments", len(tasks), len(args))
			}
			for i, task := range tasks {
				if task.ID != fmt.Sprintf("t%02d", args[i]) {
					t.Errorf("%s has the argument %d", task.ID, args[i])
				}
				results = append(results, []int{args[i], 2 * args[i]})
				errs = append(errs, nil)
				if args[i] == 3 {
					errs[i] = errors.New("odd")
				}
			}
			tasks[0] = nil // the slice is the handler's own
			return results[:len(results)-1], errs
		})
	}, Slots(64))
	st := r.f.welcome(nil)
	st.subscribe()
	st.assign(task("t00", 1, "b", "0"), task("t01", 2, "b", "{"), task("t02", 3, "b", "2"), task("t03", 4, "b", "3"), task("t04", 5, "b", "4"))
	items := settleAll(st, 5)
	for id, want := range map[string]string{"t00": "[0,0]", "t02": "[2,4]", "t04": "null"} {
		if c := items[id].GetComplete(); c == nil || string(c.Result) != want || c.ResultType != "application/json" {
			t.Errorf("%s ends as %v, want the result %s", id, items[id], want)
		}
	}
	if f := items["t01"].GetFail(); !f.GetFatal() || f.Error.Code != "invalid_args" {
		t.Errorf("t01 ends as %v, want its end", items["t01"])
	}
	if f := items["t03"].GetFail(); f.GetFatal() || f.GetError().GetMessage() != "odd" {
		t.Errorf("t03 ends as %v, want a failure", items["t03"])
	}
	if err := r.end(); err != nil {
		t.Error(err)
	}
}

// TestABatchOfAJobWithMoreResultsThanTasksFails: which result is whose is not known.
func TestABatchOfAJobWithMoreResultsThanTasksFails(t *testing.T) {
	r := work(t, func(w *Worker) {
		Job[int, int]("b").Queue("q").HandleBatch(w, 8, func(context.Context, []*Task, []int) ([]int, []error) { return make([]int, 9), nil })
	}, Slots(64))
	st := r.f.welcome(nil)
	st.subscribe()
	st.assign(task("t00", 1, "b", "0"), task("t01", 2, "b", "1"))
	for id, item := range settleAll(st, 2) {
		if f := item.GetFail(); !strings.Contains(f.GetError().GetMessage(), "9 results") {
			t.Errorf("%s ends as %v, want a failure", id, item)
		}
	}
	if err := r.end(); err != nil {
		t.Error(err)
	}
}

func TestABatchHandlerTakesWhatWaitsUpToItsSizeAndEachTaskHasItsOwnOutcome(t *testing.T) {
	sizes := make(chan int, 100)
	r, told := batched(t, 8, func(tasks []*Task) (results [][]byte, errs []error) {
		sizes <- len(tasks)
		for _, task := range tasks {
			results = append(results, append([]byte("r"), task.Payload...))
			var err error
			if task.ID == "t03" {
				err = Fatal(errors.New("bad"))
			}
			errs = append(errs, err)
		}
		return results, errs
	})
	st := r.f.welcome(nil)
	st.subscribe()
	assignMany(st, 20)
	items := settleAll(st, 20)
	for id, item := range items {
		if id == "t03" {
			if !item.GetFail().GetFatal() {
				t.Errorf("%s ends as %v, want a fatal failure", id, item.Outcome)
			}
			continue
		}
		var i int
		_, _ = fmt.Sscanf(id, "t%d", &i)
		if got := item.GetComplete(); got == nil || !bytes.Equal(got.Result, fmt.Appendf(nil, "r%d", i)) || item.Token != uint64(i+1) {
			t.Errorf("%s ends as %v with token %d", id, item.Outcome, item.Token)
		}
	}
	sum, most := 0, 0
	for sum < 20 {
		n := receive(t, sizes)
		sum, most = sum+n, max(most, n)
	}
	if most > 8 || sum != 20 {
		t.Errorf("the handler was called for %d tasks, up to %d at once; want 20, up to 8", sum, most)
	}
	var failed []string
	for range 20 {
		s := receive(t, told)
		if s.Err != nil || s.Op == "fail" {
			failed = append(failed, s.Task.ID)
		}
	}
	if !slices.Equal(failed, []string{"t03"}) {
		t.Errorf("told of failures of %v, want t03", failed)
	}
	if n := r.w.Frames(); n == 0 || n > 20 {
		t.Errorf("%d frames were sent for 20 settles", n)
	}
	if err := r.end(); err != nil {
		t.Error(err)
	}
}

func TestAPanicOfABatchHandlerFailsEveryTaskOfTheCall(t *testing.T) {
	r, _ := batched(t, 4, func([]*Task) ([][]byte, []error) { panic("oh no") })
	st := r.f.welcome(nil)
	st.subscribe()
	assignMany(st, 4)
	for id, item := range settleAll(st, 4) {
		if e := item.GetFail().GetError(); e.GetCode() != "panic" || !strings.Contains(e.GetMessage(), "oh no") {
			t.Errorf("%s ends as %v, want a panic", id, item.Outcome)
		}
	}
	if err := r.end(); err != nil {
		t.Error(err)
	}
}

func TestMissingResultsAreEmptyAndTooManyFailTheCall(t *testing.T) {
	r, _ := batched(t, 1, func(tasks []*Task) ([][]byte, []error) {
		if tasks[0].ID == "t00" {
			return nil, nil
		}
		return [][]byte{nil, nil}, nil
	})
	st := r.f.welcome(nil)
	st.subscribe()
	assignMany(st, 2)
	items := settleAll(st, 2)
	if c := items["t00"].GetComplete(); c == nil || len(c.Result) != 0 {
		t.Errorf("without results the task ends as %v, want completed with nothing", items["t00"].Outcome)
	}
	if f := items["t01"].GetFail(); !strings.Contains(f.GetError().GetMessage(), "2 results") {
		t.Errorf("with a result too many the task ends as %v, want failed", items["t01"].Outcome)
	}
	if err := r.end(); err != nil {
		t.Error(err)
	}
}

func TestALeaseLostInABatchChangesNothingForTheOthers(t *testing.T) {
	running, goOn := make(chan int, 1), make(chan struct{})
	r, _ := batched(t, 3, func(tasks []*Task) ([][]byte, []error) {
		running <- len(tasks)
		<-goOn
		return nil, nil
	})
	st := r.f.welcome(nil)
	st.subscribe()
	assignMany(st, 3)
	if n := receive(t, running); n != 3 {
		t.Fatalf("the handler got %d tasks, want 3", n)
	}
	if err := st.send(&pb.ServerFrame{Frame: &pb.ServerFrame_LeaseLost{LeaseLost: &pb.LeaseLost{Id: "t01", Token: 2, Reason: "expired"}}}); err != nil {
		t.Fatal(err)
	}
	for f := range st.in { // the worker says that it lives: it has seen the loss
		if f.GetSlots() != nil {
			break
		}
	}
	close(goOn)
	if items := settleAll(st, 2); items["t00"].GetComplete() == nil || items["t02"].GetComplete() == nil || items["t01"] != nil {
		t.Errorf("settled %v, want the two tasks whose leases are held", items)
	}
	if err := r.end(); err != nil {
		t.Error(err)
	}
}

func TestARefusedSettleIsToldWithItsReason(t *testing.T) {
	r, told := batched(t, 1, func([]*Task) ([][]byte, []error) { return nil, nil })
	st := r.f.welcome(nil)
	st.subscribe()
	assignMany(st, 1)
	f := st.settle()
	if err := st.send(&pb.ServerFrame{Frame: &pb.ServerFrame_Ack{Ack: &pb.Ack{Seq: f.Seq, Settled: []*pb.SettleResult{
		{Error: &pb.Error{Code: string(CodeLeaseLost), Outcome: pb.Error_REFUSED}},
	}}}}); err != nil {
		t.Fatal(err)
	}
	if s := receive(t, told); s.Err == nil || s.Err.Code != CodeLeaseLost || s.Op != "complete" || s.Task.ID != "t00" {
		t.Errorf("told %+v, want a lost lease", s)
	}
	if err := r.end(); err != nil {
		t.Error(err)
	}
}
