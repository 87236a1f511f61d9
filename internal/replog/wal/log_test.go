package wal_test

import (
	"errors"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/replog/replogtest"
	"github.com/millrace/millrace/internal/replog/wal"
)

func TestWhatWasAppendedIsThereAfterReopening(t *testing.T) {
	disk := replogtest.NewDisk()
	l := open(t, small(disk))
	m := model{}
	for i := range uint64(100) {
		s := core.ShardID(i % 3)
		b := wal.Batch{Shard: s, HardState: hardState(1, i), Entries: entries(s, m.shard(s).last()+1, m.shard(s).last()+1+i%3, 1, 50)}
		put(t, l, b)
		m.shard(s).put(b)
	}
	if d := m.diff(t, l, true); d != "" {
		t.Fatal(d)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l = open(t, small(disk))
	defer l.Close()
	if d := m.diff(t, l, true); d != "" {
		t.Fatal(d)
	}
	if got := l.Shards(); len(got) != 3 || got[0] != 0 || got[2] != 2 {
		t.Fatalf("shards %v", got)
	}
}

func TestManyWaitersShareOneWriteAndOneSync(t *testing.T) {
	fsys := replogtest.NewFaulty(replogtest.NewDisk())
	o := small(fsys)
	o.SegmentBytes = 1 << 20
	l := open(t, o)
	defer l.Close()
	l.Step()
	writes, syncs := fsys.Count("write"), fsys.Count("sync")
	var done []int
	next := map[core.ShardID]uint64{}
	for i := range 50 {
		s := core.ShardID(i % 4)
		next[s]++
		if err := l.Append(wal.Batch{Shard: s, Entries: entries(s, next[s], next[s], 1, 100), Done: func(err error) {
			if err != nil {
				t.Error(err)
			}
			done = append(done, i)
		}}); err != nil {
			t.Fatal(err)
		}
	}
	if len(done) != 0 {
		t.Fatal("a waiter was released before the sync")
	}
	if !l.Step() {
		t.Fatal("nothing was queued")
	}
	if w, s := fsys.Count("write")-writes, fsys.Count("sync")-syncs; w != 1 || s != 1 {
		t.Fatalf("%d writes and %d syncs, want one of each", w, s)
	}
	for i, d := range done {
		if i != d {
			t.Fatalf("released in order %v", done)
		}
	}
	if len(done) != 50 || l.Stats().QueuedBytes != 0 {
		t.Fatalf("released %d, %d bytes still queued", len(done), l.Stats().QueuedBytes)
	}
	if l.Step() {
		t.Fatal("a step with nothing queued did something")
	}
}

func TestAppendInTheBackgroundReleasesEachWaiterOnceAndSealsWhenIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, wal.Options{FS: replogtest.NewDisk(), Dir: dir, Clock: replogtest.NewClock(), SegmentBytes: 64 << 10})
		var wg sync.WaitGroup
		for s := range core.ShardID(8) {
			wg.Go(func() {
				for i := range uint64(50) {
					done := make(chan error, 2)
					if err := l.Append(wal.Batch{Shard: s, Entries: entries(s, i+1, i+1, 1, 30), Done: func(err error) { done <- err }}); err != nil {
						t.Error(err)
						return
					}
					if err := <-done; err != nil {
						t.Error(err)
					}
					if last := l.State(s).Last; last != i+1 {
						t.Errorf("released before State shows it: last %d, want %d", last, i+1)
					}
				}
			})
		}
		wg.Wait()
		before := l.Stats()
		time.Sleep(time.Second)
		synctest.Wait()
		after := l.Stats()
		if after.Seals != 1 || after.Batches != before.Batches+1 {
			t.Errorf("idle for a second: %d seals, %d batches more; want 1 of each", after.Seals, after.Batches-before.Batches)
		}
		if after.Entries != 400 {
			t.Errorf("%d entries, want 400", after.Entries)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if err := l.Append(wal.Batch{}); !errors.Is(err, wal.ErrClosed) {
			t.Errorf("append after close: %v", err)
		}
		if err := l.Close(); err != nil {
			t.Errorf("second close: %v", err)
		}
	})
}

func TestEntryAtOrBelowTheLastReplacesAllFromThere(t *testing.T) {
	disk := replogtest.NewDisk()
	l := open(t, small(disk))
	put(t, l, wal.Batch{Entries: entries(0, 1, 10, 1, 40)})
	put(t, l, wal.Batch{Entries: entries(0, 6, 7, 2, 40)})
	want := append(entries(0, 1, 5, 1, 40), entries(0, 6, 7, 2, 40)...)
	for range 2 {
		if got := all(t, l, 0); !sameEntries(got, want) {
			t.Fatalf("%d entries, last %d", len(got), l.State(0).Last)
		}
		if term, err := l.Term(0, 6); term != 2 || err != nil {
			t.Fatalf("term %d, %v", term, err)
		}
		if _, err := l.Term(0, 8); !errors.Is(err, wal.ErrUnavailable) {
			t.Fatalf("term of a removed entry: %v", err)
		}
		l.Close()
		l = open(t, small(disk))
	}
	l.Close()
}

func TestReadsOutsideTheLogAreRefusedByKind(t *testing.T) {
	l := open(t, small(replogtest.NewDisk()))
	defer l.Close()
	put(t, l, wal.Batch{Entries: entries(0, 1, 10, 3, 100)})
	if err := l.Cut(0, 4); err != nil {
		t.Fatal(err)
	}
	put(t, l, wal.Batch{Entries: entries(0, 11, 11, 3, 100)})
	for _, c := range []struct {
		lo, hi uint64
		want   error
	}{{1, 5, wal.ErrCompacted}, {4, 6, wal.ErrCompacted}, {5, 13, wal.ErrUnavailable}, {12, 13, wal.ErrUnavailable}} {
		if _, err := l.Entries(0, c.lo, c.hi, math.MaxUint64); !errors.Is(err, c.want) {
			t.Errorf("entries [%d, %d): %v, want %v", c.lo, c.hi, err, c.want)
		}
	}
	if term, err := l.Term(0, 4); term != 3 || err != nil {
		t.Errorf("term at the cut: %d, %v", term, err)
	}
	if _, err := l.Term(0, 3); !errors.Is(err, wal.ErrCompacted) {
		t.Errorf("term below the cut: %v", err)
	}
	if es, err := l.Entries(0, 5, 12, 250); len(es) != 2 || err != nil {
		t.Errorf("250 bytes gave %d entries, %v; want 2", len(es), err)
	}
	if es, err := l.Entries(0, 5, 12, 0); len(es) != 1 || err != nil {
		t.Errorf("0 bytes gave %d entries, %v; want 1", len(es), err)
	}
	if _, err := l.Entries(9, 1, 2, 1); !errors.Is(err, wal.ErrUnavailable) {
		t.Errorf("unknown shard: %v", err)
	}
	if st := l.State(9); st.First != 1 || st.Last != 0 || st.HardState != nil {
		t.Errorf("state of an unknown shard: %+v", st)
	}
}

func TestAppendRefusesWhatCannotBeWritten(t *testing.T) {
	o := small(replogtest.NewDisk())
	o.QueueBytes = 1000
	l := open(t, o)
	defer l.Close()
	put(t, l, wal.Batch{Entries: entries(0, 1, 3, 1, 10)})
	for _, c := range []struct {
		b    wal.Batch
		want error
	}{
		{wal.Batch{Entries: entries(0, 5, 5, 1, 10)}, wal.ErrOrder},
		{wal.Batch{Entries: []wal.Entry{{Index: 4}, {Index: 6}}}, wal.ErrOrder},
		{wal.Batch{Shard: 1, Entries: entries(1, 0, 0, 1, 10)}, wal.ErrOrder},
		{wal.Batch{Entries: []wal.Entry{{Index: 4, Data: make([]byte, wal.MaxEntryBytes+1)}}}, wal.ErrTooLarge},
	} {
		if err := l.Append(c.b); !errors.Is(err, c.want) {
			t.Errorf("got %v, want %v", err, c.want)
		}
	}
	if err := l.Append(wal.Batch{Entries: entries(0, 4, 4, 1, 2000)}); err != nil {
		t.Errorf("a batch larger than the empty queue: %v", err)
	}
	if err := l.Append(wal.Batch{Entries: entries(0, 5, 5, 1, 10)}); !errors.Is(err, wal.ErrQueueFull) {
		t.Errorf("got %v, want %v", err, wal.ErrQueueFull)
	}
	l.Step()
	if err := l.Append(wal.Batch{Entries: entries(0, 5, 5, 1, 10)}); err != nil {
		t.Errorf("after the queue drained: %v", err)
	}
	l.Step()
	if last := l.State(0).Last; last != 5 {
		t.Errorf("last %d, want 5", last)
	}
}

func TestBatchWithNothingInItIsDoneInOrder(t *testing.T) {
	l := open(t, small(replogtest.NewDisk()))
	defer l.Close()
	var order []string
	note := func(s string) func(error) { return func(error) { order = append(order, s) } }
	_ = l.Append(wal.Batch{Entries: entries(0, 1, 1, 1, 1), Done: note("a")})
	_ = l.Append(wal.Batch{Done: note("b")})
	_ = l.Append(wal.Batch{HardState: []byte{}, Done: note("c")})
	l.Step()
	if got := strings.Join(order, ""); got != "abc" {
		t.Fatalf("done in order %q", got)
	}
	if st := l.State(0); st.HardState == nil {
		t.Fatal("an empty hard state was not kept")
	}
}

func TestResetRestartsTheLogOfOneShard(t *testing.T) {
	disk := replogtest.NewDisk()
	l := open(t, small(disk))
	for s := range core.ShardID(2) {
		put(t, l, wal.Batch{Shard: s, HardState: hardState(1, 3), Entries: entries(s, 1, 5, 1, 40)})
	}
	var reset error = errWaits
	l.ResetTo(0, 100, 7, hardState(7, 100), func(err error) { reset = err })
	if err := l.Append(wal.Batch{Entries: entries(0, 101, 102, 7, 40)}); err != nil {
		t.Fatal(err)
	}
	l.Step()
	if reset != nil {
		t.Fatal(reset)
	}
	m := model{
		0: {hard: hardState(7, 100), cut: 100, cutTerm: 7, entries: entries(0, 101, 102, 7, 40)},
		1: {hard: hardState(1, 3), entries: entries(1, 1, 5, 1, 40)},
	}
	for range 3 {
		if d := m.diff(t, l, true); d != "" {
			t.Fatal(d)
		}
		l.Close()
		l = open(t, small(disk))
	}
	l.ResetTo(0, 50, 6, nil, nil) // backwards is the caller's business
	l.Step()
	m[0] = &modelShard{hard: hardState(7, 100), cut: 50, cutTerm: 6}
	for range 3 {
		if d := m.diff(t, l, true); d != "" {
			t.Fatal(d)
		}
		l.Close()
		l = open(t, small(disk))
	}
	l.Close()
}

func TestCutIsRecordedWithTheNextBatchOrTheNextSeal(t *testing.T) {
	clock := &replogtest.HandClock{}
	o := small(replogtest.NewDisk())
	o.Clock = clock
	l := open(t, o)
	put(t, l, wal.Batch{Entries: entries(0, 1, 10, 2, 20)})
	if err := l.Cut(0, 11); !errors.Is(err, wal.ErrUnavailable) {
		t.Fatalf("cut above the last: %v", err)
	}
	if err := errors.Join(l.Cut(0, 3), l.Cut(0, 2)); err != nil {
		t.Fatal(err)
	}
	if cut := l.State(0).CutIndex; cut != 0 {
		t.Fatalf("cut at %d before it was written", cut)
	}
	put(t, l, wal.Batch{Entries: entries(0, 11, 11, 2, 20)})
	if st := l.State(0); st.CutIndex != 3 || st.CutTerm != 2 || st.First != 4 {
		t.Fatalf("state %+v", st)
	}
	if err := l.Cut(0, 11); err != nil {
		t.Fatal(err)
	}
	clock.Advance(time.Second)
	l.Step()
	if st := l.State(0); st.CutIndex != 11 || st.Last != 11 || st.First != 12 {
		t.Fatalf("state %+v", st)
	}
	l.Close()
	l = open(t, o)
	defer l.Close()
	if st := l.State(0); st.CutIndex != 11 || st.CutTerm != 2 || st.Last != 11 {
		t.Fatalf("state after reopening %+v", st)
	}
	put(t, l, wal.Batch{Entries: entries(0, 12, 12, 2, 20)})
}

func TestRecentEntriesComeFromMemoryWithinTheCache(t *testing.T) {
	o := small(replogtest.NewDisk())
	o.SegmentBytes, o.CacheBytes = 1<<20, 4000
	l := open(t, o)
	defer l.Close()
	for s := range core.ShardID(2) {
		put(t, l, wal.Batch{Shard: s, Entries: entries(s, 1, 100, 1, 100)})
	}
	if c := l.Stats().CacheBytes; c > 4000 || c < 3000 {
		t.Fatalf("%d bytes cached", c)
	}
	for s := range core.ShardID(2) {
		if got := all(t, l, s); !sameEntries(got, entries(s, 1, 100, 1, 100)) {
			t.Fatalf("shard %d differs", s)
		}
	}
	if st := l.Stats(); st.CacheHits < 20 || st.DiskReads < 150 || st.CacheHits+st.DiskReads != 200 {
		t.Fatalf("%d from memory, %d from disk", st.CacheHits, st.DiskReads)
	}
}

func TestEntryLargerThanASegmentIsKept(t *testing.T) {
	disk := replogtest.NewDisk()
	l := open(t, small(disk))
	want := append(entries(0, 1, 1, 1, 10), entries(0, 2, 2, 1, 100<<10)...)
	want = append(want, entries(0, 3, 20, 1, 900)...)
	put(t, l, wal.Batch{Entries: want[:1]})
	put(t, l, wal.Batch{Entries: want[1:2]})
	put(t, l, wal.Batch{Entries: want[2:]}) // a group larger than a segment, too
	for range 3 {
		if !sameEntries(all(t, l, 0), want) {
			t.Fatal("entries differ")
		}
		l.Close()
		l = open(t, small(disk))
	}
	l.Close()
}
