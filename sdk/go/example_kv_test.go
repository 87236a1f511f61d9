package millrace_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	millrace "github.com/millrace/millrace/sdk/go"
)

// A condition on a key decides over the whole commit, so that what was read still holds when the rest is written.
func ExampleTxKV_Check() {
	ctx := context.Background()
	c := must(millrace.Dial(ctx))
	defer func() { _ = c.Close() }()
	must(c.KV("locks").Put(ctx, "leader", "a"))

	err := c.Commit(ctx, func(tx *millrace.Tx) {
		tx.KV("locks").Check("leader", millrace.ValueEqual("b"))
		tx.KV("settings").Put("mode", "fast")
	})
	var refused *millrace.Error
	if errors.As(err, &refused) {
		fmt.Println(refused.Code, refused.Op == millrace.OpCondition) // condition 0
	}
	_, err = c.KV("settings").Get(ctx, "mode")
	fmt.Println(errors.Is(err, millrace.ErrNotFound))
	// Output:
	// PRECONDITION_FAILED true
	// true
}

// Numbers are added to where they are stored: many writers lose nothing, and a bound is never passed.
func ExampleKV_Add() {
	ctx := context.Background()
	c := must(millrace.Dial(ctx))
	defer func() { _ = c.Close() }()
	seats := c.KV("seats")

	fmt.Println(must(seats.Add(ctx, "hall", 2, millrace.Ceiling(3))))
	_, err := seats.Add(ctx, "hall", 2, millrace.Ceiling(3))
	fmt.Println(errors.Is(err, millrace.ErrPrecondition), must(seats.Get(ctx, "hall")))
	// Output:
	// 2
	// true 2
}

// A key is written only if it is as it was read.
func ExampleIfRev() {
	ctx := context.Background()
	c := must(millrace.Dial(ctx))
	defer func() { _ = c.Close() }()
	docs := c.KV("docs")
	must(docs.Put(ctx, "readme", "one"))

	read := must(docs.Get(ctx, "readme"))
	must(docs.Put(ctx, "readme", "of another writer"))
	_, err := docs.Put(ctx, "readme", "two", millrace.IfRev(read.Rev))
	fmt.Println(errors.Is(err, millrace.ErrPrecondition))
	// Output: true
}

// Keys are read in byte order, as they stand at one instant of each partition.
func ExampleKV_Range() {
	ctx := context.Background()
	c := must(millrace.Dial(ctx))
	defer func() { _ = c.Close() }()
	users := c.KV("users")
	for _, name := range []string{"user/2", "user/1", "group/1"} {
		must(users.Put(ctx, name, "x"))
	}

	for e, err := range users.Range(ctx, millrace.Prefix("user/")) {
		if err != nil {
			log.Panic(err)
		}
		fmt.Println(e.Key, e.String())
	}
	fmt.Println(must(users.DeleteRange(ctx, millrace.Prefix("user/"), millrace.CountKeys())))
	// Output:
	// user/1 x
	// user/2 x
	// 2
}

// Values that are neither bytes nor text are encoded, as JSON unless the client has another codec.
func ExampleValue_Decode() {
	ctx := context.Background()
	c := must(millrace.Dial(ctx))
	defer func() { _ = c.Close() }()
	must(c.KV("carts").Put(ctx, "7", map[string]int{"kite": 2}))

	var cart map[string]int
	if err := must(c.KV("carts").Get(ctx, "7")).Decode(&cart); err != nil {
		log.Panic(err)
	}
	fmt.Println(cart["kite"])
	// Output: 2
}

// A stream of puts does not wait for each answer: what waits goes out together.
func ExampleKV_Stream() {
	ctx := context.Background()
	c := must(millrace.Dial(ctx))
	defer func() { _ = c.Close() }()
	s := c.KV("events").Stream()
	for i := range 1000 {
		must(s.Put(ctx, fmt.Sprintf("%04d", i), []byte("x")))
	}
	if err := s.Flush(ctx); err != nil { // until all of them are on disk
		log.Panic(err)
	}
	fmt.Println(must(c.KV("events").Info(ctx)).Keys, s.Close())
	// Output: 1000 <nil>
}

// A commit in the middle of a handler is fenced: it changes nothing once the lease is lost.
func ExampleTx_Fence() {
	ctx := context.Background()
	c := must(millrace.Dial(ctx))
	defer func() { _ = c.Close() }()
	crawl := millrace.Job[string, string]("crawl")
	var stale *millrace.Task
	w := c.Worker()
	crawl.Handle(w, func(ctx context.Context, t *millrace.Task, site string) (string, error) {
		stale = t
		return "crawled", c.Commit(ctx, func(tx *millrace.Tx) {
			tx.Fence(t)
			tx.KV("crawl").Put(site, "begun")
		})
	})
	defer start(w)()
	fmt.Println(must(must(crawl.Add(ctx, c, "example.org")).Wait(ctx)))

	err := c.Commit(ctx, func(tx *millrace.Tx) { // its task has ended, and its lease with it
		tx.Fence(stale)
		tx.KV("crawl").Put("example.org", "late")
	})
	fmt.Println(errors.Is(err, millrace.ErrLeaseLost), must(c.KV("crawl").Get(ctx, "example.org")))
	// Output:
	// crawled
	// true begun
}
