package kv_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/keys"
	"github.com/millrace/millrace/internal/machine/kv"
	"github.com/millrace/millrace/internal/machine/machinetest"
)

var update = flag.Bool("update", false, "rewrite the golden files")

var part = core.Partition{Tenant: 1, Namespace: 2}

// tester is a *testing.T, *testing.B or *rapid.T.
type tester interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

func open(t tester, tx core.View) *kv.Machine {
	t.Helper()
	m := kv.New(part)
	if err := m.Open(tx); err != nil {
		t.Fatal(err)
	}
	return m
}

func apply(t tester, m *kv.Machine, tx core.Txn, rev uint64, op core.Op) (core.OpResult, core.Fact) {
	t.Helper()
	r, fact, err := m.Apply(tx, &core.ApplyContext{Rev: rev}, op)
	if err != nil {
		t.Fatalf("%+v: %v", op, err)
	}
	return r, fact
}

func put(keyspace, key, value string) *core.KVPut {
	return &core.KVPut{Keyspace: keyspace, Key: []byte(key), Value: []byte(value)}
}

func TestPutGetDelete(t *testing.T) {
	tx := machinetest.NewTxn()
	m := open(t, tx)
	if r, fact := apply(t, m, tx, 7, put("thumbs", "a", "1")); fact != nil || r.Rev != 7 {
		t.Fatalf("put: %+v, %v", r, fact)
	}
	value, rev, ok, err := kv.Get(tx, part, "thumbs", []byte("a"))
	if string(value) != "1" || rev != 7 || !ok || err != nil {
		t.Errorf("get = %q, %d, %v, %v", value, rev, ok, err)
	}
	for _, absent := range [][2]string{{"thumbs", "b"}, {"other", "a"}, {"", ""}, {"thumbs", ""}} {
		if _, rev, ok, err := kv.Get(tx, part, absent[0], []byte(absent[1])); rev != 0 || ok || err != nil {
			t.Errorf("get %q = %d, %v, %v", absent, rev, ok, err)
		}
	}
	if _, _, ok, _ := kv.Get(tx, core.Partition{Tenant: 2, Namespace: 2}, "thumbs", []byte("a")); ok {
		t.Error("another tenant reads the key")
	}
	r, fact := apply(t, m, tx, 8, &core.KVPut{Keyspace: "thumbs", Key: []byte("a"), Value: []byte("2"), WantPrev: true})
	if fact != nil || string(r.Prev) != "1" || !r.Existed || r.Rev != 8 {
		t.Errorf("put with prev: %+v, %v", r, fact)
	}
	if r, _ := apply(t, m, tx, 9, &core.KVDelete{Keyspace: "thumbs", Key: []byte("a")}); !r.Existed {
		t.Error("delete of a key that was there says it was not")
	}
	if r, _ := apply(t, m, tx, 9, &core.KVDelete{Keyspace: "thumbs", Key: []byte("a")}); r.Existed {
		t.Error("delete of a key that was gone says it was there")
	}
}

func TestEmptyValueIsNotAbsent(t *testing.T) {
	tx := machinetest.NewTxn()
	m := open(t, tx)
	apply(t, m, tx, 1, put("ks", "a", ""))
	r, _ := apply(t, m, tx, 2, &core.KVPut{Keyspace: "ks", Key: []byte("a"), WantPrev: true})
	if !r.Existed || r.Prev == nil {
		t.Errorf("prev of an empty value: %+v", r)
	}
	r, _ = apply(t, m, tx, 3, &core.KVPut{Keyspace: "ks", Key: []byte("b"), WantPrev: true})
	if r.Existed || r.Prev != nil {
		t.Errorf("prev of an absent key: %+v", r)
	}
}

func TestConditionsRefuseWithWhatWasFound(t *testing.T) {
	tx := machinetest.NewTxn()
	m := open(t, tx)
	apply(t, m, tx, 5, put("ks", "a", "one"))
	there := core.RevMismatch{Rev: 5, Value: []byte("one"), Keyspace: "ks", Key: []byte("a")}
	absent := core.RevMismatch{Missing: true, Keyspace: "ks", Key: []byte("b")}
	check := func(key string, target core.Target, c core.Compare, rev uint64, value string) *core.KVCheck {
		return &core.KVCheck{Keyspace: "ks", Key: []byte(key), Target: target, Compare: c, Rev: rev, Value: []byte(value)}
	}
	for _, c := range []struct {
		op   core.Op
		want core.Fact
	}{
		{&core.KVPut{Keyspace: "ks", Key: []byte("a"), IfAbsent: true}, there},
		{&core.KVPut{Keyspace: "ks", Key: []byte("a"), HasRev: true}, there},
		{&core.KVPut{Keyspace: "ks", Key: []byte("a"), HasRev: true, IfRev: 4}, there},
		{&core.KVPut{Keyspace: "ks", Key: []byte("b"), HasRev: true, IfRev: 5}, absent},
		{&core.KVDelete{Keyspace: "ks", Key: []byte("a"), HasRev: true, IfRev: 6}, there},
		{&core.KVDelete{Keyspace: "ks", Key: []byte("b"), HasRev: true, IfRev: 6}, absent},
		{&core.KVDelete{Keyspace: "ks", Key: []byte("b"), HasRev: true}, nil},
		{check("a", 0, core.CompareExists, 0, ""), nil},
		{check("b", 0, core.CompareExists, 0, ""), absent},
		{check("a", 0, core.CompareAbsent, 0, ""), there},
		{check("b", 0, core.CompareAbsent, 0, ""), nil},
		{check("a", core.TargetRev, core.CompareEqual, 5, ""), nil},
		{check("a", core.TargetRev, core.CompareEqual, 6, ""), there},
		{check("a", core.TargetRev, core.CompareNotEqual, 5, ""), there},
		{check("a", core.TargetRev, core.CompareLess, 6, ""), nil},
		{check("a", core.TargetRev, core.CompareLess, 5, ""), there},
		{check("a", core.TargetRev, core.CompareGreater, 4, ""), nil},
		{check("a", core.TargetRev, core.CompareGreater, 5, ""), there},
		{check("b", core.TargetRev, core.CompareEqual, 0, ""), nil},
		{check("b", core.TargetRev, core.CompareLess, 1, ""), nil},
		{check("b", core.TargetRev, core.CompareGreater, 0, ""), absent},
		{check("a", core.TargetValue, core.CompareEqual, 0, "one"), nil},
		{check("a", core.TargetValue, core.CompareEqual, 0, "on"), there},
		{check("a", core.TargetValue, core.CompareNotEqual, 0, "one"), there},
		{check("a", core.TargetValue, core.CompareLess, 0, "onf"), nil},
		{check("a", core.TargetValue, core.CompareLess, 0, "one"), there},
		{check("a", core.TargetValue, core.CompareGreater, 0, "o"), nil},
		{check("a", core.TargetValue, core.CompareGreater, 0, "p"), there},
		{check("b", core.TargetValue, core.CompareEqual, 0, ""), absent},
		{check("b", core.TargetValue, core.CompareNotEqual, 0, "x"), nil},
		{check("b", core.TargetValue, core.CompareLess, 0, "x"), absent},
		{check("b", core.TargetValue, core.CompareGreater, 0, ""), absent},
	} {
		before := tx.Dump()
		if _, fact := apply(t, m, tx, 6, c.op); !reflect.DeepEqual(fact, c.want) {
			t.Errorf("%+v: %v, want %v", c.op, fact, c.want)
		}
		if tx.Dump() != before {
			t.Errorf("%+v changed something", c.op)
		}
	}
}

func TestLimitsAreMetExactly(t *testing.T) {
	tx := machinetest.NewTxn()
	m := open(t, tx)
	long := strings.Repeat("k", kv.MaxKey)
	for _, c := range []struct {
		op   core.Op
		want core.Fact
	}{
		{put("ks", long, strings.Repeat("v", kv.MaxValue)), nil},
		{put("ks", long+"k", ""), core.TooLarge{Field: "key", Limit: "key_bytes", Max: kv.MaxKey}},
		{put("ks", "k", strings.Repeat("v", kv.MaxValue+1)), core.TooLarge{Field: "value", Limit: "value_bytes", Max: kv.MaxValue}},
		{&core.KVDelete{Keyspace: "ks", Key: []byte(long + "k")}, core.TooLarge{Field: "key", Limit: "key_bytes", Max: kv.MaxKey}},
		{put(strings.Repeat("n", 128), "k", ""), nil},
	} {
		if _, fact := apply(t, m, tx, 1, c.op); !reflect.DeepEqual(fact, c.want) {
			t.Errorf("%T: %v, want %v", c.op, fact, c.want)
		}
	}
	for _, op := range []core.Op{
		put("ks", "", ""), put("", "k", ""), put("a:b", "k", ""), put(".a", "k", ""), put(strings.Repeat("n", 129), "k", ""),
		&core.KVDelete{Keyspace: "ks"}, &core.KVCheck{Keyspace: "ks", Compare: core.CompareExists},
		&core.KVCheck{Keyspace: "ks", Key: []byte("k")}, &core.KVCheck{Keyspace: "ks", Key: []byte("k"), Compare: 7},
		&core.KVCheck{Keyspace: "ks", Key: []byte("k"), Compare: core.CompareLess},
		&core.KVPut{Keyspace: "ks", Key: []byte("k"), IfAbsent: true, HasRev: true, IfRev: 1},
	} {
		if _, fact := apply(t, m, tx, 1, op); !isA[core.Invalid](fact) {
			t.Errorf("%+v: %v, want it invalid", op, fact)
		}
	}
}

func isA[F core.Fact](fact core.Fact) bool { _, ok := fact.(F); return ok }

func TestUnknownKeyspaceWithoutAutoCreate(t *testing.T) {
	tx := machinetest.NewTxn()
	m := open(t, tx)
	for _, op := range []core.Op{put("ks", "a", ""), &core.KVDelete{Keyspace: "ks", Key: []byte("a")}} {
		_, fact, err := m.Apply(tx, &core.ApplyContext{Rev: 1, Namespace: core.NamespaceConfig{NoAutoCreate: true}}, op)
		if want := (core.NotFound{Kind: "keyspace", ID: "ks"}); fact != core.Fact(want) || err != nil {
			t.Errorf("%T: %v, %v", op, fact, err)
		}
	}
	if tx.Len() != 0 {
		t.Error("a refused write left something")
	}
	apply(t, m, tx, 1, put("ks", "a", ""))
	if _, fact, _ := m.Apply(tx, &core.ApplyContext{Rev: 2, Namespace: core.NamespaceConfig{NoAutoCreate: true}}, put("ks", "b", "")); fact != nil {
		t.Errorf("write to a known keyspace: %v", fact)
	}
}

func TestReadsAndDeletesMakeNoKeyspace(t *testing.T) {
	tx := machinetest.NewTxn()
	m := open(t, tx)
	apply(t, m, tx, 1, &core.KVDelete{Keyspace: "ks", Key: []byte("a")})
	apply(t, m, tx, 1, &core.KVCheck{Keyspace: "ks", Key: []byte("a"), Compare: core.CompareAbsent})
	if tx.Len() != 0 {
		t.Errorf("%d rows", tx.Len())
	}
}

func TestKeyspacesAreBounded(t *testing.T) {
	tx := machinetest.NewTxn()
	m := open(t, tx)
	for i := range kv.MaxKeyspaces {
		if _, fact := apply(t, m, tx, 1, put(fmt.Sprintf("ks%d", i), "a", "")); fact != nil {
			t.Fatalf("keyspace %d: %v", i, fact)
		}
	}
	for range 2 {
		_, fact := apply(t, m, tx, 1, put("one-more", "a", ""))
		if want := (core.Exhausted{Limit: "keyspaces", Max: kv.MaxKeyspaces}); fact != core.Fact(want) {
			t.Errorf("keyspace beyond the limit: %v", fact)
		}
		if _, fact := apply(t, m, tx, 1, put("ks7", "b", "")); fact != nil {
			t.Errorf("write to a keyspace there is: %v", fact)
		}
		m = open(t, tx)
	}
	if list, err := kv.Keyspaces(tx, part); len(list) != kv.MaxKeyspaces || err != nil {
		t.Errorf("%d keyspaces, %v", len(list), err)
	}
}

func TestBlindPutReadsNothing(t *testing.T) {
	tx := machinetest.NewTxn()
	m := open(t, tx)
	apply(t, m, tx, 1, put("ks", "a", "1"))
	tx.ResetCounts()
	apply(t, m, tx, 2, put("ks", "a", "2"))
	apply(t, m, tx, 2, put("ks", "b", "2"))
	if c := tx.Counts(); c.Gets != 0 || c.Scans != 0 || c.Sets != 2 {
		t.Errorf("two blind puts: %+v", c)
	}
}

func TestUndoForgetsKeyspaces(t *testing.T) {
	tx := machinetest.NewTxn()
	m := open(t, tx)
	apply(t, m, tx, 1, put("kept", "a", ""))
	before := tx.Dump()
	tx.Mark()
	m.Mark()
	apply(t, m, tx, 2, put("gone", "a", ""))
	apply(t, m, tx, 2, put("gone2", "a", ""))
	tx.Undo()
	m.Undo()
	if tx.Dump() != before {
		t.Error("the store keeps what was undone")
	}
	apply(t, m, tx, 3, put("next", "a", ""))
	list, err := kv.Keyspaces(tx, part)
	if want := []kv.Keyspace{{"kept", 1}, {"next", 2}}; !reflect.DeepEqual(list, want) || err != nil {
		t.Errorf("keyspaces %v, %v; want %v", list, err, want)
	}
}

func TestScanGivesKeysInByteOrder(t *testing.T) {
	tx := machinetest.NewTxn()
	m := open(t, tx)
	want := []string{"\x00", "\x00\x00", "a", "a\x00", "a\x00b", "a/%", "ab", "a\xff", "\xff", "\xff\xff"}
	for i := range want {
		apply(t, m, tx, uint64(i+1), put("ks", want[len(want)-1-i], want[len(want)-1-i]))
	}
	apply(t, m, tx, 99, put("ks2", "z", ""))
	scan := func(prefix string, limit int) (out []string) {
		pairs, err := kv.Scan(tx, part, "ks", []byte(prefix), limit)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range pairs {
			if !bytes.Equal(p.Key, p.Value) {
				t.Errorf("key %q has value %q", p.Key, p.Value)
			}
			out = append(out, string(p.Key))
		}
		return out
	}
	if got := scan("", 100); !reflect.DeepEqual(got, want) {
		t.Errorf("all: %q", got)
	}
	if got := scan("a", 100); !reflect.DeepEqual(got, want[2:8]) {
		t.Errorf("prefix a: %q", got)
	}
	if got := scan("\xff", 1); !reflect.DeepEqual(got, want[8:9]) {
		t.Errorf("limit: %q", got)
	}
	if got, err := kv.Scan(tx, part, "none", nil, 9); got != nil || err != nil {
		t.Errorf("unknown keyspace: %v, %v", got, err)
	}
}

// The machine equals a map, restarts and undone commits included.
func TestRandomOpsAgainstAMap(t *testing.T) {
	type row struct {
		value string
		rev   uint64
	}
	rapid.Check(t, func(t *rapid.T) {
		tx := machinetest.NewTxn()
		m := open(t, tx)
		want := map[string]row{}
		for rev := uint64(1); rev < 40; rev++ {
			if rapid.IntRange(0, 9).Draw(t, "restart") == 0 {
				m = open(t, tx)
			}
			next := map[string]row{}
			for k, v := range want {
				next[k] = v
			}
			undo := rapid.Bool().Draw(t, "undo")
			tx.Mark()
			m.Mark()
			ks := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "keyspace")
			key := rapid.SampledFrom([]string{"x", "x\x00", "y", "\xff"}).Draw(t, "key")
			name := ks + " " + key
			if rapid.Bool().Draw(t, "put") {
				op := &core.KVPut{Keyspace: ks, Key: []byte(key), Value: []byte{byte(rev)}}
				op.HasRev, op.IfRev = rapid.Bool().Draw(t, "has rev"), uint64(rapid.IntRange(0, 5).Draw(t, "rev"))
				_, fact, err := m.Apply(tx, &core.ApplyContext{Rev: rev}, op)
				if refused := op.HasRev && op.IfRev != want[name].rev; refused != (fact != nil) || err != nil {
					t.Fatalf("%+v on %+v: %v, %v", op, want[name], fact, err)
				} else if !refused {
					next[name] = row{string(op.Value), rev}
				}
			} else {
				r, fact, err := m.Apply(tx, &core.ApplyContext{Rev: rev}, &core.KVDelete{Keyspace: ks, Key: []byte(key)})
				if _, there := want[name]; r.Existed != there || fact != nil || err != nil {
					t.Fatalf("delete %q: %+v, %v, %v", name, r, fact, err)
				}
				delete(next, name)
			}
			if undo {
				tx.Undo()
				m.Undo()
			} else {
				tx.Keep()
				m.Keep()
				want = next
			}
			got := map[string]row{}
			for _, ks := range []string{"a", "b", "c"} {
				pairs, err := kv.Scan(tx, part, ks, nil, 100)
				if err != nil {
					t.Fatal(err)
				}
				for _, p := range pairs {
					got[ks+" "+string(p.Key)] = row{string(p.Value), p.Rev}
				}
			}
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("got %v, want %v", got, want)
			}
		}
	})
}

func TestGoldenRows(t *testing.T) {
	tx := machinetest.NewTxn()
	m := open(t, tx)
	apply(t, m, tx, 300, put("thumbs", "k", "v"))
	apply(t, m, tx, 1, put("b", "\x00\xff", ""))
	goldenRows(t, "testdata/rows.golden", tx.Dump())
}

// Rows of a keyspace that keeps writers: its own, that of a key with a writer, and that of one without.
func TestGoldenRowsWithWriters(t *testing.T) {
	tx := machinetest.NewTxn()
	m := open(t, tx)
	keepWriters(t, m, tx, "ks", true)
	within(t, m, tx, 300, completing(ada), put("ks", "done", "v"))
	within(t, m, tx, 301, fenced(bob), put("ks", "mid", ""))
	within(t, m, tx, 302, &core.Commit{}, put("ks", "outside", "v"))
	goldenRows(t, "testdata/writers.golden", tx.Dump())
}

// goldenRows holds what is stored to a golden file.
func goldenRows(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("stored rows changed: stores written before cannot be read\ngot\n%swant\n%s", got, want)
	}
}

func TestCorruptRowsAreErrorsNotAnswers(t *testing.T) {
	for _, c := range []struct {
		name       string
		key, value []byte
	}{
		{"incarnation", keys.Keyspace(part, "ks"), []byte{0, 0, 0, 0, 1}},
		{"beyond the last", keys.Keyspace(part, "ks"), []byte{0, 0, 0, 2, 1}},
		{"kind", keys.Keyspace(part, "ks"), []byte{0, 0, 0, 1, 9}},
		{"short", keys.Keyspace(part, "ks"), []byte{1}},
		{"counter", keys.Keyspace(part, ""), nil},
	} {
		tx := machinetest.NewTxn()
		apply(t, open(t, tx), tx, 1, put("ks", "a", "1"))
		tx.Set(c.key, c.value)
		var corrupt *errs.Corruption
		if err := kv.New(part).Open(tx); !errors.As(err, &corrupt) {
			t.Errorf("%s: open: %v", c.name, err)
		}
	}
	tx := machinetest.NewTxn()
	m := open(t, tx)
	apply(t, m, tx, 1, put("ks", "a", "1"))
	tx.Set(keys.KV(part, 1, []byte("a")), []byte{0x80})
	if _, _, _, err := kv.Get(tx, part, "ks", []byte("a")); err == nil {
		t.Error("a row without a revision was read as " + hex.EncodeToString([]byte{0x80}))
	}
	if _, _, err := m.Apply(tx, &core.ApplyContext{Namespace: core.NamespaceConfig{NoAutoCreate: true}}, &core.KVDelete{Keyspace: "ks", Key: []byte("a")}); err == nil {
		t.Error("a row without a revision was deleted as if it made sense")
	}
	if _, _, err := m.Apply(tx, &core.ApplyContext{Namespace: core.NamespaceConfig{NoAutoCreate: true}}, &core.TaskDelete{}); err == nil {
		t.Error("an op of the queue was applied")
	}
}

func BenchmarkBlindPut(b *testing.B) {
	tx := machinetest.NewTxn()
	m := open(b, tx)
	value := make([]byte, 256)
	key := make([]byte, 8)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		key[6], key[7] = byte(i>>8), byte(i)
		if _, _, err := m.Apply(tx, &core.ApplyContext{Rev: uint64(i)}, &core.KVPut{Keyspace: "ks", Key: key, Value: value}); err != nil {
			b.Fatal(err)
		}
	}
}
