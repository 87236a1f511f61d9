package queue

import (
	"slices"
	"testing"

	"github.com/millrace/millrace/internal/core"
)

// fill puts n ready tasks into a queue, in entries of a thousand.
func (w *world) fill(queue string, from, n int) {
	w.loose = true
	w.tx.Untracked()
	for i := range n {
		if i%1000 == 0 {
			w.c.Stamp++
		}
		if o := w.do(&core.TaskCreate{ID: numbered(from + i), Queue: queue}); o.fact != nil {
			w.t.Fatal(o.fact)
		}
	}
}

// drain claims and completes everything ready in a queue and returns the order it came in.
func (w *world) drain(queue string, batch uint32, each func(n int)) (order []core.TaskID) {
	for {
		assigned := w.do(claimOp(batch, queue)).res.Assigned
		if len(assigned) == 0 {
			return order
		}
		for _, a := range assigned {
			order = append(order, a.Task)
			if o := w.do(&core.TaskComplete{Task: a.Task, Token: a.Token}); o.fact != nil {
				w.t.Fatal(o.fact)
			}
		}
		if each != nil {
			each(len(order))
		}
	}
}

func TestEveryReadyTaskOfALongQueueIsClaimedInOrder(t *testing.T) {
	n := 150_000
	if testing.Short() {
		n = 15_000
	}
	w := newWorld(t, Options{})
	w.fill("long", 0, n)
	if got := w.m.ReadyCount("long"); got != uint64(n) {
		t.Fatalf("%d tasks are ready, want %d", got, n)
	}
	reopened := false
	order := w.drain("long", 100, func(done int) {
		if h := w.m.names["long"].plain.heads; h != nil && cap(h.of[classes-1].rows) > 4*w.m.o.Heads {
			t.Fatalf("room for %d heads is kept", cap(h.of[classes-1].rows))
		}
		if !reopened && done > n/2 {
			reopened = true
			w.tx.ResetCounts()
			w.restart()
			if c := w.tx.Counts(); c.Gets+c.Scanned > 20 {
				t.Errorf("opening reads %+v", c)
			}
		}
	})
	if len(order) != n || !slices.IsSortedFunc(order, func(a, b core.TaskID) int { return slices.Compare(a[:], b[:]) }) {
		t.Errorf("%d tasks claimed, want %d in order of their creation", len(order), n)
	}
	if w.m.names["long"].plain.heads != nil {
		t.Error("an empty queue keeps heads")
	}
	w.check()
}

func TestPrioritiesHoldBeyondWhatIsInMemory(t *testing.T) {
	w := newWorld(t, Options{Heads: 64})
	w.do(&core.QueueSet{Queue: "mixed", IfVersion: -1, Config: core.QueueConfig{Aging: strictAging}})
	w.loose = true
	const n = 5_000
	want := make([][]core.TaskID, 10)
	seed := uint32(1)
	for i := range n {
		seed = seed*1664525 + 1013904223
		p := uint8(seed >> 16 % 10)
		w.do(&core.TaskCreate{ID: numbered(i), Queue: "mixed", Priority: p})
		want[9-p] = append(want[9-p], numbered(i))
		if i == n/2 {
			w.restart()
		}
	}
	if got := w.drain("mixed", 7, nil); !slices.Equal(got, slices.Concat(want...)) {
		t.Error("tasks did not come by priority, and by age within it")
	}
	w.check()
}

func TestTasksScheduledFarAheadNeverComeEarly(t *testing.T) {
	w := newWorld(t, Options{})
	w.loose = true
	due := map[core.TaskID]core.ShardTime{}
	for i := range 1_000 {
		at := epoch.Add(core.Millis(25+i%216) * 3_600_000).Add(core.Millis(i * 7919 % 3_600_000))
		due[numbered(i)] = at
		w.do(&core.TaskCreate{ID: numbered(i), Queue: "far", RunAt: at})
	}
	claimed := 0
	for w.m.Due() != core.Never {
		next := w.m.Due()
		for _, at := range []core.ShardTime{next - 1, next} {
			if at <= w.c.Stamp {
				continue
			}
			w.c.Stamp = at
			w.tick(100)
			for _, a := range w.do(claimOp(100, "far")).res.Assigned {
				claimed++
				if due[a.Task] != w.c.Stamp {
					t.Fatalf("due at %d and claimed at %d", due[a.Task], w.c.Stamp)
				}
				w.do(&core.TaskComplete{Task: a.Task, Token: a.Token})
			}
		}
		if claimed == len(due) {
			break
		}
		if claimed%100 == 0 {
			w.restart()
		}
	}
	if claimed != len(due) {
		t.Errorf("%d of %d came due", claimed, len(due))
	}
	w.check()
}

func TestTicksAreBoundedAndFinish(t *testing.T) {
	w := newWorld(t, Options{})
	w.loose = true
	const n = 300
	for i := range n { // as many leases, delays and ended tasks, which are removed and then forgotten, all due at once
		w.do(&core.TaskCreate{ID: numbered(i), Queue: "ended"})
		w.do(&core.TaskCreate{ID: numbered(n + i), Queue: "leased"})
		w.do(&core.TaskCreate{ID: numbered(2*n + i), Queue: "delayed", Delay: 60_000})
	}
	w.drain("ended", 100, nil)
	w.do(claimOp(n, "leased"))
	w.c.Stamp = w.c.Stamp.Add(30 * 24 * 3_600_000)
	ticks := 0
	for {
		w.tx.ResetCounts()
		more := w.tick(20).more
		if c := w.tx.Counts(); c.Scanned > 80 || c.Sets+c.Inserts+c.Deletes > 200 {
			t.Fatalf("a tick of 20 steps did %+v", c)
		}
		ticks++
		if ticks == 10 && w.totals().Purged == 0 {
			t.Error("leases and delays held up the removal of ended tasks")
		}
		if !more {
			break
		}
	}
	if want := 4 * n / 20; ticks < want || ticks > want+2 {
		t.Errorf("%d ticks of 20 steps, want about %d", ticks, want)
	}
	if r, d, e := w.stat("leased").States[core.Ready], w.stat("delayed").States[core.Ready], w.totals(); r != n || d != n || e.Purged != n {
		t.Errorf("%d leases ended, %d delays over, %d tasks removed, want %d each", r, d, e.Purged, n)
	}
	w.check()
}

// totals adds up the counters of all queues, a few at a time.
func (w *world) totals() (t Totals) {
	for at, more := uint32(0), true; more; {
		at, more = w.m.AddTotals(&t, at, 2)
	}
	return t
}

func (w *world) stat(queue string) core.QueueStats {
	s, _, err := Stats(w.tx, testPartition, queue)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

func TestPurgeReadsNoTaskThatEndedLongAgo(t *testing.T) {
	w := newWorld(t, Options{})
	w.fill("mail", 0, 100)
	w.drain("mail", 100, nil)
	w.c.Stamp = w.c.Stamp.Add(25 * 3_600_000)
	w.tx.ResetCounts()
	w.tick(1000)
	if c := w.tx.Counts(); c.Gets != 0 {
		t.Errorf("removing 100 tasks reads %d records", c.Gets)
	}
	if left := w.tx.Len(); left != 1 {
		t.Errorf("%d records are left, want that of the partition", left)
	}
}

func TestNamesThatWereOnlyClaimedLeaveNothing(t *testing.T) {
	w := newWorld(t, Options{})
	w.do(&core.TaskCreate{ID: idOf("t"), Queue: "real"})
	before := w.tx.Dump()
	for i := range 1_000 {
		name := "ghost-" + numbered(i).String()
		w.loose = true
		w.do(claimOp(5, name))
		if w.m.ReadyCount(name) != 0 {
			t.Fatal("a ghost has tasks")
		}
	}
	if w.tx.Dump() != before || len(w.m.names) != 1 || len(w.m.queues) != 1 {
		t.Error("claims of unknown names left something")
	}
}

func TestOpenReadsNothingOfWaitingAndEndedTasks(t *testing.T) {
	w := newWorld(t, Options{})
	w.fill("ready", 0, 2_000)
	w.fill("ended", 10_000, 2_000)
	w.drain("ended", 100, nil)
	for i := range 2_000 {
		w.do(&core.TaskCreate{ID: numbered(20_000 + i), Queue: "delayed", Delay: 1_000_000})
	}
	w.do(claimOp(10, "ready"))
	w.tx.ResetCounts()
	w.restart()
	// Three queues with two records each and a seek for what ended, ten running tasks, two seeks for the timers, one for expiries, one for bulk jobs, one for
	// crons, one for limiters, one for groups of errors, one for removed queues, one for unique keys, one for shares, and the quota of the tenant.
	if c := w.tx.Counts(); c.Gets > 1+3+10+1+1 || c.Scans > 1+1+1+2+1+1+1+1+1+2+1 || c.Scanned > 3+10+1+1 {
		t.Errorf("opening reads %+v", c)
	}
}
