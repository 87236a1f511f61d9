package wal_test

import (
	"errors"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/env"
	"github.com/millrace/millrace/internal/replog/replogtest"
	"github.com/millrace/millrace/internal/replog/wal"
)

func TestRecyclingKeepsTheDiskBounded(t *testing.T) {
	appends, rotations := uint64(100_000), uint64(500)
	if testing.Short() {
		appends, rotations = 10_000, 50
	}
	fsys := replogtest.NewFaulty(replogtest.NewDisk())
	o := small(fsys)
	o.SegmentBytes = 32 << 10
	l := open(t, o)
	var last [3]uint64
	for i := range appends {
		s := core.ShardID(i % 3)
		last[s]++
		put(t, l, wal.Batch{Shard: s, HardState: hardState(1, i), Entries: entries(s, last[s], last[s], 1, 60)})
		if last[s]%50 == 0 {
			if err := l.Cut(s, last[s]-10); err != nil {
				t.Fatal(err)
			}
		}
		if used := fsys.Used(); used > 8*o.SegmentBytes {
			t.Fatalf("%d bytes on disk after %d appends", used, i+1)
		}
	}
	st := l.Stats()
	if int64(st.SegmentBytes) > 8*o.SegmentBytes || st.Recycled < st.Rotations-5 || st.Rotations < rotations {
		t.Fatalf("stats %+v", st)
	}
	if created := fsys.Count("create") - int(st.Rotations); created > 20 {
		t.Fatalf("%d files were made for %d rotations: segments are not used again", created, st.Rotations)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l = open(t, o)
	defer l.Close()
	for s := range core.ShardID(3) {
		cut := last[s] / 50 * 50
		if st := l.State(s); st.Last != last[s] || st.CutIndex != cut-10 {
			t.Fatalf("shard %d: %+v", s, st)
		}
		if !sameEntries(all(t, l, s), entries(s, cut-9, last[s], 1, 60)) {
			t.Fatalf("entries of shard %d differ", s)
		}
	}
}

func TestIdleShardDoesNotKeepOldSegments(t *testing.T) {
	disk := replogtest.NewDisk()
	o := small(disk)
	l := open(t, o)
	idle := append(entries(0, 1, 40, 1, 200), entries(0, 41, 41, 2, 6000)...) // several segments; one entry is larger than any
	put(t, l, wal.Batch{Shard: 0, HardState: hardState(2, 41), Entries: idle})
	if err := l.Cut(0, 5); err != nil {
		t.Fatal(err)
	}
	for i := range uint64(2000) {
		put(t, l, wal.Batch{Shard: 1, Entries: entries(1, i+1, i+1, 1, 100)})
		if i > 10 {
			if err := l.Cut(1, i-5); err != nil {
				t.Fatal(err)
			}
		}
		if n := l.Stats().SegmentBytes; n > 80<<10 {
			t.Fatalf("%d bytes on disk after %d appends", n, i+1)
		}
	}
	if st := l.Stats(); st.Rewritten == 0 || st.Rewritten > 20*st.Bytes/10 {
		t.Fatalf("%d of %d bytes were written again", st.Rewritten, st.Bytes)
	}
	want := model{0: {hard: hardState(2, 41), cut: 5, cutTerm: 1, entries: idle[5:]}}
	for range 3 {
		if d := want.diff(t, l, true); d != "" {
			t.Fatal(d)
		}
		l.Close()
		l = open(t, o)
	}
	l.Close()
}

func TestManyStartsDoNotLeaveManySegments(t *testing.T) {
	o := small(replogtest.NewDisk())
	o.SegmentBytes = 16 << 10
	for i := range uint64(60) {
		l := open(t, o)
		put(t, l, wal.Batch{Entries: entries(0, i+1, i+1, 1, 100)})
		if st := l.Stats(); st.Segments > 6 {
			t.Fatalf("%d segments after %d starts", st.Segments, i+1)
		}
		if i%2 == 0 {
			l.Close()
		} // else as if killed
	}
	l := open(t, o)
	defer l.Close()
	if !sameEntries(all(t, l, 0), entries(0, 1, 60, 1, 100)) {
		t.Fatal("entries differ")
	}
}

func TestFullDiskLetsBatchesWaitInOrderAndResumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := replogtest.NewFaulty(replogtest.NewDisk())
		o := wal.Options{FS: fsys, Dir: dir, Clock: replogtest.NewClock(), SegmentBytes: 16 << 10}
		l, err := wal.Open(o)
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		fsys.SetQuota(5 * o.SegmentBytes)
		var done []uint64
		put := func(i uint64) {
			err := l.Append(wal.Batch{Entries: entries(0, i, i, 1, 1000), Done: func(err error) {
				if err != nil {
					t.Errorf("entry %d: %v", i, err)
				}
				done = append(done, i)
			}})
			if err != nil {
				t.Fatal(err)
			}
		}
		for i := range uint64(100) {
			put(i + 1)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if !l.Full() || len(done) == 0 || len(done) == 100 {
			t.Fatalf("full %v with %d of 100 written", l.Full(), len(done))
		}
		if used := fsys.Used(); used > 5*o.SegmentBytes {
			t.Fatalf("%d bytes on disk", used)
		}
		before := len(done)
		if err := l.Cut(0, uint64(before)-2); err != nil { // what is cut makes room
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if len(done) <= before {
			t.Fatal("a cut on a full disk freed nothing")
		}
		fsys.SetQuota(0)
		time.Sleep(time.Second)
		synctest.Wait()
		if l.Full() || len(done) != 100 {
			t.Fatalf("full %v with %d of 100 written after there was room", l.Full(), len(done))
		}
		for i, d := range done {
			if d != uint64(i+1) {
				t.Fatalf("written in order %v", done)
			}
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestFullDiskIsNoticedBeforeTheSegmentIs(t *testing.T) {
	fsys := replogtest.NewFaulty(replogtest.NewDisk())
	o := small(fsys)
	l := open(t, o)
	defer l.Close()
	fsys.SetQuota(o.SegmentBytes + 1000)
	l.Step()
	if !l.Full() {
		t.Fatal("not full, and there is no room for a spare")
	}
	put(t, l, wal.Batch{Entries: entries(0, 1, 1, 1, 500)})
}

// TestALogOpensOnAFullDisk kills a log that waits for room, again and again, while what has room is written.
func TestALogOpensOnAFullDisk(t *testing.T) {
	fsys := replogtest.NewFaulty(replogtest.NewDisk())
	o := small(fsys)
	l := open(t, o)
	l.Step()
	fsys.SetQuota(fsys.Used())
	last := uint64(0)
	appended := make(map[uint64]bool)
	for run := range 8 {
		for err := error(nil); err == nil && last < 1000; { // until no more has room
			last++
			err = tryPut(l, wal.Batch{Entries: entries(0, last, last, 1, 200)})
			appended[last] = err == nil
			if run > 0 {
				break // what is written on a full disk is little
			}
		}
		if run == 0 && !l.Full() {
			t.Fatal("the log does not say that the disk is full")
		}
		var err error // without a Close, as if killed
		if l, err = wal.Open(o); err != nil {
			t.Fatalf("start %d on a full disk: %v", run+1, err)
		}
		at := l.State(0).Last
		if at < last && appended[at+1] {
			t.Fatalf("start %d: entry %d was written, and the log ends with %d", run+1, at+1, at)
		}
		if !sameEntries(all(t, l, 0), entries(0, 1, at, 1, 200)) {
			t.Fatalf("start %d: entries differ", run+1)
		}
		last = at
	}
	fsys.SetQuota(0)
	put(t, l, wal.Batch{Entries: entries(0, last+1, last+40, 1, 200)})
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestALogWithoutSparesOpensWhereThereIsRoomForLittle takes the spares away, as a disk from elsewhere may lack them.
func TestALogWithoutSparesOpensWhereThereIsRoomForLittle(t *testing.T) {
	fsys := replogtest.NewFaulty(replogtest.NewDisk())
	o := small(fsys)
	o.SegmentBytes = 64 << 10
	l := open(t, o)
	put(t, l, wal.Batch{Entries: entries(0, 1, 5, 1, 200)})
	names, err := fsys.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		if strings.HasSuffix(n, ".spare") {
			if err := fsys.Remove(filepath.Join(dir, n)); err != nil {
				t.Fatal(err)
			}
		}
	}
	fsys.SetQuota(fsys.Used() + 8<<10)
	if l, err = wal.Open(o); err != nil {
		t.Fatal(err)
	}
	if !sameEntries(all(t, l, 0), entries(0, 1, 5, 1, 200)) {
		t.Error("entries differ")
	}
	fsys.SetQuota(0)
	put(t, l, wal.Batch{Entries: entries(0, 6, 100, 1, 2000)})
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestClosingOnAFullDiskEndsWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := replogtest.NewFaulty(replogtest.NewDisk())
		l, err := wal.Open(wal.Options{FS: fsys, Dir: dir, Clock: replogtest.NewClock(), SegmentBytes: 16 << 10})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		fsys.SetQuota(1)
		ends := make(map[uint64]error)
		for i := range uint64(60) {
			if err := l.Append(wal.Batch{Entries: entries(0, i+1, i+1, 1, 1000), Done: func(err error) { ends[i+1] = err }}); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		refused := 0
		for i := range uint64(60) {
			err, ended := ends[i+1]
			if !ended || err != nil && !errors.Is(err, wal.ErrClosed) || err == nil && refused > 0 {
				t.Fatalf("entry %d: %v, ended %v", i+1, err, ended)
			}
			if err != nil {
				refused++
			}
		}
		if refused == 0 || refused == 60 {
			t.Fatalf("%d of 60 refused", refused)
		}
		fsys.SetQuota(0)
		l, err = wal.Open(wal.Options{FS: fsys, Dir: dir, Clock: replogtest.NewClock(), SegmentBytes: 16 << 10})
		if err != nil {
			t.Fatal(err)
		}
		if last := l.State(0).Last; last != uint64(60-refused) {
			t.Errorf("last %d, want %d", last, 60-refused)
		}
		l.Close()
	})
}

func TestSegmentsAreArchivedBeforeTheyAreRecycled(t *testing.T) {
	fsys := replogtest.NewFaulty(replogtest.NewDisk())
	o := small(fsys)
	o.ArchiveDir = "/archive"
	var l *wal.Log
	var want uint64
	for run := range 3 {
		l = open(t, o)
		for range 200 {
			want++
			put(t, l, wal.Batch{Entries: entries(0, want, want, uint64(run+1), 150)})
			if want > 10 {
				if err := l.Cut(0, want-5); err != nil {
					t.Fatal(err)
				}
			}
		}
		if run == 0 { // an archive that fails holds the segments back, and nothing else
			fsys.Before(func(op replogtest.Op) error {
				if op.Kind == "create" && op.Name[len(op.Name)-4:] == ".tmp" {
					return syscall.EIO
				}
				return nil
			})
			recycled := l.Stats().Recycled
			for range 100 {
				want++
				put(t, l, wal.Batch{Entries: entries(0, want, want, 1, 150)})
				if err := l.Cut(0, want-5); err != nil {
					t.Fatal(err)
				}
			}
			if st := l.Stats(); st.Recycled != recycled || st.ArchiveFailures == 0 {
				t.Fatalf("recycled %d segments without an archive; %d failures", st.Recycled-recycled, st.ArchiveFailures)
			}
			fsys.Before(nil)
			o.Clock.(*replogtest.HandClock).Advance(time.Second)
			l.Step()
		}
		l.Close()
	}
	archivedOrThere(t, fsys, o.ArchiveDir, want)
}

// archivedOrThere wants every entry of shard 0 in the archive or in the log.
func archivedOrThere(t *testing.T, fsys env.FS, archive string, want uint64) {
	t.Helper()
	seen := make(map[uint64]uint64)
	for _, d := range []string{archive, dir} {
		if err := wal.Scan(fsys, d, func(s core.ShardID, e wal.Entry) error {
			seen[e.Index] = e.Term
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range want {
		if seen[i+1] == 0 {
			t.Fatalf("entry %d of %d is neither in the archive nor in the log", i+1, want)
		}
	}
}

func TestAnArchiveOutlivesAPowerCut(t *testing.T) {
	disk := replogtest.NewDisk()
	if err := disk.MkdirAll("/logs"); err != nil {
		t.Fatal(err)
	}
	o := small(disk)
	o.ArchiveDir = "/logs/of/this/node"
	l := open(t, o)
	const want = 300
	for i := range uint64(want) {
		put(t, l, wal.Batch{Entries: entries(0, i+1, i+1, 1, 150)})
		if i > 10 {
			if err := l.Cut(0, i-5); err != nil {
				t.Fatal(err)
			}
		}
	}
	if l.Stats().Recycled == 0 {
		t.Fatal("no segment was reused")
	}
	archivedOrThere(t, disk.Crash(0, 1), o.ArchiveDir, want)
	l.Close()
}

func TestReadHoldsItsSegmentWhileItIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := wal.Options{FS: replogtest.NewDisk(), Dir: dir, Clock: replogtest.NewClock(), SegmentBytes: 4 << 10, CacheBytes: 1}
		l, err := wal.Open(o)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		stop, ended := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(ended)
			for {
				select {
				case <-stop:
					return
				default:
				}
				st := l.State(0)
				es, err := l.Entries(0, st.First, st.Last+1, 2000)
				if errors.Is(err, wal.ErrCompacted) || st.Last < st.First {
					continue // cut meanwhile
				}
				if err != nil || !sameEntries(es, entries(0, st.First, st.First+uint64(len(es))-1, 1, 200)) {
					t.Errorf("entries from %d: %v", st.First, err)
					return
				}
			}
		}()
		for i := range uint64(3000) {
			done := make(chan error, 1)
			if err := l.Append(wal.Batch{Entries: entries(0, i+1, i+1, 1, 200), Done: func(err error) { done <- err }}); err != nil {
				t.Fatal(err)
			}
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			if i%10 == 9 {
				if err := l.Cut(0, i-8); err != nil {
					t.Fatal(err)
				}
			}
		}
		close(stop)
		<-ended
		if st := l.Stats(); st.Recycled < 50 {
			t.Errorf("only %d segments were recycled", st.Recycled)
		}
	})
}
