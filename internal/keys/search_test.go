package keys

import (
	"testing"

	"pgregory.net/rapid"
)

func TestSearchKeysAreFrozen(t *testing.T) {
	head := samplePrefix + "05"
	wantKey(t, "definition", Collection(sample, "ws"), head+"00000000"+"01"+"7773"+"00")
	wantKey(t, "counter", Collection(sample, ""), head+"00000000"+"01"+"00")
	wantKey(t, "ruleset", Ruleset(sample, "r", 7), head+"00000000"+"02"+"72"+"00"+"00000007"+"00")
	wantKey(t, "counts", CollectionCounts(sample, 3), head+"00000003"+"01"+"00")
	wantKey(t, "point", Point(sample, 3, "w1"), head+"00000003"+"02"+"7731"+"00")
	wantKey(t, "vector", Vector(sample, 3, 0x1122), head+"00000003"+"03"+"0000000000001122"+"00")
	wantKey(t, "recording", Recording(sample, 3, 9), head+"00000003"+"04"+"0000000000000009"+"00")
	wantKey(t, "order", RecordingOrder(sample, 3, 9), head+"00000003"+"05"+"0000000000000009"+"00")
	from, to := CollectionRange(sample, 3)
	wantKey(t, "range from", from, head+"00000003"+"00")
	wantKey(t, "range to", to, head+"00000004"+"00")
}

func TestSearchKeysReadBackAndStayInTheirRange(t *testing.T) {
	name := rapid.StringMatching(`[a-zA-Z0-9][a-zA-Z0-9._{}-]{0,20}`)
	rapid.Check(t, func(t *rapid.T) {
		inc, n := rapid.Uint32Range(1, 1<<32-2).Draw(t, "incarnation"), rapid.Uint64().Draw(t, "number")
		id := name.Draw(t, "id")
		point, vector := Point(sample, inc, id), Vector(sample, inc, n)
		if got, ok := PointOf(point); !ok || got != id {
			t.Fatalf("point %q reads as %q, %v", id, got, ok)
		}
		if got, ok := VectorOf(vector); !ok || got != n {
			t.Fatalf("slot %d reads as %d, %v", n, got, ok)
		}
		from, to := CollectionRange(sample, inc)
		for _, key := range [][]byte{
			point, vector, CollectionCounts(sample, inc), Recording(sample, inc, n), RecordingOrder(sample, inc, n),
		} {
			if Compare(from, key) > 0 || Compare(key, to) >= 0 {
				t.Fatalf("key %x lies outside its collection", key)
			}
		}
		version := uint32(n)
		rs := Ruleset(sample, id, version)
		if got, v, ok := RulesetOf(rs); !ok || got != id || v != version {
			t.Fatalf("ruleset %q@%d reads as %q@%d, %v", id, version, got, v, ok)
		}
		if got, ok := CollectionOf(Collection(sample, id)); !ok || got != id {
			t.Fatalf("collection %q reads as %q, %v", id, got, ok)
		}
	})
	if _, ok := PointOf([]byte("short")); ok {
		t.Error("a short key was read")
	}
}
