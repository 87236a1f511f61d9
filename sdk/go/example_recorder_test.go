package millrace_test

import (
	"context"
	"fmt"

	millrace "github.com/millrace/millrace/sdk/go"
)

// Code that adds tasks and commits is tested without a server: a Recorder's client takes the place of a real one. Drain then runs what was
// added, with the tasks that handlers add.
func ExampleRecorder() {
	ctx := context.Background()
	welcome, invoice := millrace.Job[string, string]("welcome"), millrace.Job[int, string]("invoice")
	signUp := func(ctx context.Context, c *millrace.Client, name string) error { // the code under test
		return c.Commit(ctx, func(tx *millrace.Tx) {
			tx.KV("users").Put(name, "new", millrace.IfAbsent())
			welcome.AddTx(tx, name)
		})
	}
	handle := func(w *millrace.Worker) {
		welcome.Handle(w, func(_ context.Context, t *millrace.Task, name string) (string, error) {
			t.Effects().KV("users").Put(name, "welcomed")
			invoice.AddTx(t.Effects(), 100)
			return "hello " + name, nil
		})
	}

	r := millrace.NewRecorder()
	defer func() { _ = r.Close() }() // in a test: t.Cleanup
	fmt.Println(signUp(ctx, r.Client(), "ada"), signUp(ctx, r.Client(), "ada") != nil)
	fmt.Println(millrace.Added(r, welcome), string(r.Effects()[0]))

	w := r.Client().Worker()
	handle(w)
	for _, run := range must(r.Drain(ctx, w)) {
		fmt.Println(run.Kind, run.Settle, string(run.Result))
	}
	fmt.Println(must(r.Client().KV("users").Get(ctx, "ada")), millrace.Added(r, invoice))
	// Output:
	// <nil> true
	// [ada] {"op":"kv_put","keyspace":"users","key":"ada","value":"new","if_absent":true}
	// welcome complete hello ada
	// welcomed [100]
}

// Code that adds a task and waits for it is served by a worker that is drained when something waits.
func ExampleRecorder_DrainOnWait() {
	ctx := context.Background()
	r := millrace.NewRecorder()
	defer func() { _ = r.Close() }()
	double := millrace.Job[int, int]("double")
	w := r.Client().Worker()
	double.Handle(w, func(_ context.Context, _ *millrace.Task, n int) (int, error) { return 2 * n, nil })
	r.DrainOnWait(w)

	fmt.Println(must(must(double.Add(ctx, r.Client(), 21)).Wait(ctx)))
	// Output: 42
}
