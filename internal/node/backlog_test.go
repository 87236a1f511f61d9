package node

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/core"
)

// inOrder checks that tasks are those numbered from first on.
func inOrder(t *testing.T, tasks []core.Assigned, first int) {
	t.Helper()
	for i, a := range tasks {
		if a.Task != taskID(first+i) {
			t.Fatalf("task %s is given out at place %d, want %s", a.Task, first+i, taskID(first+i))
		}
	}
}

func TestALongBacklogIsGivenOutInOrderAlsoAfterARestart(t *testing.T) {
	l := openLong(t, longOptions{layer: 1 << 20})
	total := shorter(90_000) // below what a tenant may have running
	if testing.Short() {
		total /= 4
	}
	l.createAll(total, func(i int) *core.TaskCreate {
		return &core.TaskCreate{ID: taskID(i), Queue: "q", Payload: fmt.Appendf(nil, `{"n":%d}`, i)}
	})
	before := l.claimUpTo("q", total/3)
	inOrder(t, before, 0)
	l.restart()
	if st := l.stats("q"); st.States[core.Ready] != uint64(total-total/3) || st.States[core.Running] != uint64(total/3) {
		t.Fatalf("after the restart: %+v", st)
	}
	after := l.claimUpTo("q", total)
	inOrder(t, after, total/3)
	tasks := slices.Concat(before, after)
	if len(tasks) != total {
		t.Fatalf("%d of %d tasks are given out", len(tasks), total)
	}
	for i, a := range tasks {
		if want := fmt.Sprintf(`{"n":%d}`, i); string(a.Payload) != want || a.Attempt != 1 {
			t.Fatalf("task %d is given out as %+v", i, a)
		}
	}
	l.completeAll(tasks, nil)
	if st := l.stats("q"); st.States[core.Completed] != uint64(total) || st.Created != uint64(total) {
		t.Errorf("at the end: %+v", st)
	}
	l.audit()
	l.close()
}

// grants takes n tasks by unary claims and returns the rate per second and the slowest but one in a hundred claims.
func (l *long) grants(n int) (rate float64, p99 time.Duration) {
	l.t.Helper()
	var took []time.Duration
	begin := time.Now()
	for got := 0; got < n; {
		at := time.Now()
		tasks := l.claim("q", uint32(min(32, n-got)), 86_400_000)
		if len(tasks) == 0 {
			l.t.Fatalf("only %d of %d tasks are given out", got, n)
		}
		got += len(tasks)
		took = append(took, time.Since(at))
	}
	rate = float64(n) / time.Since(begin).Seconds()
	slices.Sort(took)
	return rate, took[len(took)*99/100]
}

func heapBytes() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestAQueueOfAnyLengthCostsNoMemoryAndNoTime has no bounds but such as a scan, or a record per task in memory, would
// break: the figures are printed.
func TestAQueueOfAnyLengthCostsNoMemoryAndNoTime(t *testing.T) {
	total := largeCount(t)
	const few, claims, payload = 10_000, 20_000, 100
	l := openLong(t, longOptions{dir: t.TempDir()})
	create := func(i int) *core.TaskCreate {
		return &core.TaskCreate{ID: taskID(i), Queue: "q", Payload: make([]byte, payload)}
	}
	l.createAll(few+claims/2, create)
	smallRate, smallP99 := l.grants(claims / 2)
	if err := l.store.Flush(); err != nil {
		t.Fatal(err)
	}
	small := heapBytes()
	begin := time.Now()
	made := few + claims/2
	l.batches(total-few, 500, func(i int) core.Commit { return core.Commit{Ops: []core.Op{create(made + i)}} }, l.applied)
	filled := time.Since(begin)
	if err := l.store.Flush(); err != nil {
		t.Fatal(err)
	}
	perTask := (float64(heapBytes()) - float64(small)) / float64(total-few)
	rate, p99 := l.grants(claims / 2)

	l.close()
	begin = time.Now()
	l.open(t, l.disk)
	first := l.claim("q", 1, 0)
	restart := time.Since(begin)
	if len(first) != 1 {
		t.Fatal("nothing is given out after the restart")
	}
	inOrder(t, first, claims)
	rateAgain, p99Again := l.grants(claims / 2)
	t.Logf("%d ready tasks, made at %.0f/s: %.1f B of memory each; grants %.0f/s (p99 %v) with %d ready, %.0f/s (p99 %v) with all, "+
		"%.0f/s (p99 %v) after a restart, whose first grant came after %v; store %d MiB",
		total, float64(total-few)/filled.Seconds(), perTask, smallRate, smallP99, few, rate, p99, rateAgain, p99Again, restart,
		l.store.Stats().DiskBytes>>20)
	if perTask > 10*200 {
		t.Errorf("a ready task takes %.0f B of memory", perTask)
	}
	if restart > 30*time.Second {
		t.Errorf("the first grant after a restart took %v", restart)
	}
	if rate < smallRate/10 {
		t.Errorf("%.0f grants a second with %d ready tasks, %.0f with %d", rate, total, smallRate, few)
	}
	l.close()
}
