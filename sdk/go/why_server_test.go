package millrace_test

import (
	"context"
	"slices"
	"testing"

	millrace "github.com/millrace/millrace/sdk/go"
)

// TestWhyNamesTheWorkersThatHoldATaskUp: a stream tells what its worker has handlers and slots for. A caller of claims does not.
func TestWhyNamesTheWorkersThatHoldATaskUp(t *testing.T) {
	t.Parallel()
	eachTransport(t, func(t *testing.T, opts ...millrace.Option) {
		c, ctx := dial(t, opts...), bounded(t)
		began, finish := make(chan struct{}, 2), make(chan struct{})
		defer close(finish)
		hold := func(ctx context.Context) {
			began <- struct{}{}
			select {
			case <-finish:
			case <-ctx.Done():
			}
		}
		why := func(job *millrace.JobOf[int, int]) (codes []string, first millrace.WhyReason) {
			t.Helper()
			h, err := job.Add(ctx, c, 1)
			if err != nil {
				t.Fatal(err)
			}
			w, err := c.Why(ctx, h.ID)
			if err != nil || len(w.Reasons) == 0 {
				t.Fatal(w, err)
			}
			for _, r := range w.Reasons {
				codes = append(codes, r.Code)
			}
			return codes, w.Reasons[0]
		}
		wanted := millrace.Job[int, int]("wanted").Queue("whys")
		w := c.Worker(millrace.Name("w-1"), millrace.Slots(1))
		wanted.Handle(w, func(ctx context.Context, _ *millrace.Task, n int) (int, error) {
			hold(ctx)
			return n, nil
		})
		run(t, w)
		h, err := wanted.Add(ctx, c, 1)
		if err != nil {
			t.Fatal(err)
		}
		<-began
		if got, err := c.Why(ctx, h.ID); err != nil || got.Reasons[0].Code != "running" || !slices.Equal(got.Reasons[0].HeldBy, []string{"w-1"}) {
			t.Errorf("the one that runs: %+v, %v", got, err)
		}
		stream := c.Transport() != millrace.TransportREST
		codes, r := why(millrace.Job[int, int]("other").Queue("whys"))
		if stream && (r.Code != "no_handler" || r.Object != "other" || !slices.Equal(r.HeldBy, []string{"w-1"})) || !stream && r.Code != "next" {
			t.Errorf("without a handler: %q, %+v", codes, r)
		}
		codes, r = why(wanted)
		if stream && (r.Code != "no_slot" || r.Object != "whys" || r.Limit != 1 || !slices.Equal(r.HeldBy, []string{"w-1"})) || !stream && r.Code != "behind" {
			t.Errorf("without a slot: %q, %+v", codes, r)
		}

		// A worker with a handler for any kind does not lack one.
		all := c.Worker(millrace.Name("w-2"), millrace.Slots(1), millrace.Queues("anys"))
		millrace.Job[int, int]("wanted").Queue("anys").Handle(all, func(_ context.Context, _ *millrace.Task, n int) (int, error) { return n, nil })
		all.HandleAny(func(ctx context.Context, _ *millrace.Task) ([]byte, error) {
			hold(ctx)
			return nil, nil
		})
		run(t, all)
		if _, err := millrace.Job[int, int]("first").Queue("anys").Add(ctx, c, 1); err != nil {
			t.Fatal(err)
		}
		<-began
		if codes, _ := why(millrace.Job[int, int]("second").Queue("anys")); slices.Contains(codes, "no_handler") {
			t.Errorf("with a handler of any kind: %q", codes)
		}
	})
}
