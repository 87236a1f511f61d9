package millrace_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	millrace "github.com/millrace/millrace/sdk/go"
)

// TestWorkersAreListedAndMadeQuiet: a quiet worker finishes what it runs and is given nothing more, until that is taken back.
func TestWorkersAreListedAndMadeQuiet(t *testing.T) {
	t.Parallel()
	eachTransport(t, func(t *testing.T, opts ...millrace.Option) {
		c, ctx := dial(t, opts...), bounded(t)
		if _, err := c.QuietWorker(ctx, "unknown", true); !errors.Is(err, millrace.ErrNotFound) {
			t.Errorf("a worker that is not known: %v", err)
		}
		job := millrace.Job[int, int]("quiet").Queue("quieted")
		began, finish := make(chan int, 8), make(chan struct{})
		w := c.Worker(millrace.Name("w-1"), millrace.Slots(1))
		job.Handle(w, func(ctx context.Context, _ *millrace.Task, n int) (int, error) {
			began <- n
			select {
			case <-finish:
			case <-ctx.Done():
			}
			return n, nil
		})
		run(t, w)
		first, err := job.Add(ctx, c, 1)
		if err != nil {
			t.Fatal(err)
		}
		<-began
		list, err := c.Workers(ctx, "quieted")
		if err != nil || list.Partial || len(list.Workers) != 1 {
			t.Fatalf("listed: %+v, %v", list, err)
		}
		got := list.Workers[0]
		if got.ID != "w-1" || got.Running != 1 || got.OldestLease.IsZero() || got.ConnectedAt.IsZero() || got.SeenAt.IsZero() || got.Quiet ||
			len(got.Nodes) != 1 || !slices.Equal(got.Queues, []string{"quieted"}) || got.Slots != 1 {
			t.Errorf("listed: %+v", got)
		}
		if stream := c.Transport() != millrace.TransportREST; stream && (len(got.Sessions) != 1 || len(got.Sessions[0]) != 16 || !strings.HasPrefix(got.SDK, "millrace-go/") || len(got.Kinds) != 1) {
			t.Errorf("of a stream: %+v", got)
		}
		if other, err := c.Workers(ctx, "other"); err != nil || len(other.Workers) != 0 {
			t.Errorf("of another queue: %+v, %v", other, err)
		}

		for _, want := range []bool{false, true} {
			if replayed, err := c.QuietWorker(ctx, "w-1", true); err != nil || replayed != want {
				t.Errorf("made quiet: %v, %v", replayed, err)
			}
		}
		close(finish)
		if _, err := first.Wait(ctx); err != nil {
			t.Error(err)
		}
		if _, err := job.Add(ctx, c, 2); err != nil {
			t.Fatal(err)
		}
		select {
		case n := <-began:
			t.Errorf("a quiet worker is given task %d", n)
		case <-time.After(time.Second):
		}
		if list, err := c.Workers(ctx, ""); err != nil || len(list.Workers) != 1 || !list.Workers[0].Quiet || list.Workers[0].Running != 0 {
			t.Errorf("quiet: %+v, %v", list, err)
		}
		if replayed, err := c.QuietWorker(ctx, "w-1", false); err != nil || replayed {
			t.Errorf("taken back: %v, %v", replayed, err)
		}
		if n := <-began; n != 2 {
			t.Errorf("given task %d", n)
		}
	})
}
