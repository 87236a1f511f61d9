package millrace

import (
	"context"
	"encoding/json"
	"iter"
	"strings"
	"time"

	"github.com/millrace/millrace/sdk/go/internal/fault"
	"github.com/millrace/millrace/sdk/go/internal/rest"
	"github.com/millrace/millrace/sdk/go/internal/retry"
)

// Event tells what has changed in a topic.
type Event struct {
	Topic string `json:"topic"`
	// Stamp is when it was read, by the cluster's clock.
	Stamp time.Time `json:"stamp"`
	// Whole says that Rows are all there are; else they are those that have changed.
	Whole bool `json:"whole"`
	// Partial says that not all rows could be read: a leader that knows workers did not answer, or there are too many.
	Partial bool `json:"partial"`
	// Rows are objects as REST has them: of a queue its counters, of a task the task without payload and result, of a job its progress,
	// of a worker what the list of workers has, its times to 10 seconds, of a cron, a limiter or a batch what a list of them has.
	Rows []json.RawMessage `json:"rows"`
	// Gone are the ids of rows that are not there any more: of a worker its id, a line feed and its host.
	Gone []string `json:"gone"`
}

// Events tells what changes in topics, until ctx ends: TopicOverview, TopicQueues, TopicWorkers, TopicCrons, TopicLimiters, TopicQueue,
// TopicTask, TopicBulk and TopicBatch (needs the scope task:read). Each topic begins with a whole event. A reader that is slow gets the newest state, in one event. A stream that was lost is
// opened again, and goes on where it was; what is refused ends the iteration with its error. It needs REST.
func (c *Client) Events(ctx context.Context, topics ...string) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		conn := rest.New(c.restOptions())
		defer conn.Close()
		last := ""
		for failed := 0; ; {
			over := false
			var bad error
			err := conn.Events(ctx, strings.Join(topics, ","), last, func(got rest.Event) bool {
				var e Event
				if bad = json.Unmarshal(got.Data, &e); bad != nil {
					return false
				}
				last, failed = got.ID, 0
				over = !yield(e, nil)
				return !over
			})
			switch {
			case over:
				return
			case ctx.Err() != nil:
				yield(Event{}, errorOf(fault.Ended(ctx, false, "events were read to the end of the context")))
				return
			case bad != nil:
				yield(Event{}, bad)
				return
			}
			if err != nil {
				f := faultOf(err)
				if retry.Patience(string(f.Code), f.Reason) < retry.ResendFor {
					yield(Event{}, errorOf(f))
					return
				}
			}
			retry.Sleep(ctx, retry.Away(failed))
			failed++
		}
	}
}

// Topics of a namespace.
const (
	TopicOverview = "overview" // all queues in sum
	TopicQueues   = "queues"   // each queue
	TopicWorkers  = "workers"
	TopicCrons    = "crons"    // the first 100 by name, each with its last run, without the payloads of their templates
	TopicLimiters = "limiters" // each limiter with what is used of it
)

// TopicQueue is the topic of a queue's counters.
func TopicQueue(name string) string { return "queue:" + name }

// TopicTask is the topic of a task.
func TopicTask(id string) string { return "task:" + id }

// TopicBulk is the topic of a job about many tasks.
func TopicBulk(id string) string { return "bulk:" + id }

// TopicBatch is the topic of a batch and its counts.
func TopicBatch(id string) string { return "batch:" + id }
