// Package profile takes the six pprof profiles of a process and says what they show.
//
// A Source hands out the raw profiles of one process: HTTP asks the admin listener of a server, Self the process that
// it runs in. Collect takes a Set: CPU over a window; allocations, blocking and lock waits as the difference of two
// snapshots around it; heap and goroutines at its end. Diagnose reads a Set and judges it.
//
// Promised: CPU time is shared out by flat samples. A leaf in the runtime, in a system call or in the copying of memory
// is charged to the first caller outside of them, because that caller can be changed and the leaf cannot; collection of
// garbage and the scheduler stand apart. Lock delay is charged to the first frame outside runtime and sync, which is the
// holder that released the lock. The same bytes give the same diagnosis.
//
// Elsewhere: which run is profiled and what a finding does to the exit code (package bench).
package profile
