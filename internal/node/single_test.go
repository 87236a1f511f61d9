package node

import (
	"testing"

	"github.com/millrace/millrace/internal/core"
)

// TestASettleThatIsRefusedAtTheDoorKeepsItsSlot overflows the queue of proposals with a settle, whose task is still held
// then: no worker gets the next task before it is settled, and no grant is tried for a slot that is taken.
func TestASettleThatIsRefusedAtTheDoorKeepsItsSlot(t *testing.T) {
	r := openRig(t, rigOptions{node: Options{QueueBytes: 64 << 10}})
	defer r.close()
	k, ses, held := r.oneSlot()
	large := func(a core.Assigned) core.Commit {
		return core.Commit{Ops: []core.Op{&core.TaskComplete{Task: a.Task, Token: a.Token, Result: make([]byte, 100<<10)}}}
	}
	if p := r.settleBy(ses, []core.Assigned{held}, large); p.Err == nil {
		t.Fatal("a settle larger than the queue was taken")
	}
	r.must(&core.TaskCreate{ID: taskID(2), Queue: "q"})
	before := r.log.Stats().Entries
	const later = 20
	for range later {
		r.must(&core.KVPut{Keyspace: "k", Key: []byte("x")})
	}
	if got := r.log.Stats().Entries - before; got > later+later/2 {
		t.Errorf("%d entries for %d commits", got, later)
	}
	k.none(t)
	r.settle(ses, []core.Assigned{held})
	k.take(1)
}

// oneSlot opens the session of a worker of one slot, which has task 1 of queue q in hand.
func (r *rig) oneSlot() (k *sink, ses core.Session, held core.Assigned) {
	k = newSink()
	ses, _ = r.session(1, k)
	ses.Subscribe(subscription("q", 1))
	r.must(&core.TaskCreate{ID: taskID(1), Queue: "q"})
	return k, ses, k.take(1)[0]
}

// none fails the test where a task was given to a worker whose one slot is taken.
func (s *sink) none(t *testing.T) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.tasks); n != 0 {
		t.Fatalf("%d tasks were given to a worker whose one slot is taken", n)
	}
}

// TestASettleThatFailsTheAttemptInsteadFreesItsSlot has the effects of a completion refused: the attempt has ended, so the worker's one
// slot takes the next task, and the client owes no second settle.
func TestASettleThatFailsTheAttemptInsteadFreesItsSlot(t *testing.T) {
	r := openRig(t, rigOptions{})
	defer r.close()
	k, ses, held := r.oneSlot()
	r.must(&core.TaskCreate{ID: taskID(2), Queue: "q"})
	refused := func(a core.Assigned) core.Commit {
		return core.Commit{FailOnRefusal: true, Ops: []core.Op{
			&core.TaskComplete{Task: a.Task, Token: a.Token},
			&core.KVDelete{Keyspace: "k", Key: []byte("none"), IfRev: 3, HasRev: true},
		}}
	}
	if p := r.settleBy(ses, []core.Assigned{held}, refused); p.Err != nil || !p.Results[0].FailedInstead || p.Results[0].Refusal == nil {
		t.Fatalf("%+v", p)
	}
	// The first of them may have been granted before the answer to the settle was known.
	for n := range 3 {
		next := k.take(1)
		r.must(&core.TaskCreate{ID: taskID(3 + n), Queue: "q"})
		r.settle(ses, next)
	}
}

// TestASettleWhoseEffectIsRefusedKeepsItsSlot has an effect refused that names another task: the attempt goes on, so the worker's one slot
// is taken until it is settled.
func TestASettleWhoseEffectIsRefusedKeepsItsSlot(t *testing.T) {
	r := openRig(t, rigOptions{})
	defer r.close()
	k, ses, held := r.oneSlot()
	p := r.settleBy(ses, []core.Assigned{held}, func(a core.Assigned) core.Commit {
		return core.Commit{Ops: []core.Op{&core.TaskComplete{Task: a.Task, Token: a.Token}, &core.TaskCancel{Task: taskID(9)}}}
	})
	if p.Err != nil || p.Results[0].FailedInstead || p.Results[0].Refusal == nil || p.Results[0].Refusal.Op != 1 {
		t.Fatalf("%+v", p)
	}
	if _, ok := p.Results[0].Refusal.Fact.(core.NotFound); !ok {
		t.Fatalf("refused with %+v", p.Results[0].Refusal.Fact)
	}
	r.must(&core.TaskCreate{ID: taskID(2), Queue: "q"})
	for range 20 { // entries in which a grant would come
		r.must(&core.KVPut{Keyspace: "k", Key: []byte("x")})
	}
	k.none(t)
	r.settle(ses, []core.Assigned{held})
	k.take(1)
}

// TestOneCommitPerEntryIsKept holds the setting that switches group commit off to what it says, and a frame's answer to
// the order of its items.
func TestOneCommitPerEntryIsKept(t *testing.T) {
	r := openRig(t, rigOptions{node: Options{OneCommitPerEntry: true}})
	defer r.close()
	const n = 50
	commits := make([]core.Commit, n)
	for i := range commits {
		commits[i] = core.Commit{Partition: r.ns, Ops: []core.Op{&core.TaskCreate{ID: taskID(i + 1), Queue: "q"}}}
	}
	commits[7].Ops = []core.Op{&core.KVDelete{Keyspace: "k", Key: []byte("none"), IfRev: 3, HasRev: true}}
	before := r.log.Stats().Entries
	p := r.propose(commits...)
	if p.Err != nil {
		t.Fatal(p.Err)
	}
	if got := r.log.Stats().Entries - before; got < n {
		t.Errorf("%d commits took %d entries", n, got)
	}
	for i, res := range p.Results {
		if refused := res.Refusal != nil; refused != (i == 7) {
			t.Errorf("commit %d: %+v", i, res)
		}
	}
}
