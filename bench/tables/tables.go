// Package tables is the data of the bench: every suite with its rows, shapes, published figures and
// targets, the ratios that are judged, and the profiles. One file holds one table of a reference.
//
// A published figure is what its authors printed, on their hardware and with their durability,
// which its note states. It is context and fails nothing by itself. Must decides whether we are
// done; aim is what to reach for after that.
//
// Elsewhere: how a suite drives a system (bench/load), what counts and when a run is left out
// (bench). Rules of the tables. A row's name is part of every stored result, so that it is never
// given another meaning. Targets that hold on every machine are marked free; the others are set for
// 2 cores with a disk whose sync takes about 0.14 ms, and judged only when asked for.
//
// The main parts: Suites and Profiles are what can be run, Judge and Ratios what is said of a result, Harness
// the whole for package bench. A helper such as atLeast, free or published makes one entry.
package tables

import (
	"fmt"
	"slices"
	"time"

	"github.com/millrace/millrace/bench"
	"github.com/millrace/millrace/bench/load"
	"github.com/millrace/millrace/bench/profile"
	"github.com/millrace/millrace/bench/report"
)

// Names of the profiles: Smoke looks at the harness, Quick and Seeds measure one row per published
// figure, Full measures everything.
const (
	Smoke = "smoke"
	Quick = "quick"
	Seeds = "seeds"
	Full  = "full"
)

// Memberships of rows in profiles: inSeeds for the row of a published figure, inAll for one such
// row of each suite, inFull for the rest.
var (
	inSeeds = []string{Quick, Seeds, Full}
	inAll   = []string{Smoke, Quick, Seeds, Full}
	inFull  = []string{Full}
)

// Metrics that targets and ratios name. A driver or the harness measures them under these names.
const (
	cycles    = "cycles_per_s"
	creates   = "creates_per_s"
	completes = "completes_per_s"
	requests  = "requests_per_op"
	// cpuPerOp is that of client and server together.
	cpuPerOp = "cpu_us_per_op"
	// mutations are those of the store, per operation.
	mutations = "mutations_per_op"
	fsyncs    = "fsyncs_per_op"
	// overSync ends the name of a latency divided by the p50 of fdatasync of the same run.
	overSync = "_over_fdatasync"
	// createSync is the mean latency of a create over that.
	createSync = "create_mean" + overSync
	// gcTail is p99.9 in slices with a collection of garbage ÷ without.
	gcTail   = "gc_p999_ratio"
	gcPause  = "gc_pause_p99_us"
	perOp    = "ns_per_op"
	refsPerS = "refs_per_s"
	putsPerS = "puts_per_s"
	putP50   = "put_p50_us"
	putP99   = "put_p99_us"
	// walOverhead is the bytes of a put in the log of each replica, without its key and value.
	walOverhead  = "replica_wal_overhead_bytes"
	replicaSyncs = "replica_fsyncs_per_op"
	replicaCPU   = "replica_cpu_us_per_op"
	requestsPerS = "requests_per_s"
	// toCodeQ is our rate over that of the system of that name, without fsync, in turn on the same host.
	toCodeQ = "ratio_to_codeq"
	toLinux = "ratio_to_linux_remark"
	toChart = "ratio_to_chart"
	toEtcd  = "ratio_to_etcd"
	// etcdJudged is a ratio of rates, or of the servers' CPU per put where the client is the wall.
	etcdJudged = "judged_ratio_to_etcd"
	etcdTail   = "p99_ratio_to_etcd"
	toSeparate = "ratio_to_separate_calls"
	toBare     = "ratio_to_bare_cycle"
	toGit      = "ratio_to_git_files_synced"
	toReftable = "ratio_to_git_reftable_synced"
	// steadyRatio is the rate of the end over that of the first 20 s.
	steadyRatio = "steady_ratio"
	steadyTail  = "steady_p99_ratio"
	// diskGrowth is the most disk in the last third of the window ÷ the most in the middle one.
	diskGrowth = "disk_growth"
	firstGrant = "first_grant_s"
	claims     = "claims_per_s"
	// taskBytes is the growth of the heap per task after a collection, without buffers that have
	// bounds of their own.
	taskBytes = "live_bytes_per_task"
	// depthClaims is the rate over the rate at 10,000 tasks.
	depthClaims = "depth_claim_ratio"
	depthTail   = "depth_p99_ratio"
	putCycles   = "kv_put_cycles_per_s"
	// putShare is the rate with effects over the rate without, in turn.
	putShare     = "effects_ratio"
	claimTail    = "create_to_claim_p99_us"
	streamMemory = "rss_kib_per_stream"
	// streamsCPU and aloneCPU are in percent of one core, with idle streams and without any.
	streamsCPU = "streams_cpu_percent"
	//
	aloneCPU   = "alone_cpu_percent"
	refLatency = "update_mean_over_fdatasync"
)

// Suites returns every suite, in the order of the tables. One that has no driver yet is listed, and running it is refused.
func Suites() []bench.Suite {
	drivers := load.Drivers()
	all := slices.Concat(queueSuites(), refsSuites(), kvSuites(), searchSuites(), ownSuites(), queuePeerSuites(), vectorPeerSuites())
	for i := range all {
		all[i].Drive = drivers[all[i].Name]
	}
	return all
}

// queueSuites are the suites of tasks.
func queueSuites() []bench.Suite {
	return []bench.Suite{
		queueCycle(), queueSteady(), queueRaft(), queueSmart(), queueCoalesce(), queueCoalesceRaft(), queueTransport(),
		queueCodec(), queueGC(), queueLatency(), queueDeep(), queueRestart(), queueEffects(), queueIdle(), queueDepth(), queueMix(), queueK6(), queueFailover(), streamsIdle(), tenantTiming(),
	}
}

// Harness returns the tables together with the parts of the bench that lie above package bench.
func Harness() bench.Harness {
	return bench.Harness{
		Suites: Suites(), Profiles: Profiles(), Judge: Judge, Render: report.Render, Write: report.Write,
		Profile: profile.Run, NullServer: load.NullServer,
	}
}

// published makes the figure of a reference. note says hardware and durability, as far as they are known.
func published(system, name string, value float64, unit, note string) bench.Reference {
	return bench.Reference{System: system, Name: name, Value: value, Unit: unit, Note: note}
}

// codeQ's figures were measured so: data, log and votes without fsync.
const (
	codeqOne   = "12 cores, WSL2, none×1"
	codeqThree = "12 cores, WSL2, none×3"
)

// codeq makes a figure of codeQ on one node, and codeq3 one on three.
func codeq(name string, value float64, unit string) bench.Reference {
	return published("codeQ", name, value, unit, codeqOne)
}

func codeq3(name string, value float64, unit string) bench.Reference {
	return published("codeQ", name, value, unit, codeqThree)
}

// Pages that set targets, as reports name them.
const (
	ofQueue  = "queue targets"
	ofBench  = "bench targets"
	ofRefs   = "refs targets"
	ofKV     = "kv targets"
	ofSearch = "search targets"
)

// atLeast makes a target for a rate. must and aim are set for a machine of 2 cores whose fdatasync
// takes about 0.14 ms; 0: there is none.
func atLeast(metric string, d bench.Durability, must, aim float64, source string) bench.Target {
	return bench.Target{Metric: metric, Durability: string(d), Must: must, Aim: aim, Source: source}
}

// atMost makes a target for what should be small, such as a latency or a cost.
func atMost(metric string, d bench.Durability, must, aim float64, source string) bench.Target {
	return bench.Target{Metric: metric, Durability: string(d), Must: must, Aim: aim, Source: source, AtMost: true}
}

// free marks a target that holds on every machine, such as a ratio or a count per operation.
func free(t bench.Target) bench.Target {
	t.MachineFree = true
	return t
}

// crowded marks a target of several nodes and a client that few cores cannot reach, whatever the servers do.
func crowded(t bench.Target) bench.Target {
	t.Cores = crowdedCores
	return t
}

// usualDisk is the fdatasync of the machines for which limits over the disk's time were set, in microseconds.
const usualDisk = 140

// overDisk marks a target that is a multiple of the disk's time. Its limit rises on a disk that is
// faster than usualDisk.
func overDisk(t bench.Target) bench.Target {
	t.DiskFloor = usualDisk
	return free(t)
}

// opPut is what the producers of suites of keys call.
const opPut = "put"

// anyDurability is the durability of a target that holds with fsync and without.
const anyDurability bench.Durability = ""

// lease is the lease of suites that do not measure leases: no attempt ends by it.
const lease = 300 * time.Second

// named makes the name of a row that differs from its neighbours in a number.
func named(prefix string, n int) string { return fmt.Sprintf("%s-%d", prefix, n) }
