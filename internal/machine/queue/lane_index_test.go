package queue

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

func TestAnIndexOfLanesFindsWhatAMapDoes(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	byKey, byNumber := lanesByKey(Options{}.withDefaults().Hash), lanesByNumber()
	want := map[uint64]*lane{}
	for step := range 20_000 {
		number := random.Uint64N(3_000)
		key := fmt.Sprint(number)
		if phase := step / 5_000; random.IntN(4) < 3 == (phase%2 == 0) {
			ln := &lane{key: key, laneState: laneState{number: number}}
			byKey.add(ln)
			byNumber.add(ln)
			want[number] = ln
		} else {
			byKey.remove(key)
			byNumber.remove(number)
			delete(want, number)
		}
		if byKey.find(key) != want[number] || byNumber.find(number) != want[number] {
			t.Fatalf("step %d: lane %d is %p by its key and %p by its number, want %p", step, number, byKey.find(key), byNumber.find(number), want[number])
		}
		if step%1_000 > 0 {
			continue
		}
		for n := range uint64(3_000) {
			if byKey.find(fmt.Sprint(n)) != want[n] || byNumber.find(n) != want[n] {
				t.Fatalf("step %d: lane %d is not found as it should be", step, n)
			}
		}
		seen := 0
		byNumber.each(func(ln *lane) {
			if want[ln.number] == ln {
				seen++
			}
		})
		if seen != len(want) || byKey.n != len(want) || byNumber.n != len(want) {
			t.Fatalf("step %d: %d lanes seen of %d and %d, want %d", step, seen, byKey.n, byNumber.n, len(want))
		}
		if most := max(8*len(want), fewestSlots); len(byKey.slots) > most || len(byNumber.slots) > most {
			t.Fatalf("step %d: %d slots for %d lanes", step, len(byKey.slots), len(want))
		}
	}
}
