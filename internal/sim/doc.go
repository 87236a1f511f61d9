// Package sim runs whole clusters in one goroutine, on virtual time and from one seed: nodes with their real log, store and
// machines, over a network that drops, delays, reorders, repeats and parts, disks that lose what was not synced, clocks that
// step, and clients that keep a ledger of what they were told. The same seed gives the same history, event by event.
//
// Only tests import it.
package sim
