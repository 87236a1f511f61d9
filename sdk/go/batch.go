package millrace

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"

	"github.com/millrace/millrace/sdk/go/internal/wire"
)

// batchHandler runs several attempts of one kind in one call.
type batchHandler struct {
	// n is how many attempts one call takes at most.
	n   int
	run func(ctx context.Context, tasks []*Task) (results [][]byte, errs []error)
}

// HandleBatch makes w run fn for tasks of kind, up to n (1 to 512) of those that wait at once, with payloads and results
// as bytes. results and errs are indexed like tasks; where errs has an error that attempt fails, as it does with HandleRaw,
// and elsewhere the task completes with its result. Either may be short: what is missing is an empty result and no error.
// A panic fails every task of the call. Without the option Queues it takes tasks of the queue with that name.
//
// Each task holds a slot of its own, has a lease of its own and may have effects. ctx ends when the worker gives up; the
// loss of one lease does not end it, and what fn returns for that task changes nothing; nor does the cancel of a task, which an error
// for it confirms. The slice is fn's only while it
// runs. Call it before Run.
func (w *Worker) HandleBatch(kind string, n int, fn func(ctx context.Context, tasks []*Task) (results [][]byte, errs []error)) {
	w.registerBatch(kind, kind, n, fn)
}

// HandleBatch makes w run fn for tasks of this job, up to n (1 to 512) of those that wait at once, and take tasks of its queue. args are
// theirs, in the order of tasks; one whose arguments cannot be decoded ends as with Handle, and fn does not get it. A result that is
// missing is the zero value of R. Otherwise as Worker.HandleBatch.
func (j *JobOf[A, R]) HandleBatch(w *Worker, n int, fn func(ctx context.Context, tasks []*Task, args []A) (results []R, errs []error)) {
	codec := j.codecOr(w.c.opts.codec)
	w.registerBatch(j.settings.kind, j.settings.queue, n, func(ctx context.Context, tasks []*Task) ([][]byte, []error) {
		out, failed := make([][]byte, len(tasks)), make([]error, len(tasks))
		var given []*Task
		var args []A
		var at []int // of given in tasks
		for i, t := range tasks {
			var a A
			if err := decode(codec, t.Payload, t.ContentType, &a); err != nil {
				failed[i] = Fatal(invalidArgsError{err})
				continue
			}
			given, args, at = append(given, t), append(args, a), append(at, i)
		}
		if len(given) == 0 {
			return out, failed
		}
		results, errs := fn(ctx, slices.Clone(given), args)
		bad := tooMany(len(results), len(errs), len(given))
		for k, i := range at {
			switch {
			case bad != nil:
				failed[i] = bad
				continue
			case k < len(errs) && errs[k] != nil:
				failed[i] = errs[k]
				continue
			}
			var r R // of a task that has none
			if k < len(results) {
				r = results[k]
			}
			out[i], given[k].ResultType, failed[i] = encode(codec, r)
		}
		return out, failed
	})
}

// registerBatch adds a handler of batches.
func (w *Worker) registerBatch(kind, queue string, n int, run func(ctx context.Context, tasks []*Task) ([][]byte, []error)) {
	w.register(kind, queue, func(context.Context, *Task) ([]byte, string, error) {
		return nil, "", errNotBatched
	})
	if w.batches == nil {
		w.batches = map[string]*batchHandler{}
	}
	w.batches[kind] = &batchHandler{n: min(max(n, 1), wire.FrameItems), run: run}
}

// tooMany is the error of all tasks of a handler that returned more than one outcome for a task.
func tooMany(results, errs, tasks int) error {
	if results <= tasks && errs <= tasks {
		return nil
	}
	return fmt.Errorf("the handler returned %d results and %d errors for %d tasks", results, errs, tasks)
}

// errNotBatched is never told: the engine runs tasks of such a kind in batches alone.
var errNotBatched = errors.New("tasks of this kind are handled in batches")

// Settlement is the server's answer to the end of one attempt.
type Settlement struct {
	// Task is the attempt that ended, as its handler saw it.
	Task     *Task
	Op       string // complete, fail, stop, snooze, release
	Replayed bool   // the answer is to a repeat: it was applied before
	Err      *Error // why it was refused; nil: it was applied
}

// OnSettled makes f hear of every answer to a settle, as it comes. f runs where answers are read: it must be quick, and
// must not call the client. A settle that is tried again is told when that has ended; one whose lease the server ended
// before it was sent is not told at all.
func OnSettled(f func(s Settlement)) WorkerOption {
	return workerFunc(func(o *workerOptions) { o.settled = f })
}

// invoke calls the handler; a panic becomes the error of all tasks. outcome tells what became of the task i.
func (b *batchHandler) invoke(ctx context.Context, tasks []*Task) (outcome func(i int) (result []byte, err error)) {
	defer func() {
		if v := recover(); v != nil {
			err := &panicError{v, debug.Stack()}
			outcome = func(int) ([]byte, error) { return nil, err }
		}
	}()
	n := len(tasks)
	results, errs := b.run(ctx, tasks)
	return func(i int) (result []byte, err error) {
		if err := tooMany(len(results), len(errs), n); err != nil {
			return nil, err
		}
		if i < len(results) {
			result = results[i]
		}
		if i < len(errs) {
			err = errs[i]
		}
		return result, err
	}
}

// Frames returns how many frames of creates and commits this client has sent on the streams that are open: calls gathered
// per frame are calls ÷ frames.
func (c *Client) Frames() (n uint64) { return c.calls.Frames() }
