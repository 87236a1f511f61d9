package millrace_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	millrace "github.com/millrace/millrace/sdk/go"
)

func dial(t *testing.T, opts ...millrace.Option) *millrace.Client {
	t.Helper()
	c, err := millrace.Dial(t.Context(), opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return c
}

func TestCommitsGoOnAfterOneThatTheServerNeverJudged(t *testing.T) {
	eachTransport(t, commitsGoOnAfterOneThatTheServerNeverJudged)
}

func commitsGoOnAfterOneThatTheServerNeverJudged(t *testing.T, opts ...millrace.Option) {
	c := dial(t, opts...)
	for i := range 3 {
		if _, err := c.KV("gap").Put(t.Context(), "", "no key"); !errors.Is(err, millrace.ErrInvalid) {
			t.Fatalf("got %v for an empty key, want ErrInvalid", err)
		}
		if _, err := c.KV("gap").Put(t.Context(), "k", fmt.Sprint(i)); err != nil {
			t.Fatalf("commit after the refused one: %v", err)
		}
	}
	if v, err := c.KV("gap").Get(t.Context(), "k"); err != nil || v.String() != "2" {
		t.Errorf("got %s, %v, want 2", v, err)
	}
}

func TestARefusedFenceChangesNothing(t *testing.T) {
	eachTransport(t, aRefusedFenceChangesNothing)
}

func aRefusedFenceChangesNothing(t *testing.T, opts ...millrace.Option) {
	c := dial(t, opts...)
	job := millrace.Job[int, int]("fenced")
	w := c.Worker()
	var stale *millrace.Task
	job.Handle(w, func(ctx context.Context, task *millrace.Task, n int) (int, error) {
		stale = task
		return n, c.Commit(ctx, func(tx *millrace.Tx) {
			tx.Fence(task)
			tx.KV("fenced").Put("during", "held")
		})
	})
	run(t, w)
	h, err := job.Add(t.Context(), c, 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	err = c.Commit(t.Context(), func(tx *millrace.Tx) {
		tx.Fence(stale)
		tx.KV("fenced").Put("after", "lost")
	})
	if !errors.Is(err, millrace.ErrLeaseLost) || millrace.OutcomeOf(err) != millrace.Refused {
		t.Errorf("got %v under a lease that has ended, want ErrLeaseLost, refused", err)
	}
	if v, err := c.KV("fenced").Get(t.Context(), "during"); err != nil || v.String() != "held" {
		t.Errorf("got %s, %v, want what was written under the lease", v, err)
	}
	if _, err := c.KV("fenced").Get(t.Context(), "after"); !errors.Is(err, millrace.ErrNotFound) {
		t.Errorf("got %v, want nothing written", err)
	}
}

// run runs w until the test ends.
func run(t *testing.T, w *millrace.Worker) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	out := make(chan error, 1)
	go func() { out <- w.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-out; err != nil {
			t.Errorf("worker: %v", err)
		}
	})
}

func TestEachTaskRunsOnceWithItsEffects(t *testing.T) {
	eachTransport(t, eachTaskRunsOnceWithItsEffects)
}

func eachTaskRunsOnceWithItsEffects(t *testing.T, opts ...millrace.Option) {
	c := dial(t, opts...)
	tasks := 2000
	if testing.Short() {
		tasks = 500
	}
	job := millrace.Job[int, int]("once")
	var mu sync.Mutex
	runs := map[int]int{}
	w := c.Worker(millrace.Slots(64))
	job.Handle(w, func(_ context.Context, task *millrace.Task, n int) (int, error) {
		mu.Lock()
		runs[n]++
		mu.Unlock()
		task.Effects().KV("once").Put(fmt.Sprint(n), n, millrace.IfAbsent())
		return n, nil
	})
	run(t, w)
	args := make([]int, tasks)
	for i := range args {
		args[i] = i
	}
	hs, err := job.AddMany(t.Context(), c, args)
	if err != nil {
		t.Fatal(err)
	}
	for i, h := range hs {
		if got, err := h.Wait(t.Context()); err != nil || got != i {
			t.Fatalf("task %d: got %d, %v", i, got, err)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	for n := range tasks {
		if runs[n] != 1 {
			t.Fatalf("task %d ran %d times, want once", n, runs[n])
		}
	}
	stats, err := c.Queue("once").Stats(t.Context())
	if err != nil || stats.Completed != uint64(tasks) || stats.Running != 0 {
		t.Errorf("got %+v, %v, want %d completed and none running", stats, err, tasks)
	}
}

func TestABatchNamesTheTaskThatIsBad(t *testing.T) {
	eachTransport(t, aBatchNamesTheTaskThatIsBad)
}

func aBatchNamesTheTaskThatIsBad(t *testing.T, opts ...millrace.Option) {
	c := dial(t, opts...)
	job := millrace.Job[string, string]("sized")
	hs, err := job.AddMany(t.Context(), c, []string{"a", strings.Repeat("x", 1<<20+1), "c"})
	var many *millrace.BatchError
	if !errors.As(err, &many) || hs[0] == nil || hs[1] != nil || hs[2] == nil {
		t.Fatalf("got %v and %v, want an error of task 1 alone", hs, err)
	}
	var e *millrace.Error
	if !errors.As(many.Errors[1], &e) || e.Code != millrace.CodeTooLarge || e.Limit == "" || e.Field != "tasks[1].payload" {
		t.Errorf("got %+v, want tasks[1].payload too large, with its limit", e)
	}
}

func TestABadTokenIsRefusedEverywhere(t *testing.T) {
	eachTransport(t, aBadTokenIsRefusedEverywhere)
}

func aBadTokenIsRefusedEverywhere(t *testing.T, opts ...millrace.Option) {
	c := dial(t, append(opts, millrace.Token("mr_wrong"))...)
	job := millrace.Job[int, int]("secret")
	for name, call := range map[string]func() error{
		"add":    func() error { _, err := job.Add(t.Context(), c, 1); return err },
		"commit": func() error { _, err := c.KV("k").Put(t.Context(), "a", "b"); return err },
		"get":    func() error { _, err := c.KV("k").Get(t.Context(), "a"); return err },
		"worker": func() error {
			w := c.Worker()
			job.Handle(w, func(context.Context, *millrace.Task, int) (int, error) { return 0, nil })
			return w.Run(t.Context())
		},
	} {
		var e *millrace.Error
		if err := call(); !errors.As(err, &e) || e.Code != millrace.CodeUnauthenticated || e.Outcome != millrace.Refused {
			t.Errorf("%s: got %v, want refused as UNAUTHENTICATED", name, err)
		}
	}
}
