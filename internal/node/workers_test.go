package node

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/core"
)

func (r *rig) workers() []core.Worker {
	r.t.Helper()
	list, partial := r.node.Workers(r.t.Context(), []core.PartitionInfo{{Partition: r.ns}})
	if partial {
		r.t.Error("the list is partial")
	}
	return list
}

func (r *rig) quiet(id string, on bool) (changed bool) {
	r.t.Helper()
	changed, err := r.node.Quiet(r.t.Context(), []core.PartitionInfo{{Partition: r.ns}}, id, on)
	if err != nil {
		r.t.Error(err)
	}
	return changed
}

func TestAQuietWorkerIsGivenNothingByAnyDoor(t *testing.T) {
	r := openRig(t, rigOptions{})
	defer r.close()
	k := newSink()
	ses, _ := r.session(1, k)
	ses.Subscribe(subscription("q", 4))
	r.must(&core.TaskCreate{ID: taskID(0), Queue: "q"})
	held := k.take(1)
	if list := r.workers(); len(list) != 1 || list[0].ID != "w1" || !slices.Equal(list[0].Sessions, []core.SessionID{{1}}) || list[0].Running != 1 ||
		list[0].OldestLease == 0 || list[0].Slots != 4 || !slices.Equal(list[0].Queues, []string{"q"}) || list[0].Quiet {
		t.Errorf("listed: %+v", list)
	}

	if !r.quiet("w1", true) || r.quiet("w1", true) {
		t.Error("the first call changes it, the second one does not")
	}
	r.must(&core.TaskCreate{ID: taskID(1), Queue: "q"})
	if p := r.settle(ses, held); p.Err != nil || p.Results[0].Refusal != nil {
		t.Errorf("a running task of a quiet worker: %+v", p)
	}
	again, _ := r.session(1, newSink())   // another stream of it is quiet too
	again.Subscribe(subscription("q", 1)) // it leaves one of two tasks to the claim below
	claim := core.ClaimSpec{Queues: []core.GrantQueue{{Name: "q", Weight: 1}}, Max: 1, Worker: "w1"}
	begin := time.Now()
	if got, _, err := r.node.Claim(t.Context(), r.ns, claim); err != nil || len(got) != 0 {
		t.Errorf("a claim of a quiet worker: %v, %v", got, err)
	}
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("a claim that does not wait took %v", took)
	}
	list := r.workers()
	if len(list) != 1 || !list[0].Quiet || len(list[0].Sessions) != 1 {
		t.Errorf("listed: %+v", list)
	}
	other := r.claim("q", 1, 0) // the task waits for others, not for the quiet one
	if len(other) != 1 || other[0].Task != taskID(1) {
		t.Errorf("another worker gets %v", other)
	}

	// One that waits goes on when it is taken back, and so does the stream.
	got := make(chan []core.Assigned)
	claim.Wait = 60_000
	go func() {
		tasks, _, _ := r.node.Claim(t.Context(), r.ns, claim)
		got <- tasks
	}()
	until(func() bool { return r.node.Stats().Shards[0].Claims == 1 })
	r.must(&core.TaskCreate{ID: taskID(2), Queue: "q"})
	r.must(&core.TaskCreate{ID: taskID(3), Queue: "q"})
	if !r.quiet("w1", false) {
		t.Error("taking it back changes nothing")
	}
	again.Slots(1, 1)
	if len(<-got) != 1 {
		t.Error("the claim is given nothing")
	}
	if list := r.workers(); slices.ContainsFunc(list, func(w core.Worker) bool { return w.Quiet }) {
		t.Errorf("listed: %+v", list)
	}
}

func TestQuietWorkersAndCallersOfClaimsAreForgotten(t *testing.T) {
	var w workers
	key := func(n int) workerKey { return workerKey{1, 1, fmt.Sprint(n)} }
	w.set(key(0), true, 0)
	if !w.isQuiet(key(0), quietKept-1) || !w.isQuiet(key(0), 2*quietKept-2) || w.isQuiet(key(0), 3*quietKept) {
		t.Error("a quiet worker is remembered while it comes back in time")
	}
	spec := &core.ClaimSpec{Max: 1}
	for n := range maxClaimers + 5 {
		w.claims(key(n), spec, time.Duration(n))
	}
	if list := w.of(1, 1); len(list) != maxClaimers || list[0].key != key(5) {
		t.Errorf("%d callers, the first %v", len(list), list[0].key)
	}
	if list := w.of(1, 2); len(list) != 0 {
		t.Errorf("another namespace has %d", len(list))
	}
	for n := range maxQuiet + 1 {
		w.set(key(n), true, time.Duration(n))
	}
	if w.isQuiet(key(0), maxQuiet) || !w.isQuiet(key(maxQuiet), maxQuiet) {
		t.Error("the one that was heard of the longest ago makes room")
	}
}

func TestWorkersOfSeveralLeadersAreMerged(t *testing.T) {
	one, two := core.SessionID{1}, core.SessionID{2}
	got := MergeWorkers([]core.Worker{
		{ID: "b", Host: "h", Sessions: []core.SessionID{two}, Queues: []string{"q"}, Slots: 2, Running: 1, OldestLease: 9, Since: 5, Seen: 6, Nodes: []string{"n2"}},
		{ID: "a", Queues: []string{"x"}, Slots: 3, Seen: 4, Nodes: []string{"n1"}},
		{ID: "b", Host: "h", Sessions: []core.SessionID{one}, Queues: []string{"p", "q"}, Slots: 3, Running: 2, OldestLease: 7, Since: 8, Seen: 9, Nodes: []string{"n1"}, Quiet: true},
		{ID: "a", Slots: 2, Running: 1, Nodes: []string{"n1"}},
	})
	want := []core.Worker{
		{ID: "a", Queues: []string{"x"}, Slots: 3, Running: 1, Seen: 4, Nodes: []string{"n1"}},
		{ID: "b", Host: "h", Sessions: []core.SessionID{one, two}, Queues: []string{"p", "q"}, Slots: 5, Running: 3, OldestLease: 7, Since: 5, Seen: 9, Nodes: []string{"n1", "n2"}, Quiet: true},
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("merged: %+v\nwant %+v", got, want)
	}
}
