package kv_test

import (
	"bytes"
	"errors"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/keys"
	"github.com/millrace/millrace/internal/machine/kv"
	"github.com/millrace/millrace/internal/machine/machinetest"
)

// ada and bob are attempts that write keys.
var (
	ada = core.TaskHold{Task: core.TaskID{1, 15: 7}, Token: 1 << 60}
	bob = core.TaskHold{Task: core.TaskID{2}, Token: 3}
)

// within applies an op of a commit that a test makes.
func within(t tester, m *kv.Machine, tx core.Txn, rev uint64, c *core.Commit, op core.Op) (core.OpResult, core.Fact) {
	t.Helper()
	c.Ops = append(c.Ops, op)
	r, fact, err := m.Apply(tx, &core.ApplyContext{Rev: rev, Format: core.FormatCurrent, Commit: c}, op)
	if err != nil {
		t.Fatalf("%+v: %v", op, err)
	}
	return r, fact
}

// fenced is a commit in mid-task.
func fenced(h core.TaskHold) *core.Commit { return &core.Commit{Fence: (*core.Fence)(&h)} }

// completing is a commit that ends an attempt.
func completing(h core.TaskHold) *core.Commit {
	return &core.Commit{Ops: []core.Op{&core.TaskComplete{Task: h.Task, Token: h.Token}}}
}

// keepWriters turns the setting of a keyspace on or off.
func keepWriters(t tester, m *kv.Machine, tx core.Txn, keyspace string, on bool) {
	t.Helper()
	set := &core.KeyspaceSet{Keyspace: keyspace, Config: core.KeyspaceConfig{Writers: on}, IfVersion: -1}
	if _, fact := within(t, m, tx, 1, &core.Commit{}, set); fact != nil {
		t.Fatal(fact)
	}
}

// writerOf reads who wrote a key in every way that there is, which must agree.
func writerOf(t tester, tx core.View, keyspace, key string) core.TaskHold {
	t.Helper()
	one, err := kv.Read(tx, part, keyspace, []byte(key))
	if err != nil || one.Rev == 0 {
		t.Fatalf("%s: %+v, %v", key, one, err)
	}
	many, err := kv.GetEach(tx, part, keyspace, [][]byte{[]byte(key)}, 1<<20)
	if err != nil || len(many) != 1 || !reflect.DeepEqual(many[0], one) {
		t.Fatalf("%s among several: %+v, alone %+v; %v", key, many, one, err)
	}
	listed, err := kv.Scan(tx, part, keyspace, []byte(key), 1)
	if err != nil || len(listed) != 1 || !reflect.DeepEqual(core.KeyRead{Value: listed[0].Value, Rev: listed[0].Rev, Writer: listed[0].Writer}, one) {
		t.Fatalf("%s in a list: %+v, alone %+v; %v", key, listed, one, err)
	}
	_, from, _, err := kv.RangeOf(tx, part, core.KeyRange{Keyspace: keyspace, From: []byte(key)})
	if err != nil {
		t.Fatal(err)
	}
	row, _, err := tx.Get(from)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := kv.PairOf(from, row)
	if err != nil || !reflect.DeepEqual(core.KeyRead{Value: pair.Value, Rev: pair.Rev, Writer: pair.Writer}, core.KeyRead{Value: one.Value, Rev: one.Rev, Writer: one.Writer}) {
		t.Fatalf("%s in a range: %+v, alone %+v; %v", key, pair, one, err)
	}
	if one.Writer == nil {
		return core.TaskHold{}
	}
	return *one.Writer
}

func TestAKeyKeepsTheAttemptThatWroteItLast(t *testing.T) {
	tx := machinetest.NewTxn()
	m := open(t, tx)
	within(t, m, tx, 1, completing(ada), put("ks", "early", "v"))
	keepWriters(t, m, tx, "ks", true)
	failing := &core.Commit{Ops: []core.Op{&core.TaskFail{Task: bob.Task, Token: bob.Token}}}
	both := completing(ada)
	both.Fence = (*core.Fence)(&bob)
	several := completing(bob)
	several.Ops = append(several.Ops, completing(ada).Ops...)
	// A put may stand before the op that ends the attempt.
	before := &core.Commit{}
	before.Ops = append(before.Ops, put("ks", "first", "v"))
	before.Ops = append(before.Ops, completing(ada).Ops...)
	items := &core.KVPuts{Keyspace: "ks", Items: []core.KVItem{item("one", "v"), item("two", "v")}}
	for _, c := range []struct {
		name, key string
		commit    *core.Commit
		op        core.Op
		want      core.TaskHold
	}{
		{"before the setting", "early", nil, nil, core.TaskHold{}},
		{"an effect of a completion", "a", completing(ada), put("ks", "a", "v"), ada},
		{"an addition as an effect", "n", completing(ada), &core.KVAdd{Keyspace: "ks", Key: []byte("n"), Delta: 1}, ada},
		{"an effect of a failure", "f", failing, put("ks", "f", "v"), bob},
		{"in mid-task", "m", fenced(bob), put("ks", "m", "v"), bob},
		{"an addition in mid-task", "n", fenced(bob), &core.KVAdd{Keyspace: "ks", Key: []byte("n"), Delta: 1}, bob},
		{"a completion under a fence", "b", both, put("ks", "b", "v"), ada},
		{"several completions", "s", several, put("ks", "s", "v"), bob},
		{"before the completion", "first", before, put("ks", "first", "v"), ada},
		{"a batch in mid-task", "two", fenced(ada), items, ada},
		{"over another attempt's", "a", fenced(bob), put("ks", "a", "v"), bob},
		{"from outside", "a", &core.Commit{}, put("ks", "a", "v"), core.TaskHold{}},
		{"an addition from outside", "n", &core.Commit{}, &core.KVAdd{Keyspace: "ks", Key: []byte("n"), Delta: 1}, core.TaskHold{}},
		{"a batch from outside", "two", &core.Commit{}, items, core.TaskHold{}},
		{"timed work", "m", nil, put("ks", "m", "v"), core.TaskHold{}},
	} {
		if c.op != nil {
			ctx := &core.ApplyContext{Rev: 5, Format: core.FormatCurrent, Commit: c.commit}
			if _, fact, err := m.Apply(tx, ctx, c.op); fact != nil || err != nil {
				t.Fatalf("%s: %v, %v", c.name, fact, err)
			}
		}
		if got := writerOf(t, tx, "ks", c.key); got != c.want {
			t.Errorf("%s: written by %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestAKeyThatIsMadeAgainHasNoWriterOfBefore(t *testing.T) {
	tx := machinetest.NewTxn()
	m := open(t, tx)
	keepWriters(t, m, tx, "ks", true)
	for name, remove := range map[string]core.Op{
		"a delete": &core.KVDelete{Keyspace: "ks", Key: []byte("k")},
		"a range":  &core.KVDeleteRange{Keyspace: "ks", Prefix: []byte("k"), Count: true},
	} {
		within(t, m, tx, 2, completing(ada), put("ks", "k", "v"))
		within(t, m, tx, 3, fenced(bob), remove)
		if got, err := kv.Read(tx, part, "ks", []byte("k")); err != nil || !reflect.DeepEqual(got, core.KeyRead{}) {
			t.Errorf("%s: left %+v, %v", name, got, err)
		}
		within(t, m, tx, 4, &core.Commit{}, put("ks", "k", "v"))
		if got := writerOf(t, tx, "ks", "k"); got != (core.TaskHold{}) {
			t.Errorf("%s, and a put from outside: written by %+v", name, got)
		}
	}
	within(t, m, tx, 5, completing(ada), put("ks", "k", "v"))
	within(t, m, tx, 6, &core.Commit{}, &core.KeyspaceDelete{Keyspace: "ks"})
	within(t, m, tx, 7, completing(bob), put("ks", "k", "v"))
	if got := writerOf(t, tx, "ks", "k"); got != (core.TaskHold{}) {
		t.Errorf("in a keyspace that was made again, without the setting: written by %+v", got)
	}
}

func TestAKeyspaceThatKeepsWritersNoMoreTellsOfLastWritesAlone(t *testing.T) {
	tx := machinetest.NewTxn()
	m := open(t, tx)
	keepWriters(t, m, tx, "ks", true)
	within(t, m, tx, 2, completing(ada), put("ks", "left", "v"))
	within(t, m, tx, 3, completing(ada), put("ks", "again", "v"))
	keepWriters(t, m, tx, "ks", false)
	m = open(t, tx) // as after a restart
	within(t, m, tx, 4, completing(bob), put("ks", "again", "w"))
	if got := writerOf(t, tx, "ks", "again"); got != (core.TaskHold{}) {
		t.Errorf("written since: by %+v", got)
	}
	if got := writerOf(t, tx, "ks", "left"); got != ada {
		t.Errorf("not written since: by %+v", got)
	}
	keepWriters(t, m, tx, "ks", true)
	m = open(t, tx)
	within(t, m, tx, 5, completing(bob), put("ks", "again", "w"))
	if got := writerOf(t, tx, "ks", "again"); got != bob {
		t.Errorf("written under the setting that was given again: by %+v", got)
	}
}

// What a put of an attempt stores is judged as any other: its conditions, its value before, and what is added to it.
func TestAWriterIsNoPartOfTheValue(t *testing.T) {
	tx := machinetest.NewTxn()
	m := open(t, tx)
	keepWriters(t, m, tx, "ks", true)
	bytesBefore := m.Put()
	within(t, m, tx, 7, completing(ada), put("ks", "n", "41"))
	if got := m.Put() - bytesBefore; got != 3 {
		t.Errorf("a key of 1 byte and a value of 2 count as %d bytes put", got)
	}
	check := &core.KVCheck{Keyspace: "ks", Key: []byte("n"), Target: core.TargetValue, Compare: core.CompareEqual, Value: []byte("41")}
	if fact, err := m.Check(tx, check); fact != nil || err != nil {
		t.Errorf("the value: %v, %v", fact, err)
	}
	_, fact := within(t, m, tx, 8, completing(bob), &core.KVPut{Keyspace: "ks", Key: []byte("n"), IfAbsent: true})
	if want := (core.RevMismatch{Rev: 7, Value: []byte("41"), Keyspace: "ks", Key: []byte("n")}); !reflect.DeepEqual(fact, want) {
		t.Errorf("a refusal says %+v, want %+v", fact, want)
	}
	if got := writerOf(t, tx, "ks", "n"); got != ada {
		t.Errorf("after a refused put: written by %+v", got)
	}
	r, fact := within(t, m, tx, 9, completing(bob), &core.KVAdd{Keyspace: "ks", Key: []byte("n"), Delta: 1, HasRev: true, IfRev: 7})
	if fact != nil || r.KV.Number != 42 || r.Rev != 9 {
		t.Errorf("added: %+v, %v", r, fact)
	}
	if r, fact = within(t, m, tx, 10, &core.Commit{}, &core.KVPut{Keyspace: "ks", Key: []byte("n"), WantPrev: true}); fact != nil || string(r.Prev) != "42" {
		t.Errorf("the value before: %q, %v", r.Prev, fact)
	}
}

func TestWritersAreOfTheirFormat(t *testing.T) {
	tx := machinetest.NewTxn()
	m := open(t, tx)
	set := &core.KeyspaceSet{Keyspace: "ks", Config: core.KeyspaceConfig{Writers: true}, IfVersion: -1}
	_, fact, err := m.Apply(tx, &core.ApplyContext{Rev: 1, Format: core.FormatShare - 1}, set)
	if f, ok := fact.(core.Invalid); !ok || err != nil || f.Field != "config.writers" || f.Reason != "not_supported" {
		t.Errorf("in an entry before the format: %v, %v", fact, err)
	}
	if _, known, err := kv.Space(tx, part, "ks"); known || err != nil {
		t.Errorf("a refused op made the keyspace: %v, %v", known, err)
	}
	if _, fact, err := m.Apply(tx, &core.ApplyContext{Rev: 1, Format: core.FormatShare}, set); fact != nil || err != nil {
		t.Errorf("in an entry of the format: %v, %v", fact, err)
	}
	info, _, err := kv.Space(tx, part, "ks")
	if !info.Config.Writers || info.Config.Version != 1 || err != nil {
		t.Errorf("configured as %+v, %v", info.Config, err)
	}
	if m.Bounded() != nil {
		t.Error("a keyspace that keeps writers counts as bounded")
	}
}

// Keyspaces without the setting have the rows and the allocations that they had before there was one; one with it has as many.
func TestAWriterCostsItsBytesAlone(t *testing.T) {
	tx := machinetest.NewTxn()
	m := open(t, tx)
	keepWriters(t, m, tx, "with", true)
	within(t, m, tx, 300, completing(ada), put("with", "k", "v"))
	within(t, m, tx, 300, completing(ada), put("without", "k", "v"))
	with, _, _ := tx.Get(keys.KV(part, 1, []byte("k")))
	without, _, _ := tx.Get(keys.KV(part, 2, []byte("k")))
	if want := []byte("\xac\x02v"); !bytes.Equal(without, want) {
		t.Errorf("without the setting the row is %x, want %x", without, want)
	}
	if len(with) != len(without)+26 || !bytes.HasSuffix(with, without) {
		t.Errorf("with a writer the row is %x, without it %x", with, without)
	}
	var sink discard
	allocs := func(keyspace string) (single, batch float64) {
		c := &core.ApplyContext{Rev: 300, Format: core.FormatCurrent, Commit: completing(ada)}
		op := put(keyspace, "k", "value")
		items := &core.KVPuts{Keyspace: keyspace, Items: []core.KVItem{item("a", "v"), item("b", "v")}}
		apply := func(op core.Op) func() {
			return func() {
				if _, fact, err := m.Apply(sink, c, op); fact != nil || err != nil {
					t.Fatal(fact, err)
				}
			}
		}
		return testing.AllocsPerRun(100, apply(op)), testing.AllocsPerRun(100, apply(items))
	}
	single, batch := allocs("without")
	if s, b := allocs("with"); single > 3 || batch > 3 || s != single || b != batch {
		t.Errorf("a put allocates %v times and a batch of two %v; with a writer %v and %v", single, batch, s, b)
	}
}

// discard is a transaction that keeps nothing: puts without a condition read nothing.
type discard struct{ core.Txn }

func (discard) Set(_, _ []byte) {}

func TestDamagedHeadsOfRowsAreCorruption(t *testing.T) {
	tx := machinetest.NewTxn()
	m := open(t, tx)
	keepWriters(t, m, tx, "ks", true)
	within(t, m, tx, 7, completing(ada), put("ks", "k", "v"))
	at := keys.KV(part, 1, []byte("k"))
	row, _, _ := tx.Get(at)
	row = bytes.Clone(row)
	other := bytes.Clone(row)
	other[1] = 2
	for name, bad := range map[string][]byte{
		"empty": {}, "a head alone": row[:26], "a cut head": row[:25], "a zero": {0}, "another head": other, "revision 0": append(bytes.Clone(row[:26]), 0, 'v'),
		"two heads": append(bytes.Clone(row[:26]), row...),
	} {
		tx.Set(bytes.Clone(at), bytes.Clone(bad))
		var corrupt *errs.Corruption
		if _, err := kv.Read(tx, part, "ks", []byte("k")); !errors.As(err, &corrupt) {
			t.Errorf("%s: a read: %v", name, err)
		}
		if _, err := kv.PairOf(at, bad); !errors.As(err, &corrupt) {
			t.Errorf("%s: a range: %v", name, err)
		}
		if _, err := kv.Scan(tx, part, "ks", nil, 9); !errors.As(err, &corrupt) {
			t.Errorf("%s: a list: %v", name, err)
		}
		if _, _, err := m.Apply(tx, &core.ApplyContext{Rev: 9}, &core.KVAdd{Keyspace: "ks", Key: []byte("k")}); !errors.As(err, &corrupt) {
			t.Errorf("%s: an addition: %v", name, err)
		}
	}
}

func TestRowsWithAndWithoutWritersReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tx := machinetest.NewTxn()
		m := open(t, tx)
		on := rapid.Bool().Draw(t, "keeps writers")
		if on {
			keepWriters(t, m, tx, "ks", true)
		}
		var by core.TaskHold
		copy(by.Task[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "task"))
		by.Token = core.Token(rapid.Uint64().Draw(t, "token"))
		c := &core.Commit{}
		outside := rapid.Bool().Draw(t, "from outside")
		if !outside {
			c = fenced(by)
		}
		value, rev := rapid.SliceOf(rapid.Byte()).Draw(t, "value"), rapid.Uint64Min(1).Draw(t, "revision")
		within(t, m, tx, rev, c, &core.KVPut{Keyspace: "ks", Key: []byte("k"), Value: bytes.Clone(value)})
		want := core.TaskHold{}
		if on && !outside {
			want = by
		}
		got, err := kv.Read(tx, part, "ks", []byte("k"))
		if err != nil || got.Rev != rev || !bytes.Equal(got.Value, value) {
			t.Fatalf("put %x at %d, read %+v, %v", value, rev, got, err)
		}
		if by := writerOf(t, tx, "ks", "k"); by != want {
			t.Fatalf("written by %+v, read %+v", want, by)
		}
	})
}
