package millrace_test

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	millrace "github.com/millrace/millrace/sdk/go"
)

// told is what a handler knows when its context has ended.
type told struct {
	cause  error
	reason string
}

// held is a task whose handler waits for the end of its context, and then ends the attempt as end says.
type held struct {
	id   string
	told chan told
}

// hold runs a worker of c whose one task waits. The lease is short, so that renewals, which tell of a cancel over REST, come soon.
func hold(t *testing.T, c *millrace.Client, end func(ctx context.Context) (int, error)) held {
	t.Helper()
	began, out := make(chan struct{}, 2), held{told: make(chan told, 2)}
	job := millrace.Job[int, int]("held")
	if c.Transport() == millrace.TransportREST {
		job = job.Lease(time.Second)
	}
	w := c.Worker()
	job.Handle(w, func(ctx context.Context, task *millrace.Task, _ int) (int, error) {
		began <- struct{}{}
		<-ctx.Done()
		out.told <- told{context.Cause(ctx), task.CancelReason()}
		return end(ctx)
	})
	run(t, w)
	h, err := job.Add(bounded(t), c, 1)
	if err != nil {
		t.Fatal(err)
	}
	<-began
	out.id = h.ID
	return out
}

func stopped(ctx context.Context) (int, error) { return 0, context.Cause(ctx) }

func TestACancelReachesTheHandlerByEachTransport(t *testing.T) {
	t.Parallel()
	eachTransport(t, func(t *testing.T, opts ...millrace.Option) {
		c, ctx := dial(t, opts...), bounded(t)
		if _, err := c.Status(ctx); err != nil { // the transport is known from here on
			t.Fatal(err)
		}
		x := hold(t, c, stopped)
		got, err := c.Cancel(ctx, x.id, millrace.CancelReason("by hand"))
		if err != nil || got.State != millrace.Running || got.Replayed {
			t.Fatalf("cancel: %+v, %v", got, err)
		}
		heard := <-x.told
		if !errors.Is(heard.cause, millrace.ErrCancelled) || errors.Is(heard.cause, millrace.ErrLeaseLost) {
			t.Errorf("the handler ended by %v, want ErrCancelled", heard.cause)
		}
		if want := map[millrace.TransportMode]string{millrace.TransportStream: "by hand"}[c.Transport()]; heard.reason != want {
			t.Errorf("the handler was told the reason %q, want %q", heard.reason, want)
		}
		info, err := c.Wait(ctx, x.id)
		if err != nil || info.State != millrace.Cancelled || info.Cancel == nil || info.Cancel.Reason != "by hand" || info.Cancel.By == "" || info.Cancel.At.IsZero() {
			t.Errorf("the task is %+v, %v", info, err)
		}
		attempts, err := c.Attempts(ctx, x.id)
		if err != nil || len(attempts) != 1 || attempts[0].Outcome != "cancelled" || attempts[0].Message != "" {
			t.Errorf("the attempts are %+v, %v", attempts, err)
		}
		if got, err := c.Cancel(ctx, x.id); err != nil || got.State != millrace.Cancelled || !got.Replayed {
			t.Errorf("another cancel: %+v, %v", got, err)
		}
	})
}

func TestAHandlerThatFailsAfterACancelReportsItsErrorByEachTransport(t *testing.T) {
	t.Parallel()
	eachTransport(t, func(t *testing.T, opts ...millrace.Option) {
		c, ctx := dial(t, opts...), bounded(t)
		if _, err := c.Status(ctx); err != nil {
			t.Fatal(err)
		}
		x := hold(t, c, func(context.Context) (int, error) { return 0, errors.New("half done") })
		if _, err := c.Cancel(ctx, x.id); err != nil {
			t.Fatal(err)
		}
		if info, err := c.Wait(ctx, x.id); err != nil || info.State != millrace.Cancelled || info.Failures != 0 {
			t.Errorf("the task is %+v, %v", info, err)
		}
		attempts, err := c.Attempts(ctx, x.id)
		if err != nil || len(attempts) != 1 || attempts[0].Outcome != "cancelled" || attempts[0].Message != "half done" {
			t.Errorf("the attempts are %+v, %v", attempts, err)
		}
	})
}

func TestACompletionAfterACancelCompletesByEachTransport(t *testing.T) {
	t.Parallel()
	eachTransport(t, func(t *testing.T, opts ...millrace.Option) {
		c, ctx := dial(t, opts...), bounded(t)
		if _, err := c.Status(ctx); err != nil {
			t.Fatal(err)
		}
		x := hold(t, c, func(context.Context) (int, error) { return 42, nil })
		if _, err := c.Cancel(ctx, x.id); err != nil {
			t.Fatal(err)
		}
		info, err := c.Wait(ctx, x.id)
		if err != nil || info.State != millrace.Completed || string(info.Result) != "42" {
			t.Errorf("the task is %+v, %v", info, err)
		}
		if _, err := c.Cancel(ctx, x.id); !errors.Is(err, millrace.ErrWrongState) {
			t.Errorf("got %v for the cancel of a completed task, want ErrWrongState", err)
		}
	})
}

func TestWhatIsTakenByForceIsALostLeaseByEachTransport(t *testing.T) {
	t.Parallel()
	eachTransport(t, func(t *testing.T, opts ...millrace.Option) {
		c, ctx := dial(t, append(opts, millrace.Logger(quiet()))...), bounded(t)
		if _, err := c.Status(ctx); err != nil {
			t.Fatal(err)
		}
		x := hold(t, c, func(context.Context) (int, error) { return 42, nil })
		if got, err := c.Cancel(ctx, x.id, millrace.ForceCancel()); err != nil || got.State != millrace.Cancelled {
			t.Fatalf("cancel: %+v, %v", got, err)
		}
		if heard := <-x.told; !errors.Is(heard.cause, millrace.ErrLeaseLost) || errors.Is(heard.cause, millrace.ErrCancelled) {
			t.Errorf("the handler ended by %v, want ErrLeaseLost", heard.cause)
		}
		if info, err := c.Wait(ctx, x.id); err != nil || info.State != millrace.Cancelled || info.HasResult || !info.Cancel.Force {
			t.Errorf("the task is %+v, %v", info, err)
		}

		// The same handler gets the task again, as its next attempt, and loses that too.
		if state, err := c.Retry(ctx, x.id); err != nil || state != millrace.Ready {
			t.Fatalf("retry: %v, %v", state, err)
		}
		for {
			info, err := c.Task(ctx, x.id)
			if err != nil {
				t.Fatal(err)
			}
			if info.State == millrace.Running {
				break
			}
		}
		if _, err := c.ForceRelease(ctx, x.id, millrace.OfAttempt(1)); !errors.Is(err, millrace.ErrWrongState) {
			t.Errorf("got %v for another attempt, want ErrWrongState", err)
		}
		if _, err := c.Queue("held").Pause(ctx); err != nil { // so that it stays where it is put
			t.Fatal(err)
		}
		if state, err := c.ForceRelease(ctx, x.id, millrace.OfAttempt(2)); err != nil || state != millrace.Ready {
			t.Errorf("force release: %v, %v", state, err)
		}
		if heard := <-x.told; !errors.Is(heard.cause, millrace.ErrLeaseLost) {
			t.Errorf("the handler ended by %v, want ErrLeaseLost", heard.cause)
		}
		if info, err := c.Task(ctx, x.id); err != nil || info.State != millrace.Ready || info.Redrives != 1 || info.Attempt != 2 {
			t.Errorf("the task is %+v, %v", info, err)
		}
	})
}

func TestAWorkerThatComesBackHearsOfTheCancel(t *testing.T) {
	p := newProxy(t)
	p.passes.Store(true)
	ns := namespaceOf(t)
	c := p.dial(millrace.Transport(millrace.TransportStream), millrace.Namespace(ns))
	x := hold(t, c, stopped)
	p.down.Store(true)
	p.cut()
	ctx := bounded(t)
	direct := dial(t, millrace.Namespace(ns))
	if got, err := direct.Cancel(ctx, x.id, millrace.CancelReason("meanwhile")); err != nil || got.State != millrace.Running {
		t.Fatalf("cancel: %+v, %v", got, err)
	}
	p.down.Store(false)
	if heard := <-x.told; !errors.Is(heard.cause, millrace.ErrCancelled) || heard.reason != "meanwhile" {
		t.Errorf("the handler ended by %v, with the reason %q", heard.cause, heard.reason)
	}
	if info, err := direct.Wait(ctx, x.id); err != nil || info.State != millrace.Cancelled {
		t.Errorf("the task is %+v, %v", info, err)
	}
}

func TestAChangeWhoseAnswerIsCutIsAppliedOnce(t *testing.T) {
	p := newProxy(t)
	var path atomic.Pointer[string]
	var requests atomic.Int32
	p.after = func(r *http.Request, _ *http.Response, _ []byte) bool {
		if cut := path.Load(); cut == nil || r.Method+" "+r.URL.Path != *cut {
			return true
		}
		return requests.Add(1) > 1
	}
	c, ctx := p.dial(millrace.Transport(millrace.TransportREST)), bounded(t)
	job := millrace.Job[int, int]("cut").Attempts(1)
	h, err := job.Add(ctx, c, 1)
	if err != nil {
		t.Fatal(err)
	}
	fail := func() {
		t.Helper()
		got, err := c.Claim(ctx, millrace.ClaimQuery{Queues: []string{"cut"}, Wait: time.Minute})
		if err != nil || len(got) != 1 {
			t.Fatal(got, err)
		}
		if _, err := c.Fail(ctx, h.ID, got[0].Token, millrace.Failure{Fatal: true}); err != nil {
			t.Fatal(err)
		}
	}
	fail()
	for _, step := range []struct {
		path string
		do   func() (millrace.State, error)
		want millrace.State
	}{
		{"POST /v1/tasks/" + h.ID + "/retry", func() (millrace.State, error) { return c.Retry(ctx, h.ID) }, millrace.Ready},
		{"PATCH /v1/tasks/" + h.ID, func() (millrace.State, error) {
			return c.Edit(ctx, h.ID, millrace.TaskEdit{Delay: new(time.Hour)})
		}, millrace.Scheduled},
		{"POST /v1/tasks/" + h.ID + "/cancel", func() (millrace.State, error) {
			got, err := c.Cancel(ctx, h.ID)
			if got.Replayed {
				t.Error("the cancel was applied twice")
			}
			return got.State, err
		}, millrace.Cancelled},
	} {
		requests.Store(0)
		path.Store(&step.path)
		// A second retry, under another id, would be refused.
		if got, err := step.do(); err != nil || got != step.want || requests.Load() != 2 {
			t.Errorf("%s: %v, %v after %d requests, want %v after 2", step.path, got, err, requests.Load(), step.want)
		}
	}
	if _, err := c.Retry(ctx, h.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Claim(ctx, millrace.ClaimQuery{Queues: []string{"cut"}, Wait: time.Minute}); err != nil {
		t.Fatal(err)
	}
	release := "POST /v1/tasks/" + h.ID + "/force-release"
	requests.Store(0)
	path.Store(&release)
	if got, err := c.ForceRelease(ctx, h.ID); err != nil || got != millrace.Ready || requests.Load() != 2 {
		t.Errorf("force release: %v, %v after %d requests", got, err, requests.Load())
	}
}

func TestTasksAreEditedByEachTransport(t *testing.T) {
	eachTransport(t, func(t *testing.T, opts ...millrace.Option) {
		c, ctx := dial(t, opts...), bounded(t)
		job := millrace.Job[map[string]int, int]("edited")
		at := time.Now().Add(time.Hour).Truncate(time.Millisecond)
		h, err := job.Add(ctx, c, map[string]int{"n": 1}, millrace.Labels(map[string]string{"env": "prod"}),
			millrace.Labels(map[string]string{"order": "7"}), millrace.ExpiresIn(time.Minute), millrace.ExpiresAt(at))
		if err != nil {
			t.Fatal(err)
		}
		info, err := h.Get(ctx)
		if err != nil || len(info.Labels) != 2 || info.Labels["order"] != "7" || !info.ExpiresAt.Equal(at) {
			t.Errorf("added: %+v, %v", info, err)
		}
		edit := func(e millrace.TaskEdit) *millrace.TaskInfo {
			t.Helper()
			state, err := c.Edit(ctx, h.ID, e)
			if err != nil {
				t.Fatal(err)
			}
			info, err := h.Get(ctx)
			if err != nil || info.State != state {
				t.Fatalf("the edit said %v, the task is %+v, %v", state, info, err)
			}
			return info
		}
		if got := edit(millrace.TaskEdit{Priority: new(7), Payload: map[string]int{"n": 2}, Labels: map[string]string{"env": "test"}}); got.Priority != 7 ||
			string(got.Payload) != `{"n":2}` || got.ContentType != "application/json" || len(got.Labels) != 1 || got.Labels["env"] != "test" {
			t.Errorf("edited: %+v", got)
		}
		if got := edit(millrace.TaskEdit{RunAt: at, Labels: map[string]string{}, NeverExpires: true}); got.State != millrace.Scheduled ||
			got.Labels != nil || !got.ExpiresAt.IsZero() || string(got.Payload) != `{"n":2}` {
			t.Errorf("put off: %+v", got)
		}
		if got := edit(millrace.TaskEdit{Delay: new(time.Duration), Payload: "", ContentType: "text/css"}); got.State != millrace.Ready || len(got.Payload) != 0 || got.ContentType != "text/css" {
			t.Errorf("now, and empty: %+v", got)
		}
		var e *millrace.Error
		if _, err := c.Edit(ctx, h.ID, millrace.TaskEdit{}); !errors.Is(err, millrace.ErrInvalid) {
			t.Errorf("got %v for an edit of nothing", err)
		}
		if _, err := c.Edit(ctx, h.ID, millrace.TaskEdit{RunAt: at, Delay: new(time.Hour)}); !errors.As(err, &e) || e.Field != "delay" {
			t.Errorf("got %v for two times", err)
		}
		if _, err := c.Edit(ctx, h.ID, millrace.TaskEdit{Labels: map[string]string{"a": "\xff"}}); !errors.As(err, &e) || e.Field != "labels" {
			t.Errorf("got %v for a label that is not text", err)
		}
		if _, err := job.Add(ctx, c, nil, millrace.Labels(map[string]string{"\xff": "a"})); !errors.As(err, &e) || e.Field != "labels" {
			t.Errorf("got %v for a name that is not text", err)
		}
		if _, err := c.Claim(ctx, millrace.ClaimQuery{Queues: []string{"edited"}, Wait: time.Minute}); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Edit(ctx, h.ID, millrace.TaskEdit{Priority: new(1)}); !errors.Is(err, millrace.ErrWrongState) {
			t.Errorf("got %v for a running task, want ErrWrongState", err)
		}
	})
}

func TestQueuesArePausedByEachTransport(t *testing.T) {
	eachTransport(t, func(t *testing.T, opts ...millrace.Option) {
		c, ctx := dial(t, opts...), bounded(t)
		q := c.Queue("paused")
		if _, err := q.Pause(ctx); !errors.Is(err, millrace.ErrNotFound) {
			t.Errorf("got %v for a queue that is not there, want ErrNotFound", err)
		}
		grace := time.Duration(0)
		want := millrace.QueueConfig{
			CancelGrace: &grace, DefaultTTL: time.Hour, MaxTasks: 10, MaxBytes: 1000,
			Ceilings: millrace.QueueCeilings{MaxAttempts: 1, MaxCrashes: 2, MaxDeliveries: 3, Lease: time.Minute, MaxRun: time.Hour, Priority: 4},
		}
		if _, err := q.Set(ctx, want); err != nil {
			t.Fatal(err)
		}
		got, err := q.Get(ctx)
		if err != nil || got.CancelGrace == nil || *got.CancelGrace != 0 || got.DefaultTTL != time.Hour || got.MaxTasks != 10 || got.MaxBytes != 1000 || got.Ceilings != want.Ceilings {
			t.Errorf("got %+v, %v", got, err)
		}
		until := time.Now().Add(time.Hour).Truncate(time.Millisecond)
		for i, replayed := range []bool{false, true} {
			if got, err := q.Pause(ctx, millrace.PauseUntil(until), millrace.PauseReason("deploy")); err != nil || got != replayed {
				t.Errorf("pause %d: %v, %v", i, got, err)
			}
		}
		stats, err := q.Stats(ctx)
		if err != nil || stats.Paused == nil || stats.Paused.Reason != "deploy" || !stats.Paused.Until.Equal(until) || stats.Paused.By == "" || stats.Paused.Since.IsZero() {
			t.Errorf("got %+v, %v", stats, err)
		}
		if _, err := millrace.Job[int, int]("paused").Add(ctx, c, 1); err != nil {
			t.Fatal(err)
		}
		if got, err := c.Claim(ctx, millrace.ClaimQuery{Queues: []string{"paused"}}); err != nil || len(got) != 0 {
			t.Errorf("a paused queue gave %+v, %v", got, err)
		}
		for i, replayed := range []bool{false, true} {
			if got, err := q.Resume(ctx); err != nil || got != replayed {
				t.Errorf("resume %d: %v, %v", i, got, err)
			}
		}
		if got, err := c.Claim(ctx, millrace.ClaimQuery{Queues: []string{"paused"}, Wait: time.Minute}); err != nil || len(got) != 1 {
			t.Errorf("after it goes on: %+v, %v", got, err)
		}
		if stats, err := q.Stats(ctx); err != nil || stats.Paused != nil {
			t.Errorf("got %+v, %v", stats, err)
		}
	})
}

func TestACommitCancelsTasksAndPausesQueuesByEachTransport(t *testing.T) {
	eachTransport(t, func(t *testing.T, opts ...millrace.Option) {
		c, ctx := dial(t, opts...), bounded(t)
		victim, err := millrace.Job[int, int]("victim").Add(ctx, c, 1)
		if err != nil {
			t.Fatal(err)
		}
		other := c.Queue("other")
		if _, err := other.Set(ctx, millrace.QueueConfig{}); err != nil {
			t.Fatal(err)
		}
		guard := millrace.Job[int, int]("guard")
		w := c.Worker()
		guard.Handle(w, func(_ context.Context, task *millrace.Task, _ int) (int, error) {
			task.Effects().CancelTask(victim.ID, millrace.CancelReason("replaced"))
			task.Effects().PauseQueue("other", millrace.PauseReason("full"))
			return 1, nil
		})
		run(t, w)
		h, err := guard.Add(ctx, c, 1)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.Wait(ctx); err != nil {
			t.Fatal(err)
		}
		if info, err := victim.Get(ctx); err != nil || info.State != millrace.Cancelled || info.Cancel.Reason != "replaced" {
			t.Errorf("the task is %+v, %v", info, err)
		}
		if stats, err := other.Stats(ctx); err != nil || stats.Paused == nil || stats.Paused.Reason != "full" {
			t.Errorf("the queue is %+v, %v", stats, err)
		}
		if err := c.Commit(ctx, func(tx *millrace.Tx) { tx.ResumeQueue("other") }); err != nil {
			t.Fatal(err)
		}
		if stats, err := other.Stats(ctx); err != nil || stats.Paused != nil {
			t.Errorf("the queue is %+v, %v", stats, err)
		}
		var e *millrace.Error
		for field, build := range map[string]func(tx *millrace.Tx){
			"reason": func(tx *millrace.Tx) { tx.CancelTask(victim.ID, millrace.CancelReason("\xff")) },
			"id":     func(tx *millrace.Tx) { tx.CancelTask("\xff") },
			"queue":  func(tx *millrace.Tx) { tx.PauseQueue("\xff") },
		} {
			if err := c.Commit(ctx, build); !errors.As(err, &e) || e.Field != field || e.Outcome != millrace.Refused {
				t.Errorf("got %v, want a refusal of %s", err, field)
			}
		}
	})
}
