package commit_test

import (
	"fmt"
	"testing"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/machine/commit"
	"github.com/millrace/millrace/internal/machine/kv"
	"github.com/millrace/millrace/internal/machine/machinetest"
)

// puts are frames of a shard's machine, one entry each.
type puts struct {
	t     *testing.T
	m     *commit.Machine
	tx    *machinetest.Txn
	index uint64
	stamp core.ShardTime
}

func newPuts(t *testing.T, o commit.Options) *puts {
	p := &puts{t: t, m: commit.New(o), tx: machinetest.NewTxn(), stamp: epoch}
	if err := p.m.Open(p.tx); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *puts) apply(c core.Commit) core.Result {
	p.t.Helper()
	p.index++
	a, err := p.m.Apply(p.tx, p.index, &core.Entry{Format: 1, Stamp: p.stamp, Commits: []core.Commit{c}})
	if err != nil {
		p.t.Fatal(err)
	}
	return a.Results[0]
}

func (p *puts) frame(session byte, seq uint64, keys ...string) core.Result {
	p.t.Helper()
	c := core.Commit{Partition: home, Session: core.SessionID{session}, Seq: seq}
	if len(keys) > 0 {
		op := &core.KVPuts{Keyspace: "ks"}
		for _, key := range keys {
			op.Items = append(op.Items, core.KVItem{Key: []byte(key), Value: fmt.Appendf(nil, "%d/%d", session, seq)})
		}
		c.Ops = []core.Op{op}
	}
	return p.apply(c)
}

func TestFramesOfPutsAreAppliedOnceWithARevisionPerItem(t *testing.T) {
	p := newPuts(t, commit.Options{})
	if r := p.frame(1, 1, "a", "b", "a"); r.Refusal != nil || r.Ops[0].Rev != 1 {
		t.Fatalf("%+v", r)
	}
	if r := p.frame(1, 2); r.Refusal != nil || len(r.Ops) != 0 { // a number that the edge used up
		t.Errorf("an empty frame: %+v", r)
	}
	if r := p.frame(1, 3, "c"); r.Ops[0].Rev != 4 {
		t.Errorf("%+v", r)
	}
	p.frame(2, 1, "a")
	if r := p.frame(1, 1, "a", "b", "a"); !r.Replayed || r.Ops[0].Rev != 1 || r.Index != 1 {
		t.Errorf("again: %+v", r)
	}
	if v, rev, _, _ := kv.Get(p.tx, home, "ks", []byte("a")); string(v) != "2/1" || rev != 5 {
		t.Errorf("a frame that came again wrote over a newer value: %q at %d", v, rev)
	}
	if r := p.frame(1, 5, "a"); r.Refusal == nil {
		t.Errorf("a gap: %+v", r)
	}
}

func TestABatchOfPutsStandsAlone(t *testing.T) {
	p := newPuts(t, commit.Options{})
	batch := &core.KVPuts{Keyspace: "ks", Items: []core.KVItem{{Key: []byte("a")}}}
	r := p.apply(core.Commit{Partition: home, Ops: []core.Op{&core.KVPut{Keyspace: "ks", Key: []byte("b")}, batch}})
	if f, ok := r.Refusal.Fact.(core.Invalid); !ok || f.Reason != "not_alone" || r.Refusal.Op != 1 {
		t.Errorf("%+v", r.Refusal)
	}
}

func TestSessionsArePlentyAndNoneIsLostForANewOne(t *testing.T) {
	p := newPuts(t, commit.Options{MaxSessions: 3})
	for s := byte(1); s <= 3; s++ {
		p.frame(s, 1, "k")
	}
	if r := p.frame(4, 1, "k"); r.Refusal == nil || r.Refusal.Fact != core.Fact(core.Exhausted{Limit: "sessions", Max: 3}) {
		t.Errorf("one more session: %+v", r)
	}
	for s := byte(1); s <= 3; s++ {
		if r := p.frame(s, 2, "k"); r.Refusal != nil {
			t.Errorf("session %d: %+v", s, r.Refusal)
		}
	}
}

func TestASessionIsForgottenTenMinutesAfterItsLastFrame(t *testing.T) {
	p := newPuts(t, commit.Options{})
	tick := func() { p.apply(core.Commit{Ops: []core.Op{&core.Tick{Max: 100}}}) }
	p.frame(1, 1, "k")
	p.stamp += 10*60*1000 - 1
	tick()
	if r := p.frame(1, 2, "k"); r.Refusal != nil {
		t.Errorf("within ten minutes: %+v", r.Refusal)
	}
	p.stamp += 10*60*1000 + 1000
	tick()
	if r := p.frame(1, 3, "k"); r.Refusal == nil || r.Refusal.Fact != core.Fact(core.SessionExpired{}) {
		t.Errorf("after ten minutes and a second: %+v", r)
	}
	if _, rev, _, _ := kv.Get(p.tx, home, "ks", []byte("k")); rev != 2 {
		t.Errorf("a frame of a forgotten session was applied: revision %d", rev)
	}
}
