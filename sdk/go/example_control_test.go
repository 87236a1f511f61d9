package millrace_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	millrace "github.com/millrace/millrace/sdk/go"
)

// A cancel ends the context of the handler. An error that it returns then confirms the cancel.
func ExampleClient_Cancel() {
	ctx := context.Background()
	c := must(millrace.Dial(ctx))
	defer func() { _ = c.Close() }()
	train := millrace.Job[string, string]("train")
	w := c.Worker()
	began := make(chan struct{})
	train.Handle(w, func(ctx context.Context, t *millrace.Task, model string) (string, error) {
		close(began)
		<-ctx.Done() // in a program: pass ctx on to what takes long
		if errors.Is(context.Cause(ctx), millrace.ErrCancelled) {
			fmt.Println("told to stop:", t.CancelReason())
		}
		return "", ctx.Err()
	})
	defer start(w)()

	h := must(train.Add(ctx, c, "large"))
	<-began
	fmt.Println(must(c.Cancel(ctx, h.ID, millrace.CancelReason("too expensive"))).State)
	task := must(c.Wait(ctx, h.ID))
	fmt.Println(task.State, task.Cancel.Reason)
	// Unordered output:
	// running
	// told to stop: too expensive
	// cancelled too expensive
}

// A dead or cancelled task is made ready again. Its failures count from 0; its attempts stay.
func ExampleClient_Retry() {
	ctx := context.Background()
	c := must(millrace.Dial(ctx))
	defer func() { _ = c.Close() }()
	sync := millrace.Job[string, string]("sync").Attempts(1)
	w := c.Worker()
	sync.Handle(w, func(_ context.Context, t *millrace.Task, host string) (string, error) {
		if t.Attempt == 1 {
			return "", errors.New("the host is down")
		}
		return "synced " + host, nil
	})
	defer start(w)()

	h := must(sync.Add(ctx, c, "db1"))
	fmt.Println(must(c.Wait(ctx, h.ID)).State)
	must(c.Retry(ctx, h.ID))
	fmt.Println(must(h.Wait(ctx)))
	// Output:
	// dead
	// synced db1
}

// What of a task is not named in an edit stays as it is.
func ExampleClient_Edit() {
	ctx := context.Background()
	c := must(millrace.Dial(ctx))
	defer func() { _ = c.Close() }()
	invoice := millrace.Job[int, string]("invoice")
	h := must(invoice.Add(ctx, c, 7, millrace.In(time.Hour)))

	fmt.Println(must(c.Edit(ctx, h.ID, millrace.TaskEdit{Priority: new(9), Delay: new(time.Duration)})))
	task := must(h.Get(ctx))
	fmt.Println(task.Priority, string(task.Payload))
	// Output:
	// ready
	// 9 7
}

// A worker that hangs is not waited for: its task goes back, and what it still does is fenced off.
func ExampleClient_ForceRelease() {
	ctx := context.Background()
	c := must(millrace.Dial(ctx))
	defer func() { _ = c.Close() }()
	must(millrace.Job[string, string]("hangs").Add(ctx, c, "x"))
	old := must(c.Claim(ctx, millrace.ClaimQuery{Queues: []string{"hangs"}, Wait: 10 * time.Second}))[0]

	fmt.Println(must(c.ForceRelease(ctx, old.ID, millrace.OfAttempt(old.Attempt))))
	_, err := c.Complete(ctx, old.ID, old.Token, "too late")
	fmt.Println(errors.Is(err, millrace.ErrLeaseLost))
	// Output:
	// ready
	// true
}

// A paused queue takes tasks and gives out none.
func ExampleQueue_Pause() {
	ctx := context.Background()
	c := must(millrace.Dial(ctx))
	defer func() { _ = c.Close() }()
	h := must(millrace.Job[string, string]("deploys").Add(ctx, c, "v2"))
	q := c.Queue("deploys")
	must(q.Pause(ctx, millrace.PauseReason("the site is down"), millrace.PauseUntil(time.Now().Add(time.Hour))))
	query := millrace.ClaimQuery{Queues: []string{"deploys"}}
	fmt.Println(must(q.Stats(ctx)).Paused.Reason, len(must(c.Claim(ctx, query))))

	must(q.Resume(ctx))
	fmt.Println(must(c.Claim(ctx, query))[0].ID == h.ID)
	// Output:
	// the site is down 0
	// true
}

// Labels are for who looks at a task. One that no worker got in time is dead.
func ExampleLabels() {
	ctx := context.Background()
	c := must(millrace.Dial(ctx))
	defer func() { _ = c.Close() }()
	notify := millrace.Job[string, string]("notify")
	h := must(notify.Add(ctx, c, "you won", millrace.Labels(map[string]string{"customer": "ada", "env": "prod"}),
		millrace.ExpiresIn(10*time.Minute)))
	task := must(h.Get(ctx))
	fmt.Println(task.Labels["customer"], task.ExpiresAt.IsZero())
	// Output: ada false
}

// A handler may cancel other tasks and pause queues, exactly when its own task completes.
func ExampleTx_CancelTask() {
	ctx := context.Background()
	c := must(millrace.Dial(ctx))
	defer func() { _ = c.Close() }()
	reminder := must(millrace.Job[string, string]("reminder").Add(ctx, c, "pay, please", millrace.In(time.Hour)))
	paid := millrace.Job[string, string]("paid")
	w := c.Worker()
	paid.Handle(w, func(_ context.Context, t *millrace.Task, reminder string) (string, error) {
		t.Effects().CancelTask(reminder, millrace.CancelReason("paid"))
		return "thanks", nil
	})
	defer start(w)()

	must(must(paid.Add(ctx, c, reminder.ID)).Wait(ctx))
	fmt.Println(must(reminder.Get(ctx)).State)
	// Output: cancelled
}
