package store

import "sync/atomic"

// counts are what the store counts itself. The names are those of Stats, in order.
type counts struct{ mutations, elided, layers, bytes, waits atomic.Uint64 }

// Stats are counters since Open and sizes now.
type Stats struct {
	Mutations   uint64 // changes of keys and ranges written to the database
	Elided      uint64 // changes asked for that never reached it: overwritten or deleted within a layer
	LayerWrites uint64
	LayerBytes  uint64 // of the batches written
	ApplyWaits  uint64 // times that Apply waited for a layer to be written

	Flushes        uint64 // of the database's memory tables
	FlushedBytes   uint64
	CompactedBytes uint64
	Compactions    uint64
	CompactionDebt uint64 // bytes that are estimated to be compacted still
	LayerMemory    uint64 // bytes of applied changes that are in memory only
	DiskBytes      uint64 // taken by the database
	MemTableBytes  uint64
	CacheBytes     uint64
	CacheHits      uint64
	CacheMisses    uint64
	Sublevels      int // of level 0: how many files a read may look into before level 1
	Full           bool
}

// Stats returns the store's counters. After Close only its own are set.
func (s *Store) Stats() Stats {
	st := Stats{
		Mutations: s.counts.mutations.Load(), Elided: s.counts.elided.Load(), LayerWrites: s.counts.layers.Load(),
		LayerBytes: s.counts.bytes.Load(), ApplyWaits: s.counts.waits.Load(), Full: s.Full(),
	}
	for _, sh := range s.all() {
		st.LayerMemory += sh.layerMemory()
	}
	if !s.use.enter() {
		return st
	}
	defer s.use.leave()
	m := s.db.Metrics()
	st.Flushes, st.Compactions = uint64(m.Flush.Count), uint64(m.Compact.Count)
	st.CompactionDebt = m.Compact.EstimatedDebt
	st.DiskBytes, st.MemTableBytes, st.CacheBytes = m.DiskSpaceUsage(), m.MemTable.Size, uint64(m.BlockCache.Size)
	st.CacheHits, st.CacheMisses = uint64(m.BlockCache.Hits), uint64(m.BlockCache.Misses)
	st.Sublevels = int(m.Levels[0].Sublevels)
	for _, l := range m.Levels {
		st.FlushedBytes += l.TableBytesFlushed
		st.CompactedBytes += l.TableBytesCompacted
	}
	return st
}

// layerMemory is what the shard's layers hold.
func (sh *Shard) layerMemory() uint64 {
	sh.mu.RLock()
	defer sh.mu.RUnlock()
	n := sh.active.size
	if sh.frozen != nil {
		n += sh.frozen.size
	}
	return uint64(max(n, 0))
}
