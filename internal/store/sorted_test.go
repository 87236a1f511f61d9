package store

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/internal/keys"
)

// drawShape makes keys that share starts, end early, hold zeros and carry revisions.
func drawShape(t *rapid.T) []byte {
	body := rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 9, 'a', 0xff}), 0, 30).Draw(t, "body")
	if rapid.Bool().Draw(t, "same start") {
		body = append([]byte("0123456789ab"), body...)
	}
	if rapid.Bool().Draw(t, "revision") {
		return keys.EndRev(body, rapid.Uint64().Draw(t, "rev"))
	}
	return keys.End(body)
}

// A layer has entries in trees, in lists of their classes and in none, by what scans asked for and what left since.
func TestALayerIsSortedInTheOrderOfKeys(t *testing.T) {
	var s sorter
	rapid.Check(t, func(t *rapid.T) {
		defer s.reset()
		l := newLayer()
		for range rapid.IntRange(0, 50).Draw(t, "keys") {
			key := drawShape(t)
			l.put(key, nil, rapid.Bool().Draw(t, "fresh"))
			switch rapid.IntRange(0, 9).Draw(t, "then") {
			case 0:
				l.remove(key)
			case 1:
				from, to := keys.Range(keys.Body(key))
				l.order(from, to)
			}
		}
		got := s.sort(l)
		if len(got) != l.entries.len() {
			t.Fatalf("%d of %d entries", len(got), l.entries.len())
		}
		if !slices.IsSortedFunc(got, func(a, b *entry) int { return keys.Compare(a.key, b.key) }) {
			t.Fatal("out of order")
		}
	})
}
