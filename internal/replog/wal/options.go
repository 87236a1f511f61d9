package wal

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/env"
)

// Options of one log. A zero field means its default.
type Options struct {
	FS           env.FS        // required
	Clock        env.Clock     // default the machine's
	Dir          string        // made if missing; required
	SegmentBytes int64         // written with zeros once, so that a sync rarely changes metadata; default 64 MiB, 4 KiB to 1 GiB
	QueueBytes   int64         // waiting for the writer, beyond it Append refuses; default 64 MiB
	NoSync       bool          // the same code without fsync: a power cut loses what the system had not written by itself
	CacheBytes   int64         // recent entries kept in memory, of all shards together; default 16 MiB
	ArchiveDir   string        // receives a copy of each segment before it is recycled; empty = off
	SealAfter    time.Duration // idle time after which a seal proves that the last batch was synced; default 10 ms
	Manual       bool          // no goroutine: the caller calls Step, and all methods from one goroutine at a time
}

const (
	minSegmentBytes = 4 << 10 // a page
	maxSegmentBytes = 1 << 30 // positions are 32 bits, and one group may make a segment larger
)

// withDefaults fills in the defaults, and refuses what does not fit.
func (o Options) withDefaults() (Options, error) {
	o.SegmentBytes = cmp.Or(o.SegmentBytes, 64<<20)
	o.QueueBytes = cmp.Or(o.QueueBytes, 64<<20)
	o.CacheBytes = cmp.Or(o.CacheBytes, 16<<20)
	o.SealAfter = cmp.Or(o.SealAfter, 10*time.Millisecond)
	if o.Clock == nil {
		o.Clock = env.SystemClock{}
	}
	switch {
	case o.FS == nil || o.Dir == "":
		return o, errors.New("a log needs a file system and a directory")
	case o.SegmentBytes < minSegmentBytes || o.SegmentBytes > maxSegmentBytes:
		return o, fmt.Errorf("segment of %d bytes: it has %d to %d", o.SegmentBytes, minSegmentBytes, maxSegmentBytes)
	}
	return o, nil
}

// MaxEntryBytes bounds the data of one entry: the largest commit (4 MiB) with all that is around it, twice over. It also
// bounds what a reader allocates for a length that it found on disk.
const MaxEntryBytes = 8 << 20

// Entry is one entry of a shard's log. Kind and Data are opaque here.
type Entry struct {
	Index, Term uint64
	Kind        byte
	Data        []byte
}

// Batch is what one Append makes durable: after a crash either all of it is found or nothing. The log keeps HardState
// and the entries' Data; the caller changes them no more.
type Batch struct {
	Shard     core.ShardID
	HardState []byte      // nil = unchanged
	Entries   []Entry     // consecutive; the first at most one past the shard's last, replacing all from there on
	Done      func(error) // called exactly once, from the writer, in order per shard; it must not block; may be nil
}

// ShardState is what the log holds of one shard, as recovered and as made durable since.
type ShardState struct {
	HardState         []byte // nil if none was ever written; not to be changed
	CutIndex, CutTerm uint64 // entries up to CutIndex are gone
	First, Last       uint64 // First = CutIndex+1; Last = CutIndex when there is no entry
}

// Stats counts what a log did since it was opened, and shows what it is now.
type Stats struct {
	Syncs uint64 // of a segment's content, one per batch
	Bytes uint64 // written as records
	// Entries counts the entries that were written.
	Entries uint64
	// Batches counts the writes, each with the changes that waited.
	Batches uint64
	// Seals counts the seals that were written.
	Seals uint64
	// Rotations counts the segments that were begun.
	Rotations uint64
	Recycled  uint64 // segments that were freed
	Rewritten uint64 // bytes of live entries copied forward, so that an old segment could go
	CacheHits uint64 // entries read from memory
	DiskReads uint64 // entries read from a segment

	ArchiveFailures uint64 // attempts; a segment is not recycled before it is archived

	QueuedBytes  uint64 // now: waiting for the writer
	Segments     uint64 // now: with live entries, and the one written to
	Spares       uint64 // now: ready to become a segment
	SegmentBytes uint64 // now: on disk, of segments
	SpareBytes   uint64 // now: on disk, of spares, and of segments that are about to become some
	CacheBytes   uint64 // now
}
