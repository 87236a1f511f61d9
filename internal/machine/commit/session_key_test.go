package commit_test

import (
	"bytes"
	"testing"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/machine/commit"
)

func TestKeysOfSessionsAreAddedOnceADay(t *testing.T) {
	w := mustWorld(t)
	secret := func(n byte) []byte { return bytes.Repeat([]byte{n}, core.SessionKeyBytes) }
	add := func(n byte, end bool, version uint64, kept ...byte) {
		t.Helper()
		r, fact := w.system(t, &core.SessionKeyAdd{Secret: secret(n), End: end})
		if fact != nil || r.Version != version {
			t.Errorf("key %d: %+v, %v; want version %d", n, r, fact, version)
		}
		k, err := commit.SessionKeys(w.pair.TxA)
		if err != nil || k.Version != version || len(k.Keys) != len(kept) {
			t.Fatalf("key %d: %+v, %v", n, k, err)
		}
		for i, n := range kept {
			if !bytes.Equal(k.Keys[i].Secret, secret(n)) {
				t.Errorf("key %d of %v: %x", i, kept, k.Keys[i].Secret)
			}
		}
	}
	turn := func() uint64 {
		k, err := commit.SessionKeys(w.pair.TxA)
		if err != nil {
			t.Fatal(err)
		}
		return k.Turn
	}
	for _, n := range []int{0, 31, 33} {
		_, fact := w.system(t, &core.SessionKeyAdd{Secret: make([]byte, n)})
		if f, ok := fact.(core.Invalid); !ok || f.Field != "secret" {
			t.Errorf("%d bytes: %v", n, fact)
		}
	}
	add(1, false, 1, 1)
	add(2, false, 1, 1) // of a node that was second
	w.pair.Stamp += core.ShardTime(core.SessionKeyLasts) - 1
	add(3, false, 1, 1)
	w.pair.Stamp++
	add(4, false, 2, 1, 4)
	w.pair.Stamp += core.ShardTime(core.SessionKeyLasts)
	add(5, false, 3, 4, 5)
	before := turn()
	add(6, true, 4, 6)
	if turn() != before+1 {
		t.Errorf("turn %d after %d", turn(), before)
	}
	// Wall clocks that are set back tell nothing of the age of the last key.
	if _, fact := w.system(t, &core.ClockShift{Shift: -core.SessionKeyLasts}); fact != nil {
		t.Fatal(fact)
	}
	add(7, false, 5, 6, 7)
	if k, err := commit.SessionKeys(w.pair.TxA); err != nil || k.Keys[1].Made != w.pair.Stamp.Add(-core.SessionKeyLasts) {
		t.Errorf("%+v, %v", k, err)
	}
}

func TestOlderFormatsShareNoKeysOfSessions(t *testing.T) {
	w := mustWorld(t)
	op := &core.SessionKeyAdd{Secret: make([]byte, core.SessionKeyBytes)}
	a, err := w.machine().Apply(w.pair.TxA, 1, &core.Entry{Format: core.FormatQueues, Stamp: epoch, Commits: []core.Commit{{Ops: []core.Op{op}}}})
	if err != nil {
		t.Fatal(err)
	}
	if r := a.Results[0].Refusal; r == nil || r.Fact.(core.Invalid).Reason != "not_supported" {
		t.Errorf("%+v", r)
	}
}
