package bench

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Pump is one goroutine of a generator. A call reads it while it lasts; the pump is reused for the next call.
type Pump struct {
	// Number differs between the pumps of one generator, from 0.
	Number   int
	Intended time.Time // when this call was due: its latency counts from here
	Began    time.Time // when it began
}

// Generate starts n pumps that call until the window ends: one after the other in a closed loop, when they are due in an
// open one. It returns at once; the channel is closed when every call has its answer. call must not fail: it records.
func (r *Rig) Generate(ctx context.Context, n int, call func(ctx context.Context, p *Pump)) <-chan struct{} {
	done := make(chan struct{})
	if r.Rate > 0 {
		go func() {
			defer close(done)
			r.openLoop(ctx, call)
		}()
		return done
	}
	if r.Concurrency > 0 {
		n = r.Concurrency
	}
	var pumps sync.WaitGroup
	for i := range n {
		pumps.Go(func() {
			p := &Pump{Number: i}
			for !r.Done() && ctx.Err() == nil {
				p.Began = time.Now()
				p.Intended = p.Began
				call(ctx, p)
			}
		})
	}
	go func() {
		defer close(done)
		pumps.Wait()
	}()
	return done
}

// openLoop starts each call when it is due. A call that finds no free pump is dropped, and the drop
// is counted.
//
// The pacing goroutine must never block, or later calls would start late. So running bounds the
// calls that wait or run to InFlight, the capacity of work: the send never blocks. Pumps are
// started only when those that are idle do not suffice, so that a slow rate needs few goroutines.
func (r *Rig) openLoop(ctx context.Context, call func(ctx context.Context, p *Pump)) {
	lag := r.Op("schedule_lag")
	work := make(chan time.Time, r.InFlight)
	var pumps sync.WaitGroup
	var idle, running atomic.Int64
	spawn := func(number int) {
		pumps.Go(func() {
			p := &Pump{Number: number}
			for at := range work {
				idle.Add(-1)
				p.Intended, p.Began = at, time.Now()
				call(ctx, p)
				running.Add(-1)
				idle.Add(1)
			}
		})
	}
	live := 0
	r.pace(ctx, func(due time.Time) {
		if running.Load() >= int64(r.InFlight) {
			r.drop()
			return
		}
		running.Add(1)
		if idle.Load() <= int64(len(work)) && live < r.InFlight {
			idle.Add(1)
			spawn(live)
			live++
		}
		work <- due
		lag.Latency(live, time.Since(due))
		r.start()
	})
	close(work)
	pumps.Wait()
}

// Offer is an open loop of calls that do not wait for their answers: start is given each arrival
// when it is due, all on one goroutine. Whatever start waits for makes the next arrivals late.
// underWay is the number of calls under way: Offer adds one before start, and the caller takes one
// off when the answer comes. An arrival while it is at the rig's bound is dropped, and the drop is
// counted. Offer returns when the window ends, which may be before the answers come.
func (r *Rig) Offer(ctx context.Context, underWay *atomic.Int64, start func(due time.Time)) {
	lag := r.Op("schedule_lag")
	r.pace(ctx, func(due time.Time) {
		if underWay.Load() >= int64(r.InFlight) {
			r.drop()
			return
		}
		underWay.Add(1)
		lag.Latency(0, time.Since(due))
		start(due)
		r.start()
	})
}

// pace calls arrive for each arrival of the rig's schedule when it is due, until the window or ctx ends.
func (r *Rig) pace(ctx context.Context, arrive func(due time.Time)) {
	r.generating.Store(new(time.Now()))
	Pace(NewSchedule(r.Arrivals, r.Rate, r.Seed), func() bool { return r.Done() || ctx.Err() != nil }, arrive)
}

// ahead is how long the generator ran before the window opened: where in the pattern of arrivals
// the window begins.
func (r *Rig) ahead() time.Duration {
	from, opened := r.generating.Load(), r.opened.Load()
	if from == nil || opened == nil {
		return 0
	}
	return max(opened.Sub(*from), 0)
}

// drop counts an arrival of the window that was not started.
func (r *Rig) drop() {
	if r.measuring.Load() {
		r.mu.Lock()
		r.offered.dropped++
		r.mu.Unlock()
	}
}

// start counts an arrival of the window that was started.
func (r *Rig) start() {
	if r.measuring.Load() {
		r.mu.Lock()
		r.offered.started++
		r.mu.Unlock()
	}
}
