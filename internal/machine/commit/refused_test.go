package commit_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/machine/commit"
	"github.com/millrace/millrace/internal/machine/kv"
)

func mustWorld(t *testing.T) *world {
	t.Helper()
	w, err := newWorld(commit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// apply applies an entry that a script would write, one commit or more.
func apply(t *testing.T, w *world, script string) []core.Result {
	t.Helper()
	a, err := w.pair.Apply(w.parseCommits(script)...)
	if err != nil {
		t.Fatalf("%s: %v", script, err)
	}
	return a.Results
}

// falseOps are ops that are refused in the state that prepare makes, with the fact they are refused with.
func falseOps() map[string]core.Fact {
	a := core.RevMismatch{Rev: 1, Value: []byte("1"), Keyspace: "ks", Key: []byte("a")}
	b := core.RevMismatch{Missing: true, Keyspace: "ks", Key: []byte("b")}
	long := strings.Repeat("k", kv.MaxKey+1)
	return map[string]core.Fact{
		"put ks a 2 if_absent":                      a,
		"put ks a 2 if_rev=0":                       a,
		"put ks a 2 if_rev=7":                       a,
		"put ks b 2 if_rev=1":                       b,
		"put ks " + long + " 2":                     core.TooLarge{Field: "key", Limit: "key_bytes", Max: kv.MaxKey},
		"put ks":                                    core.Invalid{Field: "key", Reason: "empty", Message: "a key has at least one byte"},
		"put bad:name a 2":                          core.Invalid{Field: "keyspace", Reason: "bad_name", Message: "not a name of a keyspace"},
		"delete ks a if_rev=7":                      a,
		"delete ks b if_rev=7":                      b,
		"check ks a absent":                         a,
		"check ks b exists":                         b,
		"check ks a rev=2":                          a,
		"check ks a value=2":                        a,
		"create t1 queue=q payload=other":           core.AlreadyExists{Kind: "task", ID: taskID("t1").String()},
		"create t9 queue=q unique=u reject":         core.AlreadyExists{Kind: "unique", ID: "u"},
		"complete t1 token=9":                       core.LeaseLost{Task: taskID("t1"), Given: 9},
		"complete t3 token=1":                       core.LeaseLost{Task: taskID("t3"), Given: 1},
		"complete t8 token=1":                       core.NotFound{Kind: "task", ID: taskID("t8").String()},
		"fail t1 token=9":                           core.LeaseLost{Task: taskID("t1"), Given: 9},
		"snooze t1 token=9 delay=1s":                core.LeaseLost{Task: taskID("t1"), Given: 9},
		"release t1 token=9":                        core.LeaseLost{Task: taskID("t1"), Given: 9},
		"delete_task t1":                            core.WrongState{Task: taskID("t1"), State: core.Running},
		"run_now t1":                                core.WrongState{Task: taskID("t1"), State: core.Running},
		"namespace_set retain_bytes=-1":             core.Invalid{Field: "config.retain_bytes", Reason: "negative", Message: "a bound is not negative"},
		"namespace_set no_auto_create if_version=7": core.RevMismatch{Missing: true},
	}
}

func prepare(t *testing.T) *world {
	w := mustWorld(t)
	apply(t, w, "put ks a 1\nput ks c 1\ncreate t1 queue=q\ncreate t2 queue=q\ncreate t3 queue=q unique=u\ngrant queue=q n=2")
	return w
}

// fillers are ops that succeed after prepare, each changing something of its own.
var fillers = []string{"put fresh x 1", "create t5 queue=newq", "complete t2 token=2", "delete ks c"}

func TestARefusedOpUndoesTheWholeCommit(t *testing.T) {
	for op, want := range falseOps() {
		for at := range len(fillers) + 1 {
			ops := append(append(append([]string{}, fillers[:at]...), op), fillers[at:]...)
			w := prepare(t)
			before := withoutClock(w.pair.TxA.Dump())
			r := apply(t, w, strings.Join(ops, "\n"))[0]
			if r.Refusal == nil || r.Refusal.Op != at || !reflect.DeepEqual(r.Refusal.Fact, want) || r.Ops != nil {
				t.Errorf("%q at %d: %+v, want it refused with %T %v", cut(op), at, r.Refusal, want, want)
			}
			if withoutClock(w.pair.TxA.Dump()) != before {
				t.Errorf("%q at %d: a refused commit left changes", cut(op), at)
			}
			// The machine that undid goes on as one that never saw the commit, held by the pair's second replica.
			if err := w.pair.Reopen(); err != nil {
				t.Fatal(err)
			}
			if r := apply(t, w, strings.Join(fillers, "\n"))[0]; r.Refusal != nil {
				t.Errorf("after %q at %d: %+v", cut(op), at, r.Refusal)
			}
		}
	}
}

func cut(s string) string { return s[:min(len(s), 40)] }

func TestARefusedConditionUndoesTheWholeCommit(t *testing.T) {
	for op, want := range falseOps() {
		if !strings.HasPrefix(op, "check") {
			continue
		}
		for at := range 5 {
			lines := make([]string, 5)
			for i := range lines {
				lines[i] = fmt.Sprintf("if check ks none%d absent", i)
			}
			lines[at] = "if " + op
			w := prepare(t)
			before := withoutClock(w.pair.TxA.Dump())
			r := apply(t, w, strings.Join(append(lines, fillers...), "\n"))[0]
			if r.Refusal == nil || r.Refusal.Op != core.ConditionOp-at || !reflect.DeepEqual(r.Refusal.Fact, want) {
				t.Errorf("condition %q at %d: %+v, want it refused with %v", op, at, r.Refusal, want)
			}
			if withoutClock(w.pair.TxA.Dump()) != before {
				t.Errorf("condition %q at %d: a refused commit left changes", op, at)
			}
		}
	}
}

func TestOpsOfACommitMeetTheLimitExactly(t *testing.T) {
	w := mustWorld(t)
	c := core.Commit{Partition: home, Conditions: []*core.KVCheck{{Keyspace: "ks", Key: []byte("z"), Compare: core.CompareAbsent}}}
	for i := range core.MaxCommitOps - 1 {
		c.Ops = append(c.Ops, &core.KVPut{Keyspace: "ks", Key: fmt.Appendf(nil, "k%d", i)})
	}
	a, err := w.pair.Apply(c)
	if err != nil || a.Results[0].Refusal != nil {
		t.Fatalf("%d ops and conditions: %+v, %v", core.MaxCommitOps, a.Results, err)
	}
	c.Ops = append(c.Ops, &core.KVPut{Keyspace: "ks", Key: []byte("one more")})
	a, err = w.pair.Apply(c)
	want := core.TooLarge{Field: "ops", Limit: "commit_ops", Max: core.MaxCommitOps}
	if err != nil || a.Results[0].Refusal == nil || a.Results[0].Refusal.Fact != core.Fact(want) || a.Results[0].Refusal.Op != core.CommitOp {
		t.Errorf("one more: %+v, %v", a.Results[0].Refusal, err)
	}
	c.Ops = c.Ops[:100]
	c.Ops[99] = &core.KVPut{Keyspace: "ks", Key: []byte("k41")}
	a, err = w.pair.Apply(c)
	if err != nil || a.Results[0].Refusal == nil || a.Results[0].Refusal.Op != 99 {
		t.Errorf("a key twice among many: %+v, %v", a.Results[0].Refusal, err)
	}
}

func TestForeignIDsLookUnknown(t *testing.T) {
	w := prepare(t)
	w.part = core.Partition{Tenant: 2, Namespace: 1}
	for _, op := range []string{"complete t1 token=1", "fail t1 token=1", "delete_task t1", "run_now t1"} {
		unknown := apply(t, w, strings.ReplaceAll(op, "t1", "t8"))[0]
		foreign := apply(t, w, op)[0]
		want := strings.ReplaceAll(fmt.Sprint(unknown.Refusal), taskID("t8").String(), taskID("t1").String())
		if got := fmt.Sprint(foreign.Refusal); reflect.TypeOf(unknown.Refusal.Fact) != reflect.TypeOf(foreign.Refusal.Fact) || len(got) != len(want) {
			t.Errorf("%s: foreign %v, unknown %v", op, foreign.Refusal, unknown.Refusal)
		}
	}
	if r := apply(t, w, "commit fence=t1/1\nput ks a 2")[0]; r.Refusal == nil || r.Refusal.Op != core.FenceOp {
		t.Errorf("a fence of another tenant's lease: %+v", r)
	}
	if r := apply(t, w, "check ks a exists")[0]; r.Refusal == nil {
		t.Error("another tenant's key is seen")
	}
}

func TestAnEntryThatMakesNoSenseStopsTheShard(t *testing.T) {
	corrupt := func(name string, e *core.Entry) {
		w := prepare(t)
		_, err := w.machine().Apply(w.pair.TxA, 99, e)
		var c *errs.Corruption
		if !errors.As(err, &c) {
			t.Errorf("%s: %v", name, err)
		}
	}
	corrupt("stamp falls", &core.Entry{Format: 1, Stamp: epoch - 1})
	corrupt("format 0", &core.Entry{Stamp: epoch})
	corrupt("newer format", &core.Entry{Format: core.FormatCurrent + 1, Stamp: epoch})
	corrupt("unknown op", &core.Entry{Format: 1, Stamp: epoch, Commits: []core.Commit{{Partition: home, Ops: []core.Op{reserved{}}}}})
}

// reserved is an op that this build does not know.
type reserved struct{}

func (reserved) Kind() core.OpKind { return core.OpRefCreate }

func TestOpenFindsAllPartitionsBySeeks(t *testing.T) {
	w := mustWorld(t)
	var want []core.Partition
	for tenant := range core.TenantID(3) {
		for index := range uint16(3) {
			w.part = core.Partition{Tenant: tenant + 1, Namespace: 7, Index: index}
			want = append(want, w.part)
			for i := 1; i <= 50; i++ {
				apply(t, w, fmt.Sprintf("put ks k%d 1\ncreate t%d@%d queue=q", i, i, index))
			}
		}
	}
	m := commit.New(commit.Options{})
	w.pair.TxA.ResetCounts()
	if err := m.Open(w.pair.TxA); err != nil {
		t.Fatal(err)
	}
	want = append([]core.Partition{{}}, want...) // the shard's own
	if got := m.Partitions(); !reflect.DeepEqual(got, want) {
		t.Errorf("partitions %v, want %v", got, want)
	}
	if c := w.pair.TxA.Counts(); c.Scanned > 10*len(want) {
		t.Errorf("open of %d partitions of 100 rows each read %d rows", len(want), c.Scanned)
	}
	if m.LastStamp() != epoch {
		t.Errorf("last stamp %d", m.LastStamp())
	}
	for _, p := range want[1:] {
		if q := m.Queue(p); q == nil || q.ReadyCount("q") != 50 {
			t.Errorf("queue of %s: %v", p, q)
		}
	}
	if m.Queue(core.Partition{Tenant: 9}) != nil {
		t.Error("a partition that never was has a queue")
	}
}

func TestSessionKeepsItsLast64Answers(t *testing.T) {
	w := mustWorld(t)
	put := func(seq int) core.Result {
		return apply(t, w, fmt.Sprintf("commit session=s seq=%d\nput ks k v%d", seq, seq))[0]
	}
	for seq := 1; seq <= 200; seq++ {
		if r := put(seq); r.Refusal != nil || r.Replayed {
			t.Fatalf("frame %d: %+v", seq, r)
		}
	}
	if err := w.pair.Restart(); err != nil {
		t.Fatal(err)
	}
	for seq := 137; seq <= 200; seq++ {
		if r := put(seq); !r.Replayed || r.Index != uint64(seq) || r.Ops[0].Rev != uint64(seq) {
			t.Errorf("frame %d again: %+v", seq, r)
		}
	}
	for _, seq := range []int{1, 136} {
		if r := put(seq); r.Refusal == nil || r.Refusal.Fact != core.Fact(core.SessionExpired{}) {
			t.Errorf("frame %d again: %+v", seq, r)
		}
	}
	got, err := commit.AppliedSeq(w.pair.TxA, home, sessionID("s"))
	if got != 200 || err != nil {
		t.Errorf("applied seq %d, %v", got, err)
	}
	if got, err := commit.AppliedSeq(w.pair.TxA, home, sessionID("none")); got != 0 || err != nil {
		t.Errorf("applied seq of no session %d, %v", got, err)
	}
	value, rev, _, err := kv.Get(w.pair.TxA, home, "ks", []byte("k"))
	if string(value) != "v200" || rev != 200 || err != nil {
		t.Errorf("repeated frames overwrote the key: %q, %d, %v", value, rev, err)
	}
}
