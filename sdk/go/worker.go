package millrace

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/millrace/millrace/sdk/go/internal/session"
	"github.com/millrace/millrace/sdk/go/internal/wire"
)

// Worker takes tasks of some queues and runs their handlers, a bounded number at once. It has a stream of its own for each
// partition of the namespace, over which its slots are divided: they go where the work is.
type Worker struct {
	c        *Client
	opts     workerOptions
	handlers map[string]handler       // by kind
	batches  map[string]*batchHandler // of the kinds that are handled in batches
	other    handler                  // of the kinds that handlers lacks; may be nil
	queues   []string                 // of the jobs that it handles, in the order they were registered
	started  atomic.Bool              // Run was called
	ended    chan struct{}            // closed when Run returned
	unknown  sync.Map                 // kinds without a handler that were logged
	engine   *session.Worker          // takes tasks, renews leases and settles
}

// workerOptions is what the options of a worker set.
type workerOptions struct {
	// slots is how many handlers run at once.
	slots  int
	queues []string      // empty: those of the jobs that it handles
	lease  time.Duration // 0: the tasks' own
	// weights are the shares of queues; those that it does not name have 1. inOrder serves queues in their order instead.
	weights map[string]int
	inOrder bool
	// name is what attempts record; batch is how many tasks one frame brings at most, and drain how long handlers may go on.
	name  string
	batch int
	drain time.Duration
	waits bool // see WaitForHandlers

	settled func(s Settlement) // hears of answers; may be nil
}

// WorkerOption changes a worker.
type WorkerOption interface{ worker(o *workerOptions) }

// workerFunc is a WorkerOption that sets fields of workerOptions.
type workerFunc func(o *workerOptions)

func (f workerFunc) worker(o *workerOptions) { f(o) }

// Slots sets how many handlers run at once, 1 to 4,096. Default: 16.
func Slots(n int) WorkerOption { return workerFunc(func(o *workerOptions) { o.slots = n }) }

// Queues sets the queues that the worker takes tasks from, 1 to 64, in turn. Default: those of the jobs that it handles.
func Queues(names ...string) WorkerOption {
	return workerFunc(func(o *workerOptions) { o.queues = names })
}

// Weights sets the shares of queues, 1 to 1,000, of the tasks that the worker is given where several have tasks ready: 3 and 1 give three
// of one queue for each of the other. A queue that it does not name has 1. It holds in each partition of the namespace.
func Weights(weights map[string]int) WorkerOption {
	return workerFunc(func(o *workerOptions) { o.weights = weights })
}

// InOrder gives the worker tasks of a queue when those before it in Queues have nothing ready. InOrder and Weights are mutually exclusive.
func InOrder() WorkerOption {
	return workerFunc(func(o *workerOptions) { o.inOrder = true })
}

// Lease sets the lease of the tasks that this worker takes, 1 s to 24 h, in place of their own.
func Lease(d time.Duration) WorkerOption { return workerFunc(func(o *workerOptions) { o.lease = d }) }

// Name sets the worker's name, which attempts of tasks record, at most 128 B. Default: host name and process id.
func Name(name string) WorkerOption { return workerFunc(func(o *workerOptions) { o.name = name }) }

// Batch sets how many tasks one frame delivers at most, 1 to 128. Default: 128.
func Batch(n int) WorkerOption { return workerFunc(func(o *workerOptions) { o.batch = n }) }

// DrainTimeout sets how long handlers may go on after Run's context has ended. Then their own contexts end, and their tasks are
// given back when they return, or 2 s later. Default: 25 s, below the 30 s after which Kubernetes kills a process.
func DrainTimeout(d time.Duration) WorkerOption {
	return workerFunc(func(o *workerOptions) { o.drain = d })
}

// WaitForHandlers makes the worker wait for every handler to return. A slot is free only then, even if the lease was lost before, and
// at the end of Run a task is given back only then, however long that takes. Use it for handlers that return soon after their context
// has ended, such as those that run programs. Without it a handler that hangs takes no slot and does not delay the end of Run, but it
// may run at the same time as the next attempt of its task.
func WaitForHandlers() WorkerOption { return workerFunc(func(o *workerOptions) { o.waits = true }) }

const (
	maxSlots      = 4096
	unknownSnooze = 30 * time.Second // another worker may know the kind
)

// Worker makes a worker. Give it handlers, then Run it.
func (c *Client) Worker(opts ...WorkerOption) *Worker {
	o := workerOptions{
		slots: 16, name: fmt.Sprintf("%s-%d", wire.Cut(session.HostName(), session.MaxName-20), os.Getpid()), batch: 128,
		drain: 25 * time.Second,
	}
	for _, opt := range opts {
		opt.worker(&o)
	}
	w := &Worker{c: c, opts: o, handlers: map[string]handler{}, ended: make(chan struct{})}
	w.engine = session.NewWorker(c.hub, runner{w}, session.WorkerOptions{
		Name: o.name, Slots: o.slots, Batch: o.batch, Lease: o.lease, Drain: o.drain, Waits: o.waits,
	})
	return w
}

// register adds a handler, and a queue to take tasks from.
func (w *Worker) register(kind, queue string, h handler) {
	w.handlers[kind] = h
	if !slices.Contains(w.queues, queue) {
		w.queues = append(w.queues, queue)
	}
}

// check refuses a worker that cannot run, and settles which queues it takes tasks from.
func (w *Worker) check() error {
	if len(w.opts.queues) > 0 {
		w.queues = w.opts.queues
	}
	switch {
	case len(w.handlers) == 0 && w.other == nil:
		return errors.New("run worker: it has no handlers")
	case w.opts.slots < 1 || w.opts.slots > maxSlots:
		return fmt.Errorf("run worker: %d slots are not within 1 and %d", w.opts.slots, maxSlots)
	case !utf8.ValidString(w.opts.name):
		return badText("worker.id")
	}
	if len(w.queues) == 0 {
		return errors.New("run worker: it has no queues")
	}
	for q := range w.opts.weights {
		if !slices.Contains(w.queues, q) {
			return fmt.Errorf("run worker: weights: queue %q is not one of the worker's", q)
		}
	}
	for _, q := range w.queues {
		if !utf8.ValidString(q) {
			return badText("queues")
		}
	}
	return nil
}

// Run takes tasks until ctx ends, then drains: it takes no more, lets handlers finish within DrainTimeout, gives back what
// has not, and returns nil when all of that was acknowledged. It returns early with the error of a server that refuses
// the stream for good, such as for a bad token; handlers then end. A worker runs once.
func (w *Worker) Run(ctx context.Context) error {
	if err := w.check(); err != nil {
		return err
	}
	if w.started.Swap(true) {
		return errors.New("run worker: it has run already")
	}
	defer close(w.ended)
	if err := w.c.enter(w); err != nil {
		return err
	}
	defer w.c.leave(w)
	if err := w.engine.Run(ctx, w.work()); err != nil {
		return fmt.Errorf("run worker: %w", err)
	}
	return nil
}

// work is what the engine is to take.
func (w *Worker) work() session.Work {
	out := session.Work{Queues: w.queues, Weights: make(map[string]uint32, len(w.opts.weights)), InOrder: w.opts.inOrder}
	for q, n := range w.opts.weights {
		out.Weights[q] = weight(n)
	}
	if w.other == nil { // else it has a handler for any
		out.Kinds = slices.Sorted(maps.Keys(w.handlers))
	}
	for kind, b := range w.batches {
		if out.Batches == nil {
			out.Batches = map[string]int{}
		}
		out.Batches[kind] = b.n
	}
	return out
}

// Frames returns how many frames of settles and renewals this worker has sent on the streams that are open.
func (w *Worker) Frames() (n uint64) { return w.engine.Frames() }
