package millrace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
)

// handler runs one attempt and returns the encoded result.
type handler func(ctx context.Context, t *Task) (result []byte, contentType string, err error)

// Handle makes w run fn for tasks of this job, and take tasks of its queue. ctx ends when the lease is lost or the task
// is cancelled; what fn returns then changes nothing. An error fails the attempt: it is tried again as the job's Retry
// and Attempts say, or as Fatal, RetryIn, Snooze and Release do. A panic is a failure with its stack. Call it before Run.
func (j *JobOf[A, R]) Handle(w *Worker, fn func(ctx context.Context, t *Task, args A) (R, error)) {
	w.register(j.settings.kind, j.settings.queue, j.handler(w.c.opts.codec, fn))
}

func (j *JobOf[A, R]) handler(d Codec, fn func(ctx context.Context, t *Task, args A) (R, error)) handler {
	codec := j.codecOr(d)
	return func(ctx context.Context, t *Task) ([]byte, string, error) {
		var args A
		if err := decode(codec, t.Payload, &args); err != nil {
			return nil, "", err
		}
		result, err := fn(ctx, t, args)
		if err != nil {
			return nil, "", err
		}
		return encode(codec, result)
	}
}

// HandleRaw makes w run fn for tasks of kind, with payload and result as bytes. Without the option Queues it takes tasks
// of the queue with that name. Otherwise as Handle.
func (w *Worker) HandleRaw(kind string, fn func(ctx context.Context, t *Task) ([]byte, error)) {
	w.register(kind, kind, func(ctx context.Context, t *Task) ([]byte, string, error) {
		b, err := fn(ctx, t)
		return b, cmp.Or(t.ResultType, typeBytes), err
	})
}

// HandleAny makes w run fn for tasks of every kind that has no handler of its own. It takes no queue by itself: name some
// with the option Queues. Otherwise as HandleRaw.
func (w *Worker) HandleAny(fn func(ctx context.Context, t *Task) ([]byte, error)) {
	w.other = func(ctx context.Context, t *Task) ([]byte, string, error) {
		b, err := fn(ctx, t)
		return b, cmp.Or(t.ResultType, typeBytes), err
	}
}

type fatalError struct{ error }

func (e fatalError) Unwrap() error { return e.error }

// Fatal makes a failed attempt the last one: the task is dead, with the reason fatal.
func Fatal(err error) error { return fatalError{err} }

type retryError struct {
	error
	after time.Duration
}

func (e retryError) Unwrap() error { return e.error }

// RetryIn fails the attempt with err and sets when the next one begins: after d, at most 24 h; 0 means at once.
func RetryIn(d time.Duration, err error) error { return retryError{err, d} }

type snoozeError time.Duration

func (e snoozeError) Error() string { return "snoozed for " + time.Duration(e).String() }

// Snooze puts the task off for d. The attempt counts neither as a failure nor as a crash.
func Snooze(d time.Duration) error { return snoozeError(d) }

var errRelease = errors.New("released")

// Release gives the task back at once, to its old place in the queue. It is for a worker that finds that it cannot serve the task.
// The attempt counts neither as a failure nor as a crash.
func Release() error { return errRelease }

// panicError is what a handler's panic becomes.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v", e.value) }

// invoke calls h; a panic becomes an error.
func invoke(h handler, t *Task) (result []byte, contentType string, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &panicError{v, debug.Stack()}
		}
	}()
	return h(t.ctx, t)
}

// invokeRefused calls t's OnRefused; a panic becomes an error.
func invokeRefused(t *Task, refused *Error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &panicError{v, debug.Stack()}
		}
	}()
	return t.onRefused(t.ctx, refused)
}

// settle writes the item that ends the attempt after the handler returned err.
func (t *Task) settle(result []byte, contentType string, err error) {
	if err == nil && t.fx != nil && (t.fx.Len() > 0 || t.fx.err != nil) {
		err = t.fx.check()
	}
	if err == nil {
		if t.completed(result, contentType); t.bytes <= frameBytes {
			return
		}
		err = tooLarge("result", "frame_bytes", frameBytes)
	}
	t.failed(err)
}

func (t *Task) completed(result []byte, contentType string) {
	t.complete.Result, t.complete.ResultType = result, contentType
	t.outcome.Complete = &t.complete
	t.item.Id, t.item.Token, t.item.Outcome, t.item.Effects = t.ID, t.token, &t.outcome, nil
	t.op, t.bytes = "complete", len(result)+128
	if t.fx != nil && t.fx.Len() > 0 {
		t.item.Effects = &millracev1.Effects{Conditions: t.fx.conds, Ops: t.fx.ops, FailOnRefusal: t.onRefused == nil}
		t.bytes += proto.Size(t.item.Effects)
	}
}

// Limits of what a failure reports; the server cuts at the same places.
const (
	maxErrorCode    = 64
	maxErrorMessage = 4 << 10
	maxErrorStack   = 16 << 10
)

func (t *Task) failed(err error) {
	t.item.Id, t.item.Token, t.item.Effects = t.ID, t.token, nil
	t.bytes = 256
	if d, ok := errors.AsType[snoozeError](err); ok {
		t.op = "snooze"
		t.item.Outcome = &millracev1.SettleItem_Snooze{Snooze: &millracev1.Snooze{Delay: durationpb.New(time.Duration(d))}}
		return
	}
	if errors.Is(err, errRelease) {
		t.op = "release"
		t.item.Outcome = &millracev1.SettleItem_Release{Release: &millracev1.Release{}}
		return
	}
	fail := &millracev1.Fail{Error: &millracev1.TaskError{Code: codeOf(err), Message: cut(err.Error(), maxErrorMessage)}}
	if p, ok := errors.AsType[*panicError](err); ok {
		fail.Error.Stack = cut(string(p.stack), maxErrorStack)
	}
	if _, ok := errors.AsType[fatalError](err); ok {
		fail.Fatal = true
	} else if r, ok := errors.AsType[retryError](err); ok {
		fail.RetryAfter = durationpb.New(max(r.after, 0))
	}
	t.op, t.item.Outcome = "fail", &millracev1.SettleItem_Fail{Fail: fail}
	t.bytes += len(fail.Error.Message) + len(fail.Error.Stack)
}

// failPlainly replaces a failure that the server refused by one that every server takes, or the lease would run out and count as
// a crash. A failure that was fatal still is.
func (t *Task) failPlainly(refused *Error) {
	fatal := t.item.GetFail().GetFatal()
	t.plainly = true
	t.failed(refused)
	t.item.GetFail().Fatal = fatal
}

// codeOf returns the code of a failure: that of an *Error, of an error with the method ErrorCode, panic, or error.
func codeOf(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return cut(string(e.Code), maxErrorCode)
	}
	if _, ok := errors.AsType[*panicError](err); ok {
		return "panic"
	}
	var coder interface{ ErrorCode() string }
	if errors.As(err, &coder) {
		return cut(coder.ErrorCode(), maxErrorCode)
	}
	return "error"
}

// cut shortens s to n bytes and drops what is no UTF-8, which the contract cannot carry.
func cut(s string, n int) string {
	if len(s) > n {
		s = s[:n]
	}
	return strings.ToValidUTF8(s, "")
}
