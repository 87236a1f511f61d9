// Package node runs the shards of one process: it proposes, applies, tells time, grants tasks to waiting workers, and
// answers reads.
//
// Each shard has two goroutines. The loop owns the Raft replica: it gathers what arrived while the last append was in
// flight into one entry, adds the grants that entry allows, and hands entries to the log and committed ones to the
// applier, or does its work where that is little. The applier runs the state machine over the store's memory layer, answers each proposal when its commits are
// judged, publishes the entry, and then answers settles and pushes assigned tasks. A third, small state is the
// dispatcher: which sessions wait for which queues. It is soft state of the leader, rebuilt by the streams that attach
// again. What concerns the other nodes is in peers.go, round.go, leader.go and clocks.go.
//
// Promised: every proposal ends exactly once, with its results, a refusal, or "unknown" (R13); a leader serves and
// grants only after it applied an entry of its own term (R5); lease deadlines never compare wall clocks (R11).
// Elsewhere: what an op means (machine), bytes on disk (wal, store), wire formats and authorization (api).
package node
