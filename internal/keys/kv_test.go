package keys

import (
	"bytes"
	"encoding/hex"
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/internal/core"
)

var sample = core.Partition{Tenant: 0x01020304, Namespace: 0x05060708, Index: 0x090a}

const samplePrefix = "0102030405060708090a"

func wantKey(t *testing.T, name string, key []byte, want string) {
	t.Helper()
	if got := hex.EncodeToString(key); got != want {
		t.Errorf("%s is %s, want %s: stores written before cannot be read", name, got, want)
	}
	if Split(key) != len(key) {
		t.Errorf("%s has a suffix", name)
	}
}

func TestKVKeysAreFrozen(t *testing.T) {
	wantKey(t, "key", KV(sample, 0x11223344, []byte("a\x00\xff")), samplePrefix+"03"+"11223344"+"6100ff"+"00")
	wantKey(t, "keyspace", Keyspace(sample, "ks"), samplePrefix+"03"+"00000000"+"6b73"+"00")
	wantKey(t, "counter", Keyspace(sample, ""), samplePrefix+"03"+"00000000"+"00")
	from, to := KVRange(sample, 1, []byte("p"))
	wantKey(t, "range from", from, samplePrefix+"03"+"00000001"+"70"+"00")
	wantKey(t, "range to", to, samplePrefix+"03"+"00000001"+"71"+"00")
	from, to = Keyspaces(sample)
	wantKey(t, "table from", from, samplePrefix+"03"+"00000000"+"00")
	wantKey(t, "table to", to, samplePrefix+"03"+"00000001"+"00")
}

func TestKVKeysSortAsTheKeysInThem(t *testing.T) {
	key := rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 9, 'a', 0xff}), 0, 12)
	rapid.Check(t, func(t *rapid.T) {
		a, b, prefix := key.Draw(t, "a"), key.Draw(t, "b"), key.Draw(t, "prefix")
		ka, kb := KV(sample, 7, a), KV(sample, 7, b)
		if got, want := Compare(ka, kb), bytes.Compare(a, b); got != want {
			t.Fatalf("%q against %q: %d, want %d", a, b, got, want)
		}
		if user, ok := KVKeyOf(ka); !ok || !bytes.Equal(user, a) {
			t.Fatalf("key %q reads as %q", a, user)
		}
		from, to := KVRange(sample, 7, prefix)
		in := Compare(from, ka) <= 0 && Compare(ka, to) < 0
		if want := bytes.HasPrefix(a, prefix); in != want {
			t.Fatalf("%q in the range of prefix %q: %v, want %v", a, prefix, in, want)
		}
		if other := KV(sample, 8, a); Compare(kb, other) >= 0 {
			t.Fatal("a later keyspace sorts before an earlier one")
		}
	})
	if _, ok := KVKeyOf([]byte("short")); ok {
		t.Error("a short key was read")
	}
}
