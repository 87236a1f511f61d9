package millrace

import (
	"context"
	"errors"
	"io"
	"iter"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/sdk/go/internal/place"
	"github.com/millrace/millrace/sdk/go/internal/retry"
)

// Watch shows a task, without payload and result, and again each time that it has changed, until it has ended or ctx ends (needs the scope
// task:read). Changes that come close together are shown as one, so who is slow gets the newest state. It goes on over a lost connection
// and a change of leader, after which a state may be shown again. The iteration ends after the state in which the task has ended, or with
// an error: ErrNotFound when the task is not there, or was removed.
func (c *Client) Watch(ctx context.Context, id string) iter.Seq2[*TaskInfo, error] {
	return func(yield func(*TaskInfo, error) bool) {
		ctx, cancel := context.WithCancel(ctx) // ends the stream
		defer cancel()
		for failed := 0; ; failed++ {
			states, state, err := c.openWatch(ctx, id)
			if status.Code(err) == codes.Unimplemented { // REST has events for it
				c.watchEvents(ctx, id, yield)
				return
			}
			if err != nil {
				yield(nil, err)
				return
			}
			for err == nil {
				t := taskInfo(state.Task, state.At)
				if !yield(t, nil) || t.State.Terminal() {
					return
				}
				failed = 0
				state, err = states.Recv()
			}
			if f := faultOf(err); ctx.Err() == nil && !errors.Is(err, io.EOF) && f.Patience() == 0 {
				yield(nil, errorOf(f))
				return
			}
			retry.Sleep(ctx, retry.Away(failed)) // the server stops, leads no more, or is not reached
		}
	}
}

// openWatch begins to watch a task, and returns its first state. The error has the code Unimplemented where there is no such stream.
func (c *Client) openWatch(ctx context.Context, id string) (states grpc.ServerStreamingClient[millracev1.WatchResponse], first *millracev1.WatchResponse, err error) {
	var unserved error
	err = c.last(ctx, place.Of(id, c.hub.Partitions()), func(ctx context.Context) (err error) {
		if states, err = c.tasks.Watch(ctx, &millracev1.WatchRequest{Id: id}); err == nil {
			first, err = states.Recv()
		}
		if status.Code(err) == codes.Unimplemented {
			unserved = err
		}
		return err
	})
	if unserved != nil {
		err = unserved
	}
	return states, first, err
}

// watchEvents watches by events of the task's topic: each has the task read.
func (c *Client) watchEvents(ctx context.Context, id string, yield func(*TaskInfo, error) bool) {
	for _, err := range c.Events(ctx, TopicTask(id)) {
		var t *TaskInfo
		if err == nil {
			t, err = c.Task(ctx, id)
		}
		if err != nil {
			yield(nil, err)
			return
		}
		t.Payload, t.Result = nil, nil
		if !yield(t, nil) || t.State.Terminal() {
			return
		}
	}
}
