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
	// cycles counts tasks that went all the way, each by its acknowledged completion.
	cycles = "cycles_per_s"
	// creates counts acknowledged creates, and completes acknowledged completions.
	creates   = "creates_per_s"
	completes = "completes_per_s"
	// requests is what clients sent, by what they wanted done.
	requests = "requests_per_op"
	// cpuPerOp is that of client and server together.
	cpuPerOp = "cpu_us_per_op"
	// mutations are those of the store, per operation.
	mutations = "mutations_per_op"
	// fsyncs counts the servers' syncs, per operation.
	fsyncs = "fsyncs_per_op"
	// overSync ends the name of a latency divided by the p50 of fdatasync of the same run.
	overSync = "_over_fdatasync"
	// createSync is the mean latency of a create over that.
	createSync = "create_mean" + overSync
	// gcTail is p99.9 in slices with a collection of garbage ÷ without.
	gcTail = "gc_p999_ratio"
	// gcPause is the p99 of the pauses of collections, in microseconds.
	gcPause = "gc_pause_p99_us"
	// perOp is the time of an operation in nanoseconds.
	perOp = "ns_per_op"
	// refsPerS is the number of refs that transactions changed in a second.
	refsPerS = "refs_per_s"
	// putsPerS is the number of puts that were acknowledged in a second.
	putsPerS = "puts_per_s"
	// putP50 and putP99 are latencies from when a put was due.
	putP50 = "put_p50_us"
	putP99 = "put_p99_us"
	// walOverhead is the bytes of a put in the log of each replica, without its key and value.
	walOverhead = "replica_wal_overhead_bytes"
	// replicaSyncs and replicaCPU are those of one replica, by put.
	replicaSyncs = "replica_fsyncs_per_op"
	replicaCPU   = "replica_cpu_us_per_op"
	// requestsPerS counts requests that were answered in a second.
	requestsPerS = "requests_per_s"
	// toCodeQ is our rate over that of the system of that name, without fsync, in turn on the same host.
	toCodeQ = "ratio_to_codeq"
	// toLinux and toChart are our rate over Aurora's, on Linux and as charted.
	toLinux = "ratio_to_linux_remark"
	toChart = "ratio_to_chart"
	// toEtcd is our rate over etcd's, in turn within each run.
	toEtcd = "ratio_to_etcd"
	// etcdJudged is a ratio of rates, or of the servers' CPU per put where the client is the wall.
	etcdJudged = "judged_ratio_to_etcd"
	// etcdTail is our p99 over etcd's.
	etcdTail = "p99_ratio_to_etcd"
	// toSeparate and toBare are the cycle with effects in one commit, over separate calls and over
	// none.
	toSeparate = "ratio_to_separate_calls"
	toBare     = "ratio_to_bare_cycle"
	// toGit and toReftable are our rate over that of git with synced refs, in files and in tables.
	toGit      = "ratio_to_git_files_synced"
	toReftable = "ratio_to_git_reftable_synced"
	// steadyRatio is the rate of the end over that of the first 20 s.
	steadyRatio = "steady_ratio"
	// steadyTail is p99 of the second half over that of the first 20 s.
	steadyTail = "steady_p99_ratio"
	// diskGrowth is the most disk in the last third of the window ÷ the most in the middle one.
	diskGrowth = "disk_growth"
	// firstGrant is the time from a restart to the first task, in seconds.
	firstGrant = "first_grant_s"
	// claims counts tasks that claims were given.
	claims = "claims_per_s"
	// taskBytes is the growth of the heap per task after a collection, without buffers that have
	// bounds of their own.
	taskBytes = "live_bytes_per_task"
	// depthClaims is the rate over the rate at 10,000 tasks.
	depthClaims = "depth_claim_ratio"
	// depthTail is the p99 of claims over that at 10,000 tasks.
	depthTail = "depth_p99_ratio"
	// putCycles counts cycles whose completion put a key.
	putCycles = "kv_put_cycles_per_s"
	// putShare is the rate with effects over the rate without, in turn.
	putShare = "effects_ratio"
	// Rows of queue.keyed.
	keyedBare   = "bare"
	keyedLanes  = "keys-10k"
	keyedLimits = "limits-10k"
	keyedUnique = "unique-100k"
	// chainCycles counts cycles of tasks of chains, and chainShare is their rate over that of single tasks, in turn.
	chainCycles = "chain_cycles_per_s"
	chainShare  = "chain_ratio"
	// claimTail is the p99 from a create to the task's handler.
	claimTail = "create_to_claim_p99_us"
	// streamMemory is the growth of the process per idle stream.
	streamMemory = "rss_kib_per_stream"
	// streamsCPU is in percent of one core, with idle streams.
	streamsCPU = "streams_cpu_percent"
	// aloneCPU is the same without any stream.
	aloneCPU = "alone_cpu_percent"
	// refLatency is the mean of a transaction over the p50 of fdatasync.
	refLatency = "update_mean_over_fdatasync"
)

// Suites returns every suite, in the order of the tables. One that has no driver yet is listed, and running it is refused.
func Suites() []bench.Suite {
	drivers := load.Drivers()
	// The order is that of reports.
	all := slices.Concat(queueSuites(), refsSuites(), kvSuites(), searchSuites(), ownSuites(), queuePeerSuites(), vectorPeerSuites())
	for i := range all {
		// A suite without a driver keeps none, which package bench refuses to run.
		all[i].Drive = drivers[all[i].Name]
	}
	return all
}

// queueSuites are the suites of tasks.
func queueSuites() []bench.Suite {
	return []bench.Suite{
		queueCycle(), queueSteady(), queueRaft(), queueSmart(), queueCoalesce(), queueCoalesceRaft(), queueTransport(),
		queueCodec(), queueGC(), queueLatency(), queueDeep(), queueRestart(), queueRedrive(), queueDue(), queueEffects(), queueKeyed(), queueAfter(), queueIdle(), queueDepth(), queueMix(), queueK6(), queueFailover(), streamsIdle(), tenantTiming(), tenantNeighbour(),
	}
}

// Harness returns the tables together with the parts of the bench that lie above package bench.
func Harness() bench.Harness {
	return bench.Harness{
		Suites: Suites(), Profiles: Profiles(), Judge: Judge, Render: report.Render, Write: report.Write,
		Profile: profile.Run, Sample: profile.Sample, Parts: profile.Parts, NullServer: load.NullServer,
	}
}

// published makes the figure of a reference. note says hardware and durability, as far as they are known.
func published(system, name string, value float64, unit, note string) bench.Reference {
	return bench.Reference{System: system, Name: name, Value: value, Unit: unit, Note: note}
}

// codeQ's figures were measured so: data, log and votes without fsync.
const (
	// codeqOne is for figures of one node.
	codeqOne = "12 cores, WSL2, none×1"
	// codeqThree is for figures of three nodes.
	codeqThree = "12 cores, WSL2, none×3"
)

// codeq makes a figure of codeQ on one node.
func codeq(name string, value float64, unit string) bench.Reference {
	return published("codeQ", name, value, unit, codeqOne)
}

// codeq3 makes a figure of codeQ on three nodes.
func codeq3(name string, value float64, unit string) bench.Reference {
	return published("codeQ", name, value, unit, codeqThree)
}

// Pages that set targets, as reports name them.
const (
	// ofQueue are those of tasks.
	ofQueue = "queue targets"
	// ofBench are those that the bench has for all services.
	ofBench = "bench targets"
	// ofRefs are those of refs.
	ofRefs = "refs targets"
	// ofKV are those of keys.
	ofKV = "kv targets"
	// ofSearch are those of searches.
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
