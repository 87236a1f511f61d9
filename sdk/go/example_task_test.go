package millrace_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	millrace "github.com/millrace/millrace/sdk/go"
)

// start runs w until the function that it returns is called, which waits for the worker to drain.
func start(w *millrace.Worker) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			log.Panic(err)
		}
	}
}

// What holds for all tasks of a kind is set once, on the job. What holds for one task is an option of Add.
func ExampleJobOf_Add_options() {
	ctx := context.Background()
	c := must(millrace.Dial(ctx))
	defer func() { _ = c.Close() }()
	report := millrace.Job[string, string]("report").Queue("reports").Attempts(8).Lease(2 * time.Minute)

	h := must(report.Add(ctx, c, "march", millrace.Priority(9), millrace.Header("trace", "4bf92f"), millrace.In(time.Hour)))
	task := must(h.Get(ctx))
	fmt.Println(task.Queue, task.Kind, task.State, task.Priority, task.MaxAttempts, task.Lease, task.Headers["trace"])
	// Output: reports report scheduled 9 8 2m0s 4bf92f
}

// Each setter of a job returns a copy: the job that it is called on stays as it is.
func ExampleJobOf_Queue() {
	ctx := context.Background()
	c := must(millrace.Dial(ctx))
	defer func() { _ = c.Close() }()
	thumb := millrace.Job[string, string]("copy.thumb").Queue("copy.images")
	urgent := thumb.Queue("copy.urgent").Priority(9)

	a, b := must(thumb.Add(ctx, c, "a.png")), must(urgent.Add(ctx, c, "b.png"))
	fmt.Println(must(a.Get(ctx)).Queue, must(b.Get(ctx)).Queue)
	// Output: copy.images copy.urgent
}

// The same id may be added again, also by another process: the task is there once. Other content under the id is refused.
func ExampleID() {
	ctx := context.Background()
	c := must(millrace.Dial(ctx))
	defer func() { _ = c.Close() }()
	charge := millrace.Job[int, string]("charge")
	id := must(c.NewID(ctx)) // store it with the order, before the first try

	first := must(charge.Add(ctx, c, 100, millrace.ID(id)))
	again := must(charge.Add(ctx, c, 100, millrace.ID(id)))
	fmt.Println(first.ID == again.ID, first.Replayed, again.Replayed)

	_, err := charge.Add(ctx, c, 999, millrace.ID(id))
	fmt.Println(errors.Is(err, millrace.ErrAlreadyExists))
	// Output:
	// true false true
	// true
}

// A task may be made ready later: after a time (In), or at one (At). RunNow makes it ready at once.
func ExampleIn() {
	ctx := context.Background()
	c := must(millrace.Dial(ctx))
	defer func() { _ = c.Close() }()
	remind := millrace.Job[string, string]("remind")

	h := must(remind.Add(ctx, c, "call back", millrace.In(24*time.Hour)))
	fmt.Println(must(h.Get(ctx)).State)
	if err := c.RunNow(ctx, h.ID); err != nil {
		log.Panic(err)
	}
	fmt.Println(must(h.Get(ctx)).State)
	// Output:
	// scheduled
	// ready
}

// AddMany adds each task by itself: some may be refused, and the error says which.
func ExampleJobOf_AddMany() {
	ctx := context.Background()
	c := must(millrace.Dial(ctx))
	defer func() { _ = c.Close() }()
	send := millrace.Job[[]byte, string]("send.many")

	handles, err := send.AddMany(ctx, c, [][]byte{[]byte("small"), make([]byte, 2<<20), []byte("small too")})
	var batch *millrace.BatchError
	if errors.As(err, &batch) {
		for i, err := range batch.Errors {
			fmt.Println(i, handles[i] != nil, errors.Is(err, millrace.ErrTooLarge))
		}
	}
	// Output:
	// 0 true false
	// 1 false true
	// 2 true false
}

// AddAll adds all tasks or none.
func ExampleJobOf_AddAll() {
	ctx := context.Background()
	c := must(millrace.Dial(ctx))
	defer func() { _ = c.Close() }()
	part := millrace.Job[int, string]("part")

	handles := must(part.AddAll(ctx, c, []int{1, 2, 3}))
	fmt.Println(len(handles), must(c.Queue("part").Stats(ctx)).Ready)
	// Output: 3 3
}

// A task that follows is an effect: it exists exactly when the task before it has completed.
func ExampleJobOf_AddTx() {
	ctx := context.Background()
	c := must(millrace.Dial(ctx))
	defer func() { _ = c.Close() }()
	pack := millrace.Job[string, string]("pack")
	label := millrace.Job[string, string]("label")
	w := c.Worker()
	pack.Handle(w, func(_ context.Context, t *millrace.Task, item string) (string, error) {
		next := label.AddTx(t.Effects(), item)
		return next.ID, nil // known before the commit
	})
	label.Handle(w, func(_ context.Context, _ *millrace.Task, item string) (string, error) { return "label of " + item, nil })
	defer start(w)()

	id := must(must(pack.Add(ctx, c, "a kite")).Wait(ctx))
	fmt.Println(must(label.Of(c, id).Wait(ctx)))
	// Output: label of a kite
}

// A process that knows the id of a task reads its result, or what became of it.
func ExampleJobOf_Of() {
	ctx := context.Background()
	c := must(millrace.Dial(ctx))
	defer func() { _ = c.Close() }()
	square := millrace.Job[int, int]("square")
	w := c.Worker()
	square.Handle(w, func(_ context.Context, _ *millrace.Task, n int) (int, error) { return n * n, nil })
	defer start(w)()
	id := must(square.Add(ctx, c, 7)).ID

	h := square.Of(c, id) // in another process
	fmt.Println(must(h.Wait(ctx)), must(h.Get(ctx)).State)
	// Output: 49 completed
}

// An attempt that fails is made again after a wait, as the job's policy says, or as the handler says with RetryIn.
func ExampleRetryIn() {
	ctx := context.Background()
	c := must(millrace.Dial(ctx))
	defer func() { _ = c.Close() }()
	fetch := millrace.Job[string, string]("fetch").Attempts(5).
		Retry(millrace.RetryPolicy{Backoff: millrace.FullJitter, Base: 10 * time.Second, Max: time.Minute})
	w := c.Worker()
	fetch.Handle(w, func(_ context.Context, t *millrace.Task, url string) (string, error) {
		if t.Attempt < 3 {
			return "", millrace.RetryIn(0, errors.New("the site is busy")) // at once, instead of as the policy says
		}
		return "fetched " + url, nil
	})
	defer start(w)()

	h := must(fetch.Add(ctx, c, "example.org"))
	fmt.Println(must(h.Wait(ctx)))
	for _, a := range must(c.Attempts(ctx, h.ID)) {
		fmt.Println(a.Number, a.Outcome, a.Message)
	}
	// Output:
	// fetched example.org
	// 1 failed the site is busy
	// 2 failed the site is busy
	// 3 completed
}

// A handler that must wait for something else puts its task off. That counts neither as a failure nor as a crash.
func ExampleSnooze() {
	ctx := context.Background()
	c := must(millrace.Dial(ctx))
	defer func() { _ = c.Close() }()
	poll := millrace.Job[string, string]("poll")
	w := c.Worker()
	poll.Handle(w, func(_ context.Context, t *millrace.Task, _ string) (string, error) {
		if t.Attempt == 1 {
			return "", millrace.Snooze(time.Millisecond)
		}
		return fmt.Sprintf("done, with %d failures", t.Failures), nil
	})
	defer start(w)()

	fmt.Println(must(must(poll.Add(ctx, c, "job 7")).Wait(ctx)))
	// Output: done, with 0 failures
}

// A worker that cannot serve a task gives it back: another one gets it at once, at its old place.
func ExampleRelease() {
	ctx := context.Background()
	c := must(millrace.Dial(ctx))
	defer func() { _ = c.Close() }()
	render := millrace.Job[string, string]("render")
	w := c.Worker(millrace.Slots(1))
	hasGPU := false
	render.Handle(w, func(_ context.Context, t *millrace.Task, scene string) (string, error) {
		if !hasGPU {
			hasGPU = true
			return "", millrace.Release()
		}
		return fmt.Sprintf("%s, delivery %d, %d failures", scene, t.Attempt, t.Failures), nil
	})
	defer start(w)()

	fmt.Println(must(must(render.Add(ctx, c, "scene 1")).Wait(ctx)))
	// Output: scene 1, delivery 2, 0 failures
}

// A lease may be short although handlers take long: the worker renews it while the handler runs. A worker that dies loses its
// tasks after one lease. The progress of a long task is a key, written under the lease.
func ExampleJobOf_Lease() {
	ctx := context.Background()
	c := must(millrace.Dial(ctx))
	defer func() { _ = c.Close() }()
	encode := millrace.Job[string, string]("encode").Lease(time.Second)
	w := c.Worker()
	encode.Handle(w, func(ctx context.Context, t *millrace.Task, name string) (string, error) {
		for percent := 0; percent < 100; percent += 50 {
			select {
			case <-time.After(600 * time.Millisecond): // the work
			case <-ctx.Done(): // the lease is lost, the task is cancelled, or the worker stops
				return "", context.Cause(ctx)
			}
			err := c.Commit(ctx, func(tx *millrace.Tx) {
				tx.Fence(t)
				tx.KV("progress").Put(name, percent+50)
			})
			if err != nil {
				return "", err
			}
		}
		return "encoded", nil
	})
	defer start(w)()

	h := must(encode.Add(ctx, c, "film"))
	fmt.Println(must(h.Wait(ctx)), must(c.KV("progress").Get(ctx, "film")), must(h.Get(ctx)).Attempt)
	// Output: encoded 100 1
}

// Handlers of bytes may take many tasks in one call, such as for one insert of many rows.
func ExampleWorker_HandleBatch() {
	ctx := context.Background()
	c := must(millrace.Dial(ctx))
	defer func() { _ = c.Close() }()
	rows := millrace.Job[string, string]("rows")
	w := c.Worker(millrace.Slots(8))
	w.HandleBatch("rows", 8, func(_ context.Context, tasks []*millrace.Task) (results [][]byte, errs []error) {
		for _, t := range tasks {
			if len(t.Payload) == 0 {
				results, errs = append(results, nil), append(errs, millrace.Fatal(errors.New("an empty row")))
				continue
			}
			results, errs = append(results, []byte("stored "+string(t.Payload))), append(errs, nil)
		}
		return results, errs
	})
	defer start(w)()

	handles := must(rows.AddMany(ctx, c, []string{"a", "", "b"}))
	for _, h := range handles {
		result, err := h.Wait(ctx)
		var dead *millrace.TaskError
		fmt.Println(result, errors.As(err, &dead))
	}
	// Output:
	// stored a false
	//  true
	// stored b false
}

// A caller that keeps no stream claims tasks one call at a time, and settles each under its token.
func ExampleClient_Claim() {
	ctx := context.Background()
	c := must(millrace.Dial(ctx))
	defer func() { _ = c.Close() }()
	must(millrace.Job[string, string]("claimed").Add(ctx, c, "by hand"))

	tasks := must(c.Claim(ctx, millrace.ClaimQuery{Queues: []string{"claimed"}, Lease: time.Minute, Wait: 10 * time.Second}))
	for _, t := range tasks {
		fmt.Println(string(t.Payload), must(c.Complete(ctx, t.ID, t.Token, "done")))
	}
	// Output: by hand completed
}
