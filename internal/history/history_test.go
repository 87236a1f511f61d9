package history

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// sampleAt takes a sample of queues by name.
func sampleAt(h *History, at time.Duration, queues map[string]Counters) {
	h.Begin(at, time.Unix(1_000_000, 0).Add(at))
	for name, c := range queues {
		h.Add(Key{Queue: name}, c)
	}
	h.End()
}

// lineOf is one series of a queue.
func lineOf(h *History, k Key, s Series, day bool) (Line, bool) {
	all, ok := h.All(k, day)
	if !ok {
		return Line{}, false
	}
	return all[s], true
}

// TestAllSeriesAreOfTheSameSteps reads all series while samples come: each has the same last step.
func TestAllSeriesAreOfTheSameSteps(t *testing.T) {
	h, q := New(1<<20), Key{Queue: "q"}
	sampleAt(h, 0, did(0))
	var wait sync.WaitGroup
	wait.Go(func() {
		for i := range 5000 {
			sampleAt(h, time.Duration(i+1)*Step, did(uint64(i)))
		}
	})
	defer wait.Wait()
	for at := time.Duration(0); at < 5000*Step; {
		all, ok := h.All(q, false)
		if !ok {
			t.Fatal("the queue has no series")
		}
		for _, l := range all {
			if !l.Last.Equal(all[0].Last) {
				t.Fatalf("one series ends at %v, another at %v", all[0].Last, l.Last)
			}
		}
		at = all[0].Last.Sub(time.Unix(1_000_000, 0))
	}
}

// did is what one queue has done.
func did(completed uint64) map[string]Counters {
	return map[string]Counters{"q": {Created: completed, Completed: completed}}
}

func TestRatesAreOfTheLastMinute(t *testing.T) {
	h, q := New(1<<20), Key{Queue: "q"}
	if _, ok := h.Rates(q, 0); ok {
		t.Error("without a sample there are rates")
	}
	sampleAt(h, 0, did(1000))
	if _, ok := h.Rates(q, 0); ok || h.Spark(q, 0) != nil {
		t.Error("one sample of a queue that was there before makes rates")
	}
	for i := range 10 {
		sampleAt(h, time.Duration(i+1)*Step, did(1000+uint64(i+1)*20))
		if r, ok := h.Rates(q, time.Duration(i+1)*Step); !ok || r.Completed != 2 || r.Created != 2 || r.Failed != 0 {
			t.Fatalf("after %d steps the rates are %+v, %v", i+1, r, ok)
		}
	}
	sampleAt(h, 11*Step, did(1200))
	if r, _ := h.Rates(q, 11*Step); r.Completed != 10./6 {
		t.Errorf("with a step without work the rate is %v", r.Completed)
	}
	if _, ok := h.Rates(q, 14*Step); ok {
		t.Error("a minute that ended long ago has rates")
	}
}

func TestAQueueThatCameSinceTheLastSampleCountsFromZero(t *testing.T) {
	h := New(1 << 20)
	sampleAt(h, 0, nil)
	sampleAt(h, Step, did(50))
	if r, ok := h.Rates(Key{Queue: "q"}, Step); !ok || r.Completed != 5 {
		t.Errorf("its rates are %+v, %v", r, ok)
	}
}

func TestACounterThatFellIsANewBeginning(t *testing.T) {
	h := New(1 << 20)
	for i, n := range []uint64{100, 200, 30, 50} {
		sampleAt(h, time.Duration(i)*Step, did(n))
	}
	l, ok := lineOf(h, Key{Queue: "q"}, Completed, false)
	if got := l.Values[len(l.Values)-4:]; !ok || !slices.Equal(got, []uint32{Missing, 100, Missing, 20}) {
		t.Errorf("the steps are %v", got)
	}
}

func TestAStepWithoutASampleIsMissing(t *testing.T) {
	h, q := New(1<<20), Key{Queue: "q"}
	for i, step := range []time.Duration{0, 1, 4, 5} {
		sampleAt(h, step*Step+time.Second, map[string]Counters{"q": {Completed: uint64(i) * 10, Ready: uint64(i)}})
	}
	done, _ := lineOf(h, q, Completed, false)
	ready, _ := lineOf(h, q, Ready, false)
	if got := done.Values[len(done.Values)-6:]; !slices.Equal(got, []uint32{Missing, 10, Missing, Missing, Missing, 10}) {
		t.Errorf("completed: %v", got)
	}
	if got := ready.Values[len(ready.Values)-6:]; !slices.Equal(got, []uint32{0, 1, Missing, Missing, 2, 3}) {
		t.Errorf("ready: %v", got)
	}
	if want := time.Unix(1_000_000, 0).Add(5 * Step); !done.Last.Equal(want) || done.Step != Step {
		t.Errorf("the last step began at %v and takes %v", done.Last, done.Step)
	}
}

func TestTheBusiestQueuesAreKept(t *testing.T) {
	h := New(5 * 3 * seriesBytes / 4 * 101 / 100) // room for three series
	queues := map[string]Counters{}
	for i := range 40 {
		queues[fmt.Sprint("q", i)] = Counters{}
	}
	for step := range 20 {
		for i := range 40 {
			name := fmt.Sprint("q", i)
			c := queues[name]
			if i%20 == 7 {
				c[Completed] += 100
			}
			queues[name] = c
		}
		sampleAt(h, time.Duration(step)*Step, queues)
		if h.filled > h.maxSeries || len(h.known) > h.maxKnown {
			t.Fatalf("%d series of %d, %d queues of %d", h.filled, h.maxSeries, len(h.known), h.maxKnown)
		}
	}
	for _, name := range []string{"q7", "q27"} {
		if r, ok := h.Rates(Key{Queue: name}, 19*Step); !ok || r.Completed != 10 {
			t.Errorf("%s has the rates %+v, %v", name, r, ok)
		}
	}
	sampleAt(h, 20*Step, nil)
	if len(h.known) != 0 || h.filled != 0 {
		t.Errorf("%d queues that are gone are known, %d with series", len(h.known), h.filled)
	}
}

func TestABusyQueueIsFoundAmongMoreThanAreKnown(t *testing.T) {
	h := &History{maxKnown: 32, maxSeries: 2, known: map[Key]*line{}, step: -1}
	queues := map[string]Counters{}
	for step := range 400 {
		for i := range 60 {
			queues[fmt.Sprint("q", i)] = Counters{}
		}
		queues["q50"] = Counters{Completed: uint64(step) * 10}
		sampleAt(h, time.Duration(step)*Step, queues)
		if len(h.known) > h.maxKnown || h.filled > h.maxSeries {
			t.Fatalf("%d queues are known, and %d have series", len(h.known), h.filled)
		}
	}
	if r, ok := h.Rates(Key{Queue: "q50"}, 399*Step); !ok || r.Completed != 1 {
		t.Errorf("its rates are %+v, %v", r, ok)
	}
}

// TestAHistoryIsWhatAllSamplesSay compares with a list of all samples.
func TestAHistoryIsWhatAllSamplesSay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h, q := New(1<<20), Key{Queue: "q"}
		fine, wide := map[int64]uint64{}, map[int64]uint64{} // completed by step; absent: missing
		at := time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "at"))
		var total uint64
		last, known := int64(-1), false
		for range rapid.IntRange(1, 600).Draw(t, "samples") {
			if rapid.IntRange(0, 99).Draw(t, "long") == 0 {
				at += time.Duration(rapid.Int64Range(0, int64(30*time.Hour)).Draw(t, "gap"))
			}
			at += Step / time.Duration(rapid.IntRange(1, 2).Draw(t, "part"))
			n := rapid.Uint64Range(0, 1000).Draw(t, "done")
			fell := rapid.IntRange(0, 49).Draw(t, "fell") == 0 && total > 0
			if total += n; fell {
				total = 0
			}
			step := int64(at / Step)
			if known && !fell && step <= last+1 {
				fine[step] += n
				wide[step/coarse] += n
			}
			last, known = step, true
			sampleAt(h, at, map[string]Counters{"q": {Completed: total}})
		}
		compare := func(day bool, want map[int64]uint64, last int64) {
			l, _ := lineOf(h, q, Completed, day)
			for i, got := range l.Values {
				n, ok := want[last-int64(len(l.Values)-1-i)]
				if ok != (got != Missing) || ok && uint64(got) != n {
					t.Fatalf("value %d of %d (day: %v) is %d; want %d, %v", i, len(l.Values), day, got, n, ok)
				}
			}
		}
		compare(false, fine, last)
		compare(true, wide, last/coarse)
		var spark []uint32 // newest first
		for to := last; len(spark) < SparkBins; to -= binSteps {
			var n uint64
			known := false
			for s := to - binSteps + 1; s <= to; s++ {
				_, ok := fine[s]
				n, known = n+fine[s], known || ok
			}
			if !known {
				break
			}
			spark = append(spark, uint32(n))
		}
		slices.Reverse(spark)
		if got := h.Spark(q, at); !slices.Equal(got, spark) {
			t.Fatalf("the spark line is %v, want %v", got, spark)
		}
	})
}

// BenchmarkSample takes a sample of 10,000 queues.
func BenchmarkSample(b *testing.B) {
	h := New(8 << 20)
	keys := make([]Key, 10_000)
	for i := range keys {
		keys[i].Queue = fmt.Sprint("queue-", i)
	}
	at := time.Duration(0)
	for b.Loop() {
		at += Step
		h.Begin(at, time.Time{})
		for i, k := range keys {
			n := uint64(at/Step) * uint64(i)
			h.Add(k, Counters{Created: n, Completed: n})
		}
		h.End()
	}
}

// TestRecentTellsOfDeadTasksAndCrashes looks back over the last ten minutes.
func TestRecentTellsOfDeadTasksAndCrashes(t *testing.T) {
	h, q := New(1<<20), Key{Queue: "q"}
	begun := time.Unix(1_000_000, 0)
	take := func(step int, dead, crashed, completed uint64) Recent {
		t.Helper()
		at := time.Duration(step) * Step
		sampleAt(h, at, map[string]Counters{"q": {Completed: completed, Crashed: crashed, Dead: dead}})
		r, ok := h.Recent(q, at)
		if !ok {
			t.Fatalf("nothing is known at step %d", step)
		}
		return r
	}
	if r := take(0, 7, 100, 100); r != (Recent{}) {
		t.Errorf("what was there before the first sample counts: %+v", r)
	}
	take(1, 5, 100, 110)
	take(2, 9, 103, 120)
	r := take(3, 8, 104, 130)
	want := Recent{Rise: 3, RiseSince: begun.Add(2 * Step), Ended: 34, Crashed: 4, CrashedSince: begun.Add(2 * Step)}
	if r != want {
		t.Errorf("after the third step it is %+v, want %+v", r, want)
	}
	for i := range recentSteps + 2 {
		r = take(4+i, 8, 104, 130)
	}
	if r != (Recent{}) {
		t.Errorf("what is more than ten minutes old counts: %+v", r)
	}
	if _, ok := h.Recent(Key{Queue: "other"}, 0); ok {
		t.Error("a queue that is not there is known")
	}
}

// TestTheNodeKeepsItsSeries offers its place to queues that do more.
func TestTheNodeKeepsItsSeries(t *testing.T) {
	h := New(1 << 20)
	for step := range 4 {
		h.Begin(time.Duration(step)*Step, time.Unix(0, 0))
		h.Add(Key{Node: true}, Counters{Entries: uint64(step)})
		for i := range 2 * h.maxSeries {
			h.Add(Key{Queue: fmt.Sprint(i)}, Counters{Created: uint64(step * (i + 10) * 1000)})
		}
		h.End()
	}
	if lines, ok := h.All(Key{Node: true}, false); !ok || lines[Entries].Values[steps-1] != 1 {
		t.Error("the node has no series")
	}
}
