// Package sim runs whole clusters in one goroutine, on virtual time and from one seed: nodes with their real log, store and
// machines, over a network that drops, delays, reorders, repeats and parts, disks that fail, fill up, hang and lose what was
// not synced, clocks that step, drift and stop, and clients that keep a ledger of what they were told. The same seed gives the
// same history, event by event; it also draws the size of the cluster, its limits and which faults may strike.
//
// What is judged, and where: after each event, votes and acknowledgements against the sender's disk, logs against each other,
// what was applied against the log, and answers against what most hosts have durably (history.go); shard time against the
// clocks (history_time.go); linearizable reads against what was acknowledged before (read.go). At the end of a history all
// faults heal; calls must end, tasks must end, and after a last loss of power everything must still be there (sim.go,
// ledger.go). Then each shard's log is replayed, and an independent model judges every answer, every read at its index, and
// what is stored (replay.go).
//
// In half of the histories, clients also cancel, edit and redrive tasks, release them by force and pause queues (acts.go).
//
// In part of the histories operators add, remove, replace and promote nodes meanwhile, and hosts come back without their disks
// (operator.go, member.go): most of the voters that an entry was committed by is held against the configuration that the log
// leads to there, a voter was a learner that is near, and a replica id has one disk for ever (conf.go).
//
// Not simulated: flipped bits, whose tests are those of the log; the edges. Only tests import it.
//
// Main types: world is virtual time with the queue of events; host is a machine with a disk, a
// clock and, while it runs, a node; ledger is what clients were told; history is what the logs have
// shown; Plan is what is drawn from the seed. Everything runs in the goroutine of Run, so nothing
// here is locked. Code draws from world.rng only, and never from a map's order, or the same seed
// would not give the same history.
package sim
