package queue

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/millrace/millrace/internal/core"
)

// giveOne claims one task and returns it.
func (w *world) giveOne(queue string) core.Assigned {
	w.t.Helper()
	o := w.do(claimOp(1, queue))
	if len(o.res.Assigned) != 1 {
		w.t.Fatalf("%d tasks were given out", len(o.res.Assigned))
	}
	return o.res.Assigned[0]
}

// keyed makes n ready tasks of a key, numbered from first on.
func (w *world) keyed(queue, key string, first, n int) {
	for i := range n {
		w.do(&core.TaskCreate{ID: numbered(first + i), Queue: queue, Key: key, Payload: []byte(key)})
	}
}

// Keys with backlog share what is given out by their weights, also over a restart.
func TestKeysGetTheirSharesByWeight(t *testing.T) {
	w := newWorld(t, Options{Heads: 8})
	w.loose = true
	w.do(&core.QueueSet{Queue: "q", IfVersion: -1})
	w.do(&core.KeySet{Queue: "q", Key: "b", Settings: core.KeySettings{Weight: 3}})
	w.keyed("q", "a", 0, 800)
	w.keyed("q", "b", 10_000, 1600)
	w.keyed("q", "", 20_000, 800)
	given := map[string]int{}
	for i := range 2000 {
		if i%500 == 250 {
			w.restart()
		}
		given[string(w.giveOne("q").Payload)]++
	}
	// Weights 1, 3 and 1 of 5.
	for key, want := range map[string]int{"a": 400, "b": 1200, "": 400} {
		if n := given[key]; n < want-8 || n > want+8 {
			t.Errorf("key %q got %d of 2000 tasks, want %d", key, n, want)
		}
	}
	w.loose = false
	w.check()
}

// A key with one task now and then is served within two turns, however much another has waiting.
func TestARareKeyIsServedWithinTwoTurns(t *testing.T) {
	w := newWorld(t, Options{Heads: 8})
	w.loose = true
	w.keyed("q", "many", 0, 600)
	for i := range 100 {
		w.giveOne("q")
		w.do(&core.TaskCreate{ID: numbered(10_000 + i), Queue: "q", Key: "rare", Payload: []byte("rare")})
		first, second := w.giveOne("q"), w.giveOne("q")
		served := first
		if string(first.Payload) != "rare" {
			served = second
		}
		if string(served.Payload) != "rare" {
			t.Fatalf("after %d rounds the rare key waits for more than two turns", i)
		}
		w.do(&core.TaskComplete{Task: served.Task, Token: served.Token})
	}
}

// A key with backlog costs little memory, and one without tasks none.
func TestWhatKeysCost(t *testing.T) {
	const lanes = 20_000
	w := newWorld(t, Options{})
	w.loose = true
	for i := range lanes {
		w.do(&core.TaskCreate{ID: numbered(i), Queue: "q", Key: fmt.Sprintf("customer/%06d", i)})
	}
	live := func() uint64 {
		runtime.GC()
		var s runtime.MemStats
		runtime.ReadMemStats(&s)
		return s.HeapAlloc
	}
	before := live()
	m := New(testPartition, Options{})
	if err := m.Open(w.tx); err != nil {
		t.Fatal(err)
	}
	after := live()
	each := float64(after-before) / lanes
	t.Logf("%.0f bytes a key with backlog", each)
	if each > 210 { // 144 of it are the lane, the rest its key, its places in the indexes, which grow in steps, and in a heap
		t.Errorf("a key with backlog takes %.0f bytes", each)
	}
	runtime.KeepAlive(m)
	for w.m.ReadyCount("q") > 0 {
		for _, a := range w.do(claimOp(128, "q")).res.Assigned {
			w.do(&core.TaskComplete{Task: a.Task, Token: a.Token})
		}
	}
	if w.m.lanes != 0 || w.m.names["q"].share != nil {
		t.Errorf("%d lanes are left without tasks", w.m.lanes)
	}
}
