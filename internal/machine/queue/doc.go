// Package queue is the state machine of a partition's task queue: it decides who gets a task, who
// holds it, and what becomes of it.
//
// A Machine is fed ops and stamps, one at a time, by package commit, and changes nothing but the transaction
// it is given and what it derives from it. Every replica that applies the same ops at the same stamps writes
// the same bytes and gives the same answers; a refusal is a value and leaves nothing behind.
//
// Promised: a token is issued once and rises, one token is live per task, and an op that names another changes
// nothing; no lease ends but by its holder or at a stamp past its deadline; a task that has not ended is never
// removed; created = the sum of all states + purged. Nothing scans a queue: opening reads the queues' records
// and the running tasks, a claim reads the tasks it hands out.
//
// The main types. A Machine has a queueState for each queue, a run for each running task, and three
// heaps of what time does: leases, ended tasks by when they are due, and the oldest ended tasks. A
// task is stored as a record (what changes), a spec (what does not) and one row in the index of its
// state. What is in memory is derived from that, and Open makes it again.
//
// Elsewhere: the order of fence, conditions and ops, and what undoes them together (package
// commit); when time is looked at (the leader proposes ticks); who waits for a task (the node, told
// by Events). DESIGN.md has the records, the keys and the invariants.
package queue
