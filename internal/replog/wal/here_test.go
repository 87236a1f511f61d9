package wal_test

import (
	"runtime/debug"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/millrace/millrace/internal/core"
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
