// Package bench measures a queue and refuses to print a number it cannot defend.
//
// A suite is data (its rows, the reference's figures, ratio rules) and one function that drives a system for one run.
// The harness around it starts the servers, samples the host during each run, audits what was acknowledged, repeats runs
// that the host spoiled, and writes a Result after each of them.
//
// Promised: only acknowledgements of the server count; a Figure names durability, voters, topology and validity or does
// not exist; a run is left out by cause only, is kept and shown; medians are over valid runs.
//
// Elsewhere: bench/load drives, bench/tables is the data, bench/profile reads profiles, bench/report prints results.
package bench
