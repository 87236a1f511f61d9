package tables

import (
	"time"

	"github.com/millrace/millrace/bench"
)

func refsSuites() []bench.Suite {
	return []bench.Suite{refsGitaly(), refsGit(), refsPush(), refsScale()}
}

// gitalyNote says what Gitaly's figures were measured on.
const gitalyNote = "i9-9880H laptop, durability not stated"

// gitalyCell is one published cell: 100 refs, or as many as the transaction.
type gitalyCell struct {
	name           string
	refs, ns       float64
	bytes, allocs  float64
	files, filesUp float64 // must and aim ÷ git with loose and packed files, refs synced; 0: shown only
	table, tableUp float64 // must and aim ÷ git with reftable, synced
}

func gitalyCells() []gitalyCell {
	return []gitalyCell{
		{"update-1", 48.32, 20_710_401, 269, 12, 1.5, 1.9, 4, 6},
		{"update-10", 50.18, 199_396_022, 2_881, 57, 7, 10, 2.5, 4},
		{"update-100", 49.96, 2_002_251_276, 18_808, 450, 50, 70, 2, 3},
		{"delete-loose-1", 1_063, 941_592, 206, 11, 0, 0, 0, 0},
		{"delete-packed-1", 47.23, 21_183_865, 278, 11, 2, 2.5, 4, 6},
		{"delete-loose-10", 2_452, 4_080_364, 702, 38, 1.2, 1.7, 0, 0},
		{"delete-packed-10", 408.1, 24_515_611, 819, 39, 1.7, 2.4, 0, 0},
		{"delete-loose-100", 4_090, 24_458_077, 5_800, 308, 5, 8, 0, 0},
		{"delete-packed-100", 2_699, 37_074_623, 5_885, 309, 4, 6, 1, 1.5},
	}
}

// refsGitaly is the table of Gitaly's updater: one client, one transaction after the other.
func refsGitaly() bench.Suite {
	s := bench.Suite{
		Name: "refs.gitaly", Title: "Reference transactions, one client", Priority: "P0", Bench: "BenchmarkUpdater",
		Headline: refsPerS, Window: 9 * time.Second, Warmup: time.Second, Minutes: 5,
	}
	for _, c := range gitalyCells() {
		r := bench.RowSpec{
			Name: c.name, Title: "transactions of that many refs", Profiles: inSeeds, NoCeiling: true,
			Shape: bench.Shape{Nodes: 1, Shards: 1, Pumps: 1, Kind: c.name},
			References: []bench.Reference{
				published("Gitaly", "refs", c.refs, "refs/s", gitalyNote), published("Gitaly", "time", c.ns, "ns/op", gitalyNote),
				published("Gitaly", "memory", c.bytes, "B/op", gitalyNote), published("Gitaly", "allocations", c.allocs, "allocs/op", gitalyNote),
			},
		}
		if c.files > 0 {
			r.Targets = append(r.Targets, free(atLeast(toGit, bench.Fsync, c.files, c.filesUp, ofRefs)))
		}
		if c.table > 0 {
			r.Targets = append(r.Targets, free(atLeast(toReftable, bench.Fsync, c.table, c.tableUp, ofRefs)))
		}
		switch c.name {
		case "update-1":
			r.Profiles = inAll
			r.Targets = append(r.Targets, free(atMost(refLatency, bench.Fsync, 2.5, 2, ofRefs)))
		case "update-100":
			r.Targets = append(r.Targets, free(atMost(refLatency, bench.Fsync, 6.5, 4.5, ofRefs)))
		}
		s.Rows = append(s.Rows, r)
	}
	return s
}

// refsGit is git itself beside ours, interleaved.
func refsGit() bench.Suite {
	s := bench.Suite{
		Name: "refs.gitaly/git", Title: "One long-lived git update-ref -z --stdin, interleaved with ours", Priority: "P0",
		Bench: "BenchmarkUpdaterGit", Headline: refsPerS, Window: 5 * time.Second, Warmup: time.Second,
	}
	for _, kind := range []struct{ name, title string }{
		{"synced", "core.fsync=reference: the fair row"}, {"default", "git's default, which does not sync refs"},
	} {
		for _, c := range gitalyCells() {
			s.Rows = append(s.Rows, bench.RowSpec{
				Name: kind.name + "-" + c.name, Title: kind.title, Profiles: inFull, Runs: 6,
				Shape: bench.Shape{Nodes: 1, Shards: 1, Producers: 1, Pumps: 1, Kind: kind.name + "-" + c.name},
			})
		}
	}
	return s
}

// refsPush is pushes by git itself.
func refsPush() bench.Suite {
	s := bench.Suite{
		Name: "refs.push", Title: "Pushes by git", Priority: "P0", Bench: "BenchmarkPush", Headline: "push_p50_ms",
		Window: 10 * time.Second, Warmup: time.Second,
	}
	for _, r := range []struct {
		name, title string
		pumps       int
	}{
		{"one", "pushes of 1 commit", 1}, {"pushers-100", "100 pushers at once, own branches; git fsck is clean", 100},
	} {
		s.Rows = append(s.Rows, bench.RowSpec{
			Name: r.name, Title: r.title, Profiles: inFull, Shape: bench.Shape{Nodes: 1, Shards: 1, Pumps: r.pumps, Kind: r.name},
		})
	}
	s.Rows[0].Profiles = []string{Smoke, Full}
	s.Rows[0].Targets = []bench.Target{
		atMost("server_p50_ms", bench.Fsync, 8, 7, ofRefs), free(atMost("ratio_to_file_push", bench.Fsync, 2, 1.6, ofRefs)),
	}
	return s
}

// refsScale is what grows: refs, clients, nodes.
func refsScale() bench.Suite {
	s := bench.Suite{
		Name: "refs.scale", Title: "A million refs, 64 clients, three nodes", Priority: "P0", Bench: "BenchmarkRefsScale",
		Headline: refsPerS, Window: 10 * time.Second, Warmup: time.Second,
	}
	for _, r := range []struct {
		name, title  string
		nodes, pumps int
		targets      []bench.Target
	}{
		{"clients-64", "64 clients, 1 ref per transaction", 1, 64, []bench.Target{atLeast(refsPerS, bench.Fsync, 20_000, 30_000, ofRefs)}},
		{"refs-1m", "1,000,000 refs, transactions of 1 and 100", 1, 1, []bench.Target{free(atMost("p50_ratio_to_100_refs", anyDurability, 1.5, 1.2, ofRefs))}},
		{"tombstones", "the same after 500,000 deletions under one prefix", 1, 1, []bench.Target{free(atMost("p50_ratio_to_100_refs", anyDurability, 1.5, 1.2, ofRefs))}},
		{"ls-refs-1m", "list 1,000,000 refs", 1, 1, []bench.Target{atMost("seconds", anyDurability, 3, 2, ofRefs)}},
		{"load-1m", "load 1,000,000 refs", 1, 1, []bench.Target{atMost("seconds", anyDurability, 20, 10, ofRefs)}},
		{"nodes-3", "three nodes: 100 refs per transaction by one client, 1 by 64", 3, 64, []bench.Target{free(atLeast("ratio_to_one_node", bench.Fsync, 0.4, 0.6, ofRefs))}},
		{"complete-ref", "completion with one ref op, 64 workers", 3, 64, []bench.Target{free(atLeast("ratio_to_completion", bench.Fsync, 0.8, 0.9, ofRefs))}},
	} {
		s.Rows = append(s.Rows, bench.RowSpec{
			Name: r.name, Title: r.title, Profiles: inFull, Targets: r.targets,
			Shape: bench.Shape{Nodes: r.nodes, Shards: 1, Pumps: r.pumps, Kind: r.name},
		})
	}
	s.Rows[0].Profiles = []string{Smoke, Full}
	return s
}
