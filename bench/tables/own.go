package tables

import (
	"time"

	"github.com/millrace/millrace/bench"
)

// ownSuites are the suites of several services at once.
func ownSuites() []bench.Suite { return []bench.Suite{footprint(), commitEffects()} }

// footprint is CPU and memory of every process. Every suite prints them; this one is the table of
// the reference, whose figures are CPU in percent of a core and memory in MB. The CPU of a process
// is not a target, since it depends on the load that the clients reach.
func footprint() bench.Suite {
	s := bench.Suite{
		Name: "footprint", Title: "CPU and memory per process under matrix search", Priority: "P0", Bench: "BenchmarkFootprint",
		Headline: "rss_mb", Reads: true, Window: 90 * time.Second, Warmup: 5 * time.Second,
	}
	row := bench.RowSpec{
		Name: "search", Title: "while matrix search and embedding run", Profiles: []string{Smoke, Full}, NoCeiling: true,
		Shape:   bench.Shape{Nodes: 1, Shards: 1, Pumps: 120, Transport: "rest"},
		Targets: []bench.Target{atMost("rss_mb", anyDurability, 370, 150, ofSearch)},
	}
	// Each process of the reference has its share of a core in percent, and its memory in MB.
	for _, p := range []struct {
		name    string
		cpu, mb float64
	}{{"matrixd", 105, 33}, {"gateway", 44, 41}, {"vectord", 39, 82}, {"embedd", 30, 67}, {"storaged", 0.1, 22}} {
		row.References = append(row.References, published("G5", p.name+" CPU", p.cpu, "%", g5Note),
			published("G5", p.name+" memory", p.mb, "MB", g5Note))
	}
	row.References = append(row.References, published("G5", "total memory, about", 370, "MB", g5Note),
		published("G5's predecessor in Rust", "CPU", 374, "%", g5Note), published("G5's predecessor in Rust", "memory", 14_900, "MB", g5Note))
	s.Rows = []bench.RowSpec{row}
	return s
}

// commitEffects is a completion with its effects in one commit, against separate calls.
func commitEffects() bench.Suite {
	s := bench.Suite{
		Name: "commit.effects", Title: "Complete, 1 key, 1 ref, 1 vector and 1 follow-up in one commit", Priority: "P0",
		Bench: "BenchmarkCommitEffects", Headline: "one_commit_cycles_per_s", Window: 15 * time.Second, Warmup: 2 * time.Second,
	}
	for _, r := range []struct {
		name, title string
		nodes       int
		profiles    []string
	}{
		{"one-commit", "four effects in the commit, in turn with separate calls and with none, 1 node", 1, []string{Smoke, Full}},
		{"one-commit-3", "the same, 3 nodes", 3, inFull},
	} {
		s.Rows = append(s.Rows, bench.RowSpec{
			Name: r.name, Title: r.title, Profiles: r.profiles, NoCeiling: true,
			Shape: bench.Shape{Nodes: r.nodes, Shards: 1, Producers: 1, Pumps: 32, Workers: 1, Slots: 128, Lease: lease, Kind: r.name},
			Targets: []bench.Target{
				free(atLeast(toSeparate, bench.Fsync, 3, 0, ofBench)), free(atLeast(toBare, bench.Fsync, 0.5, 0, ofBench)),
			},
		})
	}
	return s
}
