package millrace

import (
	"context"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
)

// QueueQuery chooses a page of queues. Of a namespace with more than 10,000 queues only a Prefix can be sorted or chosen from.
type QueueQuery struct {
	Prefix string // what their names begin with; empty: any
	// Sort is name, the default; ready or dead: those with the most such tasks first; oldest: the one whose ready task has waited
	// longest first; rate: those that completed the most in the last minute first.
	Sort string
	// Only is paused, dead (they have dead tasks), or stuck (not paused, with a task that has been ready for a minute, and none
	// running); empty: all.
	Only   string
	Limit  int    // 1 to 1,000; default 100
	Cursor string // of the page before; empty for the first
}

// FindQueues reads a page of queues as q says. The cursor of the next page is empty at the end. Counters change between pages, so a queue
// may be on two pages, or on none.
func (c *Client) FindQueues(ctx context.Context, q QueueQuery) (queues []QueueStats, next string, err error) {
	var resp *millracev1.ListQueuesResponse
	err = c.read(ctx, anywhere, func(ctx context.Context) (err error) {
		resp, err = c.queues.List(ctx, &millracev1.ListQueuesRequest{
			Prefix: q.Prefix, Sort: q.Sort, Only: q.Only, Limit: uint32(max(q.Limit, 0)), Cursor: q.Cursor,
		})
		return err
	})
	if err != nil {
		return nil, "", err
	}
	for _, s := range resp.Queues {
		queues = append(queues, queueStats(s))
	}
	return queues, resp.Cursor, nil
}
