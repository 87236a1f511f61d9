package load

import (
	"context"
	"fmt"
	"time"

	"github.com/millrace/millrace/bench"
	millrace "github.com/millrace/millrace/sdk/go"
)

const (
	// dueSuffix makes the name of the queue of the tasks that become due, in which there is nothing else.
	dueSuffix = "-due"
	// dueCreates is how many tasks a second are created at least, which says how long before they are due the first one is created, and
	// dueRest the time from the last create until then, in which the server comes to rest.
	dueCreates = 20_000
	dueRest    = 20 * time.Second
	// dueLasts bounds the time until all are ready.
	dueLasts = 5 * time.Minute
)

// dueRun is one run: tasks that become due together in a queue of their own, and live traffic in the queue of the rig.
type dueRun struct {
	*live
	// at is when the tasks are due.
	at time.Time
}

// Due creates tasks that are all due in one instant, under live traffic. The window has two parts: in the first, of the row's time, there is
// live traffic alone, and the second goes from that instant until all tasks are ready.
func Due(ctx context.Context, rig *bench.Rig) error {
	l, err := newLive(ctx, rig, dueSuffix, "under")
	if err != nil {
		return err
	}
	defer l.client.Close() //nolint:errcheck // every call was answered, or an error tells
	n := rig.Shape.Prefill
	first := rig.Window + rig.Warmup
	d := &dueRun{live: l, at: time.Now().Add(time.Duration(n)*time.Second/dueCreates + first + 2*time.Second)}
	if n >= liveSettles {
		d.at = d.at.Add(dueRest)
	}
	if err := d.create(ctx, n, millrace.At(d.at)); err != nil {
		return err
	}
	if err := d.settle(ctx, n); err != nil {
		return err
	}
	rest := time.Until(d.at) - first
	if rest < 0 {
		return fmt.Errorf("%d tasks were not created, and the server was not at rest, %s before they are due", n, first)
	}
	if err := bench.Pause(ctx, rest); err != nil {
		return err
	}
	if err := d.run(ctx, time.Until(d.at)-rig.Warmup, d.ready); err != nil {
		return err
	}
	d.ratios()
	rig.Metric("tasks", float64(n), "tasks")
	rig.Proofs = append(rig.Proofs, d.prove)
	return nil
}

// ready waits until all tasks are ready.
func (d *dueRun) ready(ctx context.Context) error {
	n := uint64(d.rig.Shape.Prefill)
	var s millrace.QueueStats
	err := poll(ctx, dueLasts, func() (_ bool, err error) {
		s, err = d.client.Queue(d.queue).Stats(ctx)
		return s.Ready == n, err
	})
	if err != nil {
		return fmt.Errorf("wait until all are ready, of which %d are: %w", s.Ready, err)
	}
	took := time.Since(d.at).Seconds()
	d.rig.Metric("due_s", took, "s")
	d.rig.Metric("due_per_s", float64(n)/took, "tasks/s")
	return nil
}

// prove reads the tasks from the server, and says what is wrong with them.
func (d *dueRun) prove(ctx context.Context) ([]string, error) {
	stats, sample, out, err := d.read(ctx)
	if err != nil {
		return nil, err
	}
	n := uint64(d.rig.Shape.Prefill)
	if stats.Created != n || stats.Ready != n {
		out = append(out, fmt.Sprintf("due: the queue has %d tasks, of which %d are ready; %d were acknowledged", stats.Created, stats.Ready, n))
	}
	for _, t := range sample {
		switch {
		case t.State != millrace.Ready:
			out = append(out, fmt.Sprintf("due: task %s is %s, not ready", t.ID, t.State))
		case t.ReadyAt.Before(d.at.Truncate(time.Millisecond)):
			out = append(out, fmt.Sprintf("due: task %s was ready at %s, before %s", t.ID, t.ReadyAt, d.at))
		case string(t.Payload) != string(d.rig.Payload):
			out = append(out, fmt.Sprintf("different: task %s has another payload", t.ID))
		}
	}
	return out[:min(len(out), redriveViolations)], nil
}
