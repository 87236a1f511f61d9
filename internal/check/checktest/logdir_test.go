package checktest

import (
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/millrace/millrace/internal/check"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/machine/commit"
	"github.com/millrace/millrace/internal/replog/replogtest"
	"github.com/millrace/millrace/internal/replog/wal"
	"github.com/millrace/millrace/internal/store"
)

// server writes a data directory as a node does: entries to a log of small segments, which are archived, and what they
// lead to into a store.
type server struct {
	t             *testing.T
	data, archive string
	log           *wal.Log
	store         *store.Store
	shard         *store.Shard
	machine       *commit.Machine
	index         uint64
	world         *world
	stamp         core.ShardTime
}

func newServer(t *testing.T, seed uint64) *server {
	t.Helper()
	s := &server{t: t, data: t.TempDir(), archive: t.TempDir(), stamp: 1_000_000, machine: commit.New(commit.Options{})}
	s.world = newWorld(rand.New(rand.NewPCG(seed, 1)))
	var err error
	if s.log, err = wal.Open(wal.Options{
		FS: replogtest.System(), Dir: filepath.Join(s.data, "wal"), ArchiveDir: s.archive, SegmentBytes: 16 << 10, Manual: true,
	}); err != nil {
		t.Fatal(err)
	}
	if s.store, err = store.Open(store.Options{FS: store.SystemFS(), Dir: filepath.Join(s.data, "store"), Manual: true}); err != nil {
		t.Fatal(err)
	}
	if s.shard, err = s.store.Shard(0); err != nil {
		t.Fatal(err)
	}
	if err := s.shard.View(s.machine.Open); err != nil {
		t.Fatal(err)
	}
	return s
}

// entry logs some commits and applies them, as spoil changes them.
func (s *server) entry(spoil func(*core.Commit), commits ...core.Commit) []core.Result {
	s.t.Helper()
	s.index++
	s.stamp = s.stamp.Add(s.world.pause())
	e := &core.Entry{Format: core.FormatCurrent, Stamp: s.stamp, Proposer: 1, Seq: s.index, Commits: commits}
	data := core.AppendEntry(nil, e)
	done := false
	if err := s.log.Append(wal.Batch{
		Entries: []wal.Entry{{Index: s.index, Term: 1, Data: data}}, Done: func(err error) { done = err == nil },
	}); err != nil {
		s.t.Fatal(err)
	}
	s.log.Step()
	decoded, err := core.DecodeEntry(core.AppendEntry(nil, e))
	if err != nil || !done {
		s.t.Fatalf("entry %d: durable %v, %v", s.index, done, err)
	}
	if spoil != nil {
		spoil(&decoded.Commits[0])
	}
	var applied core.Applied
	err = s.shard.Apply(s.index, func(tx *store.Txn) (err error) {
		applied, err = s.machine.Apply(tx, s.index, decoded)
		for i := range applied.Results {
			tx.Fold(core.AppendResult(nil, &applied.Results[i]))
		}
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
	for i := range applied.Results {
		s.world.saw(&decoded.Commits[i], &applied.Results[i])
	}
	if s.index%100 == 0 { // the log is cut, so that segments are archived and used again
		if err := s.log.Cut(0, s.index-20); err != nil {
			s.t.Fatal(err)
		}
	}
	return applied.Results
}

func (s *server) run(entries int) {
	s.t.Helper()
	for range entries {
		s.entry(nil, s.world.commit(s.stamp), s.world.commit(s.stamp))
	}
}

func (s *server) stop() (log []LogEntry) {
	s.t.Helper()
	if err := s.log.Close(); err != nil {
		s.t.Fatal(err)
	}
	if err := s.store.Close(); err != nil {
		s.t.Fatal(err)
	}
	log, err := ReadLog(0, s.archive, filepath.Join(s.data, "wal"))
	if err != nil {
		s.t.Fatal(err)
	}
	return log
}

func put(key string) core.Commit {
	return core.Commit{
		Partition: core.Partition{Tenant: 1, Namespace: 1},
		Ops:       []core.Op{&core.KVPut{Keyspace: "a", Key: []byte(key), Value: []byte("v")}},
	}
}

func replayed(t *testing.T, s *server, calls ...check.Call) (*Replay, *check.Report) {
	t.Helper()
	r, err := ReplayCalls(s.stop(), calls)
	if err != nil {
		t.Fatal(err)
	}
	stored, err := r.AuditStore(s.data)
	if err != nil {
		t.Fatal(err)
	}
	return r, stored
}

func TestAnArchiveAndTheLogReplayToWhatIsStored(t *testing.T) {
	s := newServer(t, 1)
	s.run(600)
	r, stored := replayed(t, s)
	if !r.Report.OK() || !stored.OK() || r.Index != 600 {
		t.Errorf("to %d: %s\n%s", r.Index, r.Report, stored)
	}
	archived, err := ReadLog(0, s.archive)
	if err != nil || archived[0].Index != 1 {
		t.Fatalf("archive: %v", err)
	}
	if own, err := ReadLog(0, filepath.Join(s.data, "wal")); err != nil || own[0].Index == 1 || len(own) == 600 {
		t.Errorf("the log still has everything, and the archive was not needed: %v", err)
	}
}

func TestATenantIsAnsweredAndStoredAsIfItWereAlone(t *testing.T) {
	s := newServer(t, 7)
	for range 300 {
		c := s.world.commit(s.stamp)
		if tick, ok := c.Ops[0].(*core.Tick); ok {
			tick.Max = 1 << 20 // a bounded one leaves the work of one tenant for later because of another's
		}
		s.entry(nil, c)
	}
	log := s.stop()
	r, err := ReplayCalls(log, nil)
	if err != nil || len(r.Namespaces()) != 2 {
		t.Fatalf("%v: %v", r.Namespaces(), err)
	}
	for _, p := range r.Namespaces() {
		if alone, err := Alone(log, p); err != nil || !alone.OK() {
			t.Errorf("%s: %v, %s", p, err, alone)
		}
	}
}

func TestAStoreThatAppliedSomethingElseIsFound(t *testing.T) {
	for name, spoil := range map[string]func(*core.Commit){
		"another value":   func(c *core.Commit) { c.Ops[0].(*core.KVPut).Value = []byte("w") },
		"another key":     func(c *core.Commit) { c.Ops[0].(*core.KVPut).Key = []byte("other") },
		"nothing":         func(c *core.Commit) { c.Ops = nil },
		"twice as much":   func(c *core.Commit) { c.Ops = append(c.Ops, put("more").Ops...) },
		"another refusal": func(c *core.Commit) { c.Ops[0].(*core.KVPut).HasRev, c.Ops[0].(*core.KVPut).IfRev = true, 77_777 },
	} {
		s := newServer(t, 2)
		s.run(20)
		s.entry(spoil, put("planted"))
		s.run(20)
		if r, stored := replayed(t, s); !r.Report.OK() || !stored.Broke("hash") {
			t.Errorf("%s: %s\n%s", name, r.Report, stored)
		}
	}
}

func TestAnAcknowledgementThatTheLogDoesNotHoldIsFound(t *testing.T) {
	s := newServer(t, 3)
	s.run(20)
	id := core.NewTaskID(1, 0, [9]byte{200})
	create := core.Commit{Partition: core.Partition{Tenant: 1, Namespace: 1}, Ops: []core.Op{&core.TaskCreate{ID: id, Queue: "q"}}}
	s.entry(nil, create)
	at := s.index
	stale := &core.TaskComplete{Task: id, Token: 99}
	if r := s.entry(nil, core.Commit{Partition: create.Partition, Ops: []core.Op{stale}}); r[0].Refusal == nil {
		t.Fatal("a token that no worker was given completes a task")
	}
	good := check.Call{Op: check.OpCreate, ID: id.String(), Index: at, Outcome: check.OK}
	early, refused := good, check.Call{Op: check.OpComplete, ID: id.String(), Token: 99, Index: at + 1, Outcome: check.OK}
	early.Index--
	log := s.stop()
	for name, c := range map[string]struct {
		call check.Call
		ok   bool
	}{
		"as it was": {good, true}, "at another entry": {early, false}, "of a refused completion": {refused, false},
	} {
		r, err := ReplayCalls(log, []check.Call{c.call})
		if err != nil || r.Report.OK() != c.ok || r.Report.Broke("not_in_log") == c.ok {
			t.Errorf("%s: %v, %s", name, err, r.Report)
		}
	}
}

func TestACompletionWithoutItsKeyIsFoundInTheLog(t *testing.T) {
	s := newServer(t, 4)
	p := core.Partition{Tenant: 1, Namespace: 1}
	var ids []core.TaskID
	var holds []core.TaskHold
	for i := range byte(3) {
		id := core.NewTaskID(1, 0, [9]byte{i + 1})
		s.entry(nil, core.Commit{Partition: p, Ops: []core.Op{&core.TaskCreate{ID: id, Queue: "q", Lease: 86_400_000}}})
		r := s.entry(nil, core.Commit{Partition: p, Ops: []core.Op{&core.Grant{Queues: []core.GrantQueue{{Name: "q", Weight: 1}}, N: 1}}})
		ids = append(ids, id)
		holds = append(holds, core.TaskHold{Task: id, Token: r[0].Ops[0].Assigned[0].Token})
	}
	key := func(i int) core.Op {
		return &core.KVPut{Keyspace: "done", Key: []byte(ids[i].String()), Value: []byte("1")}
	}
	complete := func(i int) core.Op { return &core.TaskComplete{Task: holds[i].Task, Token: holds[i].Token} }
	s.entry(nil, core.Commit{Partition: p, Ops: []core.Op{complete(0), key(0)}})
	s.entry(nil, core.Commit{Partition: p, Ops: []core.Op{complete(1)}}, core.Commit{Partition: p, Ops: []core.Op{key(1)}})
	s.entry(nil, core.Commit{Partition: p, Ops: []core.Op{complete(2)}})
	r, err := ReplayCalls(s.stop(), nil)
	if err != nil || !r.Report.OK() {
		t.Fatalf("%v, %s", err, r.Report)
	}
	for i, rule := range []string{"", "apart", "never"} {
		got := r.Together("done", []string{ids[i].String()})
		if rule == "never" && !got.Broke(rule) || rule == "apart" && !got.Broke(rule) {
			t.Errorf("task %d: %s, want %q", i, got, rule)
		}
	}
	one := newServer(t, 5)
	one.entry(nil, core.Commit{Partition: p, Ops: []core.Op{&core.TaskCreate{ID: ids[0], Queue: "q", Lease: 86_400_000}}})
	g := one.entry(nil, core.Commit{Partition: p, Ops: []core.Op{&core.Grant{Queues: []core.GrantQueue{{Name: "q", Weight: 1}}, N: 1}}})
	holds[0].Token = g[0].Ops[0].Assigned[0].Token
	one.entry(nil, core.Commit{Partition: p, Ops: []core.Op{complete(0), key(0)}})
	if r, err = ReplayCalls(one.stop(), nil); err != nil || !r.Together("done", []string{ids[0].String()}).OK() {
		t.Errorf("in one commit: %v, %s", err, r.Together("done", []string{ids[0].String()}))
	}
}

func TestALogWithAHoleIsNotReplayed(t *testing.T) {
	s := newServer(t, 6)
	s.run(400)
	s.stop()
	if _, err := ReadLog(0, t.TempDir()); err == nil {
		t.Error("an empty folder is a log")
	}
	if _, err := ReadLog(1, s.archive, filepath.Join(s.data, "wal")); err == nil {
		t.Error("a shard without entries has a log")
	}
}
