package millrace_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/millrace/millrace/internal/server"
	millrace "github.com/millrace/millrace/sdk/go"
)

// TestMain starts a server for the examples, and fails when anything of client or server is left running.
func TestMain(m *testing.M) {
	os.Exit(withServer(m))
}

func withServer(m *testing.M) int {
	dir, err := os.MkdirTemp("", "millrace-sdk-")
	if err != nil {
		log.Print(err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	s, err := server.StartDev(server.DevOptions{Dir: dir})
	if err != nil {
		log.Print(err)
		return 1
	}
	_ = os.Setenv("MILLRACE_URL", s.Address)
	_ = os.Setenv("MILLRACE_REST_URL", s.HTTPAddress)
	_ = os.Setenv("MILLRACE_TOKEN", s.Token)
	code := m.Run()
	if err := s.Close(10 * time.Second); err != nil {
		log.Print(err)
		code = 1
	}
	if err := goleak.Find(); err != nil && code == 0 {
		log.Print(err)
		code = 1
	}
	return code
}

// must returns v; it stops the example on an error.
func must[V any](v V, err error) V {
	if err != nil {
		log.Panic(err)
	}
	return v
}

// must2 is must for two values.
func must2[V, W any](v V, w W, err error) (V, W) { return must(v, err), w }

type Page struct{ Name, Text string }

// The word count is stored exactly when the task is done: both are one log entry.
func ExampleTask_Effects() {
	ctx := context.Background()
	c := must(millrace.Dial(ctx)) // address and token are in the environment
	defer func() { _ = c.Close() }()
	count := millrace.Job[Page, int]("page.count").Queue("pages")
	w := c.Worker(millrace.Slots(1))
	count.Handle(w, func(_ context.Context, t *millrace.Task, p Page) (int, error) {
		n := len(strings.Fields(p.Text))
		t.Effects().KV("words").Put(p.Name, strconv.Itoa(n)) // a worker that lost its lease writes nothing
		return n, nil
	})
	go func() { _ = w.Run(ctx) }()
	h := must(count.Add(ctx, c, Page{"promise", "either everything happened or nothing did"}))
	fmt.Println(must(h.Wait(ctx)), must(c.KV("words").Get(ctx, "promise")))
	// Output: 6 6
}

// A producer adds a task, and waits for its result.
func ExampleJobOf_Add() {
	ctx := context.Background()
	c := must(millrace.Dial(ctx))
	defer func() { _ = c.Close() }()
	double := millrace.Job[int, int]("double")
	w := c.Worker()
	double.Handle(w, func(_ context.Context, _ *millrace.Task, n int) (int, error) { return 2 * n, nil })
	go func() { _ = w.Run(ctx) }()

	h := must(double.Add(ctx, c, 21))
	fmt.Println(must(h.Wait(ctx)))
	// Output: 42
}

// A second task under a unique key is the first one again.
func ExampleUniqueKey() {
	ctx := context.Background()
	c := must(millrace.Dial(ctx))
	defer func() { _ = c.Close() }()
	mail := millrace.Job[string, string]("mail.unique")
	first := must(mail.Add(ctx, c, "hello", millrace.UniqueKey("order-7", time.Hour)))
	second := must(mail.Add(ctx, c, "hello", millrace.UniqueKey("order-7", time.Hour)))
	fmt.Println(second.ID == first.ID, second.Replayed, second.Matches)

	_, err := mail.Add(ctx, c, "hello", millrace.UniqueKey("order-7", time.Hour), millrace.UniqueReject())
	fmt.Println(errors.Is(err, millrace.ErrAlreadyExists), millrace.OutcomeOf(err))
	// Output:
	// true true true
	// true refused
}

// A row and the task that follows from it are written together, or neither is.
func ExampleClient_Commit() {
	ctx := context.Background()
	c := must(millrace.Dial(ctx))
	defer func() { _ = c.Close() }()
	ship := millrace.Job[string, string]("ship")
	order := func(tx *millrace.Tx) {
		tx.KV("orders").Put("7", "paid", millrace.IfAbsent())
		ship.AddTx(tx, "order 7")
	}
	fmt.Println(c.Commit(ctx, order))

	err := c.Commit(ctx, order) // the order exists: nothing is written, and no second task is made
	var refused *millrace.Error
	fmt.Println(errors.As(err, &refused), refused.Code, refused.Op)
	fmt.Println(must(c.Queue("ship").Stats(ctx)).Ready)
	// Output:
	// <nil>
	// true PRECONDITION_FAILED 0
	// 1
}

// What a handler returns decides how the attempt ends.
func ExampleFatal() {
	ctx := context.Background()
	c := must(millrace.Dial(ctx))
	defer func() { _ = c.Close() }()
	parse := millrace.Job[string, int]("parse")
	w := c.Worker()
	parse.Handle(w, func(_ context.Context, t *millrace.Task, s string) (int, error) {
		n, err := strconv.Atoi(s)
		if err != nil {
			return 0, millrace.Fatal(fmt.Errorf("attempt %d: %q is not a number", t.Attempt, s)) // trying again cannot help
		}
		return n, nil
	})
	go func() { _ = w.Run(ctx) }()
	h := must(parse.Add(ctx, c, "seven"))
	_, err := h.Wait(ctx)
	var dead *millrace.TaskError
	fmt.Println(errors.As(err, &dead), dead.State, dead.Reason, dead.Message)
	// Output: true dead fatal attempt 1: "seven" is not a number
}

// Effects that depend on what was read are built again when it changed.
func ExampleTask_OnRefused() {
	ctx := context.Background()
	c := must(millrace.Dial(ctx))
	defer func() { _ = c.Close() }()
	rev := must(c.KV("stock").Put(ctx, "screws", "10"))
	pick := millrace.Job[int, string]("pick")
	w := c.Worker()
	pick.Handle(w, func(ctx context.Context, t *millrace.Task, n int) (string, error) {
		take := func(have string, rev uint64) error {
			left := must(strconv.Atoi(have)) - n
			t.Effects().Reset()
			t.Effects().KV("stock").Put("screws", strconv.Itoa(left), millrace.IfRev(rev))
			return nil
		}
		t.OnRefused(func(ctx context.Context, _ *millrace.Error) error {
			now, err := c.KV("stock").Get(ctx, "screws")
			if err != nil {
				return err
			}
			return take(now.String(), now.Rev)
		})
		must(c.KV("stock").Put(ctx, "screws", "8")) // somebody else was faster
		return "picked", take("10", rev)
	})
	go func() { _ = w.Run(ctx) }()
	h := must(pick.Add(ctx, c, 3))
	fmt.Println(must(h.Wait(ctx)), must(c.KV("stock").Get(ctx, "screws")))
	// Output: picked 5
}

// Behind a proxy that lets no gRPC through a client goes over REST by itself. It can also be told to.
func ExampleTransport() {
	ctx := context.Background()
	c := must(millrace.Dial(ctx, millrace.Transport(millrace.TransportREST))) // at MILLRACE_REST_URL
	defer func() { _ = c.Close() }()
	greet := millrace.Job[string, string]("greet")
	w := c.Worker()
	greet.Handle(w, func(_ context.Context, t *millrace.Task, name string) (string, error) {
		t.Effects().KV("greeted").Put(name, "yes")
		return "hello " + name, nil
	})
	go func() { _ = w.Run(ctx) }()
	h := must(greet.Add(ctx, c, "ada"))
	fmt.Println(must(h.Wait(ctx)), must(c.KV("greeted").Get(ctx, "ada")), c.Transport())
	// Output: hello ada yes rest
}

// A handler is tested without a server.
func ExampleRunHandler() {
	count := millrace.Job[Page, int]("page.count")
	handle := func(_ context.Context, t *millrace.Task, p Page) (int, error) {
		n := len(strings.Fields(p.Text))
		t.Effects().KV("words").Put(p.Name, strconv.Itoa(n))
		return n, nil
	}
	got := millrace.RunHandler(context.Background(), count, handle, Page{"p", "a b c"}, nil)
	fmt.Printf("%s %d %s\n", got.Settle, got.Result, got.Effects[0])
	// Output: complete 3 {"op":"kv_put","keyspace":"words","key":"p","value":"3"}
}
