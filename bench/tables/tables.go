// Package tables is the data of the bench: every suite with its rows, shapes, published figures and targets, the ratios
// that are judged, and the profiles. One file holds one table of a reference.
//
// A published figure is what its authors printed, on their hardware and with their durability, which its note states.
// It is context and fails nothing by itself. Must decides whether we are done; aim is what to reach for after that.
//
// Elsewhere: how a suite drives a system (bench/load), what counts and when a run is left out (bench).
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

// Names of the profiles.
const (
	Smoke = "smoke"
	Quick = "quick"
	Seeds = "seeds"
	Full  = "full"
)

// Memberships of rows in profiles.
var (
	inSeeds = []string{Quick, Seeds, Full}
	inAll   = []string{Smoke, Quick, Seeds, Full}
	inFull  = []string{Full}
)

// Metrics that targets and ratios name. A driver or the harness measures them under these names.
const (
	cycles       = "cycles_per_s"
	creates      = "creates_per_s"
	completes    = "completes_per_s"
	requests     = "requests_per_op"
	cpuPerOp     = "cpu_us_per_op"    // client and server
	mutations    = "mutations_per_op" // of the store
	fsyncs       = "fsyncs_per_op"
	overSync     = "_over_fdatasync"        // ends the name of a latency, without its unit, over fdatasync p50 of the same run
	createSync   = "create_mean" + overSync // mean create latency ÷ fdatasync p50 of the same run
	gcTail       = "gc_p999_ratio"          // p99.9 in seconds with a collection ÷ without
	gcPause      = "gc_pause_p99_us"
	perOp        = "ns_per_op"
	refsPerS     = "refs_per_s"
	putsPerS     = "puts_per_s"
	putP50       = "put_p50_us"
	putP99       = "put_p99_us"
	walOverhead  = "replica_wal_overhead_bytes" // of a put in the log of each replica, without key and value
	replicaSyncs = "replica_fsyncs_per_op"
	replicaCPU   = "replica_cpu_us_per_op"
	requestsPerS = "requests_per_s"
	toCodeQ      = "ratio_to_codeq" // without fsync, interleaved on the same host
	toLinux      = "ratio_to_linux_remark"
	toChart      = "ratio_to_chart"
	toEtcd       = "ratio_to_etcd"
	etcdJudged   = "judged_ratio_to_etcd" // of rates, or of the servers' CPU per put where the client is the wall
	etcdTail     = "p99_ratio_to_etcd"
	toSeparate   = "ratio_to_separate_calls"
	toBare       = "ratio_to_bare_cycle"
	toGit        = "ratio_to_git_files_synced"
	toReftable   = "ratio_to_git_reftable_synced"
	steadyRatio  = "steady_ratio" // to the figure of 20 s
	steadyTail   = "steady_p99_ratio"
	diskGrowth   = "disk_growth" // most in the last third of the window ÷ most in the middle one
	firstGrant   = "first_grant_s"
	claims       = "claims_per_s"
	taskBytes    = "live_bytes_per_task" // of the heap after a collection, without buffers that have bounds of their own
	depthClaims  = "depth_claim_ratio"   // to the rate at 10,000 tasks
	depthTail    = "depth_p99_ratio"
	putCycles    = "kv_put_cycles_per_s"
	putShare     = "effects_ratio" // to cycles without effects, in turn
	claimTail    = "create_to_claim_p99_us"
	streamMemory = "rss_kib_per_stream"
	streamsCPU   = "streams_cpu_percent" // of one core
	aloneCPU     = "alone_cpu_percent"   // without any stream
	refLatency   = "update_mean_over_fdatasync"
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

// published makes the figure of a reference.
func published(system, name string, value float64, unit, note string) bench.Reference {
	return bench.Reference{System: system, Name: name, Value: value, Unit: unit, Note: note}
}

// What codeQ published was measured so: data, log and votes without fsync.
const (
	codeqOne   = "12 cores, WSL2, none×1"
	codeqThree = "12 cores, WSL2, none×3"
)

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

// atLeast makes a target for rates of a machine of 2 cores whose fdatasync takes about 0.14 ms.
func atLeast(metric string, d bench.Durability, must, aim float64, source string) bench.Target {
	return bench.Target{Metric: metric, Durability: string(d), Must: must, Aim: aim, Source: source}
}

// atMost makes a target for what should be small.
func atMost(metric string, d bench.Durability, must, aim float64, source string) bench.Target {
	return bench.Target{Metric: metric, Durability: string(d), Must: must, Aim: aim, Source: source, AtMost: true}
}

// free marks a target that holds on every machine: ratios and counts per operation.
func free(t bench.Target) bench.Target {
	t.MachineFree = true
	return t
}

// crowded marks a target of several nodes and a client that so few cores cannot reach, whatever the servers do.
func crowded(t bench.Target) bench.Target {
	t.Cores = crowdedCores
	return t
}

// usualDisk is the fdatasync of the machines for which limits over the disk's time were set, in microseconds.
const usualDisk = 140

// overDisk marks a target that is a multiple of the disk's time.
func overDisk(t bench.Target) bench.Target {
	t.DiskFloor = usualDisk
	return free(t)
}

// opPut is what the producers of suites of keys call.
const opPut = "put"

const anyDurability bench.Durability = ""

// lease is the lease of suites that do not measure leases.
const lease = 300 * time.Second

func named(prefix string, n int) string { return fmt.Sprintf("%s-%d", prefix, n) }
