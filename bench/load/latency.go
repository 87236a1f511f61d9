package load

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/bench"
)

// latencyProbe is how long the closed loop runs that finds the maximum, at most the window.
const latencyProbe = 2 * time.Second

// Latency is Queue as an open loop, at half of the rate that its own closed loop reaches just
// before, unless a rate is asked for.
func Latency(ctx context.Context, rig *bench.Rig) error {
	if rig.Ceiling || rig.Rate > 0 {
		return Queue(ctx, rig)
	}
	most, err := maximum(ctx, rig)
	if err != nil {
		return err
	}
	rig.Rate = most / 2
	rig.Metric("maximum_cycles_per_s", most, "cycles/s")
	rig.Metric("offered_per_s", rig.Rate, "creates/s")
	return Queue(ctx, rig)
}

// maximum runs the closed loop on the run's own servers, drains it, and returns the rate of its second half in
// completions a second. What it did is in the ledger too, so that the audit covers it.
func maximum(ctx context.Context, rig *bench.Rig) (perSecond float64, err error) {
	q := newQueueRun(rig)
	// Whatever happens, the run leaves no worker or connection behind.
	defer func() {
		clients := q.clients
		for _, k := range q.workers {
			clients = append(clients, k.client)
		}
		err = errors.Join(err, q.stopWorkers())
		for _, c := range clients {
			_ = c.Close() // every call was answered, or an error tells
		}
	}()
	if err := q.open(ctx); err != nil {
		return 0, err
	}
	for i := range rig.Shape.Workers {
		if err := q.startWorker(ctx, i); err != nil {
			return 0, err
		}
	}
	half := min(latencyProbe, rig.Window) / 2
	// over ends the closed loop. It is set once.
	var over atomic.Bool
	done := make(chan error, 1)
	go func() {
		done <- atOnce(ctx, rig.Shape.Loops(), func(ctx context.Context, i int) error {
			p := &bench.Pump{Number: i}
			for !over.Load() && ctx.Err() == nil {
				p.Began = time.Now()
				p.Intended = p.Began
				q.call(ctx, p)
			}
			return ctx.Err()
		})
	}()
	// whole says that neither half was cut short.
	whole := bench.Pause(ctx, half) == nil
	before, began := q.settle.Acked(), time.Now()
	whole = whole && bench.Pause(ctx, half) == nil
	perSecond = float64(q.settle.Acked()-before) / time.Since(began).Seconds()
	over.Store(true)
	// The tasks that are under way are completed after the rate was taken.
	if err := errors.Join(<-done, rig.Drain(ctx)); err != nil {
		return 0, fmt.Errorf("find the maximum: %w", err)
	}
	if !whole || perSecond <= 0 {
		return 0, errors.New("find the maximum: nothing was completed")
	}
	return perSecond, nil
}
