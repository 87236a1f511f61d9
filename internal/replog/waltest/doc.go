// Package waltest damages logs, on disks in memory, and judges what the log makes of them when it is opened: a torn last
// batch is cut to a prefix of whole groups, and any damage of what was sealed is refused with file and offset.
//
// The logs are written by package wal itself; a seed makes every choice. Only tests and fault campaigns import it.
// Elsewhere: power cuts at random points, and damage at each byte of small logs (the tests of package wal).
//
// Tail tries what a power cut can do to the last write, which the log must survive; Sealed tries
// damage of what was durable, which the log must refuse. Both write a log by the log's own code,
// damage a copy of its files, open the copy and compare what it holds with the groups that were
// written.
package waltest

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/replog/replogtest"
	"github.com/millrace/millrace/internal/replog/wal"
)

// Report is what a run of damages did and found.
type Report struct {
	Done   int            // in the unit of the run
	Kinds  map[string]int // damages by their kind
	Broken []error        // broken promises; the run ends after a few
}

// enough broken promises tell what is wrong.
const enough = 10

// newReport returns a report of nothing.
func newReport() *Report { return &Report{Kinds: map[string]int{}} }

// breaks notes a broken promise.
func (r *Report) breaks(format string, args ...any) {
	r.Broken = append(r.Broken, fmt.Errorf(format, args...))
}

// dir is the log's directory on the disk.
const dir = "/wal"

// shards is how many shards share a log.
const shards = 3

// log is one log that is written step by step.
type log struct {
	// rng makes all choices.
	rng *rand.Rand
	// disk is what the log is written to, and o how it is opened.
	disk *replogtest.Disk
	o    wal.Options
	// wal is the log that is open now.
	wal *wal.Log
	// all are the groups that were queued, in order.
	all []group
	// last is the last index of each shard.
	last [shards]uint64
}

// group is what one caller made durable: all of it is found, or nothing. The log gets copies, so a
// group stays what was written.
type group struct {
	// shard is the number of the shard.
	shard   core.ShardID
	hard    []byte
	entries []wal.Entry
}

// newLog opens an empty log that is stepped by hand. Its cache is so small that entries are read
// from the disk.
func newLog(seed uint64, segment int64) (*log, error) {
	l := &log{rng: rand.New(rand.NewPCG(seed, 1)), disk: replogtest.NewDisk()}
	l.o = wal.Options{
		FS: l.disk, Dir: dir, Clock: &replogtest.HandClock{}, SegmentBytes: segment, CacheBytes: 1, Manual: true,
	}
	var err error
	l.wal, err = wal.Open(l.o)
	return l, err
}

// add queues one group of a few entries of at most size bytes each.
func (l *log) add(size int) error {
	s := core.ShardID(l.rng.IntN(shards))
	g := group{shard: s, hard: fmt.Appendf(nil, "hard state %d", len(l.all))}
	for range 1 + l.rng.IntN(4) {
		l.last[s]++
		b := make([]byte, 1+l.rng.IntN(size))
		for i := range b {
			b[i] = byte(l.rng.Uint32())
		}
		g.entries = append(g.entries, wal.Entry{Index: l.last[s], Term: 1, Kind: byte(l.rng.IntN(3)), Data: b})
	}
	l.all = append(l.all, g)
	return l.wal.Append(wal.Batch{
		Shard: s, HardState: slices.Clone(g.hard), Entries: slices.Clone(g.entries), Done: func(error) {},
	})
}

// end returns where the records of the last segment end, and which file that is. It reads the files
// as they are on the disk, so what was queued and not written does not count.
func (l *log) end() (file string, off int64, err error) {
	r, err := wal.Check(l.disk, dir)
	switch {
	case err != nil:
		return "", 0, err
	case r.Corrupt != nil:
		return "", 0, r.Corrupt
	}
	s := r.Segments[len(r.Segments)-1]
	return s.File, s.End, nil
}

// holds says how a log differs from the first n groups; nothing when it does not. It reads every
// entry back, from the disk.
func holds(l *wal.Log, groups []group) (differs string) {
	var hard [shards][]byte
	var want [shards][]wal.Entry
	for _, g := range groups {
		hard[g.shard] = g.hard
		want[g.shard] = append(want[g.shard], g.entries...)
	}
	for s := range core.ShardID(shards) {
		st := l.State(s)
		if string(st.HardState) != string(hard[s]) {
			return fmt.Sprintf("shard %d has hard state %q, want %q", s, st.HardState, hard[s])
		}
		if st.Last != uint64(len(want[s])) {
			return fmt.Sprintf("shard %d ends at %d, want %d", s, st.Last, len(want[s]))
		}
		for at := uint64(1); at <= st.Last; {
			got, err := l.Entries(s, at, st.Last+1, 1<<40)
			if err != nil || len(got) == 0 {
				return fmt.Sprintf("shard %d: %d entries from %d: %v", s, len(got), at, err)
			}
			for _, e := range got {
				w := want[s][at-1]
				if e.Index != w.Index || e.Term != w.Term || e.Kind != w.Kind || string(e.Data) != string(w.Data) {
					return fmt.Sprintf("shard %d: entry %d is another", s, at)
				}
				at++
			}
		}
	}
	return ""
}

// entries counts what a log holds.
func entries(l *wal.Log) (n uint64) {
	for s := range core.ShardID(shards) {
		n += l.State(s).Last
	}
	return n
}
