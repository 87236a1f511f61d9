package session

import (
	"context"
	"os"
	"sync"
	"time"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/sdk/go/internal/fault"
	"github.com/millrace/millrace/sdk/go/internal/transport"
	"github.com/millrace/millrace/sdk/go/internal/wire"
)

// Handlers is what a Worker calls for its tasks. Each of Run and RunBatch must end the attempts that it is given.
type Handlers interface {
	// Begin makes the attempt of an assignment, with its Owner; the Worker fills in all else. It is called with the worker's mutex
	// held, and must not call the worker.
	Begin(m *millracev1.Assignment) *Attempt
	// Double makes an attempt that stands for a while a's handler still runs. Otherwise as Begin.
	Double(a *Attempt) *Attempt
	// Run runs the handler of a. With a refusal it asks what is to become of an attempt whose effects were refused.
	Run(a *Attempt, refusal *fault.Fault)
	// RunBatch runs one handler for attempts of one kind. The slice is the callee's only while it runs.
	RunBatch(kind string, attempts []*Attempt)
	// Settled hears of the answer to a settle; f is nil when it was applied. It must be quick.
	Settled(a *Attempt, op string, replayed bool, f *fault.Fault)
}

// WorkerOptions says how a Worker goes about its tasks.
type WorkerOptions struct {
	Name  string        // which attempts of tasks record
	Slots int           // how many handlers run at once
	Batch int           // tasks of one frame, at most
	Lease time.Duration // of the tasks that it takes; 0: their own
	Drain time.Duration // handlers may go on for this long after Run's context has ended
	Waits bool          // a slot is free, and a task given back, only when its handler has returned
}

// Work is the tasks that a Worker takes.
type Work struct {
	Kinds []string // of its handlers, sorted: servers show them
	// Queues are those that tasks are taken from, in turn.
	Queues []string
	// Weights of queues, as the messages have them; in order, if InOrder.
	Weights map[string]uint32
	InOrder bool
	Batches map[string]int // kinds that are run in batches, and how many attempts a batch takes at most; nil: none
}

// Worker takes tasks and has them run, a bounded number at once. It has a stream for each partition of the namespace, over which its
// slots are divided: they go where the work is. It runs once.
type Worker struct {
	hub *Hub
	// opts is fixed when the worker is made, work when it runs.
	opts     WorkerOptions
	work     Work
	handlers Handlers
	// base is the context of handlers: it has the values of Run's context without its end.
	base context.Context
	// stopping is closed with Run's context, stopped by Quit, which stopOnce does once.
	stopping <-chan struct{}
	stopped  chan struct{}
	stopOnce sync.Once

	mu sync.Mutex // guards the fields below, the streams and their sessions
	// streams are by partition; there is one until it tells how many partitions there are.
	streams []*workerStream
	// failed takes the first error that ends a stream for good.
	failed chan error
	// missed counts the tasks of streams that ended while the worker drains.
	missed int
	// ready are the attempts that wait for a goroutine.
	ready deque[*Attempt]

	// cond is where goroutines without a task wait; parked are those of them that no task was promised to.
	cond   *sync.Cond
	parked int
	// live counts the goroutines, and beyond those of them whose handler runs on though its task is no longer theirs: they take no
	// slot.
	live, beyond int
	// over says that goroutines end when no task waits; quiet is closed when the last of them has.
	over  bool
	quiet chan struct{}
	// drains says that the worker takes no more tasks; draining is closed then, and drained when it holds none.
	drains   bool
	draining chan struct{}
	drained  chan struct{}

	// slots keeps the slots divided over the streams.
	slots division
}

const (
	// MaxName bounds the name of a worker, and of its host, in bytes.
	MaxName      = 128
	returnWithin = 2 * time.Second // for handlers whose context was ended by the drain
	closeStream  = time.Second     // for the server to end a stream on which nothing is left
)

// NewWorker makes a worker of a client.
func NewWorker(hub *Hub, handlers Handlers, o WorkerOptions) *Worker {
	w := &Worker{
		hub: hub, opts: o, handlers: handlers, failed: make(chan error, 1),
		stopped: make(chan struct{}), draining: make(chan struct{}), drained: make(chan struct{}),
		quiet: make(chan struct{}),
	}
	w.streams = []*workerStream{newWorkerStream(w, 0)}
	w.streams[0].share.slots = o.Slots
	w.cond = sync.NewCond(&w.mu)
	return w
}

// HostName is the machine's name, for people.
func HostName() string {
	host, _ := os.Hostname() // without one there is none to show
	return host
}

// Run takes tasks until ctx ends or Quit is called, then drains: it takes no more, lets handlers finish, gives back what has not, and
// returns nil when all of that was acknowledged. It returns early with the error of a server that refuses the stream for good.
func (w *Worker) Run(ctx context.Context, work Work) error {
	w.work = work
	w.base, w.stopping = context.WithoutCancel(ctx), ctx.Done()
	w.mu.Lock()
	go w.streams[0].run()
	if n := w.hub.Partitions(); n > 1 && w.hub.Router.Using() == transport.Stream {
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
		w.finishAll(err, w.opts.Drain) // the leases are lost: nothing can be settled any more
		return err
	}
}

// Base is the context of what is run for several tasks at once: it has the values of Run's, and no end.
func (w *Worker) Base() context.Context { return w.base }

// Quit ends Run as the end of its context does.
func (w *Worker) Quit() { w.stopOnce.Do(func() { close(w.stopped) }) }

// Reauth tells the open streams of a new token, which the Hub has already.
func (w *Worker) Reauth(token string) {
	w.mu.Lock()
	streams := w.streams
	w.mu.Unlock()
	for _, l := range streams {
		l.s.reauth(token)
	}
}

// Frames returns how many frames of settles and renewals were sent on the streams that are open.
func (w *Worker) Frames() (n uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range w.streams {
		n += l.s.seq
	}
	return n
}

// State is what a Worker is at.
type State struct {
	Held    []wire.Lease // whose settle has no answer, of all partitions, in no order
	Running []wire.Lease // of them, those whose handler runs
	Waiting int          // settles that wait to be written
	Live    int          // goroutines that run handlers, or wait for a task
	Beyond  int          // of them, those whose handler outlived its lease
	Open    int          // sessions that have not ended
}

// State returns what the worker is at. It is for tests.
func (w *Worker) State() (s State) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s.Live, s.Beyond = w.live, w.beyond
	for _, l := range w.streams {
		s.Waiting += l.settles.len()
		for lease, a := range l.held {
			s.Held = append(s.Held, lease)
			if a.stage == running {
				s.Running = append(s.Running, lease)
			}
		}
		select {
		case <-l.s.done:
		default:
			s.Open++
		}
	}
	return s
}
