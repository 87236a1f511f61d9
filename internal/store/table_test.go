package store

import (
	"encoding/binary"
	"testing"

	"pgregory.net/rapid"
)

// TestTableFindsExactlyWhatItHolds drives a table whose slots fill up and wrap around.
func TestTableFindsExactlyWhatItHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tb := newTable()
		held := map[byte]*entry{}
		for range rapid.IntRange(0, 400).Draw(t, "steps") {
			k := rapid.Byte().Draw(t, "key")
			key := binary.BigEndian.AppendUint16(nil, uint16(k))
			h := tb.hash(key)
			got := tb.get(key, h)
			if got != held[k] {
				t.Fatalf("key %d: found %v, want %v", k, got, held[k])
			}
			switch {
			case got == nil:
				e := &entry{key: key}
				tb.add(e, h)
				held[k] = e
			case rapid.Bool().Draw(t, "remove"):
				tb.remove(got)
				delete(held, k)
			}
			if tb.len() != len(held) {
				t.Fatalf("%d entries, want %d", tb.len(), len(held))
			}
		}
		n := 0
		for _, s := range tb.slots {
			if s.e != nil {
				n++
			}
		}
		if n != len(held) {
			t.Fatalf("%d slots are taken, want %d", n, len(held))
		}
		for k, e := range held {
			key := binary.BigEndian.AppendUint16(nil, uint16(k))
			if got := tb.get(key, tb.hash(key)); got != e {
				t.Fatalf("key %d is gone", k)
			}
		}
	})
}
