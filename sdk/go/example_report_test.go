package millrace_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	millrace "github.com/millrace/millrace/sdk/go"
)

// A handler saves how far it is, and the next attempt goes on from there.
func ExampleTask_SaveCheckpoint() {
	ctx := context.Background()
	c := must(millrace.Dial(ctx))
	defer func() { _ = c.Close() }()
	index := millrace.Job[int, string]("index").Retry(millrace.RetryPolicy{Backoff: millrace.Fixed, Base: time.Millisecond})
	w := c.Worker()
	index.Handle(w, func(ctx context.Context, t *millrace.Task, pages int) (string, error) {
		from, _ := strconv.Atoi(string(t.Checkpoint()))
		for page := from; page < pages; page++ {
			t.Progress(100*page/pages, "indexing")
			t.Log("page " + strconv.Itoa(page))
			if err := t.SaveCheckpoint(ctx, []byte(strconv.Itoa(page+1))); err != nil {
				return "", err
			}
			if page == 1 && t.Attempt == 1 {
				return "", errors.New("the index is busy")
			}
		}
		return "began at page " + strconv.Itoa(from), nil
	})
	defer start(w)()

	h := must(index.Add(ctx, c, 3))
	fmt.Println(must(h.Wait(ctx)))
	for _, line := range must(c.Logs(ctx, h.ID, millrace.LogQuery{})).Lines {
		fmt.Println(line.Attempt, line.Text)
	}
	// Output:
	// began at page 2
	// 1 page 0
	// 1 page 1
	// 2 page 2
}
