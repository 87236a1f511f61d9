package millrace

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/sdk/go/internal/session"
)

// Task is one attempt at a task, as its handler sees it.
type Task struct {
	// ID is the task's, 26 characters; Queue and Kind are names.
	ID       string
	Queue    string
	Kind     string
	Attempt  int // number of this delivery, from 1
	Failures int // before it
	// Crashes counts the leases that were lost before.
	Crashes int
	// MaxAttempts is how many failures end the task as dead.
	MaxAttempts int
	Priority    int
	Headers     map[string]string
	// Payload is as it was added, and ContentType says how to read it.
	Payload     []byte
	ContentType string
	CreatedAt   time.Time
	// ResultType is the media type of the bytes that a handler of HandleRaw, HandleAny or HandleBatch returns, at most 128 B; such a
	// handler may set it. Empty: application/octet-stream.
	ResultType string

	w  *Worker         // nil in tests of handlers
	at session.Attempt // what the engine knows of it: its lease, and the settle that ends it
	fx *Tx             // nil until the handler asks for it

	told       atomic.Pointer[reporter] // nil until the handler tells something
	checkpoint []byte                   // what Checkpoint returns; told guards it

	// onRefused is what OnRefused was given; nil: a refusal of the effects fails the attempt.
	onRefused func(ctx context.Context, refused *Error) error
}

// Token is the fencing token of this attempt: strictly increasing, fit to fence writes to other systems.
func (t *Task) Token() uint64 { return t.at.Lease.Token }

// CancelReason is why the task's cancel was asked for, once its handler's context has ended with ErrCancelled. It is empty before, and
// where none is known: over REST it is not told.
func (t *Task) CancelReason() string {
	if c, ok := errors.AsType[*session.Cancelled](context.Cause(t.at.Context())); ok {
		return c.Reason
	}
	return ""
}

// Stopping is closed when the worker begins to drain: it takes no more tasks, and handlers have the time of DrainTimeout before their
// contexts end with ErrStopped. A long handler may save how far it is, and return. In tests of handlers it is never closed.
func (t *Task) Stopping() <-chan struct{} { return t.at.Stopping() }

// Effects collects changes that are applied exactly when the task completes, in the same log entry, or not at all. When
// they are refused the attempt fails, unless OnRefused is set. Errors of other kinds drop them. In a namespace of several
// partitions all of them are of the task's own: with its tag.
func (t *Task) Effects() *Tx {
	if t.fx == nil {
		t.fx = &Tx{codec: JSON, task: t.ID}
		if t.w != nil {
			t.fx.client, t.fx.codec = t.w.c, t.w.c.opts.codec
		}
	}
	return t.fx
}

// OnRefused is called when the effects were refused, such as by a condition that is false, while the lease is still held.
// refused names the op or condition and, in Details, what was found. f may change Effects, after a Reset for instance,
// and return nil to complete again with the same result; an error ends the attempt like one of the handler.
func (t *Task) OnRefused(f func(ctx context.Context, refused *Error) error) { t.onRefused = f }

// engine returns what the engine knows t by.
func (t *Task) engine() *session.Attempt {
	t.at.Owner = t
	return &t.at
}

// newTask makes what a handler sees of an assignment.
func newTask(w *Worker, a *millracev1.Assignment) *Task {
	return &Task{
		ID: a.Id, Queue: a.Queue, Kind: a.Kind, Attempt: int(a.Attempt), Failures: int(a.Failures), Crashes: int(a.Crashes),
		MaxAttempts: int(a.MaxAttempts), Priority: int(a.Priority), Headers: headerMap(a.Headers), Payload: a.Payload,
		ContentType: a.ContentType, CreatedAt: time.UnixMilli(a.CreatedMs), w: w, checkpoint: a.Checkpoint,
	}
}
