package millrace_test

import (
	"context"
	"errors"
	"testing"

	millrace "github.com/millrace/millrace/sdk/go"
)

// A client of a namespace that was removed goes on with the next one of that name, which knows nothing of what was before.
func TestAClientGoesOnAfterItsNamespaceWasRemoved(t *testing.T) {
	eachTransport(t, func(t *testing.T, opts ...millrace.Option) {
		c, admin := dial(t, opts...), dial(t, opts...)
		ctx := bounded(t)
		job := millrace.Job[int, int]("q")
		for round := range 3 {
			if _, err := c.KV("k").Put(ctx, "a", round, millrace.IfAbsent()); err != nil {
				t.Fatalf("round %d: put: %v", round, err)
			}
			if _, err := job.Add(ctx, c, round); err != nil {
				t.Fatalf("round %d: add: %v", round, err)
			}
			if _, err := admin.DeleteNamespace(ctx); !errors.Is(err, millrace.ErrWrongState) {
				t.Fatalf("round %d: with a key and a task: %v", round, err)
			}
			if _, err := c.KV("k").Delete(ctx, "a"); err != nil {
				t.Fatalf("round %d: delete: %v", round, err)
			}
			if err := admin.Queue("q").Delete(ctx, millrace.Purge()); err != nil {
				t.Fatalf("round %d: remove the queue: %v", round, err)
			}
			if existed, err := admin.DeleteNamespace(ctx); err != nil || !existed {
				t.Fatalf("round %d: %v, %v", round, existed, err)
			}
			if existed, err := admin.DeleteNamespace(ctx); err != nil || existed {
				t.Fatalf("round %d, again: %v, %v", round, existed, err)
			}
		}
	})
}

// A worker that has a stream ends with its namespace, and does not make another one.
func TestAWorkerEndsWithItsNamespace(t *testing.T) {
	opts := []millrace.Option{millrace.Namespace("gone-" + millrace.NewID())}
	c, admin := dial(t, opts...), dial(t, opts...)
	ctx := bounded(t)
	w := c.Worker()
	job := millrace.Job[int, int]("q")
	job.Handle(w, func(context.Context, *millrace.Task, int) (int, error) { return 0, nil })
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	h, err := job.Add(ctx, admin, 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Wait(ctx); err != nil { // the worker is there
		t.Fatal(err)
	}
	if err := admin.Queue("q").Delete(ctx, millrace.Purge()); err != nil {
		t.Fatal(err)
	}
	if existed, err := admin.DeleteNamespace(ctx); err != nil || !existed {
		t.Fatal(existed, err)
	}
	if err := <-ended; !errors.Is(err, millrace.ErrNotFound) {
		t.Errorf("the worker ended with %v", err)
	}
	if _, err := admin.Namespace(ctx); !errors.Is(err, millrace.ErrNotFound) {
		t.Errorf("the namespace: %v", err)
	}
}
