package load

import (
	"context"
	"fmt"
	"slices"
	"time"

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
	// redriveSuffix makes the name of the queue of dead tasks, in which there is nothing else.
	redriveSuffix = "-dead"
)

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
	*live
	// found is filled as the run goes on.
	found redriveFound
}

// Redrive makes tasks that die, and a bulk job that redrives them under live traffic. The window has two parts: in the
// first, of the row's time, there is live traffic alone, and in the second the job too; it ends with the job.
func Redrive(ctx context.Context, rig *bench.Rig) error {
	l, err := newLive(ctx, rig, redriveSuffix, "redriven")
	if err != nil {
		return err
	}
	defer l.client.Close() //nolint:errcheck // every call was answered, or an error tells
	r := &redriveRun{live: l}
	if err := r.prepare(ctx); err != nil {
		return err
	}
	if err := r.run(ctx, rig.Window, r.redrive); err != nil {
		return err
	}
	r.ratios()
	rig.Metric("tasks", float64(r.found.dead), "tasks")
	rig.Proofs = append(rig.Proofs, r.prove)
	return nil
}

// prepare creates the tasks, waits until all are dead and the server is at rest, and counts them by a dry run.
func (r *redriveRun) prepare(ctx context.Context) error {
	r.found.dead = r.rig.Shape.Prefill
	if err := r.create(ctx, r.found.dead, millrace.ExpiresIn(redriveExpiry)); err != nil {
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
	if err := r.settle(ctx, r.found.dead); err != nil {
		return err
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

// redrive runs the job to its end.
func (r *redriveRun) redrive(ctx context.Context) error {
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
	return nil
}

// prove reads the redriven tasks from the server, and says what is wrong with them.
func (r *redriveRun) prove(ctx context.Context) (out []string, err error) {
	var lost []string
	r.found.stats, r.found.sample, lost, err = r.read(ctx)
	if err != nil {
		return nil, err
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
