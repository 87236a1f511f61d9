package queue

import (
	"fmt"
	"slices"
	"testing"

	"github.com/millrace/millrace/internal/core"
)

// listed reads the keys of the queue q in an order, at the stamp of the world.
func (w *world) listed(q core.KeyQuery) core.KeyList {
	w.t.Helper()
	q.Queue = "q"
	if q.Limit == 0 {
		q.Limit = 100
	}
	list, ok, err := Keys(w.tx, testPartition, &q, w.c.Stamp)
	if err != nil || !ok {
		w.t.Fatal(ok, err)
	}
	return list
}

func TestKeysTellWhatTheyWaitForAndWhatIsUsed(t *testing.T) {
	w := newWorld(t, Options{})
	w.do(&core.QueueSet{Queue: "q", IfVersion: -1, Config: core.QueueConfig{Share: core.QueueShare{
		Concurrency: 3, KeyConcurrency: 1, MaxWorkers: 5, Rate: core.Rate{Limit: 60, Per: 60_000, Burst: 10},
	}}})
	w.do(&core.KeySet{Queue: "q", Key: "b", Settings: core.KeySettings{Weight: 3, Concurrency: 2}})
	w.keyed("q", "a", 0, 2)
	w.advance(1000)
	w.keyed("q", "c", 10, 3)
	w.advance(1000)
	w.keyed("q", "b", 20, 4)
	w.keyed("q", "", 30, 1)
	for range 3 { // one without a key, one of b, whose line is the oldest, and one of a
		w.giveOne("q")
	}
	list := w.listed(core.KeyQuery{Order: core.KeysByOldest})
	var keys []string
	for _, k := range list.Keys {
		keys = append(keys, fmt.Sprintf("%s %d/%d", k.Key, k.Limit, k.Weight))
	}
	if want := []string{"a 1/1", "c 1/1", "b 2/3"}; !slices.Equal(keys, want) {
		t.Errorf("the longest ready first: %v, want %v", keys, want)
	}
	if k := list.Keys[0]; k.WaitsFor != core.WhyLaneLimit || !slices.Equal(k.HeldBy, []string{numbered(0).String()}) {
		t.Errorf("key a: %+v", k)
	}
	if !list.All || list.Waiting != 3 || list.Weights != 5 || list.Held != 1 {
		t.Errorf("%d keys wait, with weights of %d, and %d are held up", list.Waiting, list.Weights, list.Held)
	}
	if k := list.Unkeyed; k.Running != 1 || k.Ready != 0 || k.Limit != 1 || k.Weight != 1 {
		t.Errorf("the tasks without a key: %+v", k)
	}
	if u := list.Use; u != (core.QueueUse{Running: 3, Rate: 3, Workers: 1}) {
		t.Errorf("used: %+v", u)
	}
	// The order of names looks at a page, and a prefix at some: neither knows of all.
	for _, q := range []core.KeyQuery{{Limit: 1}, {Order: core.KeysByOwed, Prefix: "a"}} {
		if list := w.listed(q); list.All || list.Weights != 0 || len(list.Keys) != 1 || list.Unkeyed.Limit != 1 {
			t.Errorf("%+v: %+v", q, list)
		}
	}
}

func TestAQueueThatIsNotSharedHasAllTasksInOneLine(t *testing.T) {
	w := newWorld(t, Options{})
	w.keyed("q", "", 0, 3)
	w.giveOne("q")
	list := w.listed(core.KeyQuery{Order: core.KeysByBacklog})
	k := list.Unkeyed
	if len(list.Keys) != 0 || k.Tasks != 3 || k.Ready != 2 || k.Running != 1 || k.Limit != 0 || k.Weight != 1 || k.OldestReady != epoch {
		t.Errorf("%+v", list)
	}
	if list.Waiting != 1 || list.Weights != 1 || list.Held != 0 || list.Use != (core.QueueUse{Running: 1}) {
		t.Errorf("%+v", list)
	}
}

func TestWhatARateHasLetBeginIsUsedUntilItsTime(t *testing.T) {
	r := core.Rate{Limit: 60, Per: 60_000, Burst: 10} // one a second
	var s rateState
	if n := s.used(&r, epoch); n != 0 {
		t.Errorf("nothing began, and %d is used", n)
	}
	s = s.use(&r, epoch, 4)
	for after, want := range map[core.Millis]int64{0: 4, 1: 4, 999: 4, 1000: 3, 3999: 1, 4000: 0, 9000: 0} {
		if n := s.used(&r, epoch.Add(after)); n != want {
			t.Errorf("after %d ms %d is used, want %d", after, n, want)
		}
	}
	if n := s.used(&core.Rate{}, epoch); n != 0 {
		t.Errorf("without a rate %d is used", n)
	}
	most := core.Rate{Limit: core.MaxRate, Per: 1000}
	if n := rateState(0).use(&most, 0, core.MaxCost).used(&most, 0); n != core.MaxCost {
		t.Errorf("%d is used of the largest rate, want %d", n, int64(core.MaxCost))
	}
}

// BenchmarkKeysByOldest reads the page of the longest ready of as many keys as a list looks at.
func BenchmarkKeysByOldest(b *testing.B) {
	w := newWorld(b, Options{})
	w.loose = true
	for i := range core.MaxKeysLooked {
		w.do(&core.TaskCreate{ID: numbered(i), Queue: "q", Key: fmt.Sprintf("customer/%06d", i)})
	}
	for b.Loop() {
		if list := w.listed(core.KeyQuery{Order: core.KeysByOldest}); len(list.Keys) != 100 {
			b.Fatal(len(list.Keys))
		}
	}
}
