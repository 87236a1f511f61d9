package load

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/millrace/millrace/bench"
	millrace "github.com/millrace/millrace/sdk/go"
)

// How a redrive is prepared and followed.
const (
	// redriveExpiry is how long after its create a task is dead: more than a create takes.
	redriveExpiry = 2 * time.Second
	// redriveDying bounds the time from the last create until all are dead.
	redriveDying = 5 * time.Minute
	// redriveLasts bounds the time of the job.
	redriveLasts = 10 * time.Minute
	// redrivePoll is the time between two looks at a job or at counters that change.
	redrivePoll = 20 * time.Millisecond
	// redrivePause is how long a live client pauses after each task, so that live traffic does not fill the server.
	redrivePause = 5 * time.Millisecond
	// redriveSettles is the number of tasks from which on the window waits for the server's compactions: fewer tasks
	// leave little to sort.
	redriveSettles = 100_000
	// redriveSuffix makes the name of the queue of dead tasks, in which there is nothing else.
	redriveSuffix = "-dead"
)

// redriveLive has the latencies of live tasks in one part of the window, from create to the answer that the task is
// completed. Live clients record at once.
type redriveLive struct {
	// op shows them in the result.
	op *bench.Op

	// mu guards hist, the same latencies in microseconds.
	mu   sync.Mutex
	hist *hdrhistogram.Histogram
}

// record adds the latency of a task of the client of that number.
func (l *redriveLive) record(number int, took time.Duration) {
	l.op.Latency(number, took)
	l.mu.Lock()
	_ = l.hist.RecordValue(max(took.Microseconds(), 1)) // a task that takes an hour has failed before
	l.mu.Unlock()
}

// seen returns how many tasks there were, and their latency at a quantile in microseconds.
func (l *redriveLive) seen(quantile float64) (n int64, us float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.hist.TotalCount(), float64(l.hist.ValueAtQuantile(quantile))
}

// redriveFound is what the redrive said and left, which the audit judges.
type redriveFound struct {
	// dead is the number of tasks that were acknowledged and have died.
	dead int
	// dry is the count before the job, and job the job after its end.
	dry millrace.BulkCount
	job millrace.BulkJob
	// stats are the counters of the queue after all.
	stats millrace.QueueStats
	// sample are tasks of the queue after all.
	sample []*millrace.TaskInfo
}

// redriveRun is one run: dead tasks in a queue of their own, and live traffic in the queue of the rig.
type redriveRun struct {
	rig *bench.Rig
	// q has the live clients and the worker.
	q *queueRun
	// client is for all that is about the dead tasks.
	client *millrace.Client
	// queue is that of the dead tasks.
	queue string
	// alone and redriven are the parts of the window; now is the one that is on.
	alone, redriven *redriveLive
	now             atomic.Pointer[redriveLive]
	// found is filled as the run goes on.
	found redriveFound

	// mu guards sample, the ids of some of the dead tasks, while they are created.
	mu     sync.Mutex
	sample []string
}

// Redrive makes tasks that die, and a bulk job that redrives them under live traffic. The window has two parts: in the
// first, of the row's time, there is live traffic alone, and in the second the job too; it ends with the job. A live
// task belongs to the part in which its client hears of its completion.
func Redrive(ctx context.Context, rig *bench.Rig) (err error) {
	r := &redriveRun{rig: rig, q: newQueueRun(rig), queue: rig.Queue + redriveSuffix}
	r.alone, r.redriven = newRedriveLive(rig, "alone"), newRedriveLive(rig, "redriven")
	r.q.call = r.cycle
	if r.client, err = rig.Dial(ctx, 0); err != nil {
		return err
	}
	defer r.client.Close() //nolint:errcheck // every call was answered, or an error tells
	if err := r.prepare(ctx); err != nil {
		return err
	}
	if err := r.traffic(ctx); err != nil {
		return err
	}
	r.report()
	return nil
}

// newRedriveLive makes a part of the window that is shown under that name.
func newRedriveLive(rig *bench.Rig, name string) *redriveLive {
	return &redriveLive{op: rig.Op(name), hist: newLatencies()}
}

// prepare creates the tasks, waits until all are dead and the server is at rest, and counts them by a dry run.
func (r *redriveRun) prepare(ctx context.Context) error {
	if err := r.create(ctx); err != nil {
		return err
	}
	began := time.Now()
	err := poll(ctx, redriveDying, func() (bool, error) {
		s, err := r.client.Queue(r.queue).Stats(ctx)
		return s.Dead == uint64(r.found.dead), err
	})
	if err != nil {
		return fmt.Errorf("wait until %d tasks are dead: %w", r.found.dead, err)
	}
	r.rig.Metric("dying_s", time.Since(began).Seconds(), "s")
	if admin, err := adminOf(r.rig); err == nil && r.found.dead >= redriveSettles {
		if err := (&depthRun{rig: r.rig}).settle(ctx, admin); err != nil {
			return err
		}
	}
	counted := time.Now()
	r.found.dry, err = r.client.CountBulk(ctx, millrace.BulkRetry, r.filter())
	if err != nil {
		return fmt.Errorf("dry run: %w", err)
	}
	r.rig.Metric("dry_run_s", time.Since(counted).Seconds(), "s")
	return nil
}

// filter finds the dead tasks.
func (r *redriveRun) filter() millrace.TaskFilter {
	return millrace.TaskFilter{Queue: r.queue, State: millrace.Dead}
}

// create makes the tasks that die. They are in no ledger, which is of the live queue: the proof is about them.
func (r *redriveRun) create(ctx context.Context) error {
	job := millrace.Job[[]byte, []byte](r.queue).Queue(r.queue)
	args := make([][]byte, fillBatch)
	for i := range args {
		args[i] = r.rig.Payload
	}
	// left counts the tasks that no caller has taken on yet.
	var left atomic.Int64
	left.Store(int64(r.rig.Shape.Prefill))
	r.found.dead = r.rig.Shape.Prefill
	return atOnce(ctx, fillCallers, func(ctx context.Context, _ int) error {
		for {
			before := left.Add(-fillBatch) + fillBatch
			if before <= 0 {
				return nil
			}
			handles, err := job.AddMany(ctx, r.client, args[:min(before, fillBatch)], millrace.ExpiresIn(redriveExpiry))
			if err != nil {
				return fmt.Errorf("create tasks that die: %w", err)
			}
			r.mu.Lock()
			r.sample = append(r.sample, handles[0].ID) // one of each call
			r.mu.Unlock()
		}
	})
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
		if err := bench.Pause(ctx, redrivePoll); err != nil {
			return err
		}
	}
}

// traffic starts the live traffic, opens the window over both parts, and drains.
func (r *redriveRun) traffic(ctx context.Context) error {
	defer r.q.close()
	if err := r.q.open(ctx); err != nil {
		return err
	}
	for i := range r.rig.Shape.Workers {
		if err := r.q.startWorker(ctx, i); err != nil {
			return err
		}
	}
	done := r.rig.Generate(ctx, r.rig.Shape.Loops(), r.q.call)
	err := bench.Pause(ctx, r.rig.Warmup)
	if err == nil {
		err = r.rig.MeasureWork(ctx, r.parts)
	}
	r.rig.Stop()
	<-done
	if err != nil {
		return err
	}
	return errors.Join(r.rig.Drain(ctx), r.q.stopWorkers())
}

// cycle is what a live client does over and over: it creates a task, waits for its completion, and pauses where no
// rate is asked for.
func (r *redriveRun) cycle(ctx context.Context, p *bench.Pump) {
	c := r.q.clients[p.Number%len(r.q.clients)]
	h, err := r.q.job.Add(ctx, c, r.rig.Payload)
	if err != nil {
		r.q.failedCreate(p, 1, err)
		return
	}
	r.q.create.Record(p.Number, p.Intended, 1, nil)
	r.q.created(h.ID, p.Intended)
	switch t, err := c.Wait(ctx, h.ID); {
	case err != nil:
		r.rig.Fail("wait", err)
		return
	case t.State != millrace.Completed:
		r.rig.Fail("wait", fmt.Errorf("task %s ended as %s", h.ID, t.State))
		return
	}
	if part := r.now.Load(); part != nil {
		part.record(p.Number, time.Since(p.Intended))
	}
	if r.rig.Rate <= 0 {
		_ = bench.Pause(ctx, redrivePause) // an end of ctx is seen by the next call
	}
}

// parts is the window: live traffic alone, then under the redrive. Each part goes on until it has seen a live task.
func (r *redriveRun) parts(ctx context.Context) error {
	r.now.Store(r.alone)
	if err := bench.Pause(ctx, r.rig.Window); err != nil {
		return err
	}
	if err := r.alone.some(ctx); err != nil {
		return err
	}
	r.now.Store(r.redriven)
	defer r.now.Store(nil)
	began := time.Now()
	job, err := r.client.StartBulk(ctx, millrace.BulkRetry, r.filter(), millrace.BulkRate(r.rig.Shape.Redrive))
	if err != nil {
		return fmt.Errorf("start the redrive: %w", err)
	}
	err = poll(ctx, redriveLasts, func() (bool, error) {
		j, err := r.client.Bulk(ctx, job.ID)
		if err == nil {
			job = j
		}
		return job.State != millrace.BulkRunning, err
	})
	if err != nil {
		return fmt.Errorf("wait for the redrive, which did %d tasks: %w", job.Done, err)
	}
	took := time.Since(began).Seconds()
	r.found.job = *job
	r.rig.Metric("redrive_s", took, "s")
	r.rig.Metric("redriven_per_s", float64(job.Done)/took, "tasks/s")
	return r.redriven.some(ctx)
}

// some waits until a live task was seen.
func (l *redriveLive) some(ctx context.Context) error {
	err := poll(ctx, time.Minute, func() (bool, error) {
		n, _ := l.seen(50)
		return n > 0, nil
	})
	if err != nil {
		return fmt.Errorf("wait for a live task: %w", err)
	}
	return nil
}

// report tells the latencies of live tasks under the redrive over those of live tasks alone, and lets the audit look at
// the redriven tasks.
func (r *redriveRun) report() {
	for _, q := range []struct {
		name string
		of   float64
	}{{"live_p50_ratio", 50}, {"live_p99_ratio", 99}} {
		_, alone := r.alone.seen(q.of)
		_, redriven := r.redriven.seen(q.of)
		r.rig.Metric(q.name, redriven/alone, "×") // each part has a task of 1 µs at least
	}
	r.rig.Metric("tasks", float64(r.found.dead), "tasks")
	r.rig.Proofs = append(r.rig.Proofs, r.prove)
}

// prove reads the redriven tasks from the server, and says what is wrong with them.
func (r *redriveRun) prove(ctx context.Context) ([]string, error) {
	c, err := r.rig.Dial(ctx, 0)
	if err != nil {
		return nil, err
	}
	defer c.Close() //nolint:errcheck // it only reads
	if r.found.stats, err = c.Queue(r.queue).Stats(ctx); err != nil {
		return nil, err
	}
	var lost []string
	r.found.sample = nil
	for _, id := range r.sample {
		t, err := c.Task(ctx, id)
		switch {
		case errors.Is(err, millrace.ErrNotFound):
			lost = append(lost, fmt.Sprintf("lost: task %s was acknowledged and is not there after the redrive", id))
		case err != nil:
			return nil, fmt.Errorf("read the redriven task %s: %w", id, err)
		default:
			r.found.sample = append(r.found.sample, t)
		}
	}
	return slices.Concat(lost, r.found.wrong(r.rig.Payload)), nil
}

// wrong says what is wrong with a redrive: the dry run must have counted all tasks, the job must have done each of
// them once, and all must be ready, as they were sent.
func (f *redriveFound) wrong(payload []byte) (out []string) {
	violate := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	n := uint64(f.dead)
	if f.dry.Count != n || !f.dry.Exact {
		violate("dry run: it counted %d tasks, exact: %v; %d were dead", f.dry.Count, f.dry.Exact, n)
	}
	if f.job.State != millrace.BulkDone || f.job.Done != n || len(f.job.Refused) > 0 {
		violate("redrive: the job is %s, did %d tasks and was refused by %v; %d were dead", f.job.State, f.job.Done, f.job.Refused, n)
	}
	if s := f.stats; s.Created != n || s.Ready != n || s.Dead != 0 {
		violate("redrive: the queue has %d tasks, of which %d are ready and %d dead; %d were redriven", s.Created, s.Ready, s.Dead, n)
	}
	for _, t := range f.sample {
		if t.State != millrace.Ready || t.Redrives != 1 {
			violate("redrive: task %s is %s and was redriven %d times, not ready and once", t.ID, t.State, t.Redrives)
		}
		if string(t.Payload) != string(payload) {
			violate("different: task %s has another payload after the redrive", t.ID)
		}
		if len(out) >= redriveViolations {
			return out
		}
	}
	return out
}

// redriveViolations bounds the list of what is wrong.
const redriveViolations = 100
