package wal_test

import (
	"runtime/debug"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/env"
	"github.com/millrace/millrace/internal/replog/replogtest"
	"github.com/millrace/millrace/internal/replog/wal"
)

// A log that does not wait for the disk need not wake its writer for a few bytes: a hand-over costs more than the write.
func TestASmallBatchWithoutSyncsIsWrittenByWhoAppendsIt(t *testing.T) {
	for name, c := range map[string]struct {
		noSync bool
		bytes  int
		here   bool
	}{
		"a small batch":            {noSync: true, bytes: 100, here: true},
		"a large batch":            {noSync: true, bytes: 4 << 10},
		"a small batch with syncs": {bytes: 100},
	} {
		t.Run(name, func(t *testing.T) {
			disk := replogtest.NewDisk()
			o := wal.Options{FS: disk, Dir: dir, Clock: &replogtest.HandClock{}, SegmentBytes: 1 << 20, NoSync: c.noSync}
			l := open(t, o)
			const batches = 200
			var here atomic.Int64
			for i := uint64(1); i <= batches; i++ {
				done := make(chan error, 1)
				b := wal.Batch{Shard: 1, HardState: hardState(1, i), Entries: entries(1, i, i, 1, c.bytes), Done: func(err error) {
					if strings.Contains(string(debug.Stack()), "wal.(*Log).Append") {
						here.Add(1)
					}
					done <- err
				}}
				if err := l.Append(b); err != nil {
					t.Fatal(err)
				}
				if err := <-done; err != nil {
					t.Fatal(err)
				}
			}
			// The writer has its turn where it is woken to see to a seal, so not each of them need be.
			if n := here.Load(); n > 0 != c.here {
				t.Errorf("%d of %d batches were written by who appended them", n, batches)
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			l = open(t, o)
			defer l.Close()
			got, err := l.Entries(1, 1, batches+1, 1<<30)
			if err != nil || len(got) != batches {
				t.Errorf("%d entries are there, %v", len(got), err)
			}
			if s := l.State(1); string(s.HardState) != string(hardState(1, batches)) {
				t.Errorf("hard state %q", s.HardState)
			}
		})
	}
}

// Batches that are appended by many goroutines at once are written by each of them, and by the writer: none is forgotten.
func TestBatchesOfManyShardsAreAllWrittenWithoutSyncs(t *testing.T) {
	l := open(t, wal.Options{FS: replogtest.NewDisk(), Dir: dir, SegmentBytes: 64 << 10, NoSync: true})
	defer l.Close()
	const shards, batches = 4, 300
	ended := make(chan error, shards)
	for s := range core.ShardID(shards) {
		go func() {
			for i := uint64(1); i <= batches; i++ {
				done := make(chan error, 1)
				if err := l.Append(wal.Batch{Shard: s, Entries: entries(s, i, i, 1, 100), Done: func(err error) { done <- err }}); err != nil {
					ended <- err
					return
				}
				if err := <-done; err != nil {
					ended <- err
					return
				}
			}
			ended <- nil
		}()
	}
	for range shards {
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	}
	if n := l.Stats().QueuedBytes; n != 0 {
		t.Errorf("%d bytes are queued still", n)
	}
}

// resetClock is a clock whose timers never fire, and tell for how long they are set.
type resetClock struct {
	replogtest.HandClock
	set chan time.Duration
}

func (c *resetClock) NewTimer(time.Duration) env.Timer {
	return resetTimer{c.HandClock.NewTimer(0), c.set}
}

type resetTimer struct {
	env.Timer
	set chan time.Duration
}

func (t resetTimer) Reset(d time.Duration) bool {
	t.set <- d
	return true
}

// A seal may have no room for as long as a disk is full. A writer that did not sleep until the next try would use up a processor.
func TestTheWriterOfAnIdleLogSleepsBeforeEachSeal(t *testing.T) {
	clock := &resetClock{set: make(chan time.Duration, 1000)}
	l := open(t, wal.Options{FS: replogtest.NewDisk(), Dir: dir, Clock: clock, SegmentBytes: 1 << 20, SealAfter: 10 * time.Millisecond})
	defer l.Close()
	done := make(chan error, 1)
	if err := l.Append(wal.Batch{Shard: 1, Entries: entries(1, 1, 5, 1, 100), Done: func(err error) { done <- err }}); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	clock.Advance(time.Hour)
	for i := uint64(1); i <= 5; i++ { // the first of these times may be of before the clock moved
		if err := l.Cut(1, i); err != nil {
			t.Fatal(err)
		}
		if d := <-clock.set; d <= 0 {
			t.Errorf("the writer sleeps for %s before the seal of cut %d", d, i)
		}
	}
}
