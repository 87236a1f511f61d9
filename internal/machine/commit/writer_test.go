package commit_test

import (
	"testing"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/machine/kv"
)

// writers is a shard with a keyspace that keeps who writes its keys.
type writers struct {
	t *testing.T
	w *world
}

// must judges a commit.
func (s writers) must(c core.Commit) core.Result {
	s.t.Helper()
	c.Partition = home
	a, err := s.w.pair.Apply(c)
	if err != nil {
		s.t.Fatal(err)
	}
	return a.Results[0]
}

// applied judges a commit that must be applied, or must have been.
func (s writers) applied(what string, c core.Commit, replayed bool) core.Result {
	s.t.Helper()
	r := s.must(c)
	if r.Refusal != nil || r.Replayed != replayed {
		s.t.Fatalf("%s: %+v, %+v", what, r, r.Refusal)
	}
	return r
}

// holds reads a key of both replicas.
func (s writers) holds(what, key, value string, want core.TaskHold) {
	s.t.Helper()
	for _, tx := range []core.View{s.w.pair.TxA, s.w.pair.TxB} {
		got, err := kv.Read(tx, home, "ks", []byte(key))
		var by core.TaskHold
		if got.Writer != nil {
			by = *got.Writer
		}
		if err != nil || string(got.Value) != value || by != want {
			s.t.Errorf("%s: %s holds %q, written by %+v, want %q by %+v; %v", what, key, got.Value, by, value, want, err)
		}
	}
}

// attempt makes a task and gives it out.
func (s writers) attempt(n byte) core.TaskHold {
	s.t.Helper()
	r := s.applied("a task", core.Commit{Ops: []core.Op{
		&core.TaskCreate{ID: core.TaskID{0, 0, 1, n}, Queue: "q"}, &core.Grant{N: 1, Queues: []core.GrantQueue{{Name: "q", Weight: 1}}},
	}}, false)
	one := r.Ops[1].Assigned[0]
	return core.TaskHold{Task: one.Task, Token: one.Token}
}

// Who wrote a key is kept by commits as they are judged: a commit that is refused, or is a repetition, leaves it as it is.
func TestCommitsLeaveWhoWroteAKey(t *testing.T) {
	s := writers{t, mustWorld(t)}
	set := &core.KeyspaceSet{Keyspace: "ks", Config: core.KeyspaceConfig{Writers: true}, IfVersion: -1}
	s.applied("the setting", core.Commit{Ops: []core.Op{set}}, false)
	first, second := s.attempt(1), s.attempt(2)
	put := func(key, value string) *core.KVPut {
		return &core.KVPut{Keyspace: "ks", Key: []byte(key), Value: []byte(value)}
	}
	complete := func(h core.TaskHold) *core.TaskComplete { return &core.TaskComplete{Task: h.Task, Token: h.Token} }

	mid := core.Commit{Fence: (*core.Fence)(&first), RequestID: core.RequestID{1}, Ops: []core.Op{put("mid", "1"), put("other", "1")}}
	s.applied("in mid-task", mid, false)
	s.holds("in mid-task", "mid", "1", first)
	s.holds("in mid-task", "other", "1", first)
	s.applied("over it", core.Commit{Fence: (*core.Fence)(&second), Ops: []core.Op{put("mid", "2")}}, false)
	s.applied("in mid-task, again", mid, true)
	s.holds("in mid-task, again", "mid", "2", second)

	done := core.Commit{Ops: []core.Op{complete(first), put("done", "1")}}
	s.applied("a completion", done, false)
	s.holds("a completion", "done", "1", first)
	s.applied("from outside", core.Commit{Ops: []core.Op{put("done", "2")}}, false)
	s.holds("from outside", "done", "2", core.TaskHold{})
	s.applied("the completion again", done, true)
	s.holds("the completion again", "done", "2", core.TaskHold{})

	// The lease is lost; a condition of a later op does not hold; the attempt fails in place of what is refused.
	if r := s.must(core.Commit{Fence: (*core.Fence)(&first), Ops: []core.Op{put("other", "2")}}); r.Refusal == nil {
		t.Errorf("under a lease that ended: %+v", r)
	}
	absent := put("done", "3")
	absent.IfAbsent = true
	if r := s.must(core.Commit{Ops: []core.Op{put("other", "3"), absent}}); r.Refusal == nil {
		t.Errorf("an op that does not hold: %+v", r)
	}
	if r := s.must(core.Commit{Ops: []core.Op{complete(second), put("other", "3"), absent}, FailOnRefusal: true}); r.Refusal == nil || !r.FailedInstead {
		t.Errorf("effects that do not hold: %+v", r)
	}
	s.holds("after refusals", "other", "1", first)
	if err := s.w.pair.Restart(); err != nil {
		t.Fatal(err)
	}
	s.holds("after a restart", "other", "1", first)
	s.holds("after a restart", "mid", "2", second)
	s.applied("after a restart", core.Commit{Ops: []core.Op{put("mid", "3")}}, false)
	s.holds("after a restart", "mid", "3", core.TaskHold{})
}
