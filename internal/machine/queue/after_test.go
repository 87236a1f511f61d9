package queue

import (
	"testing"

	"github.com/millrace/millrace/internal/core"
)

func afterOp(n int, onDep core.DepFailure, on ...int) *core.TaskCreate {
	op := &core.TaskCreate{ID: numbered(n), Queue: "mail", OnDepFailure: onDep}
	for _, o := range on {
		op.After = append(op.After, core.After{Task: numbered(o)})
	}
	return op
}

func TestAsManyAsAreAllowedAreReleasedInOneEntry(t *testing.T) {
	w := newWorld(t, Options{})
	w.loose = true
	w.do(afterOp(0, core.DepHold))
	for n := 1; n <= core.MaxDependents; n++ {
		if o := w.do(afterOp(n, core.DepHold, 0)); o.fact != nil {
			t.Fatalf("dependent %d: %v", n, o.fact)
		}
	}
	if o := w.do(afterOp(core.MaxDependents+1, core.DepHold, 0)); o.fact != (core.Exhausted{Limit: "dependents", Max: core.MaxDependents}) {
		t.Fatalf("one too many: %v", o.fact)
	}
	// One of them goes by itself: there is room for another one.
	w.do(&core.TaskCancel{Task: numbered(1)})
	if o := w.do(afterOp(core.MaxDependents+1, core.DepHold, 0)); o.fact != nil {
		t.Fatalf("after a cancel: %v", o.fact)
	}
	w.do(claimOp(1, "mail"))
	w.do(&core.TaskComplete{Task: numbered(0), Token: w.lastToken()})
	if n := w.m.ReadyCount("mail"); n != core.MaxDependents {
		t.Errorf("%d of %d are ready", n, core.MaxDependents)
	}
	w.check()
}

func TestAChainOfCancelsIsBoundedPerEntry(t *testing.T) {
	const length, told = 60, 10
	w := newWorld(t, Options{Told: told})
	w.do(afterOp(0, core.DepHold))
	for n := 1; n <= length; n++ {
		w.do(afterOp(n, core.DepCancel, n-1))
	}
	o := w.do(&core.TaskCancel{Task: numbered(0)})
	if len(o.ended) != 1+told {
		t.Fatalf("%d tasks ended in one entry, and it acts on %d rows", len(o.ended), told)
	}
	if w.m.Due() > w.c.Stamp {
		t.Fatal("the rest is not due")
	}
	w.restart()
	for entries := 0; w.m.Due() <= w.c.Stamp; entries++ {
		if n := len(w.tick(1000).ended); n > told || entries > 2*length {
			t.Fatalf("a tick ended %d tasks", n)
		}
	}
	if n := w.m.names["mail"].states[core.Cancelled]; n != length+1 {
		t.Errorf("%d of %d are cancelled", n, length+1)
	}
}

// A task that others wait for may be one that the entry created, or one that runs: a refused commit takes the count back.
func TestARefusedCommitLeavesNoDependents(t *testing.T) {
	w := newWorld(t, Options{})
	w.do(afterOp(0, core.DepHold))
	w.do(claimOp(1, "mail"))
	refused := &core.TaskDelete{Task: numbered(99)}
	if _, failed, _ := w.commit(afterOp(1, core.DepHold), afterOp(2, core.DepHold, 0, 1), refused); failed != 2 {
		t.Fatal("the commit was not refused")
	}
	w.do(&core.TaskComplete{Task: numbered(0), Token: w.lastToken()})

	// The same within one entry: what an earlier commit of it created keeps its record.
	w.c.Index++
	apply := func(op core.Op) core.Fact {
		_, fact, err := w.m.Apply(w.tape, &w.c, op)
		if err != nil {
			t.Fatal(err)
		}
		return fact
	}
	apply(afterOp(3, core.DepHold))
	w.tx.Mark()
	w.m.Mark()
	apply(afterOp(4, core.DepHold, 3))
	w.tx.Undo()
	w.m.Undo()
	apply(claimOp(1, "mail"))
	var o outcome
	w.end(&o)
	if task, _, _ := Task(w.tx, testPartition, numbered(3)); task.Dependents != 0 || task.State != core.Running {
		t.Errorf("%s with %d dependents", task.State, task.Dependents)
	}
}

func TestOlderEntriesLetNoTaskWait(t *testing.T) {
	w := newWorld(t, Options{})
	w.c.Format = core.FormatOperate
	w.do(afterOp(0, core.DepHold))
	for _, op := range []core.Op{
		afterOp(1, core.DepHold, 0),
		&core.BulkStart{ID: numbered(2), Action: core.BulkCancel, Tasks: core.TaskFilter{State: core.Blocked}},
	} {
		if f, ok := w.do(op).fact.(core.Invalid); !ok || f.Reason != "not_supported" {
			t.Errorf("%T: %v", op, f)
		}
	}
}

func BenchmarkReleaseOfDependents(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		w := newWorld(b, Options{})
		w.loose = true
		w.do(afterOp(0, core.DepHold))
		for n := 1; n <= core.MaxDependents; n++ {
			w.do(afterOp(n, core.DepHold, 0))
		}
		w.do(claimOp(1, "mail"))
		b.StartTimer()
		w.do(&core.TaskComplete{Task: numbered(0), Token: w.lastToken()})
	}
}
