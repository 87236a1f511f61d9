package load

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/millrace/millrace/bench"
	"github.com/millrace/millrace/internal/embed"
	"github.com/millrace/millrace/internal/vector"
)

// GraphClusters is the kind of a row of SearchGraph whose vectors are random ones around random centres. The
// vectors of other rows are those of made-up workers, and the queries those of job orders.
const GraphClusters = "clusters"

const (
	// graphThreads build and walk at once. graphQueries is the number of queries, and
	// graphNeighbours how many rows each wants.
	graphThreads    = 2
	graphQueries    = 200
	graphNeighbours = 10
	// graphRescored is how many of the rows that a walk finds get their exact product, as in a search.
	graphRescored = 50
	// graphRecall is the recall that the walks that are timed must reach.
	graphRecall = 0.98
	// graphDefault is the width of walks that name none.
	graphDefault = 120
)

// graphWidths are the widths of walks that are tried, the narrowest first.
var graphWidths = []int{40, 45, 50, 55, 60, 65, 70, 75, 80, 85, 90, 95, 100, 110, 120, 160, 240, 320}

// graphRun is a graph over vectors, and queries whose nearest are known. After build it is only read.
type graphRun struct {
	// view is the rows of the graph.
	view vector.View
	// graph is built over all rows of view.
	graph *vector.Graph
	// queries are prepared once, and shared by all walks that are not timed.
	queries []*vector.Query
}

// SearchGraph builds a graph in this process, and times the narrowest walks over it that find 98 %
// of the nearest. It also tells the recall of walks of the default width, with all rows and with
// half of them deleted.
func SearchGraph(ctx context.Context, rig *bench.Rig) error {
	vectors, queries := graphData(rig.Shape.Kind, rig.Shape.Puts, rig.Seed)
	r := newGraphRun(vectors, queries)
	began := time.Now()
	if err := r.build(ctx); err != nil {
		return err
	}
	rig.Metric("build_s", time.Since(began).Seconds(), "s")
	// all has every row, half every second one: the others are taken to be deleted.
	all, half := r.nearest(1), r.nearest(2)
	width, recall := 0, 0.0
	for _, width = range graphWidths {
		if recall = r.recall(width, all); recall >= graphRecall {
			break
		}
	}
	rig.Metric("width", float64(width), "rows")
	rig.Metric("recall_at_10", recall, "share")
	rig.Metric("recall_at_10_default", r.recall(graphDefault, all), "share")
	rig.Metric("recall_at_10_half_deleted", r.recall(graphDefault, half), "share")
	op := rig.Op("walk")
	var done atomic.Int64
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(graphThreads + 1)) // one more for the thread that watches the host
	err := rig.Work(ctx, func(over func() bool) {
		select {
		case <-rig.Began():
		case <-ctx.Done():
			return
		}
		var wait sync.WaitGroup
		for i := range graphThreads {
			wait.Go(func() {
				var hits []vector.Hit
				// Each thread begins at another query.
				for n := i * len(r.queries) / graphThreads; !over(); n++ {
					began := time.Now()
					q := vector.NewQuery(r.queries[n%len(r.queries)].Vector()) // as each search makes its own
					hits = r.walk(q, width, nil, hits[:0])
					op.Record(i, began, 1, nil)
					done.Add(1)
				}
			})
		}
		wait.Wait()
	})
	if err != nil {
		return err
	}
	rig.Metric("queries_per_s", float64(done.Load())/rig.Window.Seconds(), "queries/s")
	return nil
}

// graphData is n vectors and some queries of the kind that the row names.
func graphData(kind string, n int, seed uint64) (vectors, queries [][]float32) {
	if kind == GraphClusters {
		// Queries are drawn with the vectors, so that they lie around the same centres.
		all := clusters(rand.New(rand.NewPCG(seed, 0x6a1)), n+graphQueries, max(10, n/100))
		return all[:n], all[n:]
	}
	d := NewSearchData(SearchDataOptions{Seed: seed, Workers: n})
	for i := range d.Workers {
		v, _ := embed.Lexical(d.Workers[i].Text)
		vectors = append(vectors, v)
	}
	for _, q := range d.Queries(SearchBodies{}) {
		v, _ := embed.Lexical(q.Text)
		queries = append(queries, v)
	}
	return vectors, queries
}

// clusters are n random vectors of length one around random centres, of which each vector draws one.
func clusters(r *rand.Rand, n, centres int) [][]float32 {
	mid := make([][]float32, centres)
	for i := range mid {
		mid[i] = gauss(r, 1)
	}
	out := make([][]float32, n)
	for i := range out {
		out[i] = gauss(r, 0.7)
		for j, x := range mid[r.IntN(centres)] {
			out[i][j] += x
		}
		vector.Normalize(out[i])
	}
	return out
}

// gauss draws a vector of normal values with a standard deviation.
func gauss(r *rand.Rand, by float64) []float32 {
	v := make([]float32, pointsDim)
	for i := range v {
		v[i] = float32(r.NormFloat64() * by)
	}
	return v
}

// newGraphRun stores the vectors in rows for the first kernel that this machine has.
func newGraphRun(vectors, queries [][]float32) *graphRun {
	rows := vector.NewRows(vector.Kernels()[0], pointsDim)
	for _, v := range vectors {
		rows.Append(v)
	}
	r := &graphRun{view: rows.View(), graph: vector.NewGraph()}
	for _, q := range queries {
		r.queries = append(r.queries, vector.NewQuery(q))
	}
	return r
}

// build adds all rows to the graph, by graphThreads threads, batch by batch.
func (r *graphRun) build(ctx context.Context) error {
	id := func(row uint32) uint64 { return xxhash.Sum64String(fmt.Sprint("w", row)) }
	// live says that no row is deleted while the graph is built.
	live := func(uint32) bool { return true }
	// each runs the parts of a batch on all threads, and returns when all are done.
	each := func(n int, do func(i int)) {
		var next atomic.Int64
		var wait sync.WaitGroup
		for range graphThreads {
			wait.Go(func() {
				for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
					do(i)
				}
			})
		}
		wait.Wait()
	}
	for r.graph.Build(&r.view, vector.Together, id, live, each) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

// truth is the nearest rows of each query, of those that pass.
type truth struct {
	// pass has a bit for each row that may be found; nil: all may.
	pass vector.Bits
	// rows are the nearest rows of each query, in the order of the queries.
	rows [][]uint32
}

// nearest finds, by exact products, the nearest of every step-th row for each query.
func (r *graphRun) nearest(step int) truth {
	var t truth
	var list []uint32
	for row := 0; row < r.view.Len(); row += step {
		list = append(list, uint32(row))
	}
	if step > 1 {
		// A bit for each row, 64 to a word.
		t.pass = make(vector.Bits, (r.view.Len()+63)/64)
		for _, row := range list {
			t.pass[row>>6] |= 1 << (row & 63)
		}
	}
	for _, q := range r.queries {
		hits, _ := r.view.ScanExact(q, list, graphNeighbours, nil, nil)
		rows := make([]uint32, len(hits))
		for i, h := range hits {
			rows[i] = h.Row
		}
		t.rows = append(t.rows, rows)
	}
	return t
}

// walk finds the nearest by a walk, and orders the best of what it finds by exact products, as a
// search does. Equal products are ordered by row.
func (r *graphRun) walk(q *vector.Query, width int, pass vector.Bits, dst []vector.Hit) []vector.Hit {
	hits := r.graph.Search(&r.view, q, width, pass, dst)
	hits = hits[:min(len(hits), graphRescored)]
	for i := range hits {
		hits[i].Score = r.view.Exact(q, hits[i].Row)
	}
	slices.SortFunc(hits, func(a, b vector.Hit) int {
		switch {
		case a.Score > b.Score || a.Score == b.Score && a.Row < b.Row:
			return -1
		case a == b:
			return 0
		}
		return 1
	})
	return hits[:min(len(hits), graphNeighbours)]
}

// recall is the share of the nearest that walks of a width find, over all queries.
func (r *graphRun) recall(width int, t truth) float64 {
	found, all := 0, 0
	for i, q := range r.queries {
		for _, h := range r.walk(q, width, t.pass, nil) {
			if slices.Contains(t.rows[i], h.Row) {
				found++
			}
		}
		// Fewer rows than wanted can pass, so the true ones are counted.
		all += len(t.rows[i])
	}
	return float64(found) / float64(max(1, all))
}
