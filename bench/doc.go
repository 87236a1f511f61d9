// Package bench measures a queue and refuses to print a number it cannot defend.
//
// A suite is data (its rows, the reference's figures, ratio rules) and one function that drives a system for
// one run. The harness around it starts the servers, samples the host during each run, audits what was
// acknowledged, repeats runs that the host spoiled, and writes a Result after each of them.
//
// Promised: only acknowledgements of the server count; a Figure names durability, voters, topology
// and validity or does not exist; a run is left out by cause only, is kept and shown; medians are
// over valid runs.
//
// The main types. Suite, RowSpec and Shape are the tables. Harness holds them with the parts that
// lie above this package. Config is one command. A runner carries a command out: choose makes one
// runSpec of each row and durability, and each run of it is a oneRun with a cluster of servers, a
// Rig for the driver, ledgers of what was acknowledged, and a watch of the host. The runs of a row
// become Figures, the Rows a Result, which is saved after every run.
//
// Rules. Each run has servers of its own, unless a target is given; there it has a namespace of its
// own. The driver counts through its Rig alone. An audit compares the ledgers with what the servers
// hold, on every server of the run. What the host did to a run is judged by fixed limits
// (validity.go), without looking at its figures.
// Elsewhere: bench/load drives, bench/tables is the data, bench/profile reads profiles,
// bench/report prints results.
package bench
