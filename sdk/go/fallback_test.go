package millrace_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	millrace "github.com/millrace/millrace/sdk/go"
)

// patience bounds every wait of a test; it is only reached when something hangs.
const patience = 30 * time.Second

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// namespaceOf is a namespace of this run of the test alone.
func namespaceOf(t *testing.T) string {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, t.Name())
	return name[len("Test"):min(len(name), len("Test")+80)] + "-" + millrace.NewID()
}

func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func TestAClientThatGRPCDoesNotServeGoesOverRESTByItself(t *testing.T) {
	p := newProxy(t)
	c := p.dial()
	job := millrace.Job[int, int]("twice")
	w := c.Worker(millrace.Slots(4))
	job.Handle(w, func(_ context.Context, task *millrace.Task, n int) (int, error) {
		task.Effects().KV("twice").Put(task.ID, n, millrace.IfAbsent())
		return 2 * n, nil
	})
	run(t, w)
	ctx := bounded(t)
	for n := range 20 {
		h, err := job.Add(ctx, c, n)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := h.Wait(ctx); err != nil || got != 2*n {
			t.Fatalf("got %d, %v, want %d", got, err, 2*n)
		}
		if _, err := c.KV("twice").Get(ctx, h.ID); err != nil {
			t.Fatalf("the effect: %v", err)
		}
	}
	if got := c.Transport(); got != millrace.TransportREST {
		t.Errorf("the transport in use is %v, want rest", got)
	}
}

// A command line makes one call and leaves: there is no second try to learn from.
func TestTheFirstUnaryCallGoesOverRESTWhereGRPCDoesNotComeThrough(t *testing.T) {
	for name, call := range map[string]func(ctx context.Context, c *millrace.Client) error{
		"status": func(ctx context.Context, c *millrace.Client) error { _, err := c.Status(ctx); return err },
		"claim": func(ctx context.Context, c *millrace.Client) error {
			_, err := c.Claim(ctx, millrace.ClaimQuery{Queues: []string{"none"}})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newProxy(t).dial()
			if err := call(bounded(t), c); err != nil {
				t.Error(err)
			}
			if got := c.Transport(); got != millrace.TransportREST {
				t.Errorf("the transport in use is %v, want rest", got)
			}
		})
	}
}

// wantUnavailable takes that it is late for it too: on a busy machine the caller's time may be up in the middle of a try.
func wantUnavailable(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, millrace.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want unavailable, or that it is late", err)
	}
}

func TestAServerThatIsDownChangesNoTransport(t *testing.T) {
	p := newProxy(t)
	p.down.Store(true)
	c := p.dial()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	_, err := c.Status(ctx)
	wantUnavailable(t, err)
	if got := c.Transport(); got != millrace.TransportStream {
		t.Errorf("the transport in use is %v, want stream", got)
	}
}

func TestAStreamOnlyClientDoesNotGoOverREST(t *testing.T) {
	p := newProxy(t)
	var asked atomic.Int32
	p.before = func(_ http.ResponseWriter, r *http.Request, _ []byte) bool {
		if strings.HasPrefix(r.URL.Path, "/v1") { // and not the greeting of HTTP/2
			asked.Add(1)
		}
		return false
	}
	c := p.dial(millrace.Transport(millrace.TransportStream))
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := c.Status(ctx)
	wantUnavailable(t, err)
	if n := asked.Load(); n > 0 {
		t.Errorf("REST was asked %d times", n)
	}
}

// All the while tasks are made, run and committed; at the end each has run once and left its effect.
func TestTheStreamIsTakenAgainWhenGRPCComesThroughAndNothingIsLostOrDoubled(t *testing.T) {
	p := newProxy(t)
	c := p.dial()
	job := millrace.Job[int, int]("moved")
	var runs sync.Map
	w := c.Worker(millrace.Slots(8))
	job.Handle(w, func(_ context.Context, task *millrace.Task, n int) (int, error) {
		if _, again := runs.LoadOrStore(n, true); again {
			t.Errorf("task %d ran twice", n)
		}
		task.Effects().KV("moved").Put(fmt.Sprint(n), n, millrace.IfAbsent())
		return n, nil
	})
	run(t, w)
	ctx := bounded(t)
	made := 0
	work := func() {
		t.Helper()
		n := made
		made++
		h, err := job.Add(ctx, c, n)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := h.Wait(ctx); err != nil || got != n {
			info, late := c.Task(bounded(t), h.ID)
			t.Fatalf("got %d, %v, want %d over %s; the task is %+v, %v", got, err, n, c.Transport(), info, late)
		}
		if err := c.Commit(ctx, func(tx *millrace.Tx) { job.AddTx(tx, made) }); err != nil {
			t.Fatal(err)
		}
		made++
	}
	for c.Transport() != millrace.TransportREST {
		work()
	}
	p.passes.Store(true)
	for c.Transport() != millrace.TransportStream {
		work()
	}
	for range 20 {
		work()
	}
	for {
		stats, err := c.Queue("moved").Stats(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if stats.Created != uint64(made) {
			t.Fatalf("%d tasks were created, want %d", stats.Created, made)
		}
		if stats.Completed == uint64(made) {
			break
		}
	}
	for n := range made {
		if _, err := c.KV("moved").Get(ctx, fmt.Sprint(n)); err != nil {
			t.Errorf("the effect of task %d: %v", n, err)
		}
	}
}

// The task was claimed without a session, which the stream's session must not take for a lost lease.
func TestATaskThatWasClaimedOverRESTIsFinishedOverTheStream(t *testing.T) {
	t.Parallel()
	p := newProxy(t)
	c := p.dial()
	job := millrace.Job[int, int]("long").Lease(5 * time.Second) // a busy machine renews late
	began, gate := make(chan struct{}), make(chan struct{})
	var attempts atomic.Int32
	w := c.Worker(millrace.Slots(1))
	job.Handle(w, func(ctx context.Context, task *millrace.Task, n int) (int, error) {
		if n > 0 {
			return n, nil
		}
		attempts.Add(1)
		close(began)
		select {
		case <-gate:
		case <-ctx.Done():
			t.Errorf("the lease was lost: %v", context.Cause(ctx))
		}
		return n, nil
	})
	run(t, w)
	ctx := bounded(t)
	h, err := job.Add(ctx, c, 0)
	if err != nil {
		t.Fatal(err)
	}
	<-began
	p.passes.Store(true)
	for c.Transport() != millrace.TransportStream {
		if _, err := c.Queue("long").Stats(ctx); err != nil {
			t.Fatal(err)
		}
	}
	start, err := c.Task(ctx, h.ID)
	if err != nil {
		t.Fatal(err)
	}
	for until := start.LeaseUntil.Add(2 * time.Second); ; { // renewed over the stream by now
		info, err := c.Task(ctx, h.ID)
		if err != nil {
			t.Fatal(err)
		}
		if info.LeaseUntil.After(until) {
			break
		}
	}
	next, err := job.Add(ctx, c, 1)
	if err != nil {
		t.Fatal(err)
	}
	close(gate)
	if _, err := h.Wait(ctx); err != nil {
		t.Error(err)
	}
	if _, err := next.Wait(ctx); err != nil {
		t.Errorf("the slot was not given again: %v", err)
	}
	if n := attempts.Load(); n != 1 {
		t.Errorf("it was delivered %d times, want once", n)
	}
}
