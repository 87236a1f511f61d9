package millrace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"

	"github.com/millrace/millrace/sdk/go/internal/wire"
)

// batchHandler runs several attempts of one kind in one call.
type batchHandler struct {
	n   int
	run func(ctx context.Context, tasks []*Task) (results [][]byte, errs []error)
}

// HandleBatch makes w run fn for tasks of kind, up to n (1 to 512) of those that wait at once, with payloads and results
// as bytes. results and errs are indexed like tasks; where errs has an error that attempt fails, as it does with HandleRaw,
// and elsewhere the task completes with its result. Either may be short: what is missing is an empty result and no error.
// A panic fails every task of the call. Without the option Queues it takes tasks of the queue with that name.
//
// Each task holds a slot of its own, has a lease of its own and may have effects. ctx ends when the worker gives up; the
// loss of one lease does not end it, and what fn returns for that task changes nothing. The slice is fn's only while it
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

var errNotBatched = errors.New("tasks of this kind are handled in batches")

// Settlement is the server's answer to the end of one attempt.
type Settlement struct {
	Task     *Task
	Op       string // complete, fail, snooze, release
	Replayed bool   // the answer is to a repeat: it was applied before
	Err      *Error // why it was refused; nil: it was applied
}

// OnSettled makes f hear of every answer to a settle, as it comes. f runs where answers are read: it must be quick, and
// must not call the client. A settle that is tried again is told when that has ended; one whose lease the server ended
// before it was sent is not told at all.
func OnSettled(f func(s Settlement)) WorkerOption {
	return workerFunc(func(o *workerOptions) { o.settled = f })
}

// tell passes an answer on.
func (w *Worker) tell(s Settlement) {
	if w.opts.settled != nil {
		w.opts.settled(s)
	}
}

// startBatch gives n tasks that were queued to goroutines, one for as many as a call takes. It needs mu.
func (w *Worker) startBatch(n int) {
	size := 1
	for _, b := range w.batches {
		size = max(size, b.n)
	}
	for ; n > 0; n -= size {
		w.spread()
	}
}

// gather adds first, and what waits behind it, to tasks for one call of b. It needs mu.
func (w *Worker) gather(tasks []*Task, b *batchHandler, first *Task) []*Task {
	tasks = append(slices.Grow(tasks, min(b.n, 1+w.ready.len())), first)
	for len(tasks) < b.n && w.ready.len() > 0 {
		t := w.ready.front()
		if t.Kind != first.Kind || t.refusal != nil {
			break
		}
		w.ready.popFront()
		if !t.lost {
			tasks = append(tasks, t)
		}
	}
	for _, t := range tasks {
		t.to(running)
	}
	return tasks
}

// runBatch calls the handler and writes the items that end the attempts.
func (w *Worker) runBatch(b *batchHandler, tasks []*Task) {
	if w.c.ledger != nil {
		for _, t := range tasks {
			line := w.line(t, "deliver")
			line.Invoke = w.c.ledger.now()
			w.c.ledger.write(line, nil, nil)
		}
	}
	results, errs, err := b.invoke(w.base, tasks)
	now := w.c.ledger.now()
	for i, t := range tasks {
		var result []byte
		if i < len(results) {
			result = results[i]
		}
		failed := err
		if failed == nil && i < len(errs) {
			failed = errs[i]
		}
		t.settle(result, cmp.Or(t.ResultType, typeBytes), failed)
		t.invoke = now
	}
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
func (c *Client) Frames() (n uint64) {
	for _, p := range c.producers() {
		n += p.s.sent()
	}
	return n
}

// Frames returns how many frames of settles and renewals this worker has sent on the streams that are open.
func (w *Worker) Frames() (n uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range w.streams {
		n += l.s.seq
	}
	return n
}

func (s *session) sent() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seq
}
