package server

// memoryPlan splits a server's memory: every large buffer names its share here.
type memoryPlan struct {
	store     int64 // the database's cache and memtables
	layer     int64 // one memory layer of one shard; a shard has two
	logQueue  int64 // batches waiting for the log's writer
	logCache  int64 // recent entries kept for followers and readers
	proposals int64 // of one shard, waiting for an entry
}

const mib = 1 << 20

// planMemory gives two fifths to the database, a fifth to the layers, a tenth each to waiting proposals and to the log's
// queue, and a twentieth to its cache. The rest is for connections, derived indexes and the collector.
func planMemory(total int64, shards int) memoryPlan {
	n := int64(shards)
	return memoryPlan{
		store:     total * 2 / 5,
		layer:     min(max(total/5/(2*n), mib), 4*mib),
		logQueue:  min(max(total/10, 16*mib), 64*mib),
		logCache:  min(max(total/20, mib), 16*mib),
		proposals: min(max(total/10/n, 4*mib), 64*mib), // never less than one commit
	}
}
