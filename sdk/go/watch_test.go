package millrace_test

import (
	"errors"
	"testing"
	"time"

	millrace "github.com/millrace/millrace/sdk/go"
)

// A watch shows what becomes of a task, by each transport, and ends with it.
func TestAWatchFollowsATaskToItsEnd(t *testing.T) {
	eachTransport(t, func(t *testing.T, opts ...millrace.Option) {
		c := dial(t, opts...)
		ctx := bounded(t)
		h, err := millrace.Job[string, string]("watched").Add(ctx, c, "a", millrace.In(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		var seen []millrace.State
		for info, err := range c.Watch(ctx, h.ID) {
			if err != nil {
				t.Fatal(err)
			}
			if len(info.Payload) > 0 {
				t.Error("a watch shows the payload")
			}
			if n := len(seen); n > 0 && seen[n-1] == info.State {
				continue
			}
			seen = append(seen, info.State)
			switch info.State {
			case millrace.Scheduled:
				err = c.RunNow(ctx, h.ID)
			case millrace.Ready:
				_, err = c.Cancel(ctx, h.ID)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if len(seen) != 3 || seen[0] != millrace.Scheduled || seen[1] != millrace.Ready || seen[2] != millrace.Cancelled {
			t.Errorf("states %v", seen)
		}
		for _, err := range c.Watch(ctx, "06G0000000000000000000000G") {
			if !errors.Is(err, millrace.ErrNotFound) {
				t.Errorf("an unknown task: %v", err)
			}
		}
	})
}
