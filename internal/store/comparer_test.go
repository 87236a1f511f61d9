package store

import (
	"encoding/hex"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/internal/keys"
)

func TestComparerKeepsTheEnginesContract(t *testing.T) {
	prefixes := [][]byte{
		keys.End([]byte("a")), keys.End([]byte("ab")), keys.End([]byte{'a', 0, 'b'}), keys.End([]byte{9, 9, 9}),
		keys.End([]byte{0xff, 0xff, 0xff}), keys.End([]byte("0123456789abcdef")),
	}
	var suffixes [][]byte
	for _, rev := range []uint64{0, 1, 9, 0x0909090909090909, 1 << 63} {
		suffixes = append(suffixes, keys.EndRev(nil, rev)[1:])
	}
	if err := pebble.CheckComparer(newComparer(), prefixes, suffixes); err != nil {
		t.Error(err)
	}
}

func storedKey() *rapid.Generator[[]byte] {
	return rapid.Custom(func(t *rapid.T) []byte {
		body := rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 8, 9, 0xfe, 0xff}), 1, 14).Draw(t, "body")
		if rapid.Bool().Draw(t, "has revision") {
			return keys.EndRev(body, rapid.SampledFrom([]uint64{0, 1, 1 << 40, 1<<64 - 1}).Draw(t, "rev"))
		}
		return keys.End(body)
	})
}

func TestComparerShortensKeysWithinTheirBounds(t *testing.T) {
	c := newComparer()
	dst := []byte("dst")
	rapid.Check(t, func(t *rapid.T) {
		a, b := storedKey().Draw(t, "a"), storedKey().Draw(t, "b")
		if c.Compare(a, b) > 0 {
			a, b = b, a
		}
		if c.AbbreviatedKey(a) > c.AbbreviatedKey(b) {
			t.Fatalf("abbreviated %x sorts after %x", a, b)
		}
		if c.Compare(a, b) < 0 {
			k := c.Separator(dst, a, b)[len(dst):]
			if c.Compare(a, k) > 0 || c.Compare(k, b) >= 0 || len(k) > len(a)+1 {
				t.Fatalf("separator of %x and %x is %x", a, b, k)
			}
			if n := c.Split(k); k[n-1] != 0 {
				t.Fatalf("separator %x is not a key", k)
			}
		}
		if k := c.Successor(dst, a)[len(dst):]; c.Compare(a, k) > 0 {
			t.Fatalf("successor of %x is %x", a, k)
		}
		prefix := a[:c.Split(a)]
		next := c.ImmediateSuccessor(dst, prefix)[len(dst):]
		if c.Compare(prefix, next) >= 0 || c.Split(next) != len(next) {
			t.Fatalf("immediate successor of %x is %x", prefix, next)
		}
		if other := b[:c.Split(b)]; c.Compare(prefix, other) < 0 && c.Compare(other, next) < 0 {
			t.Fatalf("%x lies between %x and its immediate successor %x", other, prefix, next)
		}
	})
}

func TestStoredFormsAreFrozen(t *testing.T) {
	if comparerName != "millrace.v1" || formatMajorVersion != pebble.FormatValueSeparation {
		t.Errorf("comparer %s, format %d", comparerName, formatMajorVersion)
	}
	h := hash2(hash1(round(round(0, hashEntry), 7), hashDelete, []byte("k")), hashSet, []byte("key"), []byte("value"))
	meta := shardMeta{0x0102030405060708, 0xf1f2f3f4f5f6f7f8}.append(nil)
	for _, c := range []struct {
		name      string
		got, want string
	}{
		{"record of shard 0", hex.EncodeToString(metaKey(0)), "0000ffffffffffffffffffffff00"},
		{"record of shard 258", hex.EncodeToString(metaKey(258)), "0102ffffffffffffffffffffff00"},
		{"record", hex.EncodeToString(meta), "010102030405060708f1f2f3f4f5f6f7f8"},
		{"apply hash", hex.EncodeToString(shardMeta{0, h}.append(nil)[9:]), "1799238c97954e62"},
	} {
		if c.got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, c.got, c.want)
		}
	}
	if m, ok := decodeMeta(meta); !ok || m != (shardMeta{0x0102030405060708, 0xf1f2f3f4f5f6f7f8}) {
		t.Errorf("record decodes to %x, %v", m, ok)
	}
	for _, bad := range [][]byte{nil, meta[:16], append([]byte{2}, meta[1:]...)} {
		if _, ok := decodeMeta(bad); ok {
			t.Errorf("%x decodes as a record", bad)
		}
	}
}

func TestRecordSortsAfterEveryKeyOfItsShardAndBeforeTheNext(t *testing.T) {
	highest := keys.End([]byte{0, 5, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, byte(keys.ServiceShard), 0xff, 0xff})
	if keys.Compare(highest, metaKey(5)) >= 0 {
		t.Error("the record lies among the keys")
	}
	if keys.Compare(metaKey(5), appendShard(nil, 6)) >= 0 {
		t.Error("the record lies in the next shard")
	}
}
