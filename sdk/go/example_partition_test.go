package millrace_test

import (
	"context"
	"errors"
	"fmt"

	millrace "github.com/millrace/millrace/sdk/go"
)

type Order struct{ User, Item string }

// A namespace of several partitions is made once. What shares a tag shares a partition, and can change together: a task,
// the keys with its tag in their braces, and the tasks that follow it.
func ExampleTag() {
	ctx := context.Background()
	c := must(millrace.Dial(ctx, millrace.Namespace("shop")))
	defer func() { _ = c.Close() }()
	must(c.CreateNamespace(ctx, 4))

	ship := millrace.Job[Order, string]("ship")
	mail := millrace.Job[string, string]("mail")
	w := c.Worker(millrace.Slots(8)) // of tasks of all partitions
	ship.Handle(w, func(_ context.Context, t *millrace.Task, o Order) (string, error) {
		t.Effects().KV("sent").Put("{"+o.User+"}/last", o.Item)
		mail.AddTx(t.Effects(), o.Item+" is on its way", millrace.Tag(o.User))
		return o.Item, nil
	})
	go func() { _ = w.Run(ctx) }()

	h := must(ship.Add(ctx, c, Order{"user/7", "a kite"}, millrace.Tag("user/7")))
	fmt.Println(must(h.Wait(ctx)), "-", must(c.KV("sent").Get(ctx, "{user/7}/last")))

	// Two users are two tags, which may be of different partitions: one commit cannot touch both.
	err := c.Commit(ctx, func(tx *millrace.Tx) {
		tx.KV("sent").Delete("{user/7}/last")
		tx.KV("sent").Delete("{user/8}/last")
	})
	var refused *millrace.Error
	fmt.Println(errors.Is(err, millrace.ErrPartition), errors.As(err, &refused) && refused.Details["ops"] == "1")
	// Output:
	// a kite - a kite
	// true true
}

// A batch may be of many partitions: each task is for itself, and the answer tells of all of them.
func ExampleJobOf_AddMany_partitions() {
	ctx := context.Background()
	c := must(millrace.Dial(ctx, millrace.Namespace("wide")))
	defer func() { _ = c.Close() }()
	must(c.CreateNamespace(ctx, 8))
	resize := millrace.Job[string, string]("resize")
	handles := must(resize.AddMany(ctx, c, []string{"a.png", "b.png", "c.png"}))
	stats := must(c.Queue("resize").Stats(ctx))
	fmt.Println(len(handles), stats.Ready)
	// Output: 3 3
}
