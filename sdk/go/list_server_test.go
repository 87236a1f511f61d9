package millrace_test

import (
	"errors"
	"strings"
	"testing"

	millrace "github.com/millrace/millrace/sdk/go"
)

// TestAPageOfTasksHasTheirHeadsAndTellsHowFarItCame: what a list asks for comes over both transports.
func TestAPageOfTasksHasTheirHeadsAndTellsHowFarItCame(t *testing.T) {
	t.Parallel()
	eachTransport(t, func(t *testing.T, opts ...millrace.Option) {
		c, ctx := dial(t, opts...), bounded(t)
		job := millrace.Job[string, string]("heads").Queue("heads")
		long := strings.Repeat("x", 400)
		for _, text := range []string{"a", long, "c"} {
			if _, err := job.Add(ctx, c, text); err != nil {
				t.Fatal(err)
			}
		}
		page, err := c.ListPage(ctx, millrace.ListQuery{Kind: "heads", Limit: 2, Head: 256})
		if err != nil || len(page.Tasks) != 2 || page.Next == "" || page.Inspected < 2 {
			t.Fatalf("%+v, %v", page, err)
		}
		for _, task := range page.Tasks {
			whole, err := c.Task(ctx, task.ID)
			if err != nil || string(task.Head) != string(whole.Payload[:min(len(whole.Payload), 256)]) || task.PayloadSize != len(whole.Payload) || task.Payload != nil {
				t.Errorf("task %s: head %q of %d, %v", task.ID, task.Head, task.PayloadSize, err)
			}
		}
		if !page.Reached.Equal(page.Tasks[1].CreatedAt) {
			t.Errorf("reached %v, and the last task is of %v", page.Reached, page.Tasks[1].CreatedAt)
		}
		if _, err := c.ListPage(ctx, millrace.ListQuery{Head: 257}); !errors.Is(err, millrace.ErrInvalid) {
			t.Errorf("a head beyond its limit: %v", err)
		}
	})
}
