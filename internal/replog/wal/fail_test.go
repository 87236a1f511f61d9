package wal_test

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/replog/replogtest"
	"github.com/millrace/millrace/internal/replog/wal"
)

func TestFailedWriteOrSyncIsFinal(t *testing.T) {
	for _, kind := range []string{"write", "sync"} {
		t.Run(kind, func(t *testing.T) {
			fsys := replogtest.NewFaulty(replogtest.NewDisk())
			o := small(fsys)
			o.SegmentBytes = 64 << 10
			l := open(t, o)
			l.Step()
			put(t, l, wal.Batch{Entries: entries(0, 1, 1, 1, 50)})
			fsys.Before(func(op replogtest.Op) error {
				if op.Kind == kind {
					return syscall.EIO
				}
				return nil
			})
			var ends []error
			for i := range uint64(3) {
				if err := l.Append(wal.Batch{Entries: entries(0, i+2, i+2, 1, 50), Done: func(err error) { ends = append(ends, err) }}); err != nil {
					t.Fatal(err)
				}
			}
			l.Step()
			fsys.Before(nil) // the disk is well again; the log must not use it
			ops := fsys.Ops()
			if err := l.Append(wal.Batch{Entries: entries(0, 5, 5, 1, 50), Done: func(err error) { ends = append(ends, err) }}); err != nil {
				t.Fatal(err)
			}
			l.ResetTo(1, 5, 5, nil, func(err error) { ends = append(ends, err) })
			for l.Step() {
			}
			if len(ends) != 5 {
				t.Fatalf("%d of 5 ended", len(ends))
			}
			for i, err := range ends {
				if !errors.Is(err, wal.ErrFatal) || !errors.Is(err, syscall.EIO) {
					t.Errorf("end %d: %v", i, err)
				}
			}
			if err := l.Cut(0, 1); !errors.Is(err, wal.ErrFatal) {
				t.Errorf("cut: %v", err)
			}
			if last := l.State(0).Last; last != 1 {
				t.Errorf("last %d, want 1", last)
			}
			if err := l.Close(); !errors.Is(err, wal.ErrFatal) {
				t.Errorf("close: %v", err)
			}
			if n := fsys.Ops() - ops; n != 0 {
				t.Errorf("%d operations after the failure", n)
			}
		})
	}
}

// Each operation on the disk fails once. Nothing acknowledged is lost, by a power cut right after it either, and nothing
// is acknowledged after it unless the failure was of no consequence.
func TestAnyFailedOperationLosesNothingAcknowledged(t *testing.T) {
	injected := 0
	for n := 1; ; n += 1 + n/40 {
		disk := replogtest.NewDisk()
		fsys := replogtest.NewFaulty(disk)
		fsys.FailAt(n, syscall.EIO)
		o := small(fsys)
		clock := &replogtest.HandClock{}
		o.Clock = clock
		var w *load
		h := &history{}
		l, err := wal.Open(o)
		if err == nil {
			w = newLoad(uint64(n), l, clock)
			h = w.h
			for range 300 {
				if err := w.step(); err != nil {
					break
				}
			}
			for l.Step() {
			}
			err = l.Close()
		}
		if err == nil {
			if fsys.Ops() < n {
				break // all operations had their turn
			}
			t.Fatalf("operation %d failed and no caller was told", n)
		}
		injected++
		if w != nil && !errors.Is(err, wal.ErrFatal) && !errors.Is(err, syscall.EIO) {
			t.Fatalf("operation %d failed: %v", n, err)
		}
		for _, keep := range []int{0, 50, 100} {
			o.FS = disk.Crash(keep, uint64(n))
			l, err := wal.Open(o)
			if err != nil {
				t.Fatalf("after operation %d failed: does not open: %v", n, err)
			}
			if _, why := h.matches(t, l); why != "" {
				t.Fatalf("after operation %d failed: %s", n, why)
			}
			_ = l.Close()
		}
	}
	if injected < 100 {
		t.Fatalf("only %d failures", injected)
	}
}

// After a failed sync the system may show bytes that the disk never got. A start reads them, so it must write them again
// before anybody relies on them.
func TestBytesThatWereNeverSyncedAreWrittenAgainAtOpen(t *testing.T) {
	disk := replogtest.NewDisk()
	fsys := replogtest.NewFaulty(disk)
	o := small(fsys)
	o.SegmentBytes = 64 << 10
	l := open(t, o)
	put(t, l, wal.Batch{Entries: entries(0, 1, 60, 1, 300)})
	fsys.Before(func(op replogtest.Op) error {
		if op.Kind == "sync" {
			return syscall.EIO
		}
		return nil
	})
	if err := tryPut(l, wal.Batch{HardState: hardState(1, 60), Entries: entries(0, 61, 63, 1, 300)}); !errors.Is(err, wal.ErrFatal) {
		t.Fatal(err)
	}
	_ = l.Close()
	fsys.Before(func(op replogtest.Op) error {
		if op.Kind == "sync" && strings.HasPrefix(op.Name, "0000000001.wal") {
			t.Error("the old segment was synced: the system would claim that it is durable")
		}
		return nil
	})
	l = open(t, o)
	seen := l.State(0).Last
	after := disk.Crash(0, 1)
	_ = l.Close()
	o.FS = after
	l = open(t, o)
	defer l.Close()
	if st := l.State(0); st.Last != seen || seen != 63 || string(st.HardState) != string(hardState(1, 60)) {
		t.Fatalf("a start showed entries up to %d, and after a power cut there are %d", seen, st.Last)
	}
}

func TestOpenRefusesOptionsThatMakeNoSense(t *testing.T) {
	disk := replogtest.NewDisk()
	for _, o := range []wal.Options{
		{Dir: dir},
		{FS: disk},
		{FS: disk, Dir: dir, SegmentBytes: 100},
		{FS: disk, Dir: dir, SegmentBytes: 2 << 30},
	} {
		if l, err := wal.Open(o); err == nil {
			l.Close()
			t.Errorf("opened with %+v", o)
		}
	}
}

func TestSwitchingSyncsOffAndOnKeepsWhatIsThere(t *testing.T) {
	disk := replogtest.NewDisk()
	o := small(disk)
	var last uint64
	for i := range 6 {
		o.NoSync = i%2 == 1
		l := open(t, o)
		for range 40 {
			put(t, l, wal.Batch{Shard: core.ShardID(2), Entries: entries(2, last+1, last+3, 1, 100)})
			last += 3
		}
		if i%3 == 0 {
			l.Close()
		}
		o.FS = disk
	}
	o.NoSync = false
	l := open(t, o)
	defer l.Close()
	d := disk.Crash(0, 1) // all is durable again once a log with syncs is open
	o.FS = d
	l2 := open(t, o)
	defer l2.Close()
	for _, l := range []*wal.Log{l, l2} {
		if !sameEntries(all(t, l, 2), entries(2, 1, last, 1, 100)) {
			t.Fatalf("last %d, want %d", l.State(2).Last, last)
		}
	}
}
