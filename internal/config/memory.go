package config

// Memory splits a server's memory. Every large buffer has its share here, in bytes; shares of one
// shard or one peer exist once for each.
type Memory struct {
	Store       int64 // the database's cache and memory tables
	Layer       int64 // one memory layer of one shard; a shard has two
	LogQueue    int64 // batches waiting for the log's writer
	LogCache    int64 // recent entries kept for followers and readers
	Proposals   int64 // of one shard, waiting for an entry
	GitTypes    int64 // types of objects that were looked up
	GitCommands int64 // commands of pushes that are under way
	GitPrograms int64 // of all programs of git together: processes of their own
	PeerBulk    int64 // appends waiting for one peer
	PeerControl int64 // votes, heartbeats and reads waiting for one peer
	PeerParts   int64 // parts of snapshots waiting for one peer
	PeerInbox   int64 // messages of peers waiting for one shard
	Search      int64 // indexes of collections
	Embeddings  int64 // vectors of texts, kept
	History     int64 // what the counters of queues were
	Frames      int64 // of clients' streams, proposed and not decided
	Requests    int64 // of clients, under way
	Sends       int64 // to clients' streams, waiting
}

// Share is one row of a Memory or of Descriptors, as metrics and errors name it. Bytes is a number
// of descriptors in the latter.
type Share struct {
	Name    string
	Bytes   int64
	Meaning string
}

// mib is 2^20 bytes.
const mib = 1 << 20

// PlanMemory splits total bytes.
//
//   - Two fifths go to the database, a fifth to the layers of all shards, a tenth each to waiting
//     proposals and to the log's queue, a twentieth to the log's cache.
//   - A sixty-fourth each is for types of git objects and for commands of pushes. In a cluster a
//     sixteenth each is for what waits for peers and for what came from them.
//   - A tenth each is for frames and for requests of clients, and a twentieth for what waits to be
//     sent to them. The bytes of these mostly are those of waiting proposals, so they are counted
//     twice here and not in memory.
//   - Two fifths bound the search indexes, which take memory as points come. A quarter bounds git
//     programs, which are processes of their own.
//   - A sixty-fourth, at most 8 MiB, is for what the counters of queues were.
//   - The rest is for connections and the garbage collector.
//
// What holds commits is never less than 4 MiB, the size of one commit. The bounds together may
// exceed total; they are not all reached at once.
func PlanMemory(total int64, shards, peers int) Memory {
	n := int64(max(shards, 1))
	m := Memory{
		Store:     total * 2 / 5,
		Layer:     min(max(total/5/(2*n), mib), 4*mib),
		LogQueue:  min(max(total/10, 16*mib), 64*mib),
		LogCache:  min(max(total/20, mib), 16*mib),
		Proposals: min(max(total/10/n, 4*mib), 64*mib),

		Search:      total * 2 / 5,
		Embeddings:  min(total/16, 32*mib),
		History:     min(max(total/64, mib), 8*mib),
		Frames:      min(max(total/10, 8*mib), 512*mib),
		Requests:    min(max(total/10, 16*mib), 256*mib), // one request may have 8 MiB
		Sends:       min(max(total/20, 8*mib), 256*mib),
		GitTypes:    min(total/64, 64*mib),
		GitCommands: min(max(total/64, 8*mib), 256*mib),
		GitPrograms: max(total/4, 64*mib),
	}
	if peers == 0 {
		return m
	}
	// What waits for one peer is split by class: a sixteenth each for control and parts, the rest
	// for appends.
	send := min(max(total/16/int64(max(peers, 4)), 4*mib), 64*mib)
	m.PeerControl = send / 16
	m.PeerParts = max(send/16, mib) // several parts, so that shards need not wait for each other's
	m.PeerBulk = send - m.PeerControl - m.PeerParts
	m.PeerInbox = min(max(total/16/max(n, 4), 4*mib), 64*mib)
	return m
}

// Shares lists the shares with their names and meanings. Those of peers are 0 on a single-node
// server.
func (m Memory) Shares() []Share {
	return []Share{
		{"store", m.Store, "the database's cache and memory tables"},
		{"layer", m.Layer, "one layer of changes of one shard, of which it has two"},
		{"log_queue", m.LogQueue, "batches that wait for the log's writer"},
		{"log_cache", m.LogCache, "recent entries, for followers and readers"},
		{"proposals", m.Proposals, "one shard's proposals that wait for an entry"},
		{"search", m.Search, "indexes of collections; beyond it points are refused, and deletes go on"},
		{"embeddings", m.Embeddings, "vectors of texts that were embedded lately"},
		{"history", m.History, "what the counters of queues were in the last day; beyond it only the busiest queues have rates"},
		{"frames", m.Frames, "frames of clients' streams that are proposed and not decided; beyond it streams are not read"},
		{"requests", m.Requests, "calls and REST requests that are under way; beyond it they are refused"},
		{"sends", m.Sends, "frames that wait to be sent to clients; beyond it streams that have some get no more tasks"},
		{"git_types", m.GitTypes, "types of git objects that were looked up"},
		{"git_commands", m.GitCommands, "commands of pushes that are under way; beyond it pushes are refused"},
		{"git_programs", m.GitPrograms, "programs of git, half for fetches and half for pushes; one has at most a quarter of it, and what needs more than is free waits"},
		{"peer_bulk", m.PeerBulk, "appends that wait for one peer; beyond it they are dropped, and sent again later"},
		{"peer_control", m.PeerControl, "votes, heartbeats and reads that wait for one peer; beyond it they are dropped"},
		{"peer_parts", m.PeerParts, "parts of snapshots that wait for one peer; beyond it they are dropped, and asked for again"},
		{"peer_inbox", m.PeerInbox, "messages of peers that wait for one shard; beyond it they are dropped"},
	}
}
