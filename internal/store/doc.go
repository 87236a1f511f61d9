// Package store keeps the state of all shards of a node: a memory layer per shard over one database.
//
// A shard has one writer. Apply runs the changes of one log entry against the shard's active layer and publishes them
// at once, together with the applied index and the apply hash. The replicated log is the write-ahead log: nothing is
// written to disk on that path. When a layer is 16 MiB or one second old it is frozen, a new one takes its place, and
// the frozen one goes to the database as one batch that also holds the applied index and hash. So what is on disk is
// always the whole state at one index, and the log from there on brings the rest back.
//
// Promised: the content found after a crash is the state at the applied index found with it (R2); Durable never names
// an index that a power cut can lower; a key inserted and deleted within one layer never reaches the database; readers
// never wait for the disk writes of a layer. A full disk holds layers back and never loses one: writes go on when there
// is room. Every other failed write ends the use of the store, and Err delivers the reason.
//
// A shard's state also travels as files: Export writes them while the shard goes on, and Install exchanges a shard's state
// for theirs at one instant, for readers and for a crash.
//
// Elsewhere: what keys and values mean (internal/keys, internal/machine), the log itself (internal/replog), when the
// log may be cut (internal/node, by Durable). DESIGN.md in this directory explains the layers.
//
// Main types: Store is all shards over one database, Shard the state of one, Txn what an entry
// changes a shard through. Two goroutines meet at a shard: the one that applies entries, and the
// store's own that writes layers (run); the database has more of its own. Locks are taken in this
// order: Shard.writeMu, Shard.mu, Shard.headMu. A write to the disk is never waited for under
// Shard.mu, except in the exchange of a whole state.
package store
