package vector

import (
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
)

// mix is a hash of row numbers that stands for one of ids.
func mix(row uint32) uint64 {
	x := (uint64(row) + 1) * 0x9e3779b97f4a7c15
	x ^= x >> 31
	return x * 0xbf58476d1ce4e5b9
}

func everyRow(uint32) bool { return true }

func inTurn(n int, do func(i int)) {
	for i := range n {
		do(i)
	}
}

// atOnce does all of them at once, the last one first.
func atOnce(n int, do func(i int)) {
	var wait sync.WaitGroup
	for i := range n {
		wait.Go(func() { do(n - 1 - i) })
	}
	wait.Wait()
}

func build(t testing.TB, vectors [][]float32, kernel *Kernel) (*Graph, View) {
	t.Helper()
	rows := fill(kernel, vectors)
	view, g := rows.View(), NewGraph()
	for g.Build(&view, 500, mix, everyRow, inTurn) > 0 {
	}
	if int(g.Built()) != len(vectors) {
		t.Fatalf("%d of %d rows are built", g.Built(), len(vectors))
	}
	return g, view
}

func bitsOf(list []uint32) Bits {
	var b Bits
	for _, row := range list {
		for int(row>>6) >= len(b) {
			b = append(b, 0)
		}
		b[row>>6] |= 1 << (row & 63)
	}
	return b
}

// graphRecall is the mean share of the ten best that walks find, after the exact products of what they return.
func graphRecall(t *testing.T, g *Graph, view *View, queries [][]float32, list []uint32, ef int) float64 {
	t.Helper()
	pass := bitsOf(list)
	sum := 0.0
	for _, v := range queries {
		q := NewQuery(v)
		want, _ := view.ScanExact(q, list, 10, nil, nil)
		hits := g.Search(view, q, ef, pass, nil)
		if !slices.IsSortedFunc(hits, func(a, b Hit) int {
			if worse(a, b) {
				return 1
			}
			return -1
		}) {
			t.Fatal("hits are not best first")
		}
		for i := range hits {
			if !pass.Has(hits[i].Row) {
				t.Fatalf("row %d is returned and does not pass", hits[i].Row)
			}
			hits[i].Score = view.Exact(q, hits[i].Row)
		}
		slices.SortFunc(hits, func(a, b Hit) int {
			if worse(a, b) {
				return 1
			}
			return -1
		})
		rows := make([]uint32, len(want))
		for i := range want {
			rows[i] = want[i].Row
		}
		sum += recall(hits[:min(10, len(hits))], rows)
	}
	return sum / float64(len(queries))
}

// graphRows is how many rows recall is measured over; campaigns set more.
func graphRows() int {
	if n, err := strconv.Atoi(os.Getenv("MILLRACE_GRAPH_ROWS")); err == nil {
		return n
	}
	return 2000
}

func TestWalksFindNearlyAllOfTheNearest(t *testing.T) {
	n := graphRows()
	all := clustered(21, n+50, 64, max(10, n/100))
	vectors, queries := all[:n], all[n:]
	g, view := build(t, vectors, Kernels()[0])
	for _, step := range []int{1, 2, 10} {
		if got := graphRecall(t, g, &view, queries, everyOf(n, step), 120); got < 0.98 {
			t.Errorf("with 1 row of %d that may be returned: recall %.4f", step, got)
		}
	}
}

func TestClustersStayConnected(t *testing.T) {
	all := clustered(5, 2040, 32, 40)
	for _, v := range all { // tighter: most neighbours are of one cluster
		for i := range v {
			v[i] = float32(int(v[i]*40)) / 40
		}
		Normalize(v)
	}
	g, view := build(t, all[:2000], Kernels()[0])
	if got := graphRecall(t, g, &view, all[2000:], everyOf(2000, 1), 120); got < 0.97 {
		t.Errorf("recall %.4f", got)
	}
}

func TestRowsThatWereDeadWhenTheyCameUpAreNoNodesAndDeadNodesAreOnlyWalkedOver(t *testing.T) {
	vectors := clustered(8, 2000, 32, 20)
	rows := fill(Kernels()[0], vectors)
	view, g := rows.View(), NewGraph()
	odd := func(row uint32) bool { return row%2 == 1 }
	for g.Build(&view, 100, mix, odd, inTurn) > 0 {
	}
	if g.nodes.Load() != 1000 || g.Built() != 2000 {
		t.Errorf("%d nodes of %d rows", g.nodes.Load(), g.Built())
	}
	var left []uint32 // of the nodes, every other one is live
	for row := uint32(1); row < 2000; row += 4 {
		left = append(left, row)
	}
	if got := graphRecall(t, g, &view, clustered(9, 30, 32, 20), left, 120); got < 0.95 {
		t.Errorf("recall %.4f", got)
	}
}

func TestAWalkLooksAtNothingBeyondItsView(t *testing.T) {
	vectors := clustered(3, 1500, 32, 10)
	rows := fill(Kernels()[0], vectors[:1000])
	old := rows.View()
	for _, v := range vectors[1000:] {
		rows.Append(v)
	}
	now, g := rows.View(), NewGraph()
	for g.Build(&now, 1000, mix, everyRow, inTurn) > 0 {
	}
	for i := range 50 {
		for _, h := range g.Search(&old, NewQuery(vectors[1000+i]), 50, nil, nil) {
			if h.Row >= 1000 {
				t.Fatalf("row %d", h.Row)
			}
		}
	}
	if hits := NewGraph().Search(&now, NewQuery(vectors[0]), 50, nil, nil); len(hits) != 0 {
		t.Error("an empty graph found something")
	}
}

func TestAGraphBuiltTwiceIsTheSame(t *testing.T) {
	vectors := clustered(12, 400, 48, 10)
	a, view := build(t, vectors, Kernels()[0])
	for _, k := range append(Kernels(), nil) {
		var b *Graph
		if k != nil {
			b, _ = build(t, vectors, k)
		} else {
			for b = NewGraph(); b.Build(&view, 500, mix, everyRow, atOnce) > 0; {
			}
		}
		for row := range uint32(400) {
			for layer := range 3 {
				if !slices.Equal(a.links(row, layer), b.links(row, layer)) {
					t.Fatalf("%v: links of row %d differ on layer %d", k, row, layer)
				}
			}
		}
	}
}

func TestSearchesWalkBesideTheBuilder(t *testing.T) {
	vectors := clustered(6, 1200, 32, 10)
	rows := fill(Kernels()[0], vectors)
	view, g := rows.View(), NewGraph()
	g.Build(&view, 50, mix, everyRow, inTurn)
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for i := range 2 {
		wg.Go(func() {
			q := NewQuery(vectors[i])
			for {
				select {
				case <-stop:
					return
				default:
				}
				if hits := g.Search(&view, q, 40, nil, nil); len(hits) == 0 {
					t.Error("nothing found")
					return
				}
			}
		})
	}
	for g.Build(&view, 10, mix, everyRow, inTurn) > 0 {
	}
	close(stop)
	wg.Wait()
}

func BenchmarkGraph(b *testing.B) {
	n := graphRows()
	vectors := clustered(21, n+200, 384, max(10, n/100))
	rows := fill(Kernels()[0], vectors[:n])
	view := rows.View()
	b.Run("build", func(b *testing.B) {
		g := NewGraph()
		for i := 0; b.Loop(); i++ {
			if g.Build(&view, 1, mix, everyRow, inTurn) == 0 {
				g = NewGraph()
			}
		}
	})
	g := NewGraph()
	for g.Build(&view, 1000, mix, everyRow, inTurn) > 0 {
	}
	b.Run("walk", func(b *testing.B) {
		var hits []Hit
		for i := 0; b.Loop(); i++ {
			hits = g.Search(&view, NewQuery(vectors[n+i%200]), 120, nil, hits[:0])
		}
	})
}

// BenchmarkScanOrWalk is what a scan of all rows and a walk over their graph take, by how many rows there are: from where on
// a walk is faster depends on the kernel.
func BenchmarkScanOrWalk(b *testing.B) {
	const queries = 200
	for _, kernel := range Kernels() {
		for _, n := range []int{2500, 5000, 10_000, 20_000} {
			vectors := clustered(21, n+queries, 384, max(10, n/100))
			rows := fill(kernel, vectors[:n])
			view, g, all := rows.View(), NewGraph(), everyOf(n, 1)
			for g.Build(&view, 1000, mix, everyRow, inTurn) > 0 {
			}
			name := kernel.String() + "/rows-" + strconv.Itoa(n)
			b.Run(name+"/scan", func(b *testing.B) {
				var hits []Hit
				for i := 0; b.Loop(); i++ {
					hits, _ = view.Scan(NewQuery(vectors[n+i%queries]), all, 50, hits[:0], nil)
				}
			})
			b.Run(name+"/walk", func(b *testing.B) {
				var hits []Hit
				for i := 0; b.Loop(); i++ {
					hits = g.Search(&view, NewQuery(vectors[n+i%queries]), 120, nil, hits[:0])
				}
			})
		}
	}
}
