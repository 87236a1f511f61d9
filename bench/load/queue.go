package load

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/bench"
	millrace "github.com/millrace/millrace/sdk/go"
)

// queueRun is the queue's load of one run: producers that create, workers that complete. Pumps,
// handlers and the SDK's goroutines call its methods at once; fields are set before they start.
type queueRun struct {
	rig *bench.Rig
	// job names the queue and the lease of the tasks.
	job *millrace.JobOf[[]byte, []byte]
	// create and settle count acknowledgements; settle also has the latency from handler to
	// acknowledged completion.
	create *bench.Op
	settle *bench.Op
	// claim has the latency from a task's create to its handler.
	claim *bench.Op
	// cycle has the latency from a task's create to its acknowledged completion.
	cycle *bench.Op
	// traces are the timed tasks that are under way.
	traces traces
	// clients are those of producers.
	clients []*millrace.Client
	// workers are the workers that run. Only the goroutine of run changes the list.
	workers []*worker
	// args are the payloads of one batched create.
	args [][]byte
	// options are those of creates, dealt out to the pumps by number; empty: none.
	options [][]millrace.AddOption
	// keyed gives each task that is created further options of its own; may be nil.
	keyed func() []millrace.AddOption
	// onMade hears of every single create that was acknowledged; may be nil.
	onMade func(p *bench.Pump)
	// call is what one pump does over and over.
	call func(ctx context.Context, p *bench.Pump)
	// onTask hears of every task that a handler is given, and onDone of every completion that was
	// acknowledged; either may be nil.
	onTask func(t *millrace.Task)
	// onDone hears of every completion that was acknowledged, on a goroutine of the SDK; nil: none
	// is told.
	onDone func(t *millrace.Task)
}

// drainTimeout is more than handlers need that do nothing.
const drainTimeout = 2 * time.Second

// worker is one worker client. ended gets the result of its run, once.
type worker struct {
	// client is the connection, and w the worker on it.
	client *millrace.Client
	w      *millrace.Worker
	// stop ends the worker's run.
	stop  context.CancelFunc
	ended chan error
}

// Queue drives producers and workers as the row's shape says, through streams. Rows without workers
// only create; rows without producers work on what was prefilled.
func Queue(ctx context.Context, rig *bench.Rig) error { return newQueueRun(rig).run(ctx) }

// newQueueRun makes a run that has no client yet.
func newQueueRun(rig *bench.Rig) *queueRun {
	q := &queueRun{
		rig: rig, job: millrace.Job[[]byte, []byte](rig.Queue).Queue(rig.Queue), create: rig.Op("create"), settle: rig.Op("complete"),
		claim: rig.Op("create_to_claim"), cycle: rig.Op("cycle"),
	}
	if rig.Shape.Lease > 0 {
		q.job = q.job.Lease(rig.Shape.Lease)
	}
	for range rig.Shape.ProducerBatch {
		q.args = append(q.args, rig.Payload)
	}
	// A priority for each pump in turn, so that all are created at the same time.
	for n := range rig.Shape.Priorities {
		q.options = append(q.options, []millrace.AddOption{millrace.Priority(n)})
	}
	q.call = q.pump()
	return q
}

// run does the whole: connect, prefill, start workers, generate, measure, drain. After an error
// close ends what is still open.
func (q *queueRun) run(ctx context.Context) error {
	rig := q.rig
	defer q.close()
	if err := q.open(ctx); err != nil {
		return err
	}
	if err := q.prefill(ctx); err != nil {
		return err
	}
	for i := range rig.Shape.Workers {
		if err := q.startWorker(ctx, i); err != nil {
			return err
		}
	}
	// The pumps begin before the window, and stop when it ends.
	done := rig.Generate(ctx, rig.Shape.Loops(), q.call)
	err := rig.Measure(ctx)
	<-done
	if err != nil {
		return err
	}
	// Frames are told before the drain, so that they are those of the load.
	q.frames()
	if rig.Shape.Workers == 0 {
		return nil
	}
	return errors.Join(rig.Drain(ctx), q.stopWorkers())
}

// open connects the producers.
func (q *queueRun) open(ctx context.Context) error {
	for i := range q.rig.Shape.Producers {
		c, err := q.rig.Dial(ctx, i)
		if err != nil {
			return fmt.Errorf("connect producer %d: %w", i, err)
		}
		q.clients = append(q.clients, c)
	}
	return nil
}

// pump returns what one pump calls over and over: one create, or one call with a batch.
func (q *queueRun) pump() func(ctx context.Context, p *bench.Pump) {
	if q.rig.Shape.ProducerBatch > 1 {
		return func(ctx context.Context, p *bench.Pump) { q.createMany(ctx, p) }
	}
	return q.createOne
}

// createOne creates one task and waits for the answer.
func (q *queueRun) createOne(ctx context.Context, p *bench.Pump) {
	// options are by the pump, so that one pump always has the same priority.
	var options []millrace.AddOption
	if n := len(q.options); n > 0 {
		options = q.options[p.Number%n]
	}
	if q.keyed != nil {
		options = append(slices.Clone(options), q.keyed()...)
	}
	h, err := q.job.Add(ctx, q.clients[p.Number%len(q.clients)], q.rig.Payload, options...)
	if err == nil && q.isHeld(h) {
		err = stillHeld(h.ID)
	}
	if err != nil {
		q.failedCreate(p, 1, err)
		return
	}
	q.create.Record(p.Number, p.Intended, 1, nil)
	if q.onMade != nil {
		q.onMade(p)
	}
	q.created(h.ID, p.Intended)
}

// createMany creates a batch in one call. Some tasks of it may be created and others not; each is
// noted for itself.
func (q *queueRun) createMany(ctx context.Context, p *bench.Pump, options ...millrace.AddOption) {
	if q.keyed != nil {
		options = append(options, millrace.Each(func(int) []millrace.AddOption { return q.keyed() }))
	}
	handles, err := q.job.AddMany(ctx, q.clients[p.Number%len(q.clients)], q.args, options...)
	// n is the number of tasks that surely were created.
	n := 0
	for _, h := range handles {
		if h != nil {
			if q.isHeld(h) {
				q.create.Record(p.Number, p.Intended, 0, stillHeld(h.ID))
				continue
			}
			n++
			q.created(h.ID, p.Intended)
		}
	}
	if err != nil {
		q.failedCreate(p, len(q.args)-n, err)
		q.create.Count(p.Number, n)
		return
	}
	q.create.Record(p.Number, p.Intended, n, nil)
}

// isHeld reports whether a create was answered with the task that holds its unique key. Without unique keys a replay is the answer to
// a create that was repeated, as its first answer was lost.
func (q *queueRun) isHeld(h *millrace.Handle[[]byte]) bool {
	return h.Replayed && q.rig.Shape.Kind == keyedUnique
}

// stillHeld is the error of a create whose unique key is that of a task which has not ended: keys are more than tasks under way.
func stillHeld(id string) error {
	return fmt.Errorf("task %s still holds the unique key of another create", id)
}

// created notes an acknowledged create, and times the task if it is one in 64.
func (q *queueRun) created(id string, at time.Time) {
	if h := q.rig.Ledger.Created(id); q.rig.Ledger.Traced(h) {
		if both := q.traces.create(h, at); both != nil {
			q.finish(both)
		}
	}
}

// failedCreate notes n tasks whose create failed. They may be there unless the server refused the call.
func (q *queueRun) failedCreate(p *bench.Pump, n int, err error) {
	q.create.Record(p.Number, p.Intended, 0, err)
	var e *millrace.Error
	if errors.As(err, &e) && e.Outcome == millrace.Refused {
		return
	}
	q.rig.Ledger.CreateUnknown(n)
}

// prefill creates the tasks that wait before the window. Each must be acknowledged.
func (q *queueRun) prefill(ctx context.Context) error {
	left := q.rig.Shape.Prefill
	if left == 0 {
		return nil
	}
	c, err := q.rig.Dial(ctx, 0)
	if err != nil {
		return err
	}
	defer c.Close() //nolint:errcheck // every create was acknowledged, or an error tells
	// step is the number of tasks of one call.
	const step = 512
	args := make([][]byte, step)
	for i := range args {
		args[i] = q.rig.Payload
	}
	var options []millrace.AddOption
	if q.keyed != nil {
		options = append(options, millrace.Each(func(int) []millrace.AddOption { return q.keyed() }))
	}
	for ; left > 0; left -= step {
		handles, err := q.job.AddMany(ctx, c, args[:min(step, left)], options...)
		if err != nil {
			return fmt.Errorf("prefill: %w", err)
		}
		for _, h := range handles {
			q.rig.Ledger.Created(h.ID)
		}
	}
	return nil
}

// slots is how many tasks one worker may have at once: its slots, each of which works on a batch
// where there are batches, and at most what the server allows.
func slots(s bench.Shape) int {
	// most is the server's limit of slots of a subscription.
	const most = 4096
	return min(max(s.Slots, 1)*max(s.WorkerBatch, 1), most)
}

// startWorker starts a worker client. A completion counts when the server has acknowledged it,
// which OnSettled tells, and not when the handler returns.
func (q *queueRun) startWorker(ctx context.Context, i int) error {
	c, err := q.rig.Dial(ctx, i)
	if err != nil {
		return fmt.Errorf("connect worker %d: %w", i, err)
	}
	s := q.rig.Shape
	opts := []millrace.WorkerOption{
		millrace.Slots(slots(s)), millrace.DrainTimeout(drainTimeout), millrace.OnSettled(func(m millrace.Settlement) { q.settled(i, m) }),
	}
	if s.WorkerBatch > 1 {
		opts = append(opts, millrace.Batch(s.WorkerBatch))
	}
	w := c.Worker(opts...)
	if s.WorkerBatch > 1 {
		// The results are shared by all batches: no handler changes them.
		results := make([][]byte, s.WorkerBatch)
		for j := range results {
			results[j] = q.rig.Result
		}
		w.HandleBatch(q.rig.Queue, s.WorkerBatch, func(_ context.Context, tasks []*millrace.Task) ([][]byte, []error) {
			for _, t := range tasks {
				q.handle(i, t)
			}
			return results[:len(tasks)], nil
		})
	} else {
		w.HandleRaw(q.rig.Queue, func(_ context.Context, t *millrace.Task) ([]byte, error) {
			q.handle(i, t)
			return q.rig.Result, nil
		})
	}
	ctx, cancel := context.WithCancel(ctx)
	k := &worker{client: c, w: w, stop: cancel, ended: make(chan error, 1)}
	q.workers = append(q.workers, k)
	go func() { k.ended <- w.Run(ctx) }()
	return nil
}

// handle is what a handler does: it notes when it began, for one task in 64, and what the suite adds.
func (q *queueRun) handle(i int, t *millrace.Task) {
	if h := q.rig.Ledger.Hash(t.ID); q.rig.Ledger.Traced(h) {
		q.traces.claim(h, time.Now())
	}
	if q.onTask != nil {
		q.onTask(t)
	}
}

// settled takes the server's answer to a completion, on a goroutine of the SDK. An attempt that
// ended in another way than the handler said is an error.
func (q *queueRun) settled(i int, m millrace.Settlement) {
	t := m.Task
	if m.Err != nil || m.Op != "complete" {
		// A settlement without an error can still be of another operation, such as a failure.
		var err error = m.Err
		if m.Err == nil {
			err = fmt.Errorf("the attempt ended as %s", m.Op)
		} else if m.Err.Outcome == millrace.Unknown {
			q.rig.Ledger.CompleteUnknown(t.ID, t.Token())
		}
		q.settle.Record(i, time.Time{}, 0, err)
		return
	}
	// A replayed completion counts once, since the ledger knows its token.
	h := q.rig.Ledger.Completed(t.ID, t.Token(), m.Replayed)
	q.settle.Count(i, 1)
	if q.onDone != nil {
		q.onDone(t)
	}
	if q.rig.Ledger.Traced(h) {
		if both := q.traces.settle(h, time.Now()); both != nil {
			q.finish(both)
		}
	}
}

// finish records the latencies of a task that went all the way. Without a time of the claim only
// the whole way is known.
func (q *queueRun) finish(t *trace) {
	if !t.claimed.IsZero() {
		q.claim.Latency(0, t.claimed.Sub(t.created))
		q.settle.Latency(0, t.settled.Sub(t.claimed))
	}
	q.cycle.Latency(0, t.settled.Sub(t.created))
}

// frames tells how many calls the client gathered per frame, over the whole run.
func (q *queueRun) frames() {
	// Only creates were sent by the clients of producers.
	creates := uint64(0)
	for _, c := range q.clients {
		creates += c.Frames()
	}
	if creates > 0 {
		q.rig.Metric("tasks_per_create_frame", float64(q.create.Acked())/float64(creates), "tasks")
	}
	settles := uint64(0)
	for _, k := range q.workers {
		settles += k.w.Frames()
	}
	if settles > 0 {
		q.rig.Metric("tasks_per_settle_frame", float64(q.settle.Acked())/float64(settles), "tasks")
	}
}

// stopWorkers ends the workers after the drain, and returns what ended any of them badly. Their
// connections stay open until close.
func (q *queueRun) stopWorkers() error {
	var all []error
	// All are told to stop and waited for one after the other: after the drain they have nothing to
	// do.
	for i, k := range q.workers {
		k.stop()
		if err := <-k.ended; err != nil {
			all = append(all, fmt.Errorf("worker %d: %w", i, err))
		}
	}
	q.workers = nil
	return errors.Join(all...)
}

// close ends what is still open, whatever happened before. Everything that counts was acknowledged before.
func (q *queueRun) close() {
	q.rig.Stop()
	clients := q.clients
	for _, k := range q.workers {
		k.stop()
		<-k.ended
		clients = append(clients, k.client)
	}
	for _, c := range clients {
		_ = c.Close()
	}
}

// trace is the way of one task through the queue. A zero time has not come yet.
type trace struct{ created, claimed, settled time.Time }

// traces holds the tasks that are timed across the two client sides, by the ledger's hash. Times
// come in any order: the acknowledgement of a create can come after the task's handler began, or
// even after its completion.
type traces struct {
	// A trace is in the shard of its hash's highest bits, so that goroutines seldom meet.
	shards [16]struct {
		// mu guards open, which has the traces of the shard by hash.
		mu   sync.Mutex
		open map[uint64]*trace
	}
}

// note changes the trace of a task, and returns it when create and completion are known. It is then forgotten.
func (t *traces) note(hash uint64, f func(*trace)) *trace {
	s := &t.shards[hash>>60]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = map[uint64]*trace{}
	}
	x := s.open[hash]
	if x == nil {
		x = &trace{}
		s.open[hash] = x
	}
	f(x)
	if x.created.IsZero() || x.settled.IsZero() {
		return nil
	}
	delete(s.open, hash)
	return x
}

// create notes when the create of a task began.
func (t *traces) create(hash uint64, at time.Time) *trace {
	return t.note(hash, func(x *trace) { x.created = at })
}

// claim notes when the handler of a task began. It is never the last time of a trace.
func (t *traces) claim(hash uint64, at time.Time) {
	t.note(hash, func(x *trace) { x.claimed = at })
}

// settle notes when a completion was acknowledged.
func (t *traces) settle(hash uint64, at time.Time) *trace {
	return t.note(hash, func(x *trace) { x.settled = at })
}
