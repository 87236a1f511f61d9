package main

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/millrace/millrace/bench"
)

// figures sets what a run says of one system: the rate of its cycles, and what each cycle cost. A cycle is the whole
// way of one task, from create to completion.
func (l *lane) figures(rig *bench.Rig) {
	if l.tasks == 0 || l.seconds <= 0 {
		rig.Fail(l.name, errors.New("no task went all the way within what counts"))
		return
	}
	rig.Metric(l.name+"_per_s", l.tasks/l.seconds, "cycles/s")
	rig.Metric(l.name+"_client_cpu_us_per_cycle", l.client*1e6/l.tasks, "µs")
	if l.syncedKnown {
		rig.Metric(l.name+"_fsyncs_per_cycle", l.synced/l.tasks, "fsyncs")
	}
	// Kernels before Linux 5.5 do not list flushes of disks: without one there are no figures of disks.
	if l.flushed > 0 {
		rig.Metric(l.name+"_disk_bytes_per_cycle", l.written/l.tasks, "B")
		rig.Metric(l.name+"_disk_flushes_per_cycle", l.flushed/l.tasks, "flushes")
	}
	if l.servers.root == 0 {
		return // it is on another host: what follows is not known
	}
	rig.Metric(l.name+"_server_cpu_us_per_cycle", l.cpu*1e6/l.tasks, "µs")
	rig.Metric(l.name+"_memory_peak", l.memory/(1<<20), "MiB")
	// The division is by at least a nanosecond, so that a run without slices of the other system divides by no zero.
	if idle := l.idleCPU / max(l.idleFor, 1e-9); idle > idleLimit {
		rig.Warn("idle_peer", fmt.Sprintf("%s: %.0f %% of a core was used while the other was driven", l.name, 100*idle), idle)
	}
}

// ratios sets the figures that compare both systems. All are such that more than 1 is better for Millrace, except the
// ratio of latencies.
func ratios(rig *bench.Rig, ours, theirs *lane) {
	if ours.tasks == 0 || theirs.tasks == 0 {
		return
	}
	rig.Metric("ratio_to_peer", ours.tasks/ours.seconds/(theirs.tasks/theirs.seconds), "×")
	if ours.cpu > 0 && theirs.cpu > 0 {
		rig.Metric("server_cpu_ratio_to_peer", theirs.cpu/theirs.tasks/(ours.cpu/ours.tasks), "×")
	}
	if a, b := rig.Op("create").P99(), rig.Op("peer_create").P99(); a > 0 && b > 0 {
		rig.Metric("create_p99_ratio_to_peer", a/b, "×")
	}
	for _, l := range []*lane{ours, theirs} {
		if wall := l.client / l.seconds / float64(runtime.NumCPU()); wall > clientWall {
			rig.Warn("client_bound", fmt.Sprintf("%s: the client took %.0f %% of the machine", l.name, 100*wall), wall)
		}
	}
}
