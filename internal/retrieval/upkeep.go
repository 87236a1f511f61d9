package retrieval

import (
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/cespare/xxhash/v2"

	"github.com/millrace/millrace/internal/vector"
)

// fewDead is how many dead rows are not worth a rebuild.
const fewDead = 4096

// buildStep is how many rows a graph takes between two looks at whether to stop.
const buildStep = vector.Together

// each does n things by as many goroutines as half of the threads that run Go code: the others are for those who search.
func each(n int, do func(i int)) {
	workers := min(n, (runtime.GOMAXPROCS(0)+1)/2)
	if workers <= 1 {
		for i := range n {
			do(i)
		}
		return
	}
	var next atomic.Int64
	var wait sync.WaitGroup
	for range workers {
		wait.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				do(i)
			}
		})
	}
	wait.Wait()
}

// Wasteful says whether enough rows are dead for Compact to be worth its cost: a quarter.
func (x *Index) Wasteful() bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.in.dead > fewDead && 3*x.in.dead > len(x.in.byID)
}

// Tend does in background what an index needs: it drops dead rows and adds new ones to the graph. One caller at a time.
// Stop is asked now and then and ends it early; searches find all that there is in any case.
func (x *Index) Tend(stop func() bool) {
	if x.Wasteful() {
		x.Compact(stop)
	}
	for left := x.Stats().Tail; left > 0 && !stop(); { // not what comes meanwhile: others wait for their turn
		n := x.BuildGraph(buildStep)
		if n == 0 {
			return
		}
		left -= n
	}
}

// large says whether a collection of the given number of points has a graph.
func (x *Index) large(points int) bool {
	return x.graphs && int64(points)*int64(x.dim) > x.scan
}

// BuildGraph adds at most limit rows to the graph and returns how many it went over: 0 when there
// is nothing to do. One caller at a time, which may not compact meanwhile. The graph grows without
// the lock: no one else changes it, and walks may run meanwhile. Whether rows are alive is read
// before, under the lock; a row that dies afterwards becomes a node all the same, which searches
// step over. A new graph is shown to searches once it has nodes.
func (x *Index) BuildGraph(limit int) int {
	x.mu.RLock()
	in := x.in
	if in.graph == nil && !x.large(len(in.byID)) {
		x.mu.RUnlock()
		return 0
	}
	g := in.graph
	if g == nil {
		g = vector.NewGraph()
	}
	from := in.snapshot()
	first := g.Built()
	limit = min(limit, from.vectors.Len()-int(first))
	alive := make([]bool, max(0, limit))
	for i := range alive {
		alive[i] = in.live.Contains(first + uint32(i))
	}
	x.mu.RUnlock()
	if limit <= 0 {
		return 0
	}
	done := from.grow(g, limit, func(row uint32) bool { return alive[row-first] })
	if in.graph == nil {
		x.mu.Lock()
		in.graph = g
		x.mu.Unlock()
	}
	return done
}

// grow adds rows of a view to a graph.
func (v *view) grow(g *vector.Graph, limit int, live func(row uint32) bool) int {
	return g.Build(&v.vectors, limit, func(row uint32) uint64 { return xxhash.Sum64String(v.ids.at(row)) }, live, each)
}

// Compact rebuilds the index from its live rows while searches and changes go on. It takes over what changed meanwhile in
// ever shorter rounds, the last of them under the lock. One caller at a time. It calls stop now and then; if stop returns
// true, Compact ends and has changed nothing.
//
// Each round brings the new index from the rows that lived at its last instant to those that live
// now. The old one goes on taking changes and answering searches. A round with fewer than 256 rows
// to copy is the last before the lock, and so is the fifth. Under the lock the rest is copied and
// the new index takes the place of the old one, so that no search sees a state between.
func (x *Index) Compact(stop func() bool) bool {
	stopped := func() bool { return stop != nil && stop() }
	x.mu.RLock()
	old := x.in
	x.mu.RUnlock()
	fresh, done := x.newInner(), roaring.New()
	for range 5 {
		from, live := x.capture(old)
		missing := roaring.AndNot(live, done)
		few := missing.GetCardinality() < 256
		if !x.follow(fresh, &from, done, live, stopped) || !x.regraph(fresh, old, stopped) {
			return false
		}
		if done = live; few {
			break
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	from := old.snapshot()
	x.follow(fresh, &from, done, old.live, func() bool { return false })
	x.in = fresh
	return true
}

// capture returns the rows and the set of live ones, both of one instant.
func (x *Index) capture(in *inner) (view, *roaring.Bitmap) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return in.snapshot(), in.live.Clone()
}

// follow makes of an index that has the rows in was one that has those in is. It returns false if
// it was stopped. Rows that died are removed first: a point that changed has a new row under the
// same id.
func (x *Index) follow(fresh *inner, from *view, was, is *roaring.Bitmap, stopped func() bool) bool {
	for it := roaring.AndNot(was, is).Iterator(); it.HasNext(); {
		fresh.remove(x.schema, from.ids.at(it.Next()))
	}
	n := 0
	for it := roaring.AndNot(is, was).Iterator(); it.HasNext(); n++ {
		if n&255 == 0 && stopped() {
			return false
		}
		fresh.copyRow(x.schema, from, it.Next())
	}
	return true
}

// regraph builds the graph of an index that will take the place of one that has a graph.
func (x *Index) regraph(fresh, old *inner, stopped func() bool) bool {
	x.mu.RLock()
	has := old.graph != nil && x.large(len(fresh.byID))
	x.mu.RUnlock()
	if !has {
		return true
	}
	if fresh.graph == nil {
		fresh.graph = vector.NewGraph()
	}
	v := fresh.snapshot()
	for v.grow(fresh.graph, buildStep, fresh.live.Contains) > 0 {
		if stopped() {
			return false
		}
	}
	return true
}
