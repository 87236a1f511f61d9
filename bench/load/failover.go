package load

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/bench"
)

const (
	// failoverCalm is how long the load runs before each kill.
	failoverCalm = 2 * time.Second
	// failoverWithin bounds the time without a leader. A later acknowledgement fails the run.
	failoverWithin = 30 * time.Second
)

// failover is the queue's load, and the kills of the leader in it.
type failover struct {
	// q is the queue's load, whose onMade this run uses.
	q *queueRun
	// killed is the time of the kill that no create was acknowledged after yet; nil: all nodes serve.
	killed atomic.Pointer[time.Time]
	// acked has the time from the kill to the first acknowledgement of a create that began after
	// it. made sends it, at most once for each kill.
	acked chan time.Duration
	// took has one time for each kill.
	took []time.Duration
}

// Failover kills the node that leads, over and over while tasks are created and completed, and times how long after each
// kill the first create that began after it is acknowledged. The node comes back and leads again before the next kill.
func Failover(ctx context.Context, rig *bench.Rig) error {
	rig.LosesServers()
	f := &failover{q: newQueueRun(rig), acked: make(chan time.Duration, 1)}
	f.q.onMade = f.made
	defer f.q.close()
	if err := f.q.open(ctx); err != nil {
		return err
	}
	for i := range rig.Shape.Workers {
		if err := f.q.startWorker(ctx, i); err != nil {
			return err
		}
	}
	done := rig.Generate(ctx, rig.Shape.Loops(), f.q.call)
	err := bench.Pause(ctx, rig.Warmup)
	if err == nil {
		err = rig.MeasureWork(ctx, f.rounds)
	}
	rig.Stop()
	<-done
	if err != nil {
		return err
	}
	f.report(rig)
	return errors.Join(rig.Drain(ctx), f.q.stopWorkers())
}

// made hears of every create that was acknowledged. The first one that began after the kill, and
// only that one, reports; the exchange of killed decides which it is.
func (f *failover) made(p *bench.Pump) {
	at := f.killed.Load()
	if at == nil || p.Began.Before(*at) || !f.killed.CompareAndSwap(at, nil) {
		// A create that began before the kill says nothing about the new leader.
		return
	}
	f.acked <- time.Since(*at)
}

// rounds kills and revives for the length of the window, once at least. It waits for a calm time
// before each kill, so that all clients have found the new leader.
func (f *failover) rounds(ctx context.Context) error {
	began := time.Now()
	for {
		if err := bench.Pause(ctx, min(failoverCalm, f.q.rig.Window/2)); err != nil {
			return err
		}
		if err := f.round(ctx); err != nil {
			return err
		}
		if time.Since(began) >= f.q.rig.Window {
			return nil
		}
	}
}

// round kills the first node, which leads the first shard by the bench's placement, waits for the
// first acknowledgement, and starts the node again. The restart places the leaders as before.
func (f *failover) round(ctx context.Context) error {
	if err := f.q.rig.KillServer(0); err != nil {
		return err
	}
	f.killed.Store(new(time.Now()))
	late := time.NewTimer(failoverWithin)
	defer late.Stop()
	select {
	case took := <-f.acked:
		f.took = append(f.took, took)
	case <-late.C:
		return fmt.Errorf("nothing was acknowledged within %s of the death of the node that led", failoverWithin)
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := f.q.rig.Restart(ctx); err != nil {
		return fmt.Errorf("start the node again: %w", err)
	}
	return nil
}

// report tells the number of kills, and the median and the longest of the times.
func (f *failover) report(rig *bench.Rig) {
	slices.Sort(f.took)
	// The times are sorted, so the median and the longest are found by their place.
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1e3 }
	rig.Metric("kills", float64(len(f.took)), "kills")
	rig.Metric("first_ack_ms", ms(f.took[len(f.took)/2]), "ms")
	rig.Metric("first_ack_max_ms", ms(f.took[len(f.took)-1]), "ms")
}
