package vector

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
)

// copiesSize is how many rows the tests of copies have, and of how many numbers: few, or what MILLRACE_COPIES_ROWS says of 512.
func copiesSize() (rows, dim int) {
	if n, err := strconv.Atoi(os.Getenv("MILLRACE_COPIES_ROWS")); err == nil {
		return n, 512
	}
	return 2000, 64
}

// copied is rows of which some are copies of each other.
type copied struct {
	groups int     // of copies
	share  float64 // of all rows that are copies
	noise  float64 // length of what each copy has of its own
	first  bool    // copies come before all other rows
	random bool    // the other rows have nothing in common
}

func (c copied) String() string {
	return fmt.Sprintf("%d_groups_%g_share_%g_noise_first_%t_random_%t", c.groups, c.share, c.noise, c.first, c.random)
}

// rows makes n vectors, and says of which group each is; −1: it is not a copy.
func (c copied) rows(n, dim int) (vectors [][]float32, group []int) {
	r := rand.New(rand.NewPCG(uint64(c.groups), 77))
	centres := max(10, n/100)
	if c.random {
		centres = n
	}
	all := clustered(31, n, dim, centres)
	of := clustered(32, c.groups, dim, centres)
	copies := int(float64(n) * c.share)
	order := r.Perm(n)
	if c.first {
		order = everyInt(n)
	}
	vectors, group = make([][]float32, n), make([]int, n)
	for i, at := range order {
		vectors[at], group[at] = all[i], -1
		if i >= copies {
			continue
		}
		group[at] = i % c.groups
		v := slices.Clone(of[group[at]])
		if c.noise > 0 {
			own := gauss(r, dim, 1)
			Normalize(own)
			for j := range v {
				v[j] += float32(c.noise) * own[j]
			}
			Normalize(v)
		}
		vectors[at] = v
	}
	return vectors, group
}

func everyInt(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// found asks for rows by their own vectors. Self is the share of those that are not copies and find themselves, ten the share of the
// ten best that are found, by score: of equal rows it does not matter which.
func found(g *Graph, view *View, vectors [][]float32, group []int, ef int) (self, ten float64) {
	own, asked, sum, all := 0, 0, 0.0, 0.0
	step := max(1, len(vectors)/500)
	for row := 0; row < len(vectors); row += step {
		q := NewQuery(vectors[row])
		want, _ := view.ScanExact(q, everyOf(len(vectors), 1), 10, nil, nil)
		hits := exactHits(view, q, g.Search(view, q, ef, nil, nil))
		hits = hits[:min(10, len(hits))]
		if group[row] < 0 {
			asked++
			if slices.ContainsFunc(hits, func(h Hit) bool { return h.Row == uint32(row) }) {
				own++
			}
		}
		least := want[len(want)-1].Score - 1e-5
		good := 0
		for _, h := range hits {
			if h.Score >= least {
				good++
			}
		}
		sum += float64(good) / float64(len(want))
		all++
	}
	return float64(own) / float64(asked), sum / all
}

func exactHits(view *View, q *Query, hits []Hit) []Hit {
	for i := range hits {
		hits[i].Score = view.Exact(q, hits[i].Row)
	}
	slices.SortFunc(hits, nearestFirst)
	return hits
}

// Copies of a vector took the links of their neighbours, so that nothing led to rows near them.
func TestRowsFindThemselvesAmongCopies(t *testing.T) {
	n, dim := copiesSize()
	for _, c := range []copied{
		{groups: 1},
		{groups: 1, random: true},
		{groups: 1, share: 0.25, random: true},
		{groups: 5, share: 0.25},
		{groups: 50, share: 0.25, random: true},
		{groups: 500, share: 0.25},
		{groups: 5, share: 0.25, first: true, random: true},
		{groups: 5, share: 0.9},
		{groups: 5, share: 0.25, noise: 1e-6},
		{groups: 1, share: 0.25, noise: 1e-5, random: true},
		{groups: 5, share: 0.25, noise: 1e-3, first: true},
		{groups: 5, share: 0.25, noise: 1e-2, random: true},
	} {
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			vectors, group := c.rows(n, dim)
			g, view := build(t, vectors, Kernels()[0])
			self, ten := found(g, &view, vectors, group, 120)
			t.Logf("self %.4f ten %.4f nodes %d", self, ten, g.nodes.Load())
			if self < 0.99 || !c.random && ten < 0.99 { // ten of what has nothing in common are not neighbours of each other
				t.Errorf("%.4f of the rows find themselves, recall %.4f", self, ten)
			}
		})
	}
}

func TestOfManyCopiesAllThatAreAskedForAreFound(t *testing.T) {
	n, dim := copiesSize()
	for _, noise := range []float64{0, 1e-6, 1e-4} {
		vectors, group := copied{groups: 2, share: 900 / float64(n), noise: noise}.rows(n, dim)
		g, view := build(t, vectors, Kernels()[0])
		row := slices.Index(group, 1)
		hits := g.Search(&view, NewQuery(vectors[row]), 450, nil, nil)
		same := 0
		for _, h := range hits {
			if group[h.Row] == 1 {
				same++
			}
		}
		if len(hits) != 450 || same < 445 {
			t.Errorf("noise %g: of 450 copies %d are found among %d", noise, same, len(hits))
		}
	}
}

// Of copies those are found that pass, whichever of them the others hang on: also where that one is gone.
func TestCopiesPassEachForItself(t *testing.T) {
	vectors, group := copied{groups: 3, share: 0.5}.rows(1500, 48)
	g, view := build(t, vectors, Kernels()[0])
	for of := range 3 {
		var rows []uint32
		for row, at := range group {
			if at == of {
				rows = append(rows, uint32(row))
			}
		}
		q := NewQuery(vectors[rows[0]])
		for _, pass := range [][]uint32{rows[1:], rows[len(rows)-3:], {rows[len(rows)/2]}, {rows[0]}} {
			hits := g.Search(&view, q, 120, bitsOf(pass), nil)
			if len(hits) != min(120, len(pass)) {
				t.Errorf("group %d: %d of %d copies that pass are found", of, len(hits), len(pass))
			}
			for _, h := range hits {
				if !slices.Contains(pass, h.Row) {
					t.Fatalf("row %d does not pass", h.Row)
				}
			}
		}
	}
}

// Among equal scores the earlier row comes first, as in a scan, so that both answer alike.
func TestCopiesAreOrderedAsByAScan(t *testing.T) {
	vectors, group := copied{groups: 1, share: 0.5}.rows(1000, 32)
	g, view := build(t, vectors, Kernels()[0])
	q := NewQuery(vectors[slices.Index(group, 0)])
	want, _ := view.Scan(q, everyOf(1000, 1), 200, nil, nil)
	got := g.Search(&view, q, 200, nil, nil)
	for i := range want {
		if got[i].Row != want[i].Row {
			t.Fatalf("place %d: row %d, by a scan %d", i, got[i].Row, want[i].Row)
		}
	}
}

func TestAWalkOfAnOldViewMeetsNoLaterCopies(t *testing.T) {
	vectors, _ := copied{groups: 2, share: 0.8}.rows(1000, 32)
	rows := fill(Kernels()[0], vectors[:600])
	old := rows.View()
	for _, v := range vectors[600:] {
		rows.Append(v)
	}
	now, g := rows.View(), NewGraph()
	for g.Build(&now, 1000, mix, everyRow, inTurn) > 0 {
	}
	for i := range 50 {
		for _, h := range g.Search(&old, NewQuery(vectors[i]), 300, nil, nil) {
			if h.Row >= 600 {
				t.Fatalf("row %d", h.Row)
			}
		}
	}
}

// Copies that come while searches run take none of the others away: lists grow at their beginning, into parts of the graph too that
// a search has not seen.
func TestCopiesThatComeMeanwhileTakeNoneAway(t *testing.T) {
	vectors, _ := copied{groups: 1, share: 0.9, first: true}.rows(3*graphChunk, 16)
	rows := fill(Kernels()[0], vectors)
	view, g := rows.View(), NewGraph()
	for g.Built() < 500 {
		g.Build(&view, 100, mix, everyRow, inTurn)
	}
	var wg sync.WaitGroup
	stop := make(chan struct{})
	wg.Go(func() {
		q := NewQuery(vectors[0])
		var hits []Hit
		for {
			select {
			case <-stop:
				return
			default:
			}
			if hits = g.Search(&view, q, 400, nil, hits[:0]); len(hits) != 400 {
				t.Errorf("%d copies are found", len(hits))
				return
			}
		}
	})
	for g.Build(&view, 10, mix, everyRow, inTurn) > 0 {
	}
	close(stop)
	wg.Wait()
}

func TestAGraphOfCopiesBuiltTwiceIsTheSame(t *testing.T) {
	for _, noise := range []float64{0, 1e-5, 2e-3} {
		vectors, _ := copied{groups: 3, share: 0.7, noise: noise, first: true}.rows(600, 48)
		a, view := build(t, vectors, Kernels()[0])
		b, _ := build(t, vectors, &pureGo)
		c := NewGraph()
		for c.Build(&view, 500, mix, everyRow, atOnce) > 0 {
		}
		hung := 0
		next := func(g *Graph, row uint32) uint32 { return g.copyAfter(new([]*graphPart), row) }
		for row := range uint32(600) {
			if !slices.Equal(a.links(row, 0), b.links(row, 0)) || !slices.Equal(a.links(row, 0), c.links(row, 0)) {
				t.Fatalf("noise %g: links of row %d differ", noise, row)
			}
			if next(a, row) != next(b, row) || next(a, row) != next(c, row) {
				t.Fatalf("noise %g: copies after row %d differ", noise, row)
			}
			if next(a, row) != 0 {
				hung++
			}
		}
		if hung != int(a.copies.Load()) || int(a.nodes.Load())+hung != 600 {
			t.Errorf("noise %g: %d nodes, %d copies, %d in lists", noise, a.nodes.Load(), a.copies.Load(), hung)
		}
		for row := range uint32(600) { // no link leads to a row that hangs
			if links := a.links(row, 0); links != nil && links[0] == 0 {
				for other := range uint32(600) {
					if slices.Contains(neighbours(a.links(other, 0), make([]uint32, bottomLinks)), row) {
						t.Fatalf("noise %g: row %d leads to %d, which leads nowhere", noise, other, row)
					}
				}
			}
		}
	}
}

// Rows of one direction are not copies of each other where their lengths differ: one is nearer to a query.
func TestRowsOfOneDirectionAreNoCopies(t *testing.T) {
	base := clustered(4, 1, 32, 1)[0]
	var vectors [][]float32
	for i := range 100 {
		v := slices.Clone(base)
		for j := range v {
			v[j] *= float32(i + 1)
		}
		vectors = append(vectors, v)
	}
	g, view := build(t, vectors, Kernels()[0])
	if g.copies.Load() != 0 {
		t.Errorf("%d copies", g.copies.Load())
	}
	if hits := g.Search(&view, NewQuery(base), 5, nil, nil); len(hits) == 0 || hits[0].Row != 99 {
		t.Errorf("nearest: %v", hits)
	}
}
