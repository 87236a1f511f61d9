package load

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/millrace/millrace/bench"
	millrace "github.com/millrace/millrace/sdk/go"
)

const (
	// livePoll is the time between two looks at a job or at counters that change.
	livePoll = 20 * time.Millisecond
	// livePause is how long a live client pauses after each task, so that live traffic does not fill the server.
	livePause = 5 * time.Millisecond
	// liveSettles is the number of tasks from which on the window waits for the server's compactions: fewer tasks leave little to sort.
	liveSettles = 100_000
)

// livePart has the latencies of live tasks in one part of the window, from create to the answer that the task is
// completed. Live clients record at once.
type livePart struct {
	// op shows them in the result.
	op *bench.Op

	// mu guards hist, the same latencies in microseconds.
	mu   sync.Mutex
	hist *hdrhistogram.Histogram
}

// newLivePart makes a part of the window that is shown under that name.
func newLivePart(rig *bench.Rig, name string) *livePart {
	return &livePart{op: rig.Op(name), hist: newLatencies()}
}

// record adds the latency of a task of the client of that number.
func (l *livePart) record(number int, took time.Duration) {
	l.op.Latency(number, took)
	l.mu.Lock()
	_ = l.hist.RecordValue(max(took.Microseconds(), 1)) // a task that takes an hour has failed before
	l.mu.Unlock()
}

// seen returns how many tasks there were, and their latency at a quantile in microseconds.
func (l *livePart) seen(quantile float64) (n int64, us float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.hist.TotalCount(), float64(l.hist.ValueAtQuantile(quantile))
}

// some waits until a live task was seen.
func (l *livePart) some(ctx context.Context) error {
	err := poll(ctx, time.Minute, func() (bool, error) {
		n, _ := l.seen(50)
		return n > 0, nil
	})
	if err != nil {
		return fmt.Errorf("wait for a live task: %w", err)
	}
	return nil
}

// live is live traffic in the queue of the rig, next to many tasks of another queue to which something happens. The window has two parts:
// in the first there is live traffic alone. A live task belongs to the part in which its client hears of its completion.
type live struct {
	rig *bench.Rig
	// q has the live clients and the worker.
	q *queueRun
	// client is for all that is about the other tasks, and queue is theirs, in which there is nothing else.
	client *millrace.Client
	queue  string
	// alone and under are the parts of the window; now is the one that is on.
	alone, under *livePart
	now          atomic.Pointer[livePart]

	// mu guards sample, the ids of some of the other tasks, while they are created.
	mu     sync.Mutex
	sample []string
}

// newLive makes live traffic. suffix makes the name of the other queue, and under is that of the second part. The caller closes client.
func newLive(ctx context.Context, rig *bench.Rig, suffix, under string) (l *live, err error) {
	l = &live{rig: rig, q: newQueueRun(rig), queue: rig.Queue + suffix, alone: newLivePart(rig, "alone"), under: newLivePart(rig, under)}
	l.q.call = l.cycle
	l.client, err = rig.Dial(ctx, 0)
	return l, err
}

// create makes n of the other tasks. They are in no ledger, which is of the live queue: the proof is about them.
func (l *live) create(ctx context.Context, n int, opts ...millrace.AddOption) error {
	job := millrace.Job[[]byte, []byte](l.queue).Queue(l.queue)
	args := make([][]byte, fillBatch)
	for i := range args {
		args[i] = l.rig.Payload
	}
	// left counts the tasks that no caller has taken on yet.
	var left atomic.Int64
	left.Store(int64(n))
	return atOnce(ctx, fillCallers, func(ctx context.Context, _ int) error {
		for {
			before := left.Add(-fillBatch) + fillBatch
			if before <= 0 {
				return nil
			}
			handles, err := job.AddMany(ctx, l.client, args[:min(before, fillBatch)], opts...)
			if err != nil {
				return fmt.Errorf("create the other tasks: %w", err)
			}
			l.mu.Lock()
			l.sample = append(l.sample, handles[0].ID) // one of each call
			l.mu.Unlock()
		}
	})
}

// settle waits until the server is at rest, where n tasks are many.
func (l *live) settle(ctx context.Context, n int) error {
	admin, err := adminOf(l.rig)
	if err != nil || n < liveSettles {
		return nil //nolint:nilerr // there is nothing to wait for where it cannot be seen
	}
	return (&depthRun{rig: l.rig}).settle(ctx, admin)
}

// poll asks until what it waits for is so, and gives up with an error after a time.
func poll(ctx context.Context, most time.Duration, done func() (bool, error)) error {
	for began := time.Now(); ; {
		switch ok, err := done(); {
		case err != nil:
			return err
		case ok:
			return nil
		case time.Since(began) > most:
			return fmt.Errorf("not so after %s", most)
		}
		if err := bench.Pause(ctx, livePoll); err != nil {
			return err
		}
	}
}

// run starts the live traffic, opens the window over both parts, and drains. second is the second part, which goes on until it has seen a
// live task, as the first does.
func (l *live) run(ctx context.Context, first time.Duration, second func(ctx context.Context) error) error {
	defer l.q.close()
	if err := l.q.open(ctx); err != nil {
		return err
	}
	for i := range l.rig.Shape.Workers {
		if err := l.q.startWorker(ctx, i); err != nil {
			return err
		}
	}
	done := l.rig.Generate(ctx, l.rig.Shape.Loops(), l.q.call)
	err := bench.Pause(ctx, l.rig.Warmup)
	if err == nil {
		err = l.rig.MeasureWork(ctx, func(ctx context.Context) error { return l.parts(ctx, first, second) })
	}
	l.rig.Stop()
	<-done
	if err != nil {
		return err
	}
	return errors.Join(l.rig.Drain(ctx), l.q.stopWorkers())
}

// parts is the window.
func (l *live) parts(ctx context.Context, first time.Duration, second func(ctx context.Context) error) error {
	l.now.Store(l.alone)
	if err := bench.Pause(ctx, first); err != nil {
		return err
	}
	if err := l.alone.some(ctx); err != nil {
		return err
	}
	l.now.Store(l.under)
	defer l.now.Store(nil)
	if err := second(ctx); err != nil {
		return err
	}
	return l.under.some(ctx)
}

// cycle is what a live client does over and over: it creates a task, waits for its completion, and pauses where no
// rate is asked for.
func (l *live) cycle(ctx context.Context, p *bench.Pump) {
	c := l.q.clients[p.Number%len(l.q.clients)]
	h, err := l.q.job.Add(ctx, c, l.rig.Payload)
	if err != nil {
		l.q.failedCreate(p, 1, err)
		return
	}
	l.q.create.Record(p.Number, p.Intended, 1, nil)
	l.q.created(h.ID, p.Intended)
	switch t, err := c.Wait(ctx, h.ID); {
	case err != nil:
		l.rig.Fail("wait", err)
		return
	case t.State != millrace.Completed:
		l.rig.Fail("wait", fmt.Errorf("task %s ended as %s", h.ID, t.State))
		return
	}
	if part := l.now.Load(); part != nil {
		part.record(p.Number, time.Since(p.Intended))
	}
	if l.rig.Rate <= 0 {
		_ = bench.Pause(ctx, livePause) // an end of ctx is seen by the next call
	}
}

// ratios tells the latencies of live tasks in the second part over those of live tasks alone.
func (l *live) ratios() {
	for _, q := range []struct {
		name string
		of   float64
	}{{"live_p50_ratio", 50}, {"live_p99_ratio", 99}} {
		_, alone := l.alone.seen(q.of)
		_, under := l.under.seen(q.of)
		l.rig.Metric(q.name, under/alone, "×") // each part has a task of 1 µs at least
	}
}

// read reads the counters of the other queue and the sample of its tasks, and says which of these are lost.
func (l *live) read(ctx context.Context) (stats millrace.QueueStats, sample []*millrace.TaskInfo, lost []string, err error) {
	c, err := l.rig.Dial(ctx, 0)
	if err != nil {
		return stats, nil, nil, err
	}
	defer c.Close() //nolint:errcheck // it only reads
	if stats, err = c.Queue(l.queue).Stats(ctx); err != nil {
		return stats, nil, nil, err
	}
	for _, id := range l.sample {
		t, err := c.Task(ctx, id)
		switch {
		case errors.Is(err, millrace.ErrNotFound):
			lost = append(lost, fmt.Sprintf("lost: task %s was acknowledged and is not there afterwards", id))
		case err != nil:
			return stats, nil, nil, fmt.Errorf("read task %s: %w", id, err)
		default:
			sample = append(sample, t)
		}
	}
	return stats, sample, lost, nil
}
