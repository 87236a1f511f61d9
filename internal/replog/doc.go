// Package replog orders a shard's commands: it drives one Raft replica per shard over the node's shared log.
//
// Core is a step function. In go ticks, messages from peers, proposals, and the news that an append or an apply is done;
// out come appends for the log, messages for peers, entries to apply and read states. It starts no goroutine, reads no
// clock and does no I/O but reading entries back from the log, so that a node drives it with goroutines and a simulator
// with a loop. One goroutine at a time may use a Core (R6).
//
// Promised: terms, votes and entries are durable before anything that depends on them leaves (R1); only entries that
// are durable here are handed out to be applied (R2); at start the commit index is at least what was durably applied
// (R3). Elsewhere: the log's bytes (wal), what an entry means (node and the state machines).
package replog
