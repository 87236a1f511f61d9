package millrace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/sdk/go/internal/wire"
)

// Worker takes tasks of some queues and runs their handlers, a bounded number at once. It has a stream of its own for each
// partition of the namespace, over which its slots are divided: they go where the work is.
type Worker struct {
	c        *Client
	opts     workerOptions
	handlers map[string]handler
	batches  map[string]*batchHandler // of the kinds that are handled in batches
	other    handler                  // of the kinds that handlers lacks; may be nil
	queues   []string
	base     context.Context // of the handlers: the values of Run's context without its end
	stopping <-chan struct{} // closed with Run's context
	stopOnce sync.Once
	stopped  chan struct{} // closed by quit
	ended    chan struct{} // closed when Run returned
	unknown  sync.Map      // kinds without a handler that were logged

	mu      sync.Mutex // guards the fields below, the streams and their sessions
	started bool
	streams []*workerStream // by partition; one until a stream tells how many there are
	failed  chan error      // takes the first that ends a stream for good
	missed  int             // tasks of streams that ended while the worker drains
	ready   deque[*Task]    // wait for a goroutine

	cond    *sync.Cond    // goroutines without a task wait here
	parked  int           // of them, those that no task was promised to
	live    int           // goroutines
	beyond  int           // of them, those whose handler runs on though its task is no longer theirs, and take no slot
	over    bool          // goroutines end when no task waits
	quiet   chan struct{} // closed when the last of them has
	drained chan struct{}
	drains  bool

	slots division
}

type workerOptions struct {
	slots  int
	queues []string
	lease  time.Duration
	name   string
	batch  int
	drain  time.Duration
	waits  bool // see WaitForHandlers

	settled func(s Settlement) // hears of answers; may be nil
}

// WorkerOption changes a worker.
type WorkerOption interface{ worker(o *workerOptions) }

type workerFunc func(o *workerOptions)

func (f workerFunc) worker(o *workerOptions) { f(o) }

// Slots sets how many handlers run at once, 1 to 4,096. Default: 16.
func Slots(n int) WorkerOption { return workerFunc(func(o *workerOptions) { o.slots = n }) }

// Queues sets the queues that the worker takes tasks from, 1 to 64, in turn. Default: those of the jobs that it handles.
func Queues(names ...string) WorkerOption {
	return workerFunc(func(o *workerOptions) { o.queues = names })
}

// Lease sets the lease of the tasks that this worker takes, 1 s to 24 h, in place of their own.
func Lease(d time.Duration) WorkerOption { return workerFunc(func(o *workerOptions) { o.lease = d }) }

// Name sets the worker's name, which attempts of tasks record, at most 128 B. Default: host name and process id.
func Name(name string) WorkerOption { return workerFunc(func(o *workerOptions) { o.name = name }) }

// Batch sets how many tasks one frame delivers at most, 1 to 128. Default: 128.
func Batch(n int) WorkerOption { return workerFunc(func(o *workerOptions) { o.batch = n }) }

// DrainTimeout sets how long handlers may go on after Run's context has ended. Then their own contexts end, and their tasks are
// given back when they return, or 2 s later. Default: 30 s.
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
	maxName       = 128              // bytes of a worker's name, and of its host's
	unknownSnooze = 30 * time.Second // another worker may know the kind
	returnWithin  = 2 * time.Second  // for handlers whose context was ended by the drain
	closeStream   = time.Second
)

// Worker makes a worker. Give it handlers, then Run it.
func (c *Client) Worker(opts ...WorkerOption) *Worker {
	host, _ := os.Hostname() // only a name for people
	o := workerOptions{slots: 16, name: fmt.Sprintf("%s-%d", cut(host, maxName-20), os.Getpid()), batch: 128, drain: 30 * time.Second}
	for _, opt := range opts {
		opt.worker(&o)
	}
	w := &Worker{
		c: c, opts: o, handlers: map[string]handler{}, failed: make(chan error, 1),
		stopped: make(chan struct{}), ended: make(chan struct{}), drained: make(chan struct{}), quiet: make(chan struct{}),
	}
	w.streams = []*workerStream{newWorkerStream(w, 0)}
	w.streams[0].share.slots = o.slots
	w.cond = sync.NewCond(&w.mu)
	return w
}

func (w *Worker) register(kind, queue string, h handler) {
	w.handlers[kind] = h
	if !slices.Contains(w.queues, queue) {
		w.queues = append(w.queues, queue)
	}
}

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
	w.mu.Lock()
	again := w.started
	w.started = true
	w.mu.Unlock()
	if again {
		return errors.New("run worker: it has run already")
	}
	defer close(w.ended)
	if err := w.c.enter(w); err != nil {
		return err
	}
	defer w.c.leave(w)
	w.base, w.stopping = context.WithoutCancel(ctx), ctx.Done()
	w.mu.Lock()
	go w.streams[0].run()
	if n := w.c.partitions(); n > 1 && w.c.Transport() == TransportStream {
		w.widen(n)
	}
	w.mu.Unlock()
	select {
	case <-ctx.Done():
		return w.drain()
	case <-w.stopped:
		return w.drain()
	case err := <-w.failed:
		w.abort(err)
		w.finishAll(err, w.opts.drain) // the leases are lost: nothing can be settled any more
		return fmt.Errorf("run worker: %w", err)
	}
}

// quit ends Run as the end of its context does.
func (w *Worker) quit() { w.stopOnce.Do(func() { close(w.stopped) }) }

// abort ends the streams of all streams. No handler begins any more, and when it returns nothing comes any more.
func (w *Worker) abort(cause error) {
	w.mu.Lock()
	w.finish()
	streams := w.streams // none is added any more
	w.mu.Unlock()
	for _, l := range streams {
		l.s.stop(cause)
	}
	for _, l := range streams {
		<-l.s.done
	}
}

// finish takes back what waits for a goroutine, and ends those that wait for a task. It needs mu.
func (w *Worker) finish() {
	w.slots.stop()
	for w.ready.len() > 0 {
		w.ready.popFront()
	}
	w.over = true
	w.noteQuiet()
	w.cond.Broadcast()
}

// noteQuiet tells finishAll when the last goroutine has ended. It needs mu.
func (w *Worker) noteQuiet() {
	if !w.over || w.live > 0 {
		return
	}
	select {
	case <-w.quiet:
	default:
		close(w.quiet)
	}
}

// drain finishes what is held, or gives it back, and closes the stream.
func (w *Worker) drain() error {
	w.mu.Lock()
	w.beginDrain()
	w.mu.Unlock()
	late := time.NewTimer(w.opts.drain)
	defer late.Stop()
	select {
	case <-w.drained:
	case <-late.C:
		w.endHandlers()
		if !w.waits(w.drained, returnWithin) {
			w.giveBack()
			within(w.drained, wire.ReleaseWithin)
		}
	}
	w.mu.Lock()
	streams := w.streams // none is added any more
	w.mu.Unlock()
	var closed sync.WaitGroup
	for _, l := range streams {
		closed.Go(func() { l.s.drain(closeStream) })
	}
	closed.Wait()
	if left := w.finishAll(ErrClosed, wire.ReleaseWithin); left > 0 {
		return fmt.Errorf("run worker: %d tasks were not settled before the end", left)
	}
	return nil
}

// mayDrain begins to drain if Run is to end and has not noticed yet: what a handler gives back after it stopped the worker
// must not come to this worker again. It needs mu.
func (w *Worker) mayDrain() {
	select {
	case <-w.stopping:
	case <-w.stopped:
	default:
		return
	}
	w.beginDrain()
}

// beginDrain tells the server to send no more and gives back what no handler has begun. It does so once, and needs mu.
func (w *Worker) beginDrain() {
	if w.drains {
		return
	}
	w.drains = true
	for _, l := range w.streams {
		if l.failed != nil {
			l.abandon()
			continue
		}
		l.subscribe, l.restate = false, false
		if l.s.up {
			l.control.pushBack(&millracev1.ClientFrame{Frame: &millracev1.ClientFrame_Drain{Drain: &millracev1.Drain{}}})
		}
		l.s.poke()
	}
	w.slots.stop()
	w.ready.keep(func(t *Task) bool {
		if !t.lost && t.refusal == nil {
			w.release(t)
		}
		return !t.lost && t.refusal != nil // its handler finished, and may do so again
	})
	w.noteDrained()
}

// release queues t's release. It needs mu.
func (w *Worker) release(t *Task) {
	t.failed(errRelease)
	t.invoke = w.c.ledger.now()
	t.to(settling)
	t.l.settles.pushBack(t)
}

// waits waits for done: for d, or with WaitForHandlers for as long as that takes. It reports whether done was closed.
func (w *Worker) waits(done <-chan struct{}, d time.Duration) bool {
	if w.opts.waits {
		<-done
		return true
	}
	return within(done, d)
}

// within waits for done, at most for d. It reports whether done was closed.
func within(done <-chan struct{}, d time.Duration) bool {
	late := time.NewTimer(d)
	defer late.Stop()
	select {
	case <-done:
		return true
	case <-late.C:
		return false
	}
}

// endHandlers ends the contexts of the handlers that did not finish in time. Their tasks go back when they return, with or without
// an error: many a handler that is told to stop half-way returns without one.
func (w *Worker) endHandlers() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range w.streams {
		for _, t := range l.held {
			if t.stage == running {
				t.stopped = true
				t.cancel(errDrained)
			}
		}
	}
}

// giveBack releases the tasks whose handlers have not returned though their contexts have ended.
func (w *Worker) giveBack() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range w.streams {
		for _, t := range l.held {
			if t.stage != running {
				continue
			}
			t.released = true
			w.beyond++
		}
		// The item of a task belongs to the goroutine that runs its handler: the release is a task of its own.
		for _, t := range l.held {
			if t.released {
				r := &Task{ID: t.ID, Kind: t.Kind, Queue: t.Queue, Attempt: t.Attempt, w: w, l: l, token: t.token, lease: t.lease, ctx: t.ctx, cancel: t.cancel, renewAt: t.renewAt, unbound: t.unbound}
				l.held[t.key()] = r
				w.release(r)
			}
		}
		l.s.poke()
	}
}

var errDrained = errors.New("the worker stopped and gave the task back")

// finishAll ends the handlers' contexts and the goroutines that wait for tasks, and waits at most d for all of them. It
// returns how many tasks are held still.
func (w *Worker) finishAll(cause error, d time.Duration) (left int) {
	w.mu.Lock()
	for _, l := range w.streams {
		left += len(l.held)
		for k, t := range l.held {
			t.lost = true
			t.cancel(cause)
			delete(l.held, k)
		}
		if l.renewTimer != nil {
			l.renewTimer.Stop()
		}
	}
	left += w.missed
	w.finish()
	w.mu.Unlock()
	w.waits(w.quiet, d)
	return left
}

// noteDrained tells drain when nothing is held any more. It needs mu.
func (w *Worker) noteDrained() {
	if !w.drains {
		return
	}
	for _, l := range w.streams {
		if len(l.held) > 0 {
			return
		}
	}
	select {
	case <-w.drained:
	default:
		close(w.drained)
	}
}
