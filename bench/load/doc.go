// Package load drives the system under test: one file per kind of load, and a null server that only
// acknowledges.
//
// Drivers use the public Go client and HTTP, as a user does. They count through the rig: an
// acknowledgement of the server counts when it comes, and a handler that returns counts nothing.
//
// A driver is one function of Drivers: it opens clients, starts its load, calls Rig.Measure or one
// of its variants for the window, and waits for all answers. What it acknowledges to the ledgers of
// the rig is what the audit holds the servers to, so each acknowledged write is noted once, and
// each unknown one as unknown. Drivers that compare (two systems, two kinds of work) cut the window
// into slices that take turns, so that what slows the host slows both.
//
// The main types: queueRun is producers and workers over streams; restRun the same through REST;
// effectsRun and commitRun add effects to completions; keyRun puts keys; refsRun, nodesRun, pushRun
// and scaleRun change refs; searchRun searches over httpLines; steadyRun follows any of them
// through a long window; redriveRun redrives dead tasks under live traffic; null is the server that
// only acknowledges.
// Elsewhere: which rows there are (bench/tables); windows, histograms, validity and audits (bench).
package load

import (
	"context"

	"github.com/millrace/millrace/bench"
)

// Drivers returns the driver of each suite that is built, by the suite's name.
func Drivers() map[string]bench.Driver {
	return map[string]bench.Driver{
		"queue.cycle":         Queue,
		"queue.raft":          Queue,
		"queue.smart":         Smart,
		"queue.coalesce":      Queue,
		"queue.coalesce.raft": Queue,
		"queue.transport":     Transport,
		"queue.codec":         bench.Codec,
		"queue.gc":            GC,
		"queue.steady":        Steady,
		"queue.restart":       Restart,
		"queue.redrive":       Redrive,
		"queue.due":           Due,
		"queue.depth":         Depth,
		"queue.effects":       Effects,
		"queue.after":         Chains,
		"queue.keyed":         Keyed,
		"queue.latency":       Latency,
		"queue.idle":          Idle,
		"queue.aux/depth":     ClaimDepth,
		"queue.aux/mix":       Queue,
		"queue.aux/k6":        Shapes,
		"queue.failover":      Failover,
		"streams.idle":        IdleBeside,
		"tenant.timing":       TenantTiming,
		"tenant.neighbour":    TenantNeighbour,
		"search.sweep":        SearchSweep,
		"search.mixed":        SearchMixed,
		"search.recall":       SearchRecall,
		"search.load":         SearchPoints,
		"search.judge":        SearchJudge,
		"search.restart":      SearchRestart,
		"search.gaps":         SearchGaps,
		"search.graph":        SearchGraph,
		"search.outage":       SearchOutage,
		"footprint":           Footprint,
		"commit.effects":      CommitEffects,
		"kv.aurora.len":       Keys,
		"kv.aurora.followers": Keys,
		"kv.aurora.steady":    KeysSteady,
		"kv.pingpong":         KeysUnary,
		"kv.latency":          KeysLatency,
		"raft.entry":          KeysUnary,
		"refs.gitaly":         RefsGitaly,
		"refs.gitaly/git":     RefsGitaly,
		"refs.push":           RefsPush,
		"refs.scale":          RefsScale,
	}
}

// Transport drives the queue through the door that the row names.
func Transport(ctx context.Context, rig *bench.Rig) error {
	if rig.Shape.Transport == "rest" {
		return REST(ctx, rig)
	}
	return Queue(ctx, rig)
}
