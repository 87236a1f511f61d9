package commit_test

import (
	"encoding/binary"
	"fmt"
	"os"
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
	return p.frameOf(core.SessionID{session}, seq, keys...)
}

func (p *puts) frameOf(session core.SessionID, seq uint64, keys ...string) core.Result {
	p.t.Helper()
	c := core.Commit{Partition: home, Session: session, Seq: seq}
	if len(keys) > 0 {
		op := &core.KVPuts{Keyspace: "ks"}
		for _, key := range keys {
			op.Items = append(op.Items, core.KVItem{Key: []byte(key), Value: fmt.Appendf(nil, "%d/%d", session[0], seq)})
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

// A partition has at most MaxSessions sessions: one more is refused, also after a restart, and no other session is lost.
// With MILLRACE_SESSIONS=1 that is the number that a server takes.
func TestSessionsArePlentyAndNoneIsLostForANewOne(t *testing.T) {
	o, most := commit.Options{MaxSessions: 500}, uint64(500)
	if os.Getenv("MILLRACE_SESSIONS") != "" {
		o, most = commit.Options{}, 100_000
	}
	p := newPuts(t, o)
	id := func(n uint64) (s core.SessionID) {
		binary.BigEndian.PutUint64(s[:], n+1) // zeros are not a session
		return s
	}
	answers := make([]core.Result, most)
	for n := range most {
		if answers[n] = p.frameOf(id(n), 1, "k"); answers[n].Refusal != nil {
			t.Fatalf("session %d: %+v", n+1, answers[n].Refusal)
		}
	}
	full := core.Fact(core.Exhausted{Limit: "sessions", Max: int64(most)})
	for _, restart := range []bool{false, true} {
		if restart {
			p.m = commit.New(o)
			if err := p.m.Open(p.tx); err != nil {
				t.Fatal(err)
			}
		}
		if r := p.frameOf(id(most), 1, "k"); r.Refusal == nil || r.Refusal.Fact != full {
			t.Fatalf("one more session: %+v", r)
		}
	}
	for n := range most {
		if r := p.frameOf(id(n), 1, "k"); !r.Replayed || r.Ops[0].Rev != answers[n].Ops[0].Rev {
			t.Fatalf("session %d is answered %+v again, was %+v", n+1, r, answers[n])
		}
		if r := p.frameOf(id(n), 2, "k"); r.Refusal != nil || r.Replayed {
			t.Fatalf("session %d: %+v", n+1, r)
		}
	}
	t.Logf("%d sessions, and one refused", most)
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
