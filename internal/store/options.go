package store

import (
	"cmp"
	"log/slog"
	"runtime"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/millrace/millrace/internal/env"
)

// formatMajorVersion is the database's own format. It rises only together with the node's format: a database of a
// newer one cannot be opened by older builds.
const formatMajorVersion = pebble.FormatValueSeparation

// Options of a store. A zero field means its default.
type Options struct {
	FS          vfs.FS        // beneath everything; default the machine's
	Dir         string        // of the database, made if missing; required
	Clock       env.Clock     // default the machine's
	MemoryBytes int64         // for the block cache and the database's memory tables; default 128 MiB, at least 16 MiB
	LayerBytes  int64         // a shard's layer is written out at this size; default 16 MiB. Beyond four shards they share 64 MiB
	LayerAge    time.Duration // a layer is written out at this age; default 1 s
	OpenFiles   int           // tables that the database keeps open; default 1000, at least 74
	Manual      bool          // no goroutine writes layers and Apply never waits: the caller uses WriteLayer and Flush
	Logger      *slog.Logger  // default none
}

func (o Options) withDefaults() Options {
	o.MemoryBytes = max(cmp.Or(o.MemoryBytes, 128<<20), 16<<20)
	o.OpenFiles = max(cmp.Or(o.OpenFiles, 1000), 74)
	o.LayerBytes = cmp.Or(o.LayerBytes, 16<<20)
	o.LayerAge = cmp.Or(o.LayerAge, time.Second)
	if o.FS == nil {
		o.FS = SystemFS()
	}
	if o.Clock == nil {
		o.Clock = env.SystemClock{}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// layerLimit is the size at which each of n shards' layers is written out.
func (o Options) layerLimit(n int) int64 {
	return min(o.LayerBytes, max(4*o.LayerBytes/int64(max(n, 1)), 64<<10))
}

// memTableShare is the part of MemoryBytes that one memory table takes. There is one being filled and, for the time
// of a flush, up to three being written. The block cache has what they leave: the database takes tables from it.
const memTableShare = 8

// engineOptions tunes the database for layers written as few big batches on a machine of two cores.
func (o Options) engineOptions() *pebble.Options {
	e := &pebble.Options{
		FS:                 o.FS,
		Comparer:           newComparer(),
		FormatMajorVersion: formatMajorVersion,
		DisableWAL:         true, // the replicated log is the write-ahead log
		CacheSize:          o.MemoryBytes,
		MemTableSize:       uint64(o.MemoryBytes / memTableShare),
		// Waiting for a flush or a compaction is done before a layer is written, where it can be given up: these two
		// only keep the database from waiting within a write.
		MemTableStopWritesThreshold: 1 << 20,
		L0StopWritesThreshold:       1 << 20,
		L0CompactionThreshold:       4,
		LBaseMaxBytes:               64 << 20,
		MaxOpenFiles:                o.OpenFiles,
		CompactionConcurrencyRange:  func() (int, int) { return 1, max(1, runtime.NumCPU()/2) },
	}
	// Files that are taken in go to their level at once: what waits in memory is not durable without a log.
	e.Experimental.DisableIngestAsFlushable = func() bool { return true }
	// Files are small, because each has one filter, which is read and cached as a whole.
	for i := range e.TargetFileSizes {
		e.TargetFileSizes[i] = 4 << 20 << (i / 3)
	}
	e.Levels[0] = pebble.LevelOptions{
		BlockSize:      8 << 10,
		IndexBlockSize: 64 << 10,
		FilterPolicy:   bloom.FilterPolicy(10), // 1 % of lookups of absent keys read a block
	}
	return e
}
