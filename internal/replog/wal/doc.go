// Package wal keeps the entries of all shards of a node in one log on disk.
//
// One goroutine takes all that was queued since its last turn, does one write and one fdatasync, then releases the
// waiters while the next turn's work gathers. Waiters share a sync: a busy log needs no timer, an idle one adds no delay.
//
// Promised: what a batch holds is durable before its Done is called (R1), all of it or nothing is found afterwards; a
// torn end is cut at open; any other damage refuses to open, naming file and offset; nothing is written after a failed
// write or sync (R7). Elsewhere: what an entry or a hard state means (replog), which node receives it (transport), when entries
// are no longer needed (the caller knows what is applied durably and calls Cut).
//
// DESIGN.md has the format and the argument why recovery is right.
//
// Main types: a Log has segments (files of records) and, for each shard, a table of where its
// entries lie. A caller's request becomes a change. The writer goroutine takes changes from the
// queue, encodes them as records, writes them as one batch and then applies them to the tables: so
// the tables never show what is not durable. The keeper goroutine makes spares, which become
// segments, out of segments that nothing live is in. At start an image of the directory is built
// first, and nothing on disk is changed before it is known to be whole.
//
// Two locks guard a Log: qmu what waits, mu what is durable. qmu is taken before mu, never after;
// neither is held during a write or a sync.
package wal
