package api

import (
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/core"
)

// Watch shows a task each time that it has changed, until it has ended. What changes while a state is sent is shown by the next one,
// so a slow client gets the newest state and never a backlog.
func (ts *TaskService) Watch(in *pb.WatchRequest, ss grpc.ServerStreamingServer[pb.WatchResponse]) error {
	id, fact := ReadTaskID("id", in.GetId())
	if fact != nil {
		return fact
	}
	ctx := ss.Context()
	c, err := ts.s.begin(ctx, false)
	if err != nil {
		return noTask(err, in.GetId())
	}
	if err := c.goTo(ctx, id); err != nil {
		return sameTask(err, in.GetId())
	}
	// It ends with the server too.
	ctx, cancel := ts.s.waiting(ctx)
	defer cancel()
	var last *pb.Task
	err = ts.tasks.WatchTask(ctx, c.t.part, id, func(task core.Task, size core.ContentSize, at core.At) error {
		now := ShowTask(&task)
		showSize(now, size)
		if proto.Equal(now, last) {
			return nil // a change that is not shown, such as of its checkpoint
		}
		last = now
		return ss.Send(&pb.WatchResponse{Task: now, At: ShowAt(at)})
	})
	return sameTask(waited(ctx, err), in.GetId())
}
