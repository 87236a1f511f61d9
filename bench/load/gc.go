package load

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/millrace/millrace/bench"
)

// gcSlice is the length of the slices in which latencies are sorted by collections of garbage. It
// is below a second because a busy server collects more often than that.
const gcSlice = 100 * time.Millisecond

// gcWatch splits the latencies of one operation by whether a process collected garbage in the same slice.
type gcWatch struct {
	// op is the operation, and admin the address of the server's admin listener; empty: the server
	// is in this process.
	op    string
	admin string

	mu sync.Mutex // guards the fields below
	// now is the newest count, first that at the beginning of the window.
	now   gcCount
	first gcCount
	// slice is the count when the slice began.
	slice gcCount
	// with and without have the latencies of slices with a collection, and of those without.
	with    *hdrhistogram.Histogram
	without *hdrhistogram.Histogram
	// pauses are the mean pause of each look's collections, in microseconds.
	pauses []float64
	// lost is why the server could not be asked. Nothing is told then.
	lost error
}

// gcCount is the collections so far of server and driver.
type gcCount struct {
	// server and driver count the collections since each process began.
	server, driver uint64
	// paused is how long they stopped the server, in seconds.
	paused float64
}

// GC is Queue with an eye on collections of garbage, of server and driver.
func GC(ctx context.Context, rig *bench.Rig) error {
	if rig.Ceiling {
		return Queue(ctx, rig)
	}
	g := &gcWatch{
		op: "create", admin: rig.Servers[0].Admin, with: hdrhistogram.New(1, int64(time.Hour/time.Microsecond), 3),
		without: hdrhistogram.New(1, int64(time.Hour/time.Microsecond), 3),
	}
	// Rows without workers have no cycles, so the latency of a create is what they have.
	if rig.Shape.Workers > 0 {
		g.op = "cycle"
	}
	watching, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		g.watch(watching, rig)
	}()
	rig.Resolution, rig.OnInterval = gcSlice, g.interval
	err := Queue(ctx, rig)
	stop()
	<-done
	g.report(rig)
	return err
}

// watch counts collections every gcSlice, from before the window to its end. It runs on its own goroutine.
func (g *gcWatch) watch(ctx context.Context, rig *bench.Rig) {
	tick := time.NewTicker(gcSlice)
	defer tick.Stop()
	// began says that the window has begun, so that first and slice are set.
	began := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if rig.Done() {
			return
		}
		n, err := g.count(ctx)
		g.mu.Lock()
		if err != nil {
			g.lost = err
		} else {
			if k := n.server - g.now.server; began && k > 0 {
				g.pauses = append(g.pauses, (n.paused-g.now.paused)/float64(k)*1e6)
			}
			if g.now = n; !began && rig.Measuring() {
				began, g.first, g.slice = true, n, n
			}
		}
		g.mu.Unlock()
	}
}

// count reads the collections of this process and of the server.
func (g *gcWatch) count(ctx context.Context) (gcCount, error) {
	var own debug.GCStats
	debug.ReadGCStats(&own)
	n := gcCount{driver: uint64(own.NumGC)}
	if g.admin == "" {
		n.server, n.paused = n.driver, own.PauseTotal.Seconds() // one process for all
		return n, nil
	}
	const count, sum = "go_gc_duration_seconds_count", "go_gc_duration_seconds_sum"
	m, err := bench.Metrics(ctx, g.admin, count, sum)
	if err != nil {
		return n, err
	}
	n.server, n.paused = uint64(m[count]), m[sum]
	return n, nil
}

// interval takes the latencies of one slice, when the harness ends it.
func (g *gcWatch) interval(op string, h *hdrhistogram.Histogram) {
	if op != g.op {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	// A collection of the driver slows a call as one of the server does, so it counts too.
	if g.now.server != g.slice.server || g.now.driver != g.slice.driver {
		g.with.Merge(h)
	} else {
		g.without.Merge(h)
	}
	g.slice = g.now
}

// report compares p99.9 of both kinds of slices. It warns instead where one kind did not occur.
func (g *gcWatch) report(rig *bench.Rig) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.lost != nil {
		rig.Warn("gc_unseen", g.lost.Error(), 0)
		return
	}
	rig.Metric("gc_cycles", float64(g.now.server-g.first.server), "collections")
	rig.Metric("gc_cycles_driver", float64(g.now.driver-g.first.driver), "collections")
	if len(g.pauses) > 0 {
		slices.Sort(g.pauses)
		// The list is sorted; the last element stands for the quantile where there are few.
		rig.Metric("gc_pause_p99_us", g.pauses[min(len(g.pauses)*99/100, len(g.pauses)-1)], "µs")
		rig.Metric("gc_pause_max_us", g.pauses[len(g.pauses)-1], "µs")
	}
	a, b := g.with.ValueAtQuantile(99.9), g.without.ValueAtQuantile(99.9)
	if g.with.TotalCount() == 0 || g.without.TotalCount() == 0 || b == 0 {
		rig.Warn("gc_not_told_apart", fmt.Sprintf("every slice of %s was with a collection, or none was", gcSlice), 0)
		return
	}
	rig.Metric("gc_p999_us", float64(a), "µs")
	rig.Metric("no_gc_p999_us", float64(b), "µs")
	rig.Metric("gc_p999_ratio", float64(a)/float64(b), "×")
}
