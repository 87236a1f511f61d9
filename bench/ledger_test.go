package bench

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

func id(n int) string { return fmt.Sprintf("%026d", n) }

func TestALedgerComparesWhatWasCreatedWithWhatWasCompleted(t *testing.T) {
	l := newLedger(false)
	for i := range 10_000 {
		l.Created(id(i))
		if i >= 10 {
			l.Completed(id(i), 1, false)
		}
	}
	l.Completed(id(50), 2, false) // a second time
	l.Completed(id(60), 1, true)  // the answer to a repeat
	l.Completed(id(5), 1, true)   // the only answer that came
	l.Completed(id(-1), 1, false) // its create was not acknowledged
	l.Created(id(70))             // an id twice
	l.CreateUnknown(3)
	got := l.sums()
	want := ledgerSums{created: 10_001, completed: 9_994, unknown: 3, replayed: 2, twice: 1, createdTwice: 1, missing: 9, strangers: 1, every: 1}
	if got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestALedgerBeyondItsLimitKeepsEverySixteenthID(t *testing.T) {
	l := newLedger(false)
	l.limit = 1000
	for i := range 20_000 {
		l.Created(id(i))
		l.Completed(id(i), 1, false)
	}
	l.Completed(id(7), 2, false)
	got := l.sums()
	if got.every != thinning || got.created != 20_000 || got.missing != 0 || got.strangers != 0 {
		t.Errorf("%+v, want every 16th id and nothing missing", got)
	}
	kept := 0
	for i := range l.shards {
		kept += len(l.shards[i].created)
	}
	if kept < 1000 || kept > 1600 {
		t.Errorf("%d ids are kept of 20,000", kept)
	}
}

func TestASampleHasAThousandIDsOrOneInAHundred(t *testing.T) {
	l := newLedger(false)
	for i := range 5_000 {
		l.Created(id(i))
	}
	if n := len(l.samples()); n < 1000 || n > 1400 {
		t.Errorf("%d of 5,000 ids are read back, want at least 1,000", n)
	}
	for i := range 300_000 {
		l.Created(id(10_000 + i))
	}
	if n := len(l.samples()); n < 3000 {
		t.Errorf("%d of 305,000 ids are read back, want 1 %%", n)
	}
	full := newLedger(true)
	for i := range 5_000 {
		full.Created(id(i))
	}
	if n := len(full.samples()); n != 5_000 {
		t.Errorf("%d of 5,000 ids are read back, want all", n)
	}
}

func testRig() *Rig {
	r := &Rig{}
	r.init()
	return r
}

func TestOnlyWhatIsAcknowledgedInTheWindowCounts(t *testing.T) {
	r := testRig()
	op := r.Op("create")
	op.Record(0, time.Now(), 8, nil)
	r.measuring.Store(true)
	op.reset()
	op.Record(1, time.Now().Add(-time.Millisecond), 8, nil)
	op.Record(2, time.Now(), 8, errors.New("refused"))
	r.measuring.Store(false)
	op.Record(3, time.Now(), 8, nil)
	l, calls := op.summary()
	if op.items() != 8 || op.Acked() != 24 || calls != (Calls{OK: 1, Refused: 1}) || l.Count != 1 {
		t.Errorf("%d items in the window, %d in all, calls %+v, %d latencies", op.items(), op.Acked(), calls, l.Count)
	}
	if e := r.errors(); len(e) != 1 || e[0].Op != "create" || e[0].Count != 1 || e[0].First != "refused" {
		t.Errorf("errors %+v", e)
	}
}

func TestAnOpenLoopKeepsTheLatencyOfWhatWasDueInTheWindow(t *testing.T) {
	r := testRig()
	r.Rate = 1
	op := r.Op("create")
	from := time.Now().Add(-10 * time.Second)
	r.opened.Store(&from)
	to := from.Add(5 * time.Second)
	r.closed.Store(&to)
	op.Record(0, from.Add(4*time.Second), 1, nil) // answered after the window
	op.Record(0, from.Add(-time.Second), 1, nil)
	op.Record(0, from.Add(6*time.Second), 1, nil)
	if l, _ := op.summary(); l.Count != 1 || l.Max < 5_000_000 {
		t.Errorf("%d latencies up to %v µs, want the one that was due in the window", l.Count, l.Max)
	}
}

func TestRecordingAllocatesNothing(t *testing.T) {
	r := testRig()
	op := r.Op("create")
	r.measuring.Store(true)
	now := time.Now()
	if n := testing.AllocsPerRun(1000, func() { op.Record(1, now, 1, nil) }); n != 0 {
		t.Errorf("%v allocations per recorded operation", n)
	}
}

func BenchmarkRecord(b *testing.B) {
	r := testRig()
	op := r.Op("create")
	r.measuring.Store(true)
	now := time.Now()
	b.ReportAllocs()
	for b.Loop() {
		op.Record(1, now, 1, nil)
	}
}

func BenchmarkLedger(b *testing.B) {
	l := newLedger(false)
	name := id(1)
	b.ReportAllocs()
	for b.Loop() {
		l.Created(name)
	}
}
