package millrace

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

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
	w.register(kind, kind, func(context.Context, *Task) ([]byte, string, error) {
		return nil, "", errNotBatched
	})
	if w.batches == nil {
		w.batches = map[string]*batchHandler{}
	}
	w.batches[kind] = &batchHandler{n: min(max(n, 1), wire.FrameItems), run: fn}
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

// invoke calls the handler; a panic becomes the error of all tasks.
func (b *batchHandler) invoke(ctx context.Context, tasks []*Task) (results [][]byte, errs []error, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &panicError{v, debug.Stack()}
		}
	}()
	results, errs = b.run(ctx, tasks)
	if len(results) > len(tasks) || len(errs) > len(tasks) {
		return nil, nil, fmt.Errorf("the handler returned %d results and %d errors for %d tasks", len(results), len(errs), len(tasks))
	}
	return results, errs, nil
}

// Frames returns how many frames of creates and commits this client has sent on the streams that are open: calls gathered
// per frame are calls ÷ frames.
func (c *Client) Frames() (n uint64) { return c.calls.Frames() }
