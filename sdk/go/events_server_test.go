package millrace_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	millrace "github.com/millrace/millrace/sdk/go"
)

func TestEventsTellWhatChanges(t *testing.T) {
	t.Parallel()
	eachTransport(t, eventsTellWhatChanges)
}

func eventsTellWhatChanges(t *testing.T, opts ...millrace.Option) {
	c, ctx := dial(t, opts...), bounded(t)
	added, err := millrace.Job[int, int]("watched").Add(ctx, c, 1)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	cancelled := false
	for e, err := range c.Events(ctx, "queues", millrace.TopicTask(added.ID)) {
		if err != nil {
			t.Fatal(err)
		}
		if seen[e.Topic]++; (seen[e.Topic] == 1) != e.Whole || e.Stamp.IsZero() {
			t.Errorf("event %d of %s: whole %t at %v", seen[e.Topic], e.Topic, e.Whole, e.Stamp)
		}
		if len(seen) == 2 && !cancelled {
			cancelled = true
			if _, err := c.Cancel(ctx, added.ID); err != nil {
				t.Fatal(err)
			}
		}
		var row struct{ State string }
		if len(e.Rows) == 1 {
			if err := json.Unmarshal(e.Rows[0], &row); err != nil {
				t.Fatal(err)
			}
		}
		if row.State == "cancelled" {
			break
		}
	}
	for _, err := range c.Events(ctx, "nothing") {
		if !errors.Is(err, millrace.ErrInvalid) {
			t.Errorf("what is no topic: %v", err)
		}
	}
	short, stop := context.WithCancel(ctx)
	defer stop()
	for e, err := range c.Events(short, "overview") {
		stop()
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("%+v: %v", e, err)
		}
	}
}

func TestQueuesAreFoundByEachTransport(t *testing.T) {
	t.Parallel()
	eachTransport(t, func(t *testing.T, opts ...millrace.Option) {
		c, ctx := dial(t, opts...), bounded(t)
		for i, name := range []string{"mail.a", "mail.b", "other"} {
			for range i + 1 {
				if _, err := millrace.Job[int, int]("k").Queue(name).Add(ctx, c, 1); err != nil {
					t.Fatal(err)
				}
			}
		}
		if _, err := c.Queue("mail.a").Pause(ctx); err != nil {
			t.Fatal(err)
		}
		for want, q := range map[string]millrace.QueueQuery{
			"other mail.b mail.a": {Sort: "ready"}, "mail.b mail.a": {Sort: "ready", Prefix: "mail."}, "mail.a": {Only: "paused"},
		} {
			var names []string
			for q.Limit = 1; ; {
				page, next, err := c.FindQueues(ctx, q)
				if err != nil {
					t.Fatal(err)
				}
				for i := range page {
					names = append(names, page[i].Queue)
				}
				if q.Cursor = next; next == "" {
					break
				}
			}
			if got := strings.Join(names, " "); got != want {
				t.Errorf("%+v: %s, want %s", q, got, want)
			}
		}
	})
}
