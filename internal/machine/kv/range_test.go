package kv_test

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/machine/kv"
	"github.com/millrace/millrace/internal/machine/machinetest"
)

func puts(t tester, m *kv.Machine, tx core.Txn, rev uint64, keyspace string, items ...core.KVItem) (core.OpResult, uint64, core.Fact) {
	t.Helper()
	op := &core.KVPuts{Keyspace: keyspace, Items: items}
	c := &core.ApplyContext{Rev: rev}
	r, fact, err := m.Apply(tx, c, op)
	if err != nil {
		t.Fatal(err)
	}
	return r, c.Revs, fact
}

func item(key, value string) core.KVItem { return core.KVItem{Key: []byte(key), Value: []byte(value)} }

func TestABatchOfPutsIsOneCommitPerItem(t *testing.T) {
	tx := machinetest.NewTxn()
	m := open(t, tx)
	absent, at := item("a", "no"), item("b", "3")
	absent.IfAbsent = true
	at.HasRev, at.IfRev = true, 6
	r, written, fact := puts(t, m, tx, 5, "ks", item("a", "1"), item("b", "2"), absent, at, core.KVItem{}, item("a", "4"))
	if fact != nil || written != 4 || r.Rev != 5 {
		t.Fatalf("%+v, %d written, %v", r, written, fact)
	}
	want := []core.RefusedItem{
		{Item: 2, Fact: core.RevMismatch{Rev: 5}},
		{Item: 4, Fact: core.Invalid{Field: "key", Reason: "empty", Message: "a key has at least one byte"}},
	}
	if r.KV == nil || !reflect.DeepEqual(r.KV.Refused, want) {
		t.Errorf("refused %+v, want %+v", r.KV, want)
	}
	for key, value := range map[string]string{"a": "4 at 8", "b": "3 at 7"} {
		v, rev, _, err := kv.Get(tx, part, "ks", []byte(key))
		if got := fmt.Sprintf("%s at %d", v, rev); got != value || err != nil {
			t.Errorf("%s holds %s, want %s (%v)", key, got, value, err)
		}
	}
	if _, _, fact := puts(t, m, tx, 9, "no name"); fact == nil {
		t.Error("a bad name of a keyspace was accepted")
	}
	if _, _, fact := puts(t, m, tx, 9, "ks"); fact == nil {
		t.Error("a batch of nothing was accepted")
	}
	if r, written, _ := puts(t, m, tx, 9, "new", absent, core.KVItem{}); written != 1 || r.Rev != 9 {
		t.Errorf("a batch that makes a keyspace: %+v, %d", r, written)
	}
}

func TestAnAdditionThatCannotBeChangesNothing(t *testing.T) {
	tx := machinetest.NewTxn()
	m := open(t, tx)
	add := func(op core.KVAdd) (int64, string) {
		op.Keyspace, op.Key = "n", []byte("k")
		before, rev, _, _ := kv.Get(tx, part, "n", op.Key)
		r, fact, err := m.Apply(tx, &core.ApplyContext{Rev: rev + 1}, &op)
		if err != nil {
			t.Fatal(err)
		}
		if f, ok := errors.AsType[core.NotAdded](fact); ok {
			if after, at, _, _ := kv.Get(tx, part, "n", op.Key); string(after) != string(before) || at != rev || f.Rev != rev {
				t.Errorf("%+v: %s at %d became %s at %d", op, before, rev, after, at)
			}
			return 0, f.Reason
		}
		if fact != nil {
			return 0, fact.Error()
		}
		return r.KV.Number, ""
	}
	for i, c := range []struct {
		op     core.KVAdd
		sum    int64
		reason string
	}{
		{core.KVAdd{Delta: 5}, 5, ""},
		{core.KVAdd{Delta: -7}, -2, ""},
		{core.KVAdd{Delta: -1, HasFloor: true, Floor: -2}, 0, "bound"},
		{core.KVAdd{Delta: 3, HasFloor: true, Floor: -2, HasCeiling: true, Ceiling: 1}, 1, ""},
		{core.KVAdd{Delta: 1, HasCeiling: true, Ceiling: 1}, 0, "bound"},
		{core.KVAdd{Delta: math.MaxInt64}, 0, "overflow"},
		{core.KVAdd{Delta: math.MaxInt64 - 1}, math.MaxInt64, ""},
		{core.KVAdd{Delta: math.MinInt64}, -1, ""},
		{core.KVAdd{Delta: math.MinInt64}, 0, "overflow"},
	} {
		if sum, reason := add(c.op); sum != c.sum || reason != c.reason {
			t.Errorf("case %d: %d %q, want %d %q", i, sum, reason, c.sum, c.reason)
		}
	}
	if value, _, _, _ := kv.Get(tx, part, "n", []byte("k")); string(value) != "-1" {
		t.Errorf("the number is stored as %q", value)
	}
	apply(t, m, tx, 100, put("n", "k", " 7"))
	if _, reason := add(core.KVAdd{Delta: 1}); reason != "not_a_number" {
		t.Errorf("a value that is not a number: %q", reason)
	}
}

func TestARangeIsRemovedToItsBounds(t *testing.T) {
	all := []string{"a", "a\x00", "ab", "b", "b\xff", "c", "\xff", "\xff\xff"}
	for name, c := range map[string]struct {
		op   core.KVDeleteRange
		left string
	}{
		"all":            {core.KVDeleteRange{}, ""},
		"a prefix":       {core.KVDeleteRange{Prefix: []byte("a")}, "b b\xff c \xff \xff\xff"},
		"the last one":   {core.KVDeleteRange{Prefix: []byte("\xff")}, "a a\x00 ab b b\xff c"},
		"from and to":    {core.KVDeleteRange{From: []byte("ab"), To: []byte("c")}, "a a\x00 c \xff \xff\xff"},
		"to the end":     {core.KVDeleteRange{From: []byte("c")}, "a a\x00 ab b b\xff"},
		"from the front": {core.KVDeleteRange{To: []byte("a\x00")}, "a\x00 ab b b\xff c \xff \xff\xff"},
		"nothing":        {core.KVDeleteRange{From: []byte("c"), To: []byte("b")}, "a a\x00 ab b b\xff c \xff \xff\xff"},
	} {
		tx := machinetest.NewTxn()
		m := open(t, tx)
		for i, key := range all {
			apply(t, m, tx, uint64(i+1), put("ks", key, "v"))
			apply(t, m, tx, uint64(i+1), put("other", key, "v"))
		}
		c.op.Keyspace, c.op.Count = "ks", true
		r, fact := apply(t, m, tx, 99, &c.op)
		if fact != nil {
			t.Fatalf("%s: %v", name, fact)
		}
		pairs, err := kv.Scan(tx, part, "ks", nil, 100)
		if err != nil {
			t.Fatal(err)
		}
		var left []string
		for _, p := range pairs {
			left = append(left, string(p.Key))
		}
		if got := strings.Join(left, " "); got != c.left || r.KV.Count != uint64(len(all)-len(left)) {
			t.Errorf("%s: left %q, counted %d; want %q", name, got, r.KV.Count, c.left)
		}
		if pairs, _ := kv.Scan(tx, part, "other", nil, 100); len(pairs) != len(all) {
			t.Errorf("%s: another keyspace has %d keys", name, len(pairs))
		}
	}
}

func TestAKeyspaceThatIsMadeAgainShowsNoOldKey(t *testing.T) {
	tx := machinetest.NewTxn()
	m := open(t, tx)
	apply(t, m, tx, 1, put("ks", "old", "v"))
	first, _, _ := kv.Space(tx, part, "ks")
	if r, _ := apply(t, m, tx, 2, &core.KeyspaceDelete{Keyspace: "ks"}); !r.Existed {
		t.Error("a keyspace that was there is said not to have been")
	}
	if r, _ := apply(t, m, tx, 2, &core.KeyspaceDelete{Keyspace: "ks"}); r.Existed {
		t.Error("a keyspace that was gone is said to have been there")
	}
	apply(t, m, tx, 3, put("ks", "new", "v"))
	second, ok, err := kv.Space(tx, part, "ks")
	if !ok || err != nil || second.Incarnation <= first.Incarnation {
		t.Errorf("incarnation %d after %d (%v, %v)", second.Incarnation, first.Incarnation, ok, err)
	}
	if pairs, _ := kv.Scan(tx, part, "ks", nil, 10); len(pairs) != 1 || string(pairs[0].Key) != "new" {
		t.Errorf("keys %+v", pairs)
	}
}

func TestAKeyspaceOverItsBoundTakesNoPutsButDeletes(t *testing.T) {
	tx := machinetest.NewTxn()
	m := open(t, tx)
	set := func(bytes int64) {
		t.Helper()
		if _, fact := apply(t, m, tx, 1, &core.KeyspaceSet{Keyspace: "ks", Config: core.KeyspaceConfig{Bytes: bytes}, IfVersion: -1}); fact != nil {
			t.Fatal(fact)
		}
	}
	set(100)
	apply(t, m, tx, 1, put("ks", "a", "v"))
	info, _, _ := kv.Space(tx, part, "ks")
	apply(t, m, tx, 2, &core.KeyspaceUse{Items: []core.SpaceUse{{Incarnation: 77, Bytes: 1000}, {Incarnation: info.Incarnation, Bytes: 101}}})
	check := func(what string, over bool) {
		t.Helper()
		m := open(t, tx) // as after a restart
		for name, op := range map[string]core.Op{"a put": put("ks", "b", "v"), "an addition": &core.KVAdd{Keyspace: "ks", Key: []byte("n"), Delta: 1}} {
			_, fact := apply(t, m, tx, 3, op)
			if f, full := errors.AsType[core.Exhausted](fact); full != over || full && (f.Limit != "keyspace_bytes" || f.Max != 100) {
				t.Errorf("%s: %s: %v", what, name, fact)
			}
		}
		if _, _, fact := puts(t, m, tx, 4, "ks", item("b", "v")); (fact != nil) != over {
			t.Errorf("%s: a batch: %v", what, fact)
		}
		for name, op := range map[string]core.Op{
			"a delete": &core.KVDelete{Keyspace: "ks", Key: []byte("a")}, "a range": &core.KVDeleteRange{Keyspace: "ks", Prefix: []byte("zz")},
		} {
			if _, fact := apply(t, m, tx, 5, op); fact != nil {
				t.Errorf("%s: %s: %v", what, name, fact)
			}
		}
	}
	check("over", true)
	m = open(t, tx)
	set(101)
	check("the bound raised", false)
	m = open(t, tx)
	set(100)
	apply(t, m, tx, 6, &core.KeyspaceUse{Items: []core.SpaceUse{{Incarnation: info.Incarnation, Bytes: 100}}})
	check("at the bound", false)
}

func TestKeyspacesOfANamespaceOverItsBoundTakeNoPutsButDeletes(t *testing.T) {
	tx := machinetest.NewTxn()
	m := open(t, tx)
	within := &core.ApplyContext{Rev: 1, Namespace: core.NamespaceConfig{KeyBytes: 100}}
	try := func(op core.Op) core.Fact {
		t.Helper()
		_, fact, err := m.Apply(tx, within, op)
		if err != nil {
			t.Fatal(err)
		}
		return fact
	}
	use := func(bytes uint64) *core.KeyspaceUse {
		return &core.KeyspaceUse{Items: []core.SpaceUse{{Incarnation: core.AllKeyspaces, Bytes: bytes}}}
	}
	full := core.Fact(core.Exhausted{Limit: "namespace_key_bytes", Max: 100})
	try(use(101)) // before there is any keyspace
	m = open(t, tx)
	if fact := try(put("first", "a", "v")); fact != full {
		t.Errorf("a put that makes a keyspace: %v", fact)
	}
	try(use(100))
	if fact := try(put("ks", "a", "v")); fact != nil {
		t.Errorf("a put at the bound: %v", fact)
	}
	m.Mark()
	try(use(500))
	m.Undo()
	if m.Used() != 100 {
		t.Errorf("%d bytes after a commit that was taken back", m.Used())
	}
	try(use(101))
	m = open(t, tx) // as after a restart
	if used, err := kv.Used(tx, part); used != 101 || m.Used() != 101 || err != nil {
		t.Errorf("%d bytes are stored, %d known, %v", used, m.Used(), err)
	}
	for name, op := range map[string]core.Op{"a put": put("ks", "b", "v"), "an addition": &core.KVAdd{Keyspace: "ks", Key: []byte("n"), Delta: 1}} {
		if fact := try(op); fact != full {
			t.Errorf("%s: %v", name, fact)
		}
	}
	if _, fact, err := m.Apply(tx, within, &core.KVPuts{Keyspace: "ks", Items: []core.KVItem{item("b", "v")}}); fact != full || err != nil {
		t.Errorf("a batch: %v, %v", fact, err)
	}
	if fact := try(&core.KVDelete{Keyspace: "ks", Key: []byte("a")}); fact != nil {
		t.Errorf("a delete: %v", fact)
	}
	within.Namespace.KeyBytes = 0
	if fact := try(put("ks", "b", "v")); fact != nil {
		t.Errorf("a put without a bound: %v", fact)
	}
}

// Undo brings back what a keyspace was before the commit.
func TestUndoTakesChangesOfKeyspacesBack(t *testing.T) {
	tx := machinetest.NewTxn()
	m := open(t, tx)
	apply(t, m, tx, 1, &core.KeyspaceSet{Keyspace: "kept", Config: core.KeyspaceConfig{WriteRate: 5}, IfVersion: -1})
	before := m.Bounded()
	tx.Mark()
	m.Mark()
	apply(t, m, tx, 2, &core.KeyspaceSet{Keyspace: "kept", Config: core.KeyspaceConfig{}, IfVersion: 1})
	apply(t, m, tx, 2, &core.KeyspaceDelete{Keyspace: "kept"})
	apply(t, m, tx, 2, put("made", "a", "v"))
	apply(t, m, tx, 2, put("kept", "a", "v"))
	tx.Undo()
	m.Undo()
	if got := m.Bounded(); !reflect.DeepEqual(got, before) || len(got) != 1 {
		t.Errorf("bounded %+v, want %+v", got, before)
	}
	if again := open(t, tx); !reflect.DeepEqual(again.Bounded(), before) {
		t.Errorf("bounded after a restart %+v, want %+v", again.Bounded(), before)
	}
	apply(t, m, tx, 3, put("next", "a", "v"))
	if info, _, _ := kv.Space(tx, part, "next"); info.Incarnation != before[0].Incarnation+1 {
		t.Errorf("the next keyspace is number %d", info.Incarnation)
	}
}

// A put of 256 bytes is to cost at most 2 µs and one allocation of its own.
func BenchmarkPuts(b *testing.B) {
	const n = 256
	items := make([]core.KVItem, n)
	for i := range items {
		items[i] = core.KVItem{Key: fmt.Appendf(nil, "key-%07d", i), Value: make([]byte, 256)}
	}
	tx := machinetest.NewTxn()
	m := open(b, tx)
	op := &core.KVPuts{Keyspace: "ks", Items: items}
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := m.Apply(tx, &core.ApplyContext{Rev: 1}, op); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/put")
}

// A replica that was restarted gives out the numbers that all others do, also when there is no keyspace at the moment.
func TestIncarnationsGoOnAfterTheLastKeyspaceIsGone(t *testing.T) {
	tx := machinetest.NewTxn()
	m := open(t, tx)
	apply(t, m, tx, 1, put("ks", "a", "v"))
	first, _, _ := kv.Space(tx, part, "ks")
	apply(t, m, tx, 2, &core.KeyspaceDelete{Keyspace: "ks"})
	m = open(t, tx)
	apply(t, m, tx, 3, put("ks", "a", "v"))
	if second, _, _ := kv.Space(tx, part, "ks"); second.Incarnation != first.Incarnation+1 {
		t.Errorf("incarnation %d after %d", second.Incarnation, first.Incarnation)
	}
}
