package millrace

import (
	"context"
	"fmt"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
)

// Handle is a producer's view of one task.
type Handle[R any] struct {
	// ID is the task's, 26 characters.
	ID       string
	Replayed bool // the task existed: under this id, or under the unique key
	// Matches says, with Replayed, that the task holds the payload that was asked for.
	Matches bool
	// Replaced says that the task existed under the unique key, and that UniqueReplace made it what was asked for.
	Replaced bool

	// job names the kind in errors; codec decodes the result; c is nil for a handle that a Tx made without a client.
	job   string
	codec Codec
	c     *Client
}

// newHandle makes the handle of a task that was created, or was there.
func newHandle[A, R any](j *JobOf[A, R], c *Client, r *millracev1.CreateResult) *Handle[R] {
	return &Handle[R]{ID: r.Id, Replayed: r.Replayed, Matches: r.PayloadMatches, Replaced: r.Replaced, job: j.settings.kind, codec: j.codecOr(c.opts.codec), c: c}
}

// Of returns a handle of the task with that id, such as one that another process added.
func (j *JobOf[A, R]) Of(c *Client, id string) *Handle[R] {
	return &Handle[R]{ID: id, job: j.settings.kind, codec: j.codecOr(c.opts.codec), c: c}
}

// Wait returns the task's result when it has ended, however long that takes while ctx lasts. A task that ended without
// completing is a *TaskError. The wait goes on over a lost connection.
func (h *Handle[R]) Wait(ctx context.Context) (R, error) {
	var zero R
	if h.c == nil {
		return zero, fmt.Errorf("wait for %s %s: the handle has no client", h.job, h.ID)
	}
	info, err := h.c.Wait(ctx, h.ID)
	if err != nil {
		return zero, err
	}
	return h.result(info)
}

// Get reads the task as it is now.
func (h *Handle[R]) Get(ctx context.Context) (*TaskInfo, error) {
	if h.c == nil {
		return nil, fmt.Errorf("get %s %s: the handle has no client", h.job, h.ID)
	}
	return h.c.Task(ctx, h.ID)
}

// result decodes the result of a task that has ended.
func (h *Handle[R]) result(info *TaskInfo) (R, error) {
	var out R
	if info.State != Completed {
		return out, &TaskError{ID: info.ID, State: info.State, Reason: info.Reason, Code: info.ErrorCode, Message: info.ErrorMessage}
	}
	if err := decode(h.codec, info.Result, info.ResultType, &out); err != nil {
		return out, fmt.Errorf("result of %s %s: %w", h.job, h.ID, err)
	}
	return out, nil
}

// TaskError says that a task ended without completing.
type TaskError struct {
	// ID is the task's.
	ID     string
	State  State  // Dead or Cancelled
	Reason string // max_attempts, max_crashes, max_deliveries, fatal
	Code   string // of the last failure
	// Message is that of the last failure, at most 4 KiB.
	Message string
}

// Error says how the task ended and what its last failure was.
func (e *TaskError) Error() string {
	s := fmt.Sprintf("task %s is %s", e.ID, e.State)
	if e.Reason != "" {
		s += " (" + e.Reason + ")"
	}
	if e.Message != "" {
		s += ": " + e.Message
	}
	return s
}
