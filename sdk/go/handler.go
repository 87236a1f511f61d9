package millrace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime/debug"
	"time"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/sdk/go/internal/session"
)

// handler runs one attempt and returns the encoded result.
type handler func(ctx context.Context, t *Task) (result []byte, contentType string, err error)

// Handle makes w run fn for tasks of this job, and take tasks of its queue. ctx ends when the lease is lost, with the cause
// ErrLeaseLost; what fn returns then changes nothing. It ends with ErrStopped when the worker stops and its time to drain is over. It ends with ErrCancelled when the task's cancel was asked for: an error that fn
// returns then cancels the task, while a result completes it, if that comes before the queue's CancelGrace is over. Else an error fails the attempt: it is tried again as the job's Retry
// and Attempts say, or as Fatal, RetryIn, Snooze and Release do. A panic is a failure with its stack. Call it before Run.
func (j *JobOf[A, R]) Handle(w *Worker, fn func(ctx context.Context, t *Task, args A) (R, error)) {
	w.register(j.settings.kind, j.settings.queue, j.handler(w.c.opts.codec, fn))
}

// handler decodes the arguments, calls fn, and encodes its result.
func (j *JobOf[A, R]) handler(d Codec, fn func(ctx context.Context, t *Task, args A) (R, error)) handler {
	codec := j.codecOr(d)
	return func(ctx context.Context, t *Task) ([]byte, string, error) {
		var args A
		if err := decode(codec, t.Payload, t.ContentType, &args); err != nil {
			return nil, "", Fatal(invalidArgsError{err})
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

// fatalError is what Fatal returns.
type fatalError struct{ error }

func (e fatalError) Unwrap() error { return e.error }

// Fatal makes a failed attempt the last one: the task is dead, with the reason fatal.
func Fatal(err error) error { return fatalError{err} }

// retryError is what RetryIn returns.
type retryError struct {
	error
	after time.Duration
}

func (e retryError) Unwrap() error { return e.error }

// RetryIn fails the attempt with err and sets when the next one begins: after d, at most 24 h; 0 means at once.
func RetryIn(d time.Duration, err error) error { return retryError{err, d} }

// snoozeError is what Snooze returns.
type snoozeError time.Duration

func (e snoozeError) Error() string { return "snoozed for " + time.Duration(e).String() }

// Snooze puts the task off for d. The attempt counts neither as a failure nor as a crash.
func Snooze(d time.Duration) error { return snoozeError(d) }

// errRelease is what Release returns.
var errRelease = errors.New("released")

// Release gives the task back at once, to its old place in the queue. It is for a worker that finds that it cannot serve the task.
// The attempt counts neither as a failure nor as a crash.
func Release() error { return errRelease }

// panicError is what a handler's panic becomes.
type panicError struct {
	// value is what the handler panicked with, and stack where it did.
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
	return h(t.at.Context(), t)
}

// invokeRefused calls t's OnRefused; a panic becomes an error.
func invokeRefused(t *Task, refused *Error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &panicError{v, debug.Stack()}
		}
	}()
	return t.onRefused(t.at.Context(), refused)
}

// settle ends the attempt after the handler returned err. It returns why the attempt does not complete; nil: it does.
func (t *Task) settle(result []byte, contentType string, err error) error {
	t.finish()
	if err == nil && t.fx != nil && (t.fx.Len() > 0 || t.fx.err != nil) {
		err = t.fx.check()
	}
	if err == nil {
		if t.at.Complete(result, contentType, t.effects(), t.onRefused != nil) {
			return nil
		}
		err = tooLarge("result", "frame_bytes", session.FrameBytes)
	}
	t.failed(err)
	return err
}

// effects are what the completion carries; nil when there are none.
func (t *Task) effects() *millracev1.Effects {
	if t.fx == nil || t.fx.Len() == 0 {
		return nil
	}
	return &millracev1.Effects{Conditions: t.fx.conds, Ops: t.fx.ops, FailOnRefusal: t.onRefused == nil}
}

// failed ends the attempt as the error of its handler says.
func (t *Task) failed(err error) {
	cancelled := errors.Is(context.Cause(t.at.Context()), ErrCancelled)
	put, snoozed := errors.AsType[snoozeError](err)
	released := errors.Is(err, errRelease)
	switch {
	// Such an error reports nothing but that the handler stopped.
	case cancelled && (snoozed || released || errors.Is(err, context.Canceled) || errors.Is(err, ErrCancelled)):
		t.at.Stop()
	case snoozed:
		t.at.Snooze(time.Duration(put))
	case released:
		t.at.Release()
	default:
		t.at.Fail(failureOf(err))
		if cancelled {
			t.at.Stop()
		}
	}
}

// failureOf is what an attempt reports that failed with err.
func failureOf(err error) session.Failure {
	f := session.Failure{Code: codeOf(err), Message: err.Error()}
	if p, ok := errors.AsType[*panicError](err); ok {
		f.Stack = string(p.stack)
	}
	if _, ok := errors.AsType[fatalError](err); ok {
		f.Fatal = true
	} else if r, ok := errors.AsType[retryError](err); ok {
		f.RetryAfter = &r.after
	}
	return f
}

// invalidArgsError ends a task whose arguments cannot be read: no later attempt would read them.
type invalidArgsError struct{ error }

// Unwrap returns why.
func (e invalidArgsError) Unwrap() error { return e.error }

// ErrorCode is the code that SDKs of all languages give it.
func (e invalidArgsError) ErrorCode() string { return "invalid_args" }

// codeOf returns the code of a failure: that of an *Error, of an error with the method ErrorCode, panic, the name of the first type in the
// chain of errors that is not one of plain text, or error.
func codeOf(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return string(e.Code)
	}
	if _, ok := errors.AsType[*panicError](err); ok {
		return "panic"
	}
	var coder interface{ ErrorCode() string }
	if errors.As(err, &coder) {
		return coder.ErrorCode()
	}
	for e := err; e != nil; e = errors.Unwrap(e) {
		if name := typeName(e); name != "" {
			return name
		}
	}
	return "error"
}

// typeName is the name of an error's type, without its package; empty for a type that is not exported, and for those of errors that are only
// text or that only wrap another.
func typeName(err error) string {
	t := reflect.TypeOf(err)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch pkg := t.PkgPath(); {
	case t.Name() == "" || t.Name()[0] < 'A' || t.Name()[0] > 'Z', pkg == "errors", pkg == "fmt":
		return ""
	}
	return t.Name()
}
