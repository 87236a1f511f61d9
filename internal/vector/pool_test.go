package vector

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestKeysAreOrderedAsHitsAre(t *testing.T) {
	inf := float32(math.Inf(1))
	scores := []float32{-inf, -3, -1.5, -math.SmallestNonzeroFloat32, 0, math.SmallestNonzeroFloat32, 1e-3, 1, 1.0000001, inf}
	rows := []uint32{0, 1, 2, 1 << 20, 1<<31 - 1}
	var hits []Hit
	for _, s := range scores {
		for _, r := range rows {
			hits = append(hits, Hit{r, s})
		}
	}
	for _, a := range hits {
		key := keyOf(a.Row, a.Score)
		if got := hitOf(key); got != a {
			t.Errorf("the key of %v is that of %v", a, got)
		}
		if got := hitOf(key | marked); got != a {
			t.Errorf("marked, the key of %v is that of %v", a, got)
		}
		for _, b := range hits {
			if other := keyOf(b.Row, b.Score); worse(a, b) != (key < other) || worse(a, b) != (key|marked < other) {
				t.Errorf("keys of %v and %v are not in the order of the hits", a, b)
			}
		}
	}
}

func TestAPoolHoldsTheBestAndMarksWhatWasTaken(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		room := 1 + r.IntN(40)
		var p pool
		p.begin(room)
		var all []uint64 // as many as there is room for, best first
		taken := map[uint64]bool{}
		for range 300 {
			if r.IntN(3) == 0 {
				want := uint64(0)
				if i := slices.IndexFunc(all, func(k uint64) bool { return !taken[k] }); i >= 0 {
					want = all[i]
				}
				if got := p.best(); got != want {
					t.Fatalf("seed %d: best is %x, want %x", seed, got, want)
				}
				if want != 0 {
					p.take()
					taken[want] = true
				}
				continue
			}
			key := keyOf(r.Uint32N(1<<31), float32(r.IntN(50)-25))
			if slices.Contains(all, key) {
				continue
			}
			fits := len(all) < room || key > all[room-1]
			if fits != (key > p.least) {
				t.Fatalf("seed %d: a key has a place: %v, want %v", seed, key > p.least, fits)
			}
			if !fits {
				continue
			}
			p.add(key)
			all = append(all, key)
			slices.SortFunc(all, func(a, b uint64) int { return nearestFirst(hitOf(a), hitOf(b)) })
			all = all[:min(len(all), room)]
		}
		var want []Hit
		for _, k := range all {
			want = append(want, hitOf(k))
		}
		if got := p.hits(nil); !slices.Equal(got, want) {
			t.Fatalf("seed %d: %v, want %v", seed, got, want)
		}
	}
}

// plainWalk is a walk of the lowest layer by lists that are sorted again at each step.
func plainWalk(g *Graph, v *View, me side, from []Hit, ef int, pass Bits) []Hit {
	var open, found []Hit
	met := map[uint32]bool{}
	meet := func(h Hit) {
		met[h.Row] = true
		open = append(open, h)
		if pass == nil || pass.Has(h.Row) {
			found = append(found, h)
		}
		slices.SortFunc(open, nearestFirst)
		slices.SortFunc(found, nearestFirst)
		found = found[:min(len(found), ef)]
	}
	for _, h := range from {
		meet(h)
	}
	w := new(walk)
	for len(open) > 0 {
		h := open[0]
		open = open[1:]
		if len(found) == ef && worse(h, found[ef-1]) {
			break
		}
		var near [bottomLinks]uint32
		for _, row := range neighbours(g.links(h.Row, 0), near[:]) {
			if !met[row] {
				meet(w.one(v, me, row))
			}
		}
	}
	return found
}

func TestAWalkGoesOnFromTheBestThatItMet(t *testing.T) {
	const n = 3000
	all := clustered(8, n+20, 32, 30)
	g, view := build(t, all[:n], Kernels()[0])
	for _, step := range []int{0, 1, 2, 10, 100} {
		var pass Bits
		if step > 0 {
			pass = bitsOf(everyOf(n, step))
		}
		for _, ef := range []int{1, 7, 50, 400} {
			for _, v := range all[n:] {
				me := NewQuery(v).side()
				w := new(walk)
				from := []Hit{w.one(&view, me, 3), w.one(&view, me, 1500)}
				want := plainWalk(g, &view, me, from, ef, pass)
				if got := w.layer(g, &view, me, from, 0, ef, pass, nil); !slices.Equal(got, want) {
					t.Fatalf("1 row of %d passes, width %d: %v, want %v", step, ef, got, want)
				}
			}
		}
	}
}
