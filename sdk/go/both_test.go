package millrace_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	millrace "github.com/millrace/millrace/sdk/go"
)

// eachTransport runs a test by each transport, in namespaces of their own.
func eachTransport(t *testing.T, test func(t *testing.T, opts ...millrace.Option)) {
	for _, m := range []millrace.TransportMode{millrace.TransportStream, millrace.TransportREST} {
		t.Run(m.String(), func(t *testing.T) {
			test(t, millrace.Transport(m), millrace.RESTAddress(restAddress()), millrace.Namespace("by-"+m.String()+"-"+millrace.NewID()))
		})
	}
}

// restAddress is where the server of the tests has its REST.
func restAddress() string { return os.Getenv("MILLRACE_REST_URL") }

func TestPayloadsAndResultsAreTheSameBytesByEachTransport(t *testing.T) {
	type content struct {
		body any
		want []byte
	}
	big := bytes.Repeat([]byte{0, 1, 254, 255}, 1<<18)
	contents := []content{
		{json.RawMessage(`null`), []byte(`null`)},
		{json.RawMessage(` {"b": 1,  "a":9007199254740993, "a":[1.10,-0,1E5], "e":"\u00e9\/"} `), []byte(` {"b": 1,  "a":9007199254740993, "a":[1.10,-0,1E5], "e":"\u00e9\/"} `)},
		{json.RawMessage(`"\ud800"`), []byte(`"\ud800"`)},
		{json.RawMessage(`not JSON`), []byte(`not JSON`)},
		{json.RawMessage(strings.Repeat("[", 80) + strings.Repeat("]", 80)), []byte(strings.Repeat("[", 80) + strings.Repeat("]", 80))},
		{[]byte{}, []byte{}},
		{[]byte("\x00\xff\xfe"), []byte("\x00\xff\xfe")},
		{"text \x00 \xff", []byte("text \x00 \xff")},
		{big, big},
	}
	eachTransport(t, func(t *testing.T, opts ...millrace.Option) {
		c := dial(t, opts...)
		reader := dial(t, append(opts, millrace.Transport(millrace.TransportStream))...)
		job := millrace.Job[any, any]("bytes")
		w := c.Worker(millrace.Queues("bytes"))
		seen := make(chan []byte, 1)
		w.HandleRaw("bytes", func(_ context.Context, task *millrace.Task) ([]byte, error) {
			seen <- task.Payload
			return task.Payload, nil
		})
		run(t, w)
		ctx := bounded(t)
		for _, x := range contents {
			h, err := job.Add(ctx, c, x.body)
			if err != nil {
				t.Fatal(err)
			}
			if got := <-seen; !bytes.Equal(got, x.want) {
				t.Errorf("the worker got %.60q, want %.60q", got, x.want)
			}
			for name, client := range map[string]*millrace.Client{"writer": c, "stream": reader} {
				info, err := client.Wait(ctx, h.ID)
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(info.Payload, x.want) || !bytes.Equal(info.Result, x.want) || !info.HasResult {
					t.Errorf("%s read payload %.60q and result %.60q, want %.60q", name, info.Payload, info.Result, x.want)
				}
			}
		}
	})
}

func TestALeaseShorterThanItsHandlerIsRenewedByEachTransport(t *testing.T) {
	t.Parallel()
	eachTransport(t, func(t *testing.T, opts ...millrace.Option) {
		c := dial(t, opts...)
		job := millrace.Job[int, int]("renewed").Lease(time.Second)
		w := c.Worker()
		job.Handle(w, func(ctx context.Context, task *millrace.Task, n int) (int, error) {
			start, err := c.Task(ctx, task.ID)
			if err != nil {
				return 0, err
			}
			for {
				info, err := c.Task(ctx, task.ID)
				if err != nil {
					return 0, err
				}
				if info.LeaseUntil.Sub(start.LeaseUntil) > 2*time.Second {
					return task.Attempt, nil
				}
			}
		})
		run(t, w)
		ctx := bounded(t)
		h, err := job.Add(ctx, c, 1)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := h.Wait(ctx); err != nil || got != 1 {
			t.Errorf("attempt %d ended, %v, want the first", got, err)
		}
	})
}

func TestALeaseThatTheServerEndsEndsTheHandlerByEachTransport(t *testing.T) {
	t.Parallel()
	eachTransport(t, func(t *testing.T, opts ...millrace.Option) {
		c := dial(t, append(opts, millrace.Logger(quiet()))...)
		job := millrace.Job[int, int]("timed").Lease(time.Second).MaxRun(time.Second).Attempts(1)
		causes := make(chan error, 1)
		w := c.Worker()
		job.Handle(w, func(ctx context.Context, task *millrace.Task, n int) (int, error) {
			task.Effects().KV("timed").Put("late", "yes")
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return n, nil
		})
		run(t, w)
		ctx := bounded(t)
		h, err := job.Add(ctx, c, 1)
		if err != nil {
			t.Fatal(err)
		}
		var dead *millrace.TaskError
		if _, err := h.Wait(ctx); !errors.As(err, &dead) || dead.State != millrace.Dead {
			t.Errorf("got %v, want a dead task", err)
		}
		if err := <-causes; !errors.Is(err, millrace.ErrLeaseLost) {
			t.Errorf("the handler ended by %v, want ErrLeaseLost", err)
		}
		if _, err := c.KV("timed").Get(ctx, "late"); !errors.Is(err, millrace.ErrNotFound) {
			t.Errorf("got %v, want no effect of a lost lease", err)
		}
	})
}

func TestAWorkerDrainsByEachTransport(t *testing.T) {
	eachTransport(t, func(t *testing.T, opts ...millrace.Option) {
		c := dial(t, opts...)
		job := millrace.Job[int, int]("drained")
		began, gate := make(chan struct{}, 8), make(chan struct{})
		w := c.Worker(millrace.Slots(2))
		job.Handle(w, func(_ context.Context, _ *millrace.Task, n int) (int, error) {
			began <- struct{}{}
			<-gate
			return n, nil
		})
		ctx := bounded(t)
		if _, err := job.AddMany(ctx, c, make([]int, 5)); err != nil {
			t.Fatal(err)
		}
		stopping, stop := context.WithCancel(ctx)
		out := make(chan error, 1)
		go func() { out <- w.Run(stopping) }()
		<-began
		<-began
		stop()
		close(gate)
		if err := <-out; err != nil {
			t.Fatal(err)
		}
		stats, err := c.Queue("drained").Stats(ctx)
		if err != nil || stats.Running != 0 || stats.Completed != 2 || stats.Ready != 3 {
			t.Errorf("got %+v, %v, want 2 completed, 3 ready and none running", stats, err)
		}
	})
}

func TestBatchesAreHandledByEachTransport(t *testing.T) {
	eachTransport(t, func(t *testing.T, opts ...millrace.Option) {
		c := dial(t, opts...)
		const tasks = 100
		job := millrace.Job[[]byte, []byte]("batched")
		w := c.Worker(millrace.Slots(32))
		w.HandleBatch("batched", 10, func(_ context.Context, tasks []*millrace.Task) (results [][]byte, errs []error) {
			for _, task := range tasks {
				task.Effects().KV("batched").Put(task.ID, task.Payload, millrace.IfAbsent())
				results = append(results, task.Payload)
			}
			return results, nil
		})
		run(t, w)
		ctx := bounded(t)
		args := make([][]byte, tasks)
		for i := range args {
			args[i] = []byte{byte(i)}
		}
		hs, err := job.AddAll(ctx, c, args)
		if err != nil {
			t.Fatal(err)
		}
		for i, h := range hs {
			got, err := h.Wait(ctx)
			if err != nil || !bytes.Equal(got, args[i]) {
				t.Fatalf("task %d: got %v, %v", i, got, err)
			}
			if v, err := c.KV("batched").Get(ctx, h.ID); err != nil || !bytes.Equal(v.Bytes, args[i]) {
				t.Fatalf("effect %d: got %v, %v", i, v.Bytes, err)
			}
		}
	})
}

func TestOneCallAtATimeByEachTransport(t *testing.T) {
	eachTransport(t, func(t *testing.T, opts ...millrace.Option) {
		c := dial(t, opts...)
		ctx := bounded(t)
		if s, err := c.Status(ctx); err != nil || s.Durability == "" || s.StartedAt.IsZero() || s.Fsyncs == 0 {
			t.Errorf("got status %+v, %v", s, err)
		}
		zero := time.Duration(0)
		q := c.Queue("calls")
		if _, err := q.Set(ctx, millrace.QueueConfig{Lease: 5 * time.Second, RetainDead: &zero}); err != nil {
			t.Fatal(err)
		}
		config, err := q.Get(ctx)
		if err != nil || config.Lease != 5*time.Second || config.RetainDead == nil || *config.RetainDead != 0 || config.Aging != nil {
			t.Errorf("got %+v, %v", config, err)
		}
		if _, err := q.Set(ctx, millrace.QueueConfig{Version: config.Version + 1}); !errors.Is(err, millrace.ErrPrecondition) {
			t.Errorf("got %v for another version, want ErrPrecondition", err)
		}
		job := millrace.Job[string, string]("calls")
		for _, s := range []string{"a", "b"} {
			if _, err := job.Add(ctx, c, s, millrace.Header("h", "v")); err != nil {
				t.Fatal(err)
			}
		}
		got, err := c.Claim(ctx, millrace.ClaimQuery{Queues: []string{"calls"}, Max: 2, Wait: time.Minute, Worker: "one"})
		if err != nil || len(got) != 2 || string(got[0].Payload) != "a" || got[0].Headers["h"] != "v" || got[0].Attempt != 1 {
			t.Fatalf("got %+v, %v, want both tasks", got, err)
		}
		if state, err := c.Complete(ctx, got[0].ID, got[0].Token, "done"); err != nil || state != millrace.Completed {
			t.Errorf("got %v, %v", state, err)
		}
		if _, err := c.Complete(ctx, got[0].ID, got[0].Token+7, "again"); !errors.Is(err, millrace.ErrLeaseLost) {
			t.Errorf("got %v for a stale token, want ErrLeaseLost", err)
		}
		if state, err := c.Fail(ctx, got[1].ID, got[1].Token, millrace.Failure{Code: "e", Message: "NUL \x00", RetryAfter: &zero}); err != nil || state != millrace.Ready {
			t.Errorf("got %v, %v", state, err)
		}
		attempts, err := c.Attempts(ctx, got[1].ID)
		if err != nil || len(attempts) != 1 || attempts[0].Outcome != "failed" || attempts[0].Worker != "one" || attempts[0].Code != "e" {
			t.Errorf("got %+v, %v", attempts, err)
		}
		list, _, err := c.List(ctx, millrace.ListQuery{Queue: "calls", State: millrace.Completed})
		if err != nil || len(list) != 1 || list[0].ID != got[0].ID {
			t.Errorf("got %+v, %v", list, err)
		}
		if queues, _, err := c.Queues(ctx, 10, ""); err != nil || len(queues) == 0 {
			t.Errorf("got %+v, %v", queues, err)
		}
		if err := c.Delete(ctx, got[0].ID); err != nil {
			t.Error(err)
		}
		if _, err := c.Task(ctx, got[0].ID); !errors.Is(err, millrace.ErrNotFound) {
			t.Errorf("got %v, want ErrNotFound", err)
		}
		h, err := job.Add(ctx, c, "later", millrace.In(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.RunNow(ctx, h.ID); err != nil {
			t.Error(err)
		}
		if info, err := h.Get(ctx); err != nil || info.State != millrace.Ready {
			t.Errorf("got %+v, %v", info, err)
		}
	})
}
