package search_test

import (
	"bytes"
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
	"github.com/millrace/millrace/internal/machine/machinetest"
	"github.com/millrace/millrace/internal/machine/search"
)

var update = flag.Bool("update", false, "rewrite the golden files")

var part = core.Partition{Tenant: 1, Namespace: 2}

type tester interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

func open(t tester, tx core.View, o search.Options) *search.Machine {
	t.Helper()
	m := search.New(part, o)
	if err := m.Open(tx); err != nil {
		t.Fatal(err)
	}
	return m
}

func apply(t tester, m *search.Machine, tx core.Txn, rev uint64, op core.Op) (core.OpResult, core.Fact) {
	t.Helper()
	r, fact, err := m.Apply(tx, &core.ApplyContext{Rev: rev, Stamp: core.ShardTime(1000 * rev), Format: core.FormatCurrent}, op)
	if err != nil {
		t.Fatalf("%+v: %v", op, err)
	}
	return r, fact
}

func definition(name string) core.Collection {
	return core.Collection{Name: name, UID: 77, Model: "m", Dim: 2, Metric: core.MetricCosine}
}

func vec(x byte) []byte { return []byte{0, 0, 0, x, 0, 0, 128, 63} }

func upsert(id string, x byte, payload string) *core.VectorUpsert {
	return &core.VectorUpsert{Collection: "ws", ID: id, Vector: vec(x), Payload: []byte(payload)}
}

// begun returns a machine with the collection ws.
func begun(t tester, o search.Options) (*search.Machine, *machinetest.Txn) {
	t.Helper()
	tx := machinetest.NewTxn()
	m := open(t, tx, o)
	if _, fact := apply(t, m, tx, 1, &core.CollectionSet{Collection: definition("ws")}); fact != nil {
		t.Fatal(fact)
	}
	return m, tx
}

func TestAnUpsertTakesANewSlotAndTheOldOneIsGone(t *testing.T) {
	m, tx := begun(t, search.Options{})
	if r, fact := apply(t, m, tx, 5, upsert("a", 1, `{"x":1}`)); fact != nil || r.Rev != 5 || r.Existed {
		t.Fatalf("%+v, %v", r, fact)
	}
	if r, fact := apply(t, m, tx, 6, upsert("a", 2, "")); fact != nil || r.Rev != 6 || !r.Existed {
		t.Fatalf("%+v, %v", r, fact)
	}
	got, ok, err := search.Point(tx, part, "ws", "a")
	want := core.StoredPoint{ID: "a", Version: 6, Slot: 1, Vector: vec(2)}
	if err != nil || !ok || !bytes.Equal(got.Vector, want.Vector) || got.Version != 6 || got.Slot != 1 || len(got.Payload) != 0 {
		t.Errorf("%+v, %v, %v; want %+v", got, ok, err, want)
	}
	if _, ok, _ := tx.Get(keys.Vector(part, 1, 0)); ok {
		t.Error("the vector of the write before is kept")
	}
	changes := changesOf(m)
	if len(changes) != 3 || changes[2].Old != 0 || !changes[2].HadOld || changes[2].Slot != 1 {
		t.Errorf("changes %+v", changes)
	}
	if r, _ := apply(t, m, tx, 7, &core.VectorDelete{Collection: "ws", ID: "a"}); !r.Existed {
		t.Error("a point that was there is deleted as if it was not")
	}
	if r, fact := apply(t, m, tx, 8, &core.VectorDelete{Collection: "ws", ID: "a"}); r.Existed || fact != nil {
		t.Errorf("deleted again: %+v, %v", r, fact)
	}
	if _, ok, _ := search.Point(tx, part, "ws", "a"); ok {
		t.Error("a deleted point is read")
	}
	if _, ok, _ := search.Point(tx, core.Partition{Tenant: 9, Namespace: 2}, "ws", "a"); ok {
		t.Error("another tenant reads the point")
	}
}

func TestConditionsAreJudgedOnWhatIsThere(t *testing.T) {
	m, tx := begun(t, search.Options{})
	apply(t, m, tx, 5, upsert("a", 1, ""))
	there := core.VersionMismatch{Collection: "ws", ID: "a", Version: 5}
	absent := core.VersionMismatch{Collection: "ws", ID: "b"}
	with := func(op *core.VectorUpsert, change func(*core.VectorUpsert)) core.Op {
		change(op)
		return op
	}
	for i, c := range []struct {
		op   core.Op
		want core.Fact
	}{
		{with(upsert("a", 1, ""), func(u *core.VectorUpsert) { u.IfAbsent = true }), there},
		{with(upsert("a", 1, ""), func(u *core.VectorUpsert) { u.HasVersion = true }), there},
		{with(upsert("a", 1, ""), func(u *core.VectorUpsert) { u.HasVersion, u.IfVersion = true, 4 }), there},
		{with(upsert("b", 1, ""), func(u *core.VectorUpsert) { u.HasVersion, u.IfVersion = true, 4 }), absent},
		{&core.VectorDelete{Collection: "ws", ID: "a", HasVersion: true, IfVersion: 6}, there},
		{with(upsert("a", 1, ""), func(u *core.VectorUpsert) { u.UID = 78 }), core.Unavailable{Reason: "collection_not_ready"}},
		{with(upsert("a", 1, ""), func(u *core.VectorUpsert) { u.Model = "n" }), core.SearchState{Reason: "model_mismatch", Field: "model", Want: "m", Got: "n"}},
		{with(upsert("a", 1, ""), func(u *core.VectorUpsert) { u.Vector = u.Vector[:4] }), core.DimMismatch{Field: "vector", Want: 2, Got: 1}},
		{with(upsert("a", 1, ""), func(u *core.VectorUpsert) { u.Collection = "xs" }), core.NotFound{Kind: "collection", ID: "xs"}},
		{with(upsert("a", 1, ""), func(u *core.VectorUpsert) { u.HasVersion, u.IfVersion, u.UID, u.Model = true, 5, 77, "m" }), nil},
		{with(upsert("c", 1, ""), func(u *core.VectorUpsert) { u.IfAbsent = true }), nil},
	} {
		if _, fact := apply(t, m, tx, uint64(20+i), c.op); !reflect.DeepEqual(fact, c.want) {
			t.Errorf("%d: %#v, want %#v", i, fact, c.want)
		}
	}
}

// Each limit, at it and one above it.
func TestLimitsAreJudgedHere(t *testing.T) {
	m, tx := begun(t, search.Options{MaxCollections: 3, MaxRulesets: 1})
	big := definition("big")
	big.MaxPoints = 1
	for i, c := range []struct {
		op    core.Op
		limit string
	}{
		{upsert("a", 1, strings.Repeat("x", core.MaxPointPayload)), ""},
		{upsert("a", 1, strings.Repeat("x", core.MaxPointPayload+1)), "point_payload_bytes"},
		{upsert(strings.Repeat("a", 128), 1, ""), ""},
		{upsert(strings.Repeat("a", 129), 1, ""), "id"},
		{upsert("", 1, ""), "id"},
		{&core.CollectionSet{Collection: big}, ""},
		{&core.VectorUpsert{Collection: "big", ID: "a", Vector: vec(1)}, ""},
		{&core.VectorUpsert{Collection: "big", ID: "a", Vector: vec(2)}, ""},
		{&core.VectorUpsert{Collection: "big", ID: "b", Vector: vec(1)}, "points_limit"},
		{&core.CollectionSet{Collection: core.Collection{Name: "x", UID: 1, Model: "m", Dim: 1, Metric: 1}}, "dim"},
		{&core.CollectionSet{Collection: core.Collection{Name: "x", UID: 1, Model: "m", Dim: core.MaxDim + 1, Metric: 1}}, "dim"},
		{&core.CollectionSet{Collection: core.Collection{Name: "x", UID: 1, Model: "m", Dim: 2, Metric: 1, Fields: fields(core.MaxCollectionFields + 1)}}, "collection_fields"},
		{&core.CollectionSet{Collection: core.Collection{Name: "x", UID: 1, Model: "m", Dim: core.MaxDim, Metric: 1, Fields: fields(core.MaxCollectionFields)}}, ""},
		{&core.CollectionSet{Collection: definition("y")}, "collections"},
		{&core.RulesetPut{Name: "r", Rules: make([]byte, core.MaxRulesetBytes)}, ""},
		{&core.RulesetPut{Name: "r", Rules: make([]byte, core.MaxRulesetBytes+1)}, "ruleset_bytes"},
		{&core.RulesetPut{Name: "s", Rules: []byte("x")}, "rulesets"},
		{&core.RulesetDelete{Name: "-"}, "name"},
		{&core.RulesetDelete{Name: "s"}, ""},
		{&core.RulesetPut{Name: "s", Rules: []byte("x")}, "rulesets"},
		{&core.RulesetDelete{Name: "r"}, ""},
		{&core.RulesetPut{Name: "s", Rules: []byte("x")}, ""},
		{&core.RulesetPut{Name: "r", Rules: []byte("x")}, "rulesets"},
		{&core.RecordingPut{Collection: "ws", ID: 1, Data: make([]byte, core.MaxRecordingBytes)}, ""},
		{&core.RecordingPut{Collection: "ws", ID: 2, Data: make([]byte, core.MaxRecordingBytes+1)}, "recording_bytes"},
	} {
		_, fact := apply(t, m, tx, uint64(10+i), c.op)
		got := ""
		switch f := fact.(type) {
		case nil:
		case core.Invalid:
			got = f.Field
		case core.TooLarge:
			got = f.Limit
		case core.Exhausted:
			got = f.Limit
		default:
			got = fmt.Sprintf("%T", f)
		}
		if got != c.limit {
			t.Errorf("%d: refused by %q (%v), want %q", i, got, fact, c.limit)
		}
	}
}

func fields(n int) (out []core.SchemaField) {
	for i := range n {
		out = append(out, core.SchemaField{Name: fmt.Sprintf("f%d", i), Type: core.FieldInt})
	}
	return out
}

func TestADeletedCollectionIsGoneAtOnceAndItsNameIsFree(t *testing.T) {
	m, tx := begun(t, search.Options{})
	apply(t, m, tx, 5, upsert("a", 1, ""))
	apply(t, m, tx, 6, &core.RecordingPut{Collection: "ws", ID: 9, Data: []byte("{}")})
	_ = m.End(tx, nil)
	if m.Due() == core.Never {
		t.Error("a recording is due never")
	}
	if r, fact := apply(t, m, tx, 7, &core.CollectionDelete{Name: "ws"}); !r.Existed || fact != nil {
		t.Errorf("%+v, %v", r, fact)
	}
	_ = m.End(tx, nil)
	if m.Due() != core.Never {
		t.Error("work is due of a collection that is gone")
	}
	from, to := keys.CollectionRange(part, 1)
	n := 0
	_ = tx.Scan(from, to, func(_, _ []byte) bool { n++; return true })
	if n > 0 {
		t.Errorf("%d rows are left", n)
	}
	other := definition("ws")
	other.Dim = 3
	if _, fact := apply(t, m, tx, 8, &core.CollectionSet{Collection: other}); fact != nil {
		t.Error(fact)
	}
	if _, ok, _ := search.Point(tx, part, "ws", "a"); ok {
		t.Error("a later collection shows a point of an earlier one")
	}
	if _, fact := apply(t, m, tx, 9, &core.CollectionSet{Collection: definition("ws")}); fact != (core.AlreadyExists{Kind: "collection", ID: "ws"}) {
		t.Errorf("another definition of the same name: %v", fact)
	}
	other.UID = 999
	if r, fact := apply(t, m, tx, 10, &core.CollectionSet{Collection: other}); fact != nil || !r.Replayed {
		t.Errorf("the same definition again: %+v, %v", r, fact)
	}
}

func TestRulesetsAreNumberedAndTheOldestLeave(t *testing.T) {
	m, tx := begun(t, search.Options{})
	put := func(rules string, version uint32) (core.OpResult, core.Fact) {
		return apply(t, m, tx, 2, &core.RulesetPut{Name: "r", Version: version, Rules: []byte(rules)})
	}
	if r, _ := put("1", 0); r.Version != 1 {
		t.Errorf("first version is %d", r.Version)
	}
	if r, _ := put("1", 0); r.Version != 1 || !r.Replayed {
		t.Errorf("the same rules again: %+v", r)
	}
	if r, _ := put("2", 2); r.Version != 2 || r.Replayed {
		t.Errorf("the second version: %+v", r)
	}
	if _, fact := put("x", 1); fact != (core.AlreadyExists{Kind: "ruleset", ID: "r"}) {
		t.Errorf("other rules under an old number: %v", fact)
	}
	if _, fact := put("x", 9); fact == nil {
		t.Error("a version is left out")
	}
	for i := 3; i <= core.MaxRulesetVersions+2; i++ {
		put(fmt.Sprint(i), 0)
	}
	for version, want := range map[uint32]bool{1: false, 2: false, 3: true, core.MaxRulesetVersions + 2: true} {
		if _, ok, err := search.Ruleset(tx, part, "r", version); ok != want || err != nil {
			t.Errorf("version %d: %v, %v", version, ok, err)
		}
	}
	newest, ok, _ := search.Ruleset(tx, part, "r", 0)
	if !ok || newest.Version != core.MaxRulesetVersions+2 || string(newest.Rules) != fmt.Sprint(newest.Version) {
		t.Errorf("newest is %+v, %v", newest, ok)
	}
	m = open(t, tx, search.Options{})
	if n, ok := m.Version("r", 0); !ok || n != newest.Version {
		t.Errorf("after a restart the newest is %d, %v", n, ok)
	}
}

// A version that was removed is gone, and its number does not come again: not for its name, nor after a restart.
func TestARemovedRulesetIsGoneAndItsNumbersDoNotComeAgain(t *testing.T) {
	m, tx := begun(t, search.Options{})
	put := func(name string, version uint32, rules string) (core.OpResult, core.Fact) {
		t.Helper()
		return apply(t, m, tx, 2, &core.RulesetPut{Name: name, Version: version, Rules: []byte(rules)})
	}
	remove := func(name string) bool {
		t.Helper()
		r, fact := apply(t, m, tx, 3, &core.RulesetDelete{Name: name})
		if fact != nil {
			t.Fatal(fact)
		}
		return r.Existed
	}
	if remove("r") {
		t.Error("a ruleset that never was existed")
	}
	for _, rules := range []string{"1", "2", "3"} {
		put("r", 0, rules)
	}
	put("other", 0, "o")
	if !remove("r") || remove("r") {
		t.Error("a ruleset is removed once")
	}
	for version := range uint32(4) {
		if _, ok, err := search.Ruleset(tx, part, "r", version); ok || err != nil {
			t.Errorf("version %d is read after the removal: %v", version, err)
		}
		if _, ok := m.Version("r", version); ok {
			t.Errorf("version %d is known after the removal", version)
		}
	}
	if list, err := search.Rulesets(tx, part); err != nil || len(list) != 1 || list[0].Name != "other" {
		t.Errorf("listed: %+v, %v", list, err)
	}
	m = open(t, tx, search.Options{})
	if r, fact := put("other", 0, "o"); fact != nil || r.Version != 1 || !r.Replayed {
		t.Errorf("another ruleset: %+v, %v", r, fact)
	}
	if r, fact := put("other", 2, "p"); fact != nil || r.Version != 2 {
		t.Errorf("the next version of another ruleset: %+v, %v", r, fact)
	}
	for _, version := range []uint32{1, 3, 5} {
		if _, fact := put("r", version, "again"); fact != (core.Invalid{
			Field: "version", Reason: "out_of_range", Message: "the first version of this ruleset must be 4: numbers of removed rulesets do not come again",
		}) {
			t.Errorf("version %d: %v", version, fact)
		}
	}
	if r, fact := put("r", 4, "3"); fact != nil || r.Version != 4 || r.Replayed {
		t.Errorf("put again: %+v, %v", r, fact)
	}
	if r, fact := put("s", 0, "3"); fact != nil || r.Version != 4 {
		t.Errorf("a new name: %+v, %v", r, fact)
	}
	if !remove("other") {
		t.Error("the other ruleset is gone")
	}
	if r, fact := put("other", 0, "3"); fact != nil || r.Version != 4 { // 2 was its newest, 3 the highest of those removed
		t.Errorf("put again: %+v, %v", r, fact)
	}
	for version, want := range map[uint32]bool{0: true, 3: false, 4: true, 5: false} {
		if _, ok := m.Version("r", version); ok != want {
			t.Errorf("version %d is known: %v", version, ok)
		}
	}
}

func TestEntriesOfTheFirstFormatRemoveNoRuleset(t *testing.T) {
	m, tx := begun(t, search.Options{})
	apply(t, m, tx, 2, &core.RulesetPut{Name: "r", Rules: []byte("x")})
	before := tx.Dump()
	_, fact, err := m.Apply(tx, &core.ApplyContext{Rev: 3, Stamp: 3000, Format: core.FormatFirst}, &core.RulesetDelete{Name: "r"})
	if f, ok := fact.(core.Invalid); !ok || f.Reason != "not_supported" || err != nil || tx.Dump() != before {
		t.Errorf("%v, %v\n%s", fact, err, tx.Dump())
	}
}

func TestTheNumbersOfVersionsEnd(t *testing.T) {
	_, tx := begun(t, search.Options{})
	tx.Set(keys.Ruleset(part, "r", core.MaxRulesetVersion), []byte("x"))
	m := open(t, tx, search.Options{})
	for range 2 {
		if _, fact := apply(t, m, tx, 2, &core.RulesetPut{Name: "r", Rules: []byte("y")}); fact != (core.Exhausted{Limit: "ruleset_version", Max: core.MaxRulesetVersion}) {
			t.Errorf("a version above the last: %v", fact)
		}
		apply(t, m, tx, 3, &core.RulesetDelete{Name: "r"})
	}
}

func TestRecordingsLeaveWhenTheyAreTooManyOrTooOld(t *testing.T) {
	m, tx := begun(t, search.Options{MaxRecordings: 2})
	has := func(id uint64, now core.ShardTime) bool {
		_, _, ok, err := search.ReadRecording(tx, part, 77, id, now)
		if err != nil {
			t.Fatal(err)
		}
		return ok
	}
	for id := uint64(1); id <= 3; id++ {
		if _, fact := apply(t, m, tx, id, &core.RecordingPut{Collection: "ws", UID: 77, ID: id, TTL: 5000, Data: []byte("d")}); fact != nil {
			t.Fatal(fact)
		}
	}
	_ = m.End(tx, nil)
	if has(1, 0) || !has(2, 0) || !has(3, 0) || has(3, 8000) {
		t.Error("the wrong recordings are there")
	}
	if m.Due() != 7000 || open(t, tx, search.Options{}).Due() != 7000 {
		t.Errorf("due at %d, after a restart at %d", m.Due(), open(t, tx, search.Options{}).Due())
	}
	used, more, err := m.Tick(tx, &core.ApplyContext{Stamp: 7000}, 10)
	_ = m.End(tx, nil)
	if used != 1 || more || err != nil || has(2, 0) || m.Due() != 8000 {
		t.Errorf("%d, %v, %v, due at %d", used, more, err, m.Due())
	}
	if _, fact := apply(t, m, tx, 9, &core.RecordingPut{Collection: "ws", ID: 3, Data: []byte("d")}); fact == nil {
		t.Error("a number was taken twice")
	}
}

// changesOf returns what happened to points since it was asked last.
func changesOf(m *search.Machine) (out []core.PointChange) {
	var list core.EventList
	m.Events(&list)
	for _, e := range list.All() {
		out = append(out, *e.(*core.PointChange))
	}
	return out
}

// A machine that is opened again goes on exactly as the one that wrote the rows, and an undone commit leaves no trace.
func TestUndoLeavesNoTraceAndAReopenedMachineGoesOn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, txA := begun(t, search.Options{MaxRecordings: 3})
		b, txB := begun(t, search.Options{MaxRecordings: 3})
		rev := uint64(2)
		_ = a.End(txA, nil)
		_ = b.End(txB, nil)
		changesOf(a)
		changesOf(b)
		for range rapid.IntRange(1, 12).Draw(t, "commits") {
			rev++
			ops := rapid.SliceOfN(rapid.Custom(drawOp), 1, 4).Draw(t, "ops")
			if rapid.Bool().Draw(t, "undone") {
				a.Mark()
				txA.Mark()
				for _, op := range ops {
					apply(t, a, txA, rev, op)
				}
				txA.Undo()
				a.Undo()
				if n := len(changesOf(a)); n > 0 {
					t.Fatalf("%d changes of an undone commit", n)
				}
				_ = a.End(txA, nil)
				continue
			}
			a.Mark()
			txA.Mark()
			for _, op := range ops {
				ra, fa := apply(t, a, txA, rev, op)
				rb, fb := apply(t, b, txB, rev, op)
				if !reflect.DeepEqual(ra, rb) || !reflect.DeepEqual(fa, fb) {
					t.Fatalf("%+v: %+v %v, the other %+v %v", op, ra, fa, rb, fb)
				}
			}
			txA.Keep()
			a.Keep()
			_ = a.End(txA, nil)
			_ = b.End(txB, nil)
			if !reflect.DeepEqual(changesOf(a), changesOf(b)) || a.Due() != b.Due() {
				t.Fatal("the changes differ")
			}
			if txA.Dump() != txB.Dump() {
				t.Fatalf("rows differ\n%s\n%s", txA.Dump(), txB.Dump())
			}
			if rapid.Bool().Draw(t, "reopened") {
				b = open(t, txB, search.Options{MaxRecordings: 3})
			}
		}
	})
}

func drawOp(t *rapid.T) core.Op {
	id := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "id")
	name := rapid.SampledFrom([]string{"ws", "ws", "xs"}).Draw(t, "name")
	switch rapid.IntRange(0, 6).Draw(t, "kind") {
	case 0, 1, 2:
		op := upsert(id, rapid.Byte().Draw(t, "x"), "")
		op.Collection = name
		op.HasVersion, op.IfVersion = rapid.Bool().Draw(t, "has"), uint64(rapid.IntRange(0, 9).Draw(t, "version"))
		return op
	case 3:
		return &core.VectorDelete{Collection: name, ID: id}
	case 4:
		if rapid.Bool().Draw(t, "drop") {
			return &core.CollectionDelete{Name: name}
		}
		return &core.CollectionSet{Collection: definition(name)}
	case 5:
		if rapid.Bool().Draw(t, "remove rules") {
			return &core.RulesetDelete{Name: name}
		}
		return &core.RulesetPut{Name: name, Rules: []byte(id)}
	}
	return &core.RecordingPut{Collection: name, ID: rapid.Uint64Range(1, 9).Draw(t, "recording"), TTL: 1000}
}

func TestGoldenRows(t *testing.T) {
	m, tx := begun(t, search.Options{})
	apply(t, m, tx, 300, upsert("a", 1, `{"x":1}`))
	apply(t, m, tx, 301, upsert("a", 2, `{"x":2}`))
	apply(t, m, tx, 302, &core.RulesetPut{Name: "r", Rules: []byte("[]")})
	apply(t, m, tx, 302, &core.RulesetPut{Name: "gone", Rules: []byte("[]")})
	apply(t, m, tx, 302, &core.RulesetDelete{Name: "gone"})
	apply(t, m, tx, 303, &core.RecordingPut{Collection: "ws", UID: 77, ID: 5, Data: []byte("{}")})
	_ = m.End(tx, nil)
	const path = "testdata/rows.golden"
	got := tx.Dump()
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
	isCorruption := func(err error) bool { _, ok := errors.AsType[*errs.Corruption](err); return ok }
	for name, key := range map[string][]byte{
		"counter": keys.Collection(part, ""), "definition": keys.Collection(part, "ws"), "counts": keys.CollectionCounts(part, 1),
		"numbers of rulesets": keys.Ruleset(part, "", 0), "order": keys.RecordingOrder(part, 1, 0), "recording": keys.Recording(part, 1, 5),
	} {
		m, tx := begun(t, search.Options{})
		apply(t, m, tx, 3, &core.RecordingPut{Collection: "ws", ID: 5, Data: []byte("{}")})
		apply(t, m, tx, 3, &core.RulesetPut{Name: "r", Rules: []byte("[]")})
		apply(t, m, tx, 3, &core.RulesetDelete{Name: "r"})
		_ = m.End(tx, nil)
		row, ok, _ := tx.Get(key)
		if !ok {
			t.Fatalf("%s: no row", name)
		}
		if name == "recording" {
			row = row[:1]
		}
		tx.Set(key, bytes.Clone(row[:len(row)-1]))
		if err := search.New(part, search.Options{}).Open(tx); !isCorruption(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	m, tx := begun(t, search.Options{})
	apply(t, m, tx, 3, upsert("a", 1, ""))
	tx.Set(keys.Point(part, 1, "a"), []byte{0x80})
	if _, _, err := m.Apply(tx, &core.ApplyContext{}, upsert("a", 1, "")); !isCorruption(err) {
		t.Errorf("point: %v", err)
	}
	if err := search.EachPoint(tx, part, 1, "", func(core.StoredPoint) bool { return true }); !isCorruption(err) {
		t.Errorf("scan: %v", err)
	}
}
