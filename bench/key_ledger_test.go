package bench

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
)

func keyOptions(keyBytes int) KeyOptions {
	return KeyOptions{Keyspace: "k", Keys: 1_000, KeyBytes: keyBytes, ValueBytes: 64, Partitions: 1, Seed: 7, Full: true}
}

func TestThePutsOfALedgerHaveKeysOfTheirOwnAndValuesThatDiffer(t *testing.T) {
	for _, size := range []int{8, 16} {
		l, again := NewKeyLedger(keyOptions(size)), NewKeyLedger(keyOptions(size))
		seen := map[string]bool{}
		for n := range uint64(1_000) {
			key := l.Key(n)
			if len(key) != size || seen[key] {
				t.Fatalf("put %d has key %q, which another has, or which has not %d bytes", n, key, size)
			}
			seen[key] = true
			if l.Key(n+1_000) != key || again.Key(n) != key {
				t.Fatalf("key %d is not the same over and over", n)
			}
			if v := l.Value(n); len(v) != 64 || bytes.Equal(v, l.Value(n+1_000)) || !bytes.Equal(v, again.Value(n)) {
				t.Fatalf("put %d and the next of its key have one value, or it is another with the same seed", n)
			}
		}
	}
}

// heldKeys are a server's keys.
type heldKeys map[string]readKey

func (h heldKeys) read(_ context.Context, key string) (value []byte, rev uint64, found bool, err error) {
	k := h[key]
	return k.value, k.rev, k.found, nil
}

func TestAKeyIsHeldAgainstItsNewestAcknowledgedPut(t *testing.T) {
	for _, c := range []struct {
		name string
		held func(l *KeyLedger) readKey
		want string // of the violation; empty: none
	}{
		{"as acknowledged", func(l *KeyLedger) readKey { return readKey{l.Value(1_003), 20, true} }, ""},
		{"gone", func(*KeyLedger) readKey { return readKey{} }, "lost"},
		{"older", func(l *KeyLedger) readKey { return readKey{l.Value(3), 10, true} }, "lost"},
		{"applied again", func(l *KeyLedger) readKey { return readKey{l.Value(1_003), 21, true} }, "doubled"},
		{"spoiled", func(*KeyLedger) readKey { return readKey{[]byte("x"), 20, true} }, "different"},
		{"by a put whose end is not known", func(l *KeyLedger) readKey { return readKey{l.Value(2_003), 30, true} }, ""},
		{"by an unknown put before it", func(l *KeyLedger) readKey { return readKey{l.Value(503), 30, true} }, "different"},
	} {
		l := NewKeyLedger(keyOptions(16))
		l.o.Keys = 500
		l.Unknown(503)
		l.Acked(3, 10)
		l.Acked(1_003, 20)
		l.Unknown(2_003)
		got, err := AuditKeys(t.Context(), l, "a", heldKeys{l.Key(3): c.held(l)}.read)
		if err != nil {
			t.Fatal(err)
		}
		if all := strings.Join(got.Violations, "; "); got.OK != (c.want == "") || !strings.HasPrefix(all, c.want) {
			t.Errorf("%s: %q, want %q", c.name, all, c.want)
		}
		if got.Created != 2 || got.Unknown != 2 || got.ReadBack != 1 {
			t.Errorf("%s: audit %+v", c.name, got)
		}
	}
}

func TestARevisionThatTwoPutsHaveIsFoundUnlessTheyMayBeOfTwoPartitions(t *testing.T) {
	for partitions, want := range map[int]uint64{1: 2, 2: 1, 3: 0} {
		o := keyOptions(16)
		o.Partitions = partitions
		l := NewKeyLedger(o)
		for n, rev := range []uint64{70_000, 70_001, 70_000, 70_000} {
			l.Acked(uint64(n), rev)
		}
		if l.repeated != want {
			t.Errorf("%d partitions: %d revisions are repeated, want %d", partitions, l.repeated, want)
		}
	}
}

func TestReplicasThatDifferInAKeyFailTheAudit(t *testing.T) {
	l := NewKeyLedger(keyOptions(16))
	l.Acked(0, 1)
	right := heldKeys{l.Key(0): {l.Value(0), 1, true}}
	a := keyAuditor{l, []keyReplica{{"a", readFunc(right.read)}, {"b", readFunc(heldKeys{}.read)}}}
	got, err := a.run(t.Context())
	if err != nil || got.OK || !strings.Contains(strings.Join(got.Violations, ";"), "replicas differ: b") {
		t.Errorf("%+v, %v", got, err)
	}
	gone := errors.New("gone")
	a.servers[1].keySource = readFunc(func(context.Context, string) ([]byte, uint64, bool, error) { return nil, 0, false, gone })
	if _, err := a.run(t.Context()); !errors.Is(err, gone) {
		t.Errorf("error %v, want that of the server that does not answer", err)
	}
}
