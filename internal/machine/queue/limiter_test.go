package queue

import (
	"fmt"
	"slices"
	"testing"

	"github.com/millrace/millrace/internal/core"
)

// limit sets a limiter that lets n run at once.
func (w *world) limit(name string, n int64) {
	w.t.Helper()
	if o := w.do(&core.LimiterSet{Name: name, Config: core.LimiterConfig{Concurrency: n}, IfVersion: -1}); o.fact != nil {
		w.t.Fatal(o.fact)
	}
}

// limited makes n ready tasks that name limiters, numbered from first on.
func (w *world) limited(queue string, first, n int, limiters ...string) {
	w.t.Helper()
	for i := range n {
		if o := w.do(&core.TaskCreate{ID: numbered(first + i), Queue: queue, Limiters: limiters}); o.fact != nil {
			w.t.Fatal(o.fact)
		}
	}
}

// TestTheEndOfATaskTellsAllQueuesThatWaitForItsLimiter and none that does not: which of them gets what is free, their workers decide.
func TestTheEndOfATaskTellsAllQueuesThatWaitForItsLimiter(t *testing.T) {
	w := newWorld(t, Options{})
	w.limit("api", 1)
	w.limit("other", 1)
	for i, queue := range []string{"a", "b", "c"} {
		w.limited(queue, 10*i, 2, "api")
	}
	w.limited("idle", 100, 2, "other")
	w.giveOne("idle")
	held := w.giveOne("a")
	for _, queue := range []string{"a", "b", "c"} {
		if n := w.m.ReadyCount(queue); n != 0 {
			t.Errorf("queue %s can give %d tasks, and the limiter is full", queue, n)
		}
	}
	o := w.do(&core.TaskComplete{Task: held.Task, Token: held.Token})
	slices.Sort(o.woken)
	if !slices.Equal(o.woken, []string{"a", "b", "c"}) {
		t.Errorf("the end of the task told %q", o.woken)
	}
	if got := w.do(claimOp(9, "b", "c", "a")).res.Assigned; len(got) != 1 {
		t.Errorf("%d tasks of all queues began, of one that may run", len(got))
	}
}

// TestSettlesAndGrantsOfOneEntryKeepALimiterExact: a grant sees what the ops before it in its entry have freed, and taken.
func TestSettlesAndGrantsOfOneEntryKeepALimiterExact(t *testing.T) {
	w := newWorld(t, Options{})
	w.limit("api", 3)
	w.limited("a", 0, 9, "api")
	w.limited("b", 100, 9, "api")
	held := w.do(claimOp(9, "a", "b")).res.Assigned
	if len(held) != 3 {
		t.Fatalf("%d tasks began, of three that may run", len(held))
	}
	apply := func(op core.Op) core.OpResult {
		t.Helper()
		res, fact, err := w.m.Apply(w.tape, &w.c, op)
		if fact != nil || err != nil {
			t.Fatal(fact, err)
		}
		return res
	}
	for range 3 {
		w.c.Index++
		apply(&core.TaskComplete{Task: held[0].Task, Token: held[0].Token})
		apply(&core.TaskComplete{Task: held[1].Task, Token: held[1].Token})
		first := apply(claimOp(9, "b")).Assigned
		second := apply(claimOp(9, "a")).Assigned
		if len(first) != 2 || len(second) != 0 {
			t.Errorf("%d and %d tasks began where two ended, of three that may run", len(first), len(second))
		}
		held = append(first, held[2])
		var o outcome
		w.end(&o)
	}
}

// TestAFullLimiterCostsNothingToSkip counts what is read for a task that no limiter holds up, behind many lanes and tasks that some do.
func TestAFullLimiterCostsNothingToSkip(t *testing.T) {
	w := newWorld(t, Options{})
	w.loose = true
	const sets = 500
	for i := range sets {
		name := fmt.Sprintf("l%03d", i)
		w.limit(name, 1)
		w.limited("q", 1000*i, 4, name)
	}
	if got := w.do(claimOp(10_000, "q")).res.Assigned; len(got) != sets {
		t.Fatalf("%d tasks began under %d limiters that let one run each", len(got), sets)
	}
	for i := range 10 {
		w.do(&core.TaskCreate{ID: numbered(10_000_000 + i), Queue: "q"})
		w.tx.ResetCounts()
		if got := w.do(claimOp(1, "q")).res.Assigned; len(got) != 1 || got[0].Task != numbered(10_000_000+i) {
			t.Fatalf("began: %v", got)
		}
		if c := w.tx.Counts(); c.Gets+c.Scans > 4 {
			t.Errorf("a task next to %d full limiters reads %+v", sets, c)
		}
	}
	if n := len(w.m.names["q"].share.open.items); n > 1 {
		t.Errorf("%d groups are in turn, and all but one are full", n)
	}
	w.loose = false
	w.check()
}

// TestALimiterHoldsOverARestart: what runs, what waits and what a rate let begin are known to who opens the state.
func TestALimiterHoldsOverARestart(t *testing.T) {
	w := newWorld(t, Options{})
	w.limit("api", 2)
	w.do(&core.LimiterSet{Name: "slow", Config: core.LimiterConfig{Rate: core.Rate{Limit: 1, Per: 10_000}}, IfVersion: -1})
	w.do(&core.QueueSet{Queue: "q", IfVersion: -1, Config: core.QueueConfig{Share: core.QueueShare{Limiters: [core.MaxLimiters]string{"api"}}}})
	w.limited("q", 0, 3)
	w.do(&core.TaskCreate{ID: numbered(50), Queue: "k", Key: "ann", Limiters: []string{"api", "slow"}})
	w.do(&core.TaskCreate{ID: numbered(51), Queue: "k", Key: "ann", Limiters: []string{"slow"}})
	held := append(w.do(claimOp(1, "q")).res.Assigned, w.do(claimOp(1, "k")).res.Assigned...)
	if len(held) != 2 {
		t.Fatalf("%d tasks began", len(held))
	}
	w.restart()
	w.check()
	if got := w.do(claimOp(9, "q", "k")).res.Assigned; len(got) != 0 {
		t.Errorf("%d tasks began after a restart under a full limiter", len(got))
	}
	w.do(&core.TaskComplete{Task: held[1].Task, Token: held[1].Token})
	if got := w.do(claimOp(9, "k")).res.Assigned; len(got) != 0 {
		t.Error("a task began before its rate let it")
	}
	if got := w.do(claimOp(9, "q")).res.Assigned; len(got) != 1 {
		t.Errorf("%d tasks began where one ended", len(got))
	}
	w.advance(10_000)
	if got := w.do(claimOp(9, "k")).res.Assigned; len(got) != 1 {
		t.Error("a task did not begin when its rate let it")
	}
}

// TestTheOnlyTaskOfAKeyKeepsItsLimitersWhenItIsChanged by an edit or by a create that replaces it, also over a restart.
func TestTheOnlyTaskOfAKeyKeepsItsLimitersWhenItIsChanged(t *testing.T) {
	w := newWorld(t, Options{})
	w.limit("api", 1)
	unique := core.Unique{Key: "u", Until: core.UniqueStart, Replace: true}
	w.do(&core.TaskCreate{ID: numbered(1), Queue: "q", Key: "ann", Limiters: []string{"api"}, Unique: unique})
	w.do(&core.TaskCreate{ID: numbered(2), Queue: "q", Key: "ann", Priority: 3, Payload: []byte("new"), Unique: unique})
	w.do(&core.TaskUpdate{Task: numbered(1), HasPriority: true, Priority: 5})
	w.limited("q", 10, 1, "api")
	held := w.do(claimOp(9, "q")).res.Assigned
	if len(held) != 1 {
		t.Fatalf("%d tasks began, of one that may run", len(held))
	}
	w.restart()
	w.do(&core.TaskComplete{Task: held[0].Task, Token: held[0].Token})
	if got := w.do(claimOp(9, "q")).res.Assigned; len(got) != 1 {
		t.Errorf("%d tasks began where one ended", len(got))
	}
}

// TestARefusedCommitLeavesLimitersAsTheyWere also where it had made, changed, filled and removed some.
func TestARefusedCommitLeavesLimitersAsTheyWere(t *testing.T) {
	w := newWorld(t, Options{})
	w.limit("api", 1)
	w.limit("gone", 1)
	w.limited("q", 0, 2, "api")
	held := w.giveOne("q")
	_, failed, _ := w.commit(
		&core.LimiterDelete{Name: "gone", IfVersion: -1},
		&core.LimiterSet{Name: "new", Config: core.LimiterConfig{Concurrency: 1}, IfVersion: -1},
		&core.QueueSet{Queue: "q", IfVersion: -1, Config: core.QueueConfig{Share: core.QueueShare{Limiters: [core.MaxLimiters]string{"new"}}}},
		&core.TaskCreate{ID: numbered(10), Queue: "q", Limiters: []string{"new"}},
		&core.TaskComplete{Task: held.Task, Token: held.Token},
		&core.TaskDelete{Task: numbered(99)},
	)
	if failed != 5 {
		t.Fatalf("op %d was refused", failed)
	}
	if got := w.do(claimOp(9, "q")).res.Assigned; len(got) != 0 {
		t.Errorf("%d tasks began under a full limiter", len(got))
	}
	w.do(&core.TaskComplete{Task: held.Task, Token: held.Token})
	if got := w.do(claimOp(9, "q")).res.Assigned; len(got) != 1 {
		t.Errorf("%d tasks began where one ended", len(got))
	}
}

// TestNoMoreLimitersThanANamespaceMayHave are made, and one that goes makes room.
func TestNoMoreLimitersThanANamespaceMayHave(t *testing.T) {
	w := newWorld(t, Options{Limiters: 2})
	w.limit("a", 1)
	w.limit("b", 1)
	over := w.do(&core.LimiterSet{Name: "c", IfVersion: -1})
	if over.fact != (core.Exhausted{Limit: "limiters", Max: 2}) {
		t.Errorf("one too many: %v", over.fact)
	}
	w.do(&core.LimiterDelete{Name: "a", IfVersion: -1})
	w.limit("c", 1)
}

// TestATaskWithoutLimitersTakesNoMoreThanBefore next to others that have some: neither a read nor a write.
func TestATaskWithoutLimitersTakesNoMoreThanBefore(t *testing.T) {
	cost := func(withLimiters bool) (gets, writes int) {
		w := newWorld(t, Options{})
		w.loose = true
		w.do(&core.TaskCreate{ID: numbered(1), Queue: "q", Key: "ann"}) // the queue is shared
		if withLimiters {
			w.limit("api", 1)
			w.limited("q", 100, 2, "api")
			w.giveOne("q")
			w.giveOne("q")
		} else {
			w.giveOne("q")
		}
		w.tx.ResetCounts()
		for i := range 10 {
			w.do(&core.TaskCreate{ID: numbered(10 + i), Queue: "q", Key: "ann"})
			a := w.giveOne("q")
			w.do(&core.TaskComplete{Task: a.Task, Token: a.Token})
		}
		c := w.tx.Counts()
		return c.Gets + c.Scans, c.Sets + c.Inserts + c.Deletes
	}
	plainGets, plainWrites := cost(false)
	gets, writes := cost(true)
	if gets != plainGets || writes != plainWrites {
		t.Errorf("%d reads and %d writes, without limiters %d and %d", gets, writes, plainGets, plainWrites)
	}
}
