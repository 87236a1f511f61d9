package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	millrace "github.com/millrace/millrace/sdk/go"
)

// working runs a worker until stop is called, which waits for its end.
func working(t *testing.T, w *millrace.Worker) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("worker: %v", err)
			}
		})
	}
	t.Cleanup(stop)
	return stop
}

// eventually wants done to become true, soon.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for late := time.Now().Add(30 * time.Second); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(late) {
			t.Fatalf("%s: not within 30s", what)
		}
	}
}

func TestTenThousandTasksAreEachDeliveredOnce(t *testing.T) {
	t.Parallel()
	l := startLocal(t, holder{"acme", "admin", ""})
	ctx := bounded(t, time.Minute)
	const n = 10_000
	var mu sync.Mutex
	delivered := map[string]int{}
	job := millrace.Job[string, string]("q")
	w := l.client(0).Worker(millrace.Slots(64))
	job.Handle(w, func(_ context.Context, task *millrace.Task, _ string) (string, error) {
		mu.Lock()
		defer mu.Unlock()
		delivered[task.ID]++
		return "", nil
	})
	stop := working(t, w)
	c := l.client(0)
	ids := addMany(t, ctx, c, "q", n)
	var last millrace.QueueStats
	eventually(t, "the end of all tasks", func() bool {
		var err error
		last, err = c.Queue("q").Stats(ctx)
		noErr(t, err)
		return last.Completed == n
	})
	stop()
	if last.Created != n || last.FailedTotal+last.CrashedTotal != 0 || len(delivered) != n {
		t.Errorf("counters %+v, %d tasks were delivered", last, len(delivered))
	}
	for _, id := range ids {
		if delivered[id] != 1 {
			t.Errorf("task %s was delivered %d times", id, delivered[id])
		}
	}
	l.audit()
}

func TestPayloadsResultsAndHeadersAreByteExact(t *testing.T) {
	t.Parallel()
	l := startLocal(t, holder{"acme", "admin", ""})
	ctx := bounded(t, time.Minute)
	c := l.client(0)
	big := make([]byte, 1<<20)
	for i := range big {
		big[i] = byte(rand.Uint32())
	}
	payloads := map[string][]byte{
		"1 MiB": big, "empty": {}, "NUL": {0, 0xff, 0}, "numbers": []byte(`{"z":9007199254740993,"a":18446744073709551615,"e":1e400}`),
		"spaces": []byte("{ \"b\" :1,\n\"a\": 2 }"),
	}
	job := millrace.Job[[]byte, []byte]("bytes")
	w := c.Worker()
	job.Handle(w, func(_ context.Context, task *millrace.Task, b []byte) ([]byte, error) {
		if task.Headers["k"] != "väl=ue" {
			return nil, millrace.Fatal(fmt.Errorf("headers are %v", task.Headers))
		}
		return b, nil
	})
	working(t, w)
	for name, p := range payloads {
		h, err := job.Add(ctx, c, p, millrace.Header("k", "väl=ue"))
		noErr(t, err)
		back, err := h.Wait(ctx)
		noErr(t, err)
		info, err := h.Get(ctx)
		noErr(t, err)
		want := sha256.Sum256(p)
		if got := sha256.Sum256(back); got != want {
			t.Errorf("%s: the result is %s, %d bytes", name, hex.EncodeToString(got[:4]), len(back))
		}
		if got := sha256.Sum256(info.Payload); got != want {
			t.Errorf("%s: the payload is %s, %d bytes", name, hex.EncodeToString(got[:4]), len(info.Payload))
		}
	}
	_, err := job.Add(ctx, c, make([]byte, 1<<20+1))
	if e, ok := errors.AsType[*millrace.Error](err); !ok || e.Limit != "payload_bytes" {
		t.Errorf("a byte more: %v", err)
	}
}

// It runs by itself: the heap that it looks at is that of all tests.
func TestRandomNamesLeaveNothingBehind(t *testing.T) {
	onlyInCheck(t, "it claims from 10,000 queues")
	l := startLocal(t, holder{"acme", "admin", ""})
	c := l.client(0)
	ctx := bounded(t, time.Minute)
	round := func(n int) {
		var all sync.WaitGroup
		for range 16 {
			all.Go(func() {
				for range n / 16 {
					name := fmt.Sprintf("random-%x", rand.Uint64())
					if got, err := c.Claim(ctx, millrace.ClaimQuery{Queues: []string{name}, Wait: time.Millisecond}); err != nil || len(got) > 0 {
						t.Errorf("claim of %s: %v, err %v", name, got, err)
					}
					if _, err := c.Task(ctx, millrace.NewID()); !errors.Is(err, millrace.ErrNotFound) {
						t.Errorf("a random id: %v", err)
					}
					if _, err := c.Wait(ctx, millrace.NewID()); !errors.Is(err, millrace.ErrNotFound) {
						t.Errorf("a wait for a random id: %v", err)
					}
				}
			})
		}
		all.Wait()
	}
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	round(1000) // what is made once is made now
	before, goroutines := heap(), runtime.NumGoroutine()
	round(10_000)
	if grown := heap() - before; grown > 4<<20 {
		t.Errorf("the heap grew by %d bytes", grown)
	}
	eventually(t, "the end of what waited", func() bool { return runtime.NumGoroutine() <= goroutines+16 })
	if list, _, err := c.Queues(ctx, 10, ""); err != nil || len(list) > 0 {
		t.Errorf("queues %v, err %v", list, err)
	}
	l.audit()
}

func TestAsManyAttemptsAsAreAllowedAndEachAtOnce(t *testing.T) {
	t.Parallel()
	l := startLocal(t, holder{"acme", "admin", ""})
	ctx := bounded(t, time.Minute)
	c := l.client(0)
	for _, n := range []int{1, 2, 7} {
		var deliveries atomic.Int32
		job := millrace.Job[string, string](fmt.Sprint("fail", n)).Attempts(n)
		w := c.Worker()
		job.Handle(w, func(context.Context, *millrace.Task, string) (string, error) {
			deliveries.Add(1)
			return "", millrace.RetryIn(0, errors.New("no luck")) // the default would be seconds
		})
		stop := working(t, w)
		h, err := job.Add(ctx, c, "x")
		noErr(t, err)
		var end *millrace.TaskError
		if _, err = h.Wait(ctx); !errors.As(err, &end) || end.Reason != "max_attempts" || end.Message != "no luck" {
			t.Errorf("%d attempts end with %v", n, err)
		}
		stop()
		info, err := h.Get(ctx)
		noErr(t, err)
		if int(deliveries.Load()) != n || info.Failures != n || info.Attempt != n || info.Crashes != 0 {
			t.Errorf("%d attempts: %d deliveries, %d failures, %d crashes", n, deliveries.Load(), info.Failures, info.Crashes)
		}
	}
	l.audit()
}

func TestStrictPriorityIsNeverInverted(t *testing.T) {
	t.Parallel()
	l := startLocal(t, holder{"acme", "admin", ""})
	ctx := bounded(t, time.Minute)
	c := l.client(0)
	var strict time.Duration
	_, err := c.Queue("p").Set(ctx, millrace.QueueConfig{Aging: &strict})
	noErr(t, err)
	job := millrace.Job[int, string]("p")
	const n = 300
	for i := range n {
		_, err := job.Add(ctx, c, i, millrace.Priority(rand.IntN(10)))
		noErr(t, err)
	}
	lastPriority, lastIndex, seen := 9, -1, 0
	for seen < n {
		got, err := c.Claim(ctx, millrace.ClaimQuery{Queues: []string{"p"}, Max: 1 + rand.IntN(20)})
		noErr(t, err)
		if len(got) == 0 {
			t.Fatalf("only %d of %d tasks", seen, n)
		}
		for _, task := range got {
			info, err := c.Task(ctx, task.ID)
			noErr(t, err)
			var i int
			fmt.Sscan(string(task.Payload), &i)
			if info.Priority > lastPriority || info.Priority == lastPriority && i < lastIndex {
				t.Errorf("priority %d (task %d) after %d (task %d)", info.Priority, i, lastPriority, lastIndex)
			}
			lastPriority, lastIndex = info.Priority, i
			seen++
		}
	}
}

func TestOneUniqueKeyIsOneTaskPerTenantAlsoAfterARestart(t *testing.T) {
	t.Parallel()
	l := startLocal(t, holder{"acme", "admin", ""}, holder{"rival", "admin", ""})
	ctx := bounded(t, time.Minute)
	job := millrace.Job[string, string]("u")
	var mu sync.Mutex
	ids := [2]map[string]int{{}, {}}
	race := func() {
		var all sync.WaitGroup
		for tenant := range 2 {
			for i := range 64 {
				c := l.client(tenant)
				all.Go(func() {
					h, err := job.Add(ctx, c, fmt.Sprintf("tenant %d", tenant), millrace.UniqueKey("order-7", time.Hour))
					if err != nil {
						t.Errorf("tenant %d client %d: %v", tenant, i, err)
						return
					}
					mu.Lock()
					defer mu.Unlock()
					ids[tenant][h.ID]++
				})
			}
		}
		all.Wait()
	}
	race()
	l.stop()
	l.start()
	race()
	for tenant := range 2 {
		if len(ids[tenant]) != 1 {
			t.Fatalf("tenant %d has tasks %v", tenant, ids[tenant])
		}
		c := l.client(tenant)
		handles, err := job.AddMany(ctx, c, []string{"a", "b", "c"}, millrace.UniqueKey("order-8", 0))
		noErr(t, err)
		if handles[0].ID != handles[1].ID || handles[1].ID != handles[2].ID {
			t.Errorf("one batch made %s, %s, %s", handles[0].ID, handles[1].ID, handles[2].ID)
		}
		for id := range ids[tenant] {
			info, err := c.Task(ctx, id)
			noErr(t, err)
			if want := fmt.Sprintf("tenant %d", tenant); string(info.Payload) != want {
				t.Errorf("tenant %d reads payload %q", tenant, info.Payload)
			}
		}
		if _, err := job.Add(ctx, c, "x", millrace.UniqueKey("order-7", time.Hour), millrace.UniqueReject()); !errors.Is(err, millrace.ErrAlreadyExists) {
			t.Errorf("with reject: %v", err)
		}
		s, err := c.Queue("u").Stats(ctx)
		noErr(t, err)
		if s.Created != 2 || s.Ready != 2 {
			t.Errorf("counters of tenant %d: %+v", tenant, s)
		}
	}
	l.audit()
}

// TestAGrantThatNobodyReceivedIsGivenAgain cuts a stream while tasks are on their way to it.
func TestAGrantThatNobodyReceivedIsGivenAgain(t *testing.T) {
	t.Parallel()
	l := startLocal(t, holder{"acme", "admin", ""})
	ctx := bounded(t, time.Minute)
	c := l.client(0)
	subscribe := func(s *stream, session byte) {
		s.hello(session)
		s.send(&millracev1.ClientFrame{Frame: &millracev1.ClientFrame_Subscribe{Subscribe: &millracev1.Subscribe{
			Sub: 1, Slots: 1, Queues: []*millracev1.QueueWeight{{Name: "q"}},
		}}})
	}
	for i := range 40 {
		h, err := millrace.Job[int, string]("q").Add(ctx, c, i)
		noErr(t, err)
		first := l.raw(0).openStream(t) // on a connection of its own, as every worker has
		subscribe(first, byte(i+1))
		if i%4 != 0 { // cut at once, or a little later, or when its frame is on the way
			time.Sleep(time.Duration(i%4) * 400 * time.Microsecond)
		}
		first.close()
		again := l.raw(0).openStream(t)
		subscribe(again, byte(i+1)) // which says that it holds nothing
		var token uint64
		for token == 0 {
			f, a := again.next()
			if f == nil && a.status == 14 { // the first one's hello came last: a client opens another stream
				again.close()
				again = l.raw(0).openStream(t)
				subscribe(again, byte(i+1))
				continue
			}
			if f == nil {
				t.Fatalf("the stream ended: %d %s", a.status, a.message)
			}
			for _, task := range f.GetAssign().GetTasks() {
				if task.Id == h.ID {
					token = task.Token
				}
			}
		}
		if _, err := c.Complete(ctx, h.ID, token, "ok"); err != nil {
			t.Errorf("complete: %v", err)
		}
		again.close()
		info, err := h.Get(ctx)
		noErr(t, err)
		if info.Crashes != 0 || info.Failures != 0 || info.State != millrace.Completed {
			t.Errorf("task %d: %d crashes, %d failures, %s", i, info.Crashes, info.Failures, info.State)
		}
	}
	l.audit()
}

func TestWorkersStoppedUnderLoadLoseAndDoubleNothing(t *testing.T) {
	t.Parallel()
	l := startLocal(t, holder{"acme", "admin", ""})
	ctx := bounded(t, time.Minute)
	c := l.client(0)
	const n = 2000
	ids := addMany(t, ctx, c, "q", n)
	var mu sync.Mutex
	finished := map[string]int{}
	job := millrace.Job[string, string]("q")
	for stops := 0; ; stops++ {
		w := c.Worker(millrace.Slots(16), millrace.DrainTimeout(20*time.Millisecond))
		job.Handle(w, func(hctx context.Context, task *millrace.Task, _ string) (string, error) {
			select {
			case <-time.After(time.Duration(rand.IntN(40)) * time.Millisecond):
			case <-hctx.Done(): // given back
				return "", hctx.Err()
			}
			task.Effects().KV("done").Put(task.ID, "1")
			mu.Lock()
			defer mu.Unlock()
			finished[task.ID]++
			return "ok", nil
		})
		stop := working(t, w)
		if stops < 20 {
			time.Sleep(50 * time.Millisecond)
			stop()
			continue
		}
		eventually(t, "the end of all tasks", func() bool {
			s, err := c.Queue("q").Stats(ctx)
			noErr(t, err)
			return s.Completed == n
		})
		stop()
		break
	}
	for _, id := range ids {
		info, err := c.Task(ctx, id)
		noErr(t, err)
		if info.Failures != 0 || info.Crashes != 0 || finished[id] < 1 {
			t.Errorf("task %s: %d failures, %d crashes, finished %d times", id, info.Failures, info.Crashes, finished[id])
		}
		if _, err := c.KV("done").Get(ctx, id); err != nil {
			t.Errorf("effect of %s: %v", id, err)
		}
	}
	l.audit()
}

func TestWaitersAreWokenByTheEndAndAcrossARestart(t *testing.T) {
	t.Parallel()
	s, c := serve(t)
	ctx := bounded(t, time.Minute)
	job := millrace.Job[string, string]("w")
	h, err := job.Add(ctx, c, "x")
	noErr(t, err)
	woken := make(chan string, 32)
	for range 32 {
		go func() {
			v, err := h.Wait(ctx)
			woken <- fmt.Sprint(v, err)
		}()
	}
	held, err := c.Claim(ctx, millrace.ClaimQuery{Queues: []string{"w"}})
	noErr(t, err)
	s.Kill()
	if _, err := s.Start(ctx); err != nil {
		t.Fatalf("%v\n%s", err, logOf(s))
	}
	_, err = c.Complete(ctx, h.ID, held[0].Token, "done") // the lease outlived the server
	noErr(t, err)
	for range 32 {
		if got := <-woken; got != "done<nil>" {
			t.Errorf("a waiter got %q", got)
		}
	}
}

func TestWhatWasRemovedAtItsEndIsStillRecognized(t *testing.T) {
	t.Parallel()
	l := startLocal(t, holder{"acme", "admin", ""})
	ctx := bounded(t, time.Minute)
	c := l.client(0)
	var none time.Duration
	_, err := c.Queue("r").Set(ctx, millrace.QueueConfig{RetainCompleted: &none})
	noErr(t, err)
	job := millrace.Job[string, string]("r")
	id := millrace.NewID()
	_, err = job.Add(ctx, c, "x", millrace.ID(id))
	noErr(t, err)
	held, err := c.Claim(ctx, millrace.ClaimQuery{Queues: []string{"r"}, Lease: time.Minute})
	noErr(t, err)
	settle := &millracev1.SettleItem{
		Id: id, Token: held[0].Token, Outcome: &millracev1.SettleItem_Complete{Complete: &millracev1.Complete{}},
		Effects: &millracev1.Effects{Ops: []*millracev1.Op{{Op: &millracev1.Op_TaskCreate{TaskCreate: &millracev1.TaskSpec{Queue: "next", Delay: durationpb.New(time.Hour)}}}}},
	}
	for i := range 6 {
		if i == 3 {
			l.stop()
			l.start()
			c = l.client(0)
		}
		out := must(t, l.raw(0), "TaskService/Settle", &millracev1.SettleRequest{Items: []*millracev1.SettleItem{settle}}, &millracev1.SettleResponse{})
		if r := out.Results[0]; r.Error != nil || r.Replayed != (i > 0) {
			t.Errorf("settle %d: %v", i, r)
		}
		h, err := job.Add(ctx, c, "x", millrace.ID(id))
		if err != nil || !h.Replayed {
			t.Errorf("create %d: %+v, err %v", i, h, err)
		}
		if _, err := job.Add(ctx, c, "other", millrace.ID(id)); !errors.Is(err, millrace.ErrAlreadyExists) {
			t.Errorf("create %d with other content: %v", i, err)
		}
	}
	if _, err := c.Task(ctx, id); !errors.Is(err, millrace.ErrNotFound) {
		t.Errorf("a task that is to be removed at its end: %v", err)
	}
	s, err := c.Queue("r").Stats(ctx)
	noErr(t, err)
	next, err := c.Queue("next").Stats(ctx)
	noErr(t, err)
	if s.Created != 1 || s.Purged != 1 || next.Created != 1 {
		t.Errorf("counters %+v; of its effect %+v", s, next)
	}
	l.audit()
}
