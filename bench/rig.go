package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	millrace "github.com/millrace/millrace/sdk/go"
)

// A driver that is to keep up with restarts reads Rig.Servers again after Restart. Endpoint is one
// server of a run, as a driver reaches it.
type Endpoint struct {
	Name    string // such as server-1
	Address string // host:port of the gRPC edge
	// HTTP and Admin are base addresses of the REST door and of the admin listener; empty: there is
	// no such listener.
	HTTP string
	//
	Admin string
	// Socket is the path of the operator's socket, over which that is changed which the admin
	// listener only shows; empty: there is none.
	Socket string
}

// Rig is what a driver gets for one run: where the servers are, what to send, and what to count by.
// The harness makes it for each run, sets the exported fields, and reads the results after the
// driver has returned. Methods that count and record may be called from any goroutine.
type Rig struct {
	Suite      string
	Row        string
	Shape      Shape
	Durability Durability
	Servers    []Endpoint
	Token      string
	// Others are the tokens of further tenants.
	Others    []string
	Namespace string
	Queue     string
	// Payload and Result are what each task carries, and what each is completed with. The audit compares them.
	Payload []byte
	Result  []byte
	Window  time.Duration
	Warmup  time.Duration
	// Concurrency is the calls under way at once in a closed loop; 0: as the shape says.
	Concurrency int
	// Rate, above 0, makes the loop an open one with that many arrivals a second. InFlight bounds
	// its calls under way.
	Rate     float64
	Arrivals Arrivals
	InFlight int
	Seed     uint64
	// Full says that everything is read back.
	Full   bool
	Ledger *Ledger
	// Dir is for temporary files of suites that need some; empty at a target.
	Dir string
	// Ceiling says that the server only acknowledges: the generator is measured.
	Ceiling bool
	// Keys is made by the driver of a suite that puts keys, and Refs by one that moves refs; nil:
	// the ledger alone counts.
	Keys *KeyLedger
	//
	Refs *RefLedger
	// NextTo reaches the single-node server that runs next to those of the row; nil: there is none.
	// It counts nothing.
	NextTo *Rig
	// Proofs are what a driver proves itself when the servers are audited: each returns what is wrong.
	Proofs []func(ctx context.Context) (violations []string, err error)

	// Resolution is how often the histograms of an interval are kept; a driver may set it before Measure. Default 1 s.
	Resolution time.Duration
	// OnInterval hears of each interval's histogram of each operation, between Measure's start and its end.
	OnInterval func(op string, h *hdrhistogram.Histogram)
	// Held keeps the window open beyond its time, ten times as long at most, while it returns true: on a machine that is busy
	// with other work a window may end before everything that a figure is made of has happened once. A driver may set it
	// before Measure; nil: the window ends with its time.
	Held func() bool

	// plain are options of every connection.
	plain  []millrace.Option
	clocks Clocks
	// measuring says that the window is open. Recorders read it with every call.
	measuring atomic.Bool
	// opened and closed are the edges of the window; nil: not reached yet.
	opened atomic.Pointer[time.Time]
	closed atomic.Pointer[time.Time]
	// generating is when an open loop started.
	generating atomic.Pointer[time.Time]
	// stopped is closed, once, when the window has ended; begin and end are closed when it begins,
	// and when it has ended and been read.
	stopped  chan struct{}
	stopOnce sync.Once
	//
	begin chan struct{}
	//
	end chan struct{}
	// marks hears of both edges, outside of the measured time; may be nil.
	marks   func(ctx context.Context, e edge) error
	drained time.Duration
	// kill, killOne and restart are nil for servers that are not processes of the bench.
	kill    func() error
	killOne func(n int) error
	//
	restart func(ctx context.Context) error
	// loses says that servers die and come back by the driver's doing.
	loses bool
	// purges says that the servers remove ended tasks within the run.
	purges bool

	drainLimit time.Duration
	// left tells how many tasks have not ended, as the servers say; nil: not known.
	left  func(ctx context.Context) (uint64, error)
	watch *watch
	hists *histLog
	// rotated is when the last interval ended. The goroutine that rotates owns it and hists.
	rotated time.Time

	mu  sync.Mutex // guards the fields below
	ops map[string]*Op
	// order has the operations of ops in the order in which they were first used.
	order   []*Op
	metrics map[string]Metric
	// errs counts errors by operation and code, at most maxErrorClasses.
	errs   map[errorKey]*ErrorClass
	warned []Warning
	// gauges are the newest values that the driver set; each second of the series takes a copy.
	gauges  map[string]float64
	offered offered
	// under is the mean number of calls under way, where the driver tells it; 0: it does not.
	under   float64
	peerCPU float64
	peer    *PeerReport
}

// edge is the beginning or the end of the window.
type edge int

const (
	windowBegins edge = iota
	windowEnds
)

// errorKey is what errors are counted by.
type errorKey struct{ op, code string }

// offered is what an open loop had to start in the window, and what it started. due is computed
// from the pattern after the window.
type offered struct{ due, started, dropped uint64 }

// init makes the channels and maps that every rig needs.
func (r *Rig) init() {
	r.stopped, r.begin, r.end = make(chan struct{}), make(chan struct{}), make(chan struct{})
	r.ops, r.metrics, r.errs = map[string]*Op{}, map[string]Metric{}, map[errorKey]*ErrorClass{}
}

// Dial connects the public client to the n-th server, counted round; it is told of the others, which it may be sent to.
func (r *Rig) Dial(ctx context.Context, n int, opts ...millrace.Option) (*millrace.Client, error) {
	addresses := make([]string, len(r.Servers))
	for i := range r.Servers {
		addresses[i] = r.Servers[(n+i)%len(r.Servers)].Address
	}
	opts = slices.Concat(r.plain, []millrace.Option{
		millrace.Address(strings.Join(addresses, ",")), millrace.Token(r.Token), millrace.Namespace(r.Namespace), millrace.Timeout(0),
	}, opts)
	return millrace.Dial(ctx, opts...)
}

// Op returns the recorder of an operation, such as create or complete.
func (r *Rig) Op(name string) *Op {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := r.ops[name]
	if o == nil {
		o = &Op{name: name, rig: r}
		for i := range o.shards {
			o.shards[i].interval, o.shards[i].all = newHist(), newHist()
		}
		r.ops[name] = o
		r.order = append(r.order, o)
	}
	return o
}

// Metric keeps a value that the driver measured itself.
func (r *Rig) Metric(name string, value float64, unit string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.metrics[name] = Metric{value, unit}
}

// UnderWay tells how many calls were under way at a time, by their mean over the window: what the rate and the latency
// are held against where a goroutine does not wait for one call before it makes the next.
func (r *Rig) UnderWay(mean float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.under = mean
}

// PeerCPU tells how many seconds of CPU a peer used within the window on this host: they are not interference.
func (r *Rig) PeerCPU(seconds float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.peerCPU = seconds
}

// Peer tells what the run alternates with.
func (r *Rig) Peer(p PeerReport) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.peer = &p
}

// Warn adds a warning to the run's figures.
func (r *Rig) Warn(code, detail string, value float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.warned = append(r.warned, Warning{code, detail, value})
}

// Fail notes an error that belongs to no call, such as a worker that ended.
func (r *Rig) Fail(op string, err error) { r.classify(op, err) }

// classify counts err by operation and code, and keeps the text of the first of each. unknown says
// that the call may have been applied. An error that is not the SDK's has the code ERROR.
func (r *Rig) classify(op string, err error) (unknown bool) {
	code := "ERROR"
	if e, ok := errors.AsType[*millrace.Error](err); ok {
		code, unknown = string(e.Code), e.Outcome == millrace.Unknown
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	k := errorKey{op, code}
	c := r.errs[k]
	if c == nil {
		if len(r.errs) >= maxErrorClasses {
			return unknown
		}
		c = &ErrorClass{Op: op, Code: code, First: err.Error()}
		r.errs[k] = c
	}
	c.Count++
	return unknown
}

// maxErrorClasses bounds what errors take in memory and in the result.
const maxErrorClasses = 100

// Stopped is closed when the window has ended: nothing more is created.
func (r *Rig) Stopped() <-chan struct{} { return r.stopped }

// Done reports whether the window has ended.
func (r *Rig) Done() bool {
	select {
	case <-r.stopped:
		return true
	default:
		return false
	}
}

// times reports whether the latency of a call that has just been answered belongs to the window. A closed loop has those
// that are answered within it. An open loop has those that were due within it, however late the answer: a server that
// stalls to the end of the window must not hide it.
func (r *Rig) times(measuring bool, began time.Time) bool {
	if r.Rate <= 0 {
		return measuring
	}
	from, to := r.opened.Load(), r.closed.Load()
	return from != nil && !began.Before(*from) && (to == nil || began.Before(*to))
}

// Work is Measure for a driver that does all the work itself: work runs until over says that the window has ended.
func (r *Rig) Work(ctx context.Context, work func(over func() bool)) error {
	done := make(chan error, 1)
	go func() { done <- r.Measure(ctx) }()
	work(r.Done)
	return <-done
}

// Measuring reports whether the window is open.
func (r *Rig) Measuring() bool { return r.measuring.Load() }

// Stop ends whatever creates. Measure does so at the end of the window.
func (r *Rig) Stop() { r.stopOnce.Do(func() { close(r.stopped) }) }

// Measure waits for the warm-up, opens the window, and closes it. Load must be running; when Measure returns, generators
// stop by themselves. It returns early, with the reason, when ctx ends.
func (r *Rig) Measure(ctx context.Context) error {
	defer r.Stop()
	if err := Pause(ctx, r.Warmup); err != nil {
		return err
	}
	return r.window(ctx, func(ctx context.Context) error {
		err := Pause(ctx, r.Window)
		for most := time.Now().Add(heldWindows * r.Window); err == nil && r.Held != nil && r.Held() && time.Now().Before(most); {
			err = Pause(ctx, heldPoll)
		}
		return err
	})
}

// For how long a window goes on while Held holds.
const (
	// heldWindows is the limit, in windows beyond its own time.
	heldWindows = 10
	// heldPoll is the time between two looks.
	heldPoll = 10 * time.Millisecond
)

// MeasureWork is Measure of a window that ends with the work in it. Nothing is warmed up.
func (r *Rig) MeasureWork(ctx context.Context, work func(ctx context.Context) error) error {
	defer r.Stop()
	return r.window(ctx, work)
}

// window opens the window, fills it, and closes it. The order makes the counts agree: the servers
// are marked before the window opens and after it has closed, operations are reset just before it
// opens, and the watcher has written its last interval before end is closed. An error of fill or of
// marks is returned; a window that was opened is closed in any case.
func (r *Rig) window(ctx context.Context, fill func(ctx context.Context) error) error {
	if r.marks != nil {
		if err := r.marks(ctx, windowBegins); err != nil {
			return err
		}
	}
	for _, o := range r.operations() {
		o.reset()
	}
	r.rotated = time.Now()
	r.hists = newHistLog(r.rotated)
	watching, quit := context.WithCancel(ctx)
	defer quit()
	done := make(chan struct{})
	r.watch.start()
	r.opened.Store(new(time.Now()))
	r.measuring.Store(true)
	close(r.begin)
	go func() {
		defer close(done)
		r.watch.run(watching, cmp.Or(r.Resolution, time.Second), r.rotate)
		r.rotate()
	}()
	err := fill(ctx)
	r.measuring.Store(false)
	r.closed.Store(new(time.Now()))
	quit()
	<-done
	r.watch.stop()
	close(r.end)
	if r.marks != nil && err == nil {
		err = r.marks(ctx, windowEnds)
	}
	return err
}

// operations returns a copy of the operations in the order of their first use.
func (r *Rig) operations() []*Op {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.order)
}

// rotate keeps the histograms of the interval that ends now. It runs on the goroutine of the watch,
// and after the window on that of the harness.
func (r *Rig) rotate() {
	from, now := r.rotated, time.Now()
	r.rotated = now
	for _, o := range r.operations() {
		h := o.rotate()
		if h.TotalCount() == 0 {
			continue
		}
		if err := r.hists.add(o.name, h, from, now); err != nil {
			r.Warn("hist_log", err.Error(), 0)
		}
		if r.OnInterval != nil {
			r.OnInterval(o.name, h)
		}
	}
}

// Pause waits for d, or until ctx ends, with whose error it then returns.
func Pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// errors returns the classes of errors in order of operation and code.
func (r *Rig) errors() []ErrorClass {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []ErrorClass
	for _, k := range slices.SortedFunc(maps.Keys(r.errs), func(a, b errorKey) int {
		if a.op != b.op {
			return compareText(a.op, b.op)
		}
		return compareText(a.code, b.code)
	}) {
		out = append(out, *r.errs[k])
	}
	return out
}

func compareText(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// say prints a line of progress.
func (c *Config) say(format string, args ...any) {
	if c.Progress != nil {
		fmt.Fprintf(c.Progress, format+"\n", args...)
	}
}
