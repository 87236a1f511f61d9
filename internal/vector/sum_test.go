package vector

import (
	"math/rand/v2"
	"testing"
)

// Rows that are left out by what extra says of them are those that would not have come among the best: a scan that compares
// every row says the same.
func TestSumsRankAsIfEveryRowWereCompared(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 15))
	for _, kernel := range Kernels() {
		left := 0
		for round := range 60 {
			by := []float64{1, 0, 30}[round%3] // lengths: about alike, all one, and far apart
			near := gauss(r, 48, 1)
			vectors := make([][]float32, 1500)
			for i := range vectors {
				vectors[i] = gauss(r, 48, 1+by*r.Float64())
				if side := r.IntN(12); side < 2 { // as near as can be, or as far
					for j, x := range near {
						vectors[i][j] = float32(2*side-1) * x
					}
				}
				if by == 0 {
					Normalize(vectors[i])
				}
			}
			rows := fill(kernel, vectors)
			view := rows.View()
			list := everyOf(len(vectors), 1+r.IntN(3))
			weight := []float32{0.05, 0.1, 0.9, -0.1, 0}[r.IntN(5)]
			if by > 0 {
				weight /= 100
			}
			extra := make([]float32, len(list))
			for i := range extra {
				if extra[i] = 0; r.IntN(3) > 0 {
					extra[i] = float32(r.ExpFloat64() * 0.2)
				}
			}
			if by == 0 {
				Normalize(near)
			}
			q, k := NewQuery(near), 1+r.IntN(60)
			got, ok := view.ScanSum(q, list, k, weight, extra, nil, nil)
			all := newBest(nil, k)
			for i, row := range list {
				one, _ := view.Scan(q, []uint32{row}, 1, nil, nil)
				if sum := one[0].Score*weight + extra[i]; sum > all.least {
					all.add(Hit{row, sum})
				}
			}
			want := all.sorted()
			if !ok || len(got) != len(want) {
				t.Fatalf("%v, round %d: %d of %d rows", kernel, round, len(got), len(want))
			}
			for i := range got { // of rows whose sums differ by less than is rounded, either may come first
				if d := got[i].Score - want[i].Score; d > 1e-5*max(1, want[0].Score) || d < -1e-5*max(1, want[0].Score) {
					t.Fatalf("%v, round %d, place %d: %+v, want %+v", kernel, round, i, got[i], want[i])
				}
			}
			s := sumScan{view: &view, query: q, list: list, extra: extra, weight: weight, best: newBest(nil, k)}
			s.run()
			left += len(list) - s.compared
		}
		if left < 1000 {
			t.Errorf("%v: only %d rows were left out", kernel, left)
		}
	}
}

func TestAScanOfSumsStopsWhenItIsTold(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var vectors [][]float32
	for range 9000 {
		vectors = append(vectors, gauss(r, 8, 1))
	}
	rows := fill(Kernels()[0], vectors)
	view, list := rows.View(), everyOf(len(vectors), 1)
	asked := 0
	hits, ok := view.ScanSum(NewQuery(vectors[0]), list, 10, 1, make([]float32, len(list)), nil, func() bool { asked++; return asked == 2 })
	if ok || asked != 2 || len(hits) != 0 {
		t.Errorf("asked %d times, %d hits, %v", asked, len(hits), ok)
	}
}
