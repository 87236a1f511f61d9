package vector

import (
	"cmp"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// clustered returns n normalised vectors around a few centres, as embeddings of one trade lie.
func clustered(seed uint64, n, dim, centres int) [][]float32 {
	r := rand.New(rand.NewPCG(seed, 9))
	mid := make([][]float32, centres)
	for i := range mid {
		mid[i] = gauss(r, dim, 1)
	}
	out := make([][]float32, n)
	for i := range out {
		v := gauss(r, dim, 0.7)
		for j, x := range mid[r.IntN(centres)] {
			v[j] += x
		}
		Normalize(v)
		out[i] = v
	}
	return out
}

func gauss(r *rand.Rand, dim int, by float64) []float32 {
	v := make([]float32, dim)
	for i := range v {
		v[i] = float32(r.NormFloat64() * by)
	}
	return v
}

func fill(k *Kernel, vectors [][]float32) *Rows {
	rows := NewRows(k, len(vectors[0]))
	for _, v := range vectors {
		rows.Append(v)
	}
	return rows
}

// oracle ranks by float64 products of what was appended.
func oracle(vectors [][]float32, q []float32, list []uint32, k int) []uint32 {
	scores := make(map[uint32]float64, len(list))
	for _, row := range list {
		var sum float64
		for i, x := range vectors[row] {
			sum += float64(x) * float64(q[i])
		}
		scores[row] = sum
	}
	out := slices.Clone(list)
	slices.SortFunc(out, func(a, b uint32) int {
		return cmp.Or(cmp.Compare(scores[b], scores[a]), cmp.Compare(a, b))
	})
	return out[:min(k, len(out))]
}

func everyOf(n, step int) []uint32 {
	var out []uint32
	for i := 0; i < n; i += step {
		out = append(out, uint32(i))
	}
	return out
}

// recall is the share of want that is among the hits.
func recall(hits []Hit, want []uint32) float64 {
	found := 0
	for _, h := range hits {
		if slices.Contains(want, h.Row) {
			found++
		}
	}
	return float64(found) / float64(len(want))
}

func TestAScanFindsTheNearestRowsUnderEveryKernel(t *testing.T) {
	const n, dim, k = 800, 100, 10
	vectors := clustered(1, n, dim, 20)
	queries := clustered(2, 20, dim, 20)
	for _, kernel := range Kernels() {
		rows := fill(kernel, vectors)
		view := rows.View()
		for _, list := range [][]uint32{everyOf(n, 1), everyOf(n, 3), everyOf(n, 701), {5}, nil} {
			var exact, scan float64
			for _, v := range queries {
				q := NewQuery(v)
				want := oracle(vectors, v, list, k)
				hits, ok := view.ScanExact(q, list, k, nil, nil)
				if !ok || len(hits) != len(want) {
					t.Fatalf("%s: exact scan gave %d rows of %d", kernel, len(hits), len(want))
				}
				near, ok := view.Scan(q, list, 5*k, nil, nil)
				if !ok || len(near) != min(5*k, len(list)) {
					t.Fatalf("%s: scan gave %d rows of %d", kernel, len(near), len(list))
				}
				for i := range near {
					near[i].Score = view.Exact(q, near[i].Row)
				}
				if !slices.IsSortedFunc(hits, func(a, b Hit) int { return cmp.Compare(b.Score, a.Score) }) {
					t.Fatalf("%s: hits are not best first", kernel)
				}
				if len(want) > 0 {
					exact, scan = exact+recall(hits, want), scan+recall(near, want)
				}
			}
			if len(list) > 0 && (exact < 19.9 || scan < 19.8) {
				t.Errorf("%s over %d rows: recall %.3f exact, %.3f by codes", kernel, len(list), exact/20, scan/20)
			}
		}
	}
}

func TestScansUnderAllKernelsChooseTheSameRows(t *testing.T) {
	vectors := clustered(7, 1000, 384, 30)
	q := NewQuery(clustered(8, 1, 384, 30)[0])
	var want []Hit
	for _, kernel := range Kernels() {
		rows := fill(kernel, vectors)
		view := rows.View()
		got, _ := view.Scan(q, everyOf(1000, 1), 200, nil, nil)
		if want == nil {
			want = got
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s chose other rows than %s", kernel, Kernels()[0])
		}
	}
}

func TestOfEqualScoresTheEarlierRowsStay(t *testing.T) {
	rows := NewRows(Kernels()[0], 8)
	for range 200 {
		rows.Append([]float32{1, 0, 0, 0, 0, 0, 0, 0})
	}
	view := rows.View()
	hits, _ := view.Scan(NewQuery([]float32{1, 0, 0, 0, 0, 0, 0, 0}), everyOf(200, 1), 5, nil, nil)
	for i, h := range hits {
		if h.Row != uint32(i) || math.Abs(float64(h.Score)-1) > 1e-5 {
			t.Errorf("hit %d is row %d with %v", i, h.Row, h.Score)
		}
	}
}

func TestAViewStaysWhileRowsAreAppended(t *testing.T) {
	vectors := clustered(3, 100, 16, 5)
	rows := fill(Kernels()[0], vectors[:50])
	view := rows.View()
	for range 9000 {
		rows.Append(vectors[60])
	}
	if view.Len() != 50 || !slices.Equal(view.Floats(49), vectors[49]) {
		t.Error("a view changed")
	}
	now := rows.View()
	if now.Len() != 9050 || !slices.Equal(now.Floats(9049), vectors[60]) {
		t.Error("appended rows are not there")
	}
}

func TestAScanStopsWhenToldTo(t *testing.T) {
	rows := fill(Kernels()[0], clustered(3, 100, 16, 5))
	view := rows.View()
	q := NewQuery(view.Floats(0))
	yes := func() bool { return true }
	if _, ok := view.Scan(q, everyOf(100, 1), 5, nil, yes); ok {
		t.Error("a scan went on")
	}
	if _, ok := view.ScanExact(q, everyOf(100, 1), 5, nil, yes); ok {
		t.Error("an exact scan went on")
	}
}

func TestCheckNamesWhatIsWrongWithAVector(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, c := range []struct {
		v      []float32
		cosine bool
		want   error
	}{
		{[]float32{1, 2}, true, nil},
		{[]float32{0, 0}, false, nil},
		{[]float32{0, 0}, true, ErrZero},
		{[]float32{inf, 0}, true, ErrNotFinite},
		{[]float32{nan, 0}, false, ErrNotFinite},
		{[]float32{3e38, 3e38}, true, ErrTooLong},
		{[]float32{1}, true, DimError{Want: 2, Got: 1}},
	} {
		if got := Check(c.v, 2, c.cosine); !errors.Is(got, c.want) {
			t.Errorf("Check(%v) = %v, want %v", c.v, got, c.want)
		}
	}
}

func BenchmarkScan5k(b *testing.B) {
	vectors := clustered(1, 5000, 384, 50)
	q := NewQuery(vectors[17])
	list := everyOf(5000, 1)
	for _, kernel := range Kernels() {
		rows := fill(kernel, vectors)
		view := rows.View()
		b.Run(kernel.String(), func(b *testing.B) {
			var hits []Hit
			for b.Loop() {
				hits, _ = view.Scan(q, list, 50, hits[:0], nil)
			}
		})
	}
}
