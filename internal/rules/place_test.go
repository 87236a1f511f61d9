package rules

import (
	"math"
	"math/rand/v2"
	"testing"
)

// The bounds must never say another thing than the formula, wherever the places are and however near the limit is to their distance.
func TestBoundsOfADistanceAgreeWithTheFormula(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	const runs = 300_000
	known, near := 0, 0
	for range runs {
		a := [2]float64{180*r.Float64() - 90, 360*r.Float64() - 180}
		// From a millimetre away to the other side of the Earth.
		reach := math.Pow(10, 11*r.Float64()-8.5)
		b := [2]float64{
			math.Max(-90, math.Min(90, a[0]+reach*(2*r.Float64()-1))),
			math.Max(-180, math.Min(180, a[1]+reach*(2*r.Float64()-1))),
		}
		km := Kilometres(a, b)
		limit := km
		switch r.IntN(3) {
		case 0:
			limit *= 1 + (2*r.Float64()-1)*math.Pow(10, -16*r.Float64())
		case 1:
			limit *= 10 * r.Float64()
		}
		over, ok := further(a, b, limit)
		if !ok {
			continue
		}
		known++
		if math.Abs(limit-km) < km/100 {
			near++
		}
		if over != (km > limit) || km == limit {
			t.Fatalf("%v and %v are %v km apart, and further than %v km: %v", a, b, km, limit, over)
		}
	}
	if known < runs/4 || near < runs/50 {
		t.Errorf("the bounds tell of %d pairs of %d, of %d near the limit", known, runs, near)
	}
	for _, limit := range []float64{0, -1, math.NaN(), math.Inf(1), 20_000} {
		if _, ok := further([2]float64{1, 1}, [2]float64{1.01, 1.01}, limit); ok {
			t.Errorf("the bounds tell of a limit of %v km", limit)
		}
	}
}

func BenchmarkFurther(b *testing.B) {
	x, y := [2]float64{48.85, 2.35}, [2]float64{48.9, 2.9}
	b.Run("bounds", func(b *testing.B) {
		for b.Loop() {
			further(x, y, 60)
		}
	})
	b.Run("formula", func(b *testing.B) {
		for b.Loop() {
			Kilometres(x, y)
		}
	})
}
