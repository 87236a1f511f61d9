package keys

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/internal/core"
)

func TestBaseFormsAreFrozen(t *testing.T) {
	p := core.Partition{Tenant: 0x01020304, Namespace: 0x05060708, Index: 0x090a}
	begun := Begin(p, ServiceKV, 3)
	from, to := Range([]byte{0x10, 0xff})
	allFrom, allTo := Range([]byte{0xff, 0xff})
	pFrom, pTo := PartitionRange(p)
	for _, c := range []struct {
		name string
		got  []byte
		want string
	}{
		{"partition", AppendPartition(nil, p), "0102030405060708090a"},
		{"system partition", AppendPartition(nil, core.Partition{}), "00000000000000000000"},
		{"begun body", begun, "0102030405060708090a03"},
		{"key without a suffix", End([]byte("ab")), "616200"},
		{"key of an empty body", End(nil), "00"},
		{"key of revision 1", EndRev([]byte("ab"), 1), "616200fffffffffffffffe09"},
		{"key of revision 0", EndRev([]byte("ab"), 0), "616200ffffffffffffffff09"},
		{"key of the highest revision", EndRev([]byte("ab"), math.MaxUint64), "616200000000000000000009"},
		{"lower bound", from, "10ff00"},
		{"upper bound carries", to, "1100"},
		{"lower bound of ones", allFrom, "ffff00"},
		{"no upper bound above ones", allTo, ""},
		{"partition's lower bound", pFrom, "0102030405060708090a00"},
		{"partition's upper bound", pTo, "0102030405060708090b00"},
	} {
		if got := hex.EncodeToString(c.got); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}

func TestServiceNumbersAreFrozen(t *testing.T) {
	got := []Service{ServiceMeta, ServiceQueue, ServiceKV, ServiceRefs, ServiceSearch, ServiceSystem, ServiceShard}
	if want := []Service{1, 2, 3, 4, 5, 6, 7}; !slices.Equal(got, want) {
		t.Errorf("services are %v, want %v", got, want)
	}
}

func TestPartitionOfReadsWhatBeginWrote(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := core.Partition{
			Tenant:    core.TenantID(rapid.Uint32().Draw(t, "tenant")),
			Namespace: core.NamespaceID(rapid.Uint32().Draw(t, "namespace")),
			Index:     rapid.Uint16().Draw(t, "index"),
		}
		s := Service(rapid.Byte().Draw(t, "service"))
		key := End(append(Begin(p, s, 4), "rest"...))
		gotP, gotS, ok := PartitionOf(key)
		if !ok || gotP != p || gotS != s {
			t.Fatalf("got %v %v %v, want %v %v", gotP, gotS, ok, p, s)
		}
		from, to := PartitionRange(p)
		if Compare(key, from) < 0 || to != nil && Compare(key, to) >= 0 {
			t.Fatalf("key %x is outside of its partition's range [%x, %x)", key, from, to)
		}
	})
	if _, _, ok := PartitionOf(make([]byte, 10)); ok {
		t.Error("ten bytes were read as partition and service")
	}
}

// versioned is a key before it is encoded.
type versioned struct {
	body []byte
	rev  uint64
	has  bool // it has a revision
}

func (v versioned) key() []byte {
	if v.has {
		return EndRev(bytes.Clone(v.body), v.rev)
	}
	return End(bytes.Clone(v.body))
}

// compare is the order that is meant: by body, the body alone first, then newer revisions first.
func (v versioned) compare(o versioned) int {
	if c := bytes.Compare(v.body, o.body); c != 0 {
		return c
	}
	switch {
	case v.has && o.has:
		return cmp.Compare(o.rev, v.rev)
	case v.has:
		return 1
	case o.has:
		return -1
	}
	return 0
}

// drawn draws keys of few different bytes, among them those that the encoding itself uses, so that they collide.
func drawn() *rapid.Generator[versioned] {
	return rapid.Custom(func(t *rapid.T) versioned {
		return versioned{
			body: rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 8, 9, 10, 'a', 0xfe, 0xff}), 0, 14).Draw(t, "body"),
			rev:  rapid.SampledFrom([]uint64{0, 1, 2, 9, 255, 256, math.MaxUint64 - 9, math.MaxUint64}).Draw(t, "rev"),
			has:  rapid.Bool().Draw(t, "has revision"),
		}
	})
}

func TestOrderIsByBodyThenNewestRevision(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawn().Draw(t, "a"), drawn().Draw(t, "b")
		if got, want := Compare(a.key(), b.key()), a.compare(b); got != want {
			t.Fatalf("Compare(%x, %x) = %d, want %d", a.key(), b.key(), got, want)
		}
	})
}

func TestSplitEndsAtTheClosingZero(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := drawn().Draw(t, "v")
		key := v.key()
		if got := Split(key); got != len(v.body)+1 {
			t.Fatalf("Split(%x) = %d, want %d", key, got, len(v.body)+1)
		}
		if !bytes.Equal(Body(key), v.body) {
			t.Fatalf("Body(%x) = %x, want %x", key, Body(key), v.body)
		}
	})
}

// Bounds and damaged keys are any bytes. They must have an order too, and one that agrees with the prefixes.
func TestOrderHoldsForAnyBytes(t *testing.T) {
	any := rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 9, 0xff}), 0, 24)
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := any.Draw(t, "a"), any.Draw(t, "b"), any.Draw(t, "c")
		if Compare(a, b) != -Compare(b, a) {
			t.Fatalf("order of %x and %x depends on who asks", a, b)
		}
		if (Compare(a, b) == 0) != bytes.Equal(a, b) {
			t.Fatalf("%x and %x are equal in order only", a, b)
		}
		if Compare(a, b) <= 0 && Compare(b, c) <= 0 && Compare(a, c) > 0 {
			t.Fatalf("order of %x, %x, %x is no order", a, b, c)
		}
		prefix := a[:Split(a)]
		if Split(prefix) != len(prefix) {
			t.Fatalf("prefix %x of %x splits again", prefix, a)
		}
		if len(prefix) < len(a) && Compare(prefix, a) >= 0 {
			t.Fatalf("prefix %x does not sort before %x", prefix, a)
		}
	})
}

func TestRangeHoldsExactlyTheBodiesWithThePrefix(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		prefix := rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 'a', 0xfe, 0xff}), 0, 4).Draw(t, "prefix")
		v := drawn().Draw(t, "v")
		from, to := Range(prefix)
		key := v.key()
		got := Compare(key, from) >= 0 && (to == nil || Compare(key, to) < 0)
		if want := bytes.HasPrefix(v.body, prefix); got != want {
			t.Fatalf("key %x in range of %x [%x, %x): %v, want %v", key, prefix, from, to, got, want)
		}
	})
}
