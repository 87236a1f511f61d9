package api

import (
	"context"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/core"
)

// Content is the payload or the result of a task, or its beginning.
type Content struct {
	Bytes []byte
	Size  int    // of the whole, in bytes
	Type  string // content type
	At    *pb.At
}

// Payload reads the payload of a task, at most that many bytes.
// Errors: those of Get.
func (ts *TaskService) Payload(ctx context.Context, in *pb.GetRequest, most int) (Content, error) {
	task, size, at, err := ts.readUpTo(ctx, in, core.ContentSize{Payload: most})
	if err != nil {
		return Content{}, err
	}
	return Content{Bytes: task.Payload, Size: size.Payload, Type: task.ContentType, At: ShowAt(at)}, nil
}

// Output reads the result of a task, at most that many bytes.
// Errors: those of Get, and NotFound for a task without result.
func (ts *TaskService) Output(ctx context.Context, in *pb.GetRequest, most int) (Content, error) {
	task, size, at, err := ts.readUpTo(ctx, in, core.ContentSize{Result: most})
	if err != nil {
		return Content{}, err
	}
	if !task.HasResult {
		return Content{}, core.NotFound{Kind: "result", ID: in.GetId()}
	}
	return Content{Bytes: task.Result, Size: size.Result, Type: task.ResultType, At: ShowAt(at)}, nil
}

// readUpTo reads the task of a request, with at most that many bytes (most) of its payload and of its result.
func (ts *TaskService) readUpTo(ctx context.Context, in *pb.GetRequest, most core.ContentSize) (task core.Task, size core.ContentSize, at core.At, err error) {
	id, fact := ReadTaskID("id", in.GetId())
	if fact != nil {
		return task, size, at, fact
	}
	c, err := ts.s.begin(ctx, false)
	if err != nil {
		return task, size, at, noTask(err, in.GetId())
	}
	if err := c.goTo(ctx, id); err != nil {
		return task, size, at, sameTask(err, in.GetId())
	}
	o := readOptions(in.GetMinIndex(), in.GetStale())
	task, size, at, err = ts.tasks.TaskUpTo(ctx, c.t.part, id, most, o)
	return task, size, at, sameTask(err, in.GetId())
}

// showSize shows how long the payload and the result are in place of them.
func showSize(t *pb.Task, size core.ContentSize) {
	t.Payload, t.Result = nil, nil
	payload := uint64(size.Payload)
	t.PayloadSize = &payload
	if t.GetHasResult() {
		result := uint64(size.Result)
		t.ResultSize = &result
	}
}
