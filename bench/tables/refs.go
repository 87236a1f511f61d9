package tables

import (
	"strings"
	"time"

	"github.com/millrace/millrace/bench"
)

// refsSuites are the suites of refs.
func refsSuites() []bench.Suite {
	return []bench.Suite{refsGitaly(), refsGit(), refsPush(), refsScale()}
}

// gitalyNote says what Gitaly's figures were measured on.
const gitalyNote = "i9-9880H laptop, durability not stated"

// gitalyCell is one published cell: the time of changing 100 refs, or as many as one transaction has.
type gitalyCell struct {
	// name is the kind of change, loose or packed, and the size of a transaction; package load reads it.
	name string
	// refs is refs a second, and ns the time of an operation in nanoseconds.
	refs, ns float64
	// bytes and allocs are what the client allocates per transaction.
	bytes, allocs float64
	// files and filesUp are must and aim of our rate ÷ that of git with refs in files, synced; 0: shown only.
	files, filesUp float64
	// table and tableUp are the same with refs in tables, synced.
	table, tableUp float64
}

// gitalyCells are the cells of the published table, in its order.
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

// op is the operation that a cell counts.
func (c gitalyCell) op() string {
	if strings.HasPrefix(c.name, "delete") {
		return "delete"
	}
	return "update"
}

// refsGitaly is the table of Gitaly's updater: one client, one transaction after the other.
func refsGitaly() bench.Suite {
	s := bench.Suite{
		Name: "refs.gitaly", Title: "Reference transactions, one client, in turn with git", Priority: "P0", Bench: "BenchmarkUpdater",
		Headline: refsPerS, Window: 9 * time.Second, Warmup: time.Second, Minutes: 5,
	}
	for _, c := range gitalyCells() {
		r := bench.RowSpec{
			Name: c.name, Title: "transactions of that many refs", Profiles: inSeeds, NoCeiling: true, Op: c.op(),
			Shape: bench.Shape{Nodes: 1, Shards: 1, Pumps: 1, Kind: c.name},
			References: []bench.Reference{
				published("Gitaly", "refs", c.refs, "refs/s", gitalyNote), published("Gitaly", "time", c.ns, "ns/op", gitalyNote),
				published("Gitaly", "memory", c.bytes, "B/op", gitalyNote), published("Gitaly", "allocations", c.allocs, "allocs/op", gitalyNote),
			},
		}
		// A cell without a limit is only shown.
		if c.files > 0 {
			r.Targets = append(r.Targets, free(atLeast(toGit, bench.Fsync, c.files, c.filesUp, ofRefs)))
		}
		if c.table > 0 {
			r.Targets = append(r.Targets, free(atLeast(toReftable, bench.Fsync, c.table, c.tableUp, ofRefs)))
		}
		switch c.name {
		case "update-1":
			r.Profiles = inAll
			r.Targets = append(r.Targets, overDisk(atMost(refLatency, bench.Fsync, 2.5, 2, ofRefs)))
		case "update-100":
			r.Targets = append(r.Targets, overDisk(atMost(refLatency, bench.Fsync, 6.5, 4.5, ofRefs)))
		}
		s.Rows = append(s.Rows, r)
	}
	return s
}

// refsGit is git itself, in turn with ours: its refs a second are the figure. Where git does not
// sync, our servers do not sync either.
func refsGit() bench.Suite {
	s := bench.Suite{
		Name: "refs.gitaly/git", Title: "One long-lived git update-ref -z --stdin, in turn with ours", Priority: "P0",
		Bench: "BenchmarkUpdaterGit", Headline: "git_refs_per_s", Window: 6 * time.Second, Warmup: time.Second,
	}
	// The kinds of git, each of which is compared in every cell.
	for _, kind := range []struct {
		// name is the kind of git, as package load knows it, and noFsync says that it does not sync.
		name, title string
		noFsync     bool
	}{
		{"synced", "core.fsync=reference: the fair row", false},
		{"default", "git's default, which does not sync refs", true},
		{"reftable", "refs in tables, synced; needs git 2.45", false},
	} {
		for _, c := range gitalyCells() {
			s.Rows = append(s.Rows, bench.RowSpec{
				Name: kind.name + "-" + c.name, Title: kind.title, Profiles: inFull, Runs: 6, NoCeiling: true, NoFsync: kind.noFsync,
				OnlyFsync: !kind.noFsync, Op: c.op(),
				Shape: bench.Shape{Nodes: 1, Shards: 1, Pumps: 1, Kind: kind.name + "-" + c.name},
			})
		}
	}
	return s
}

// refsPush is pushes by git itself.
func refsPush() bench.Suite {
	s := bench.Suite{
		Name: "refs.push", Title: "Pushes by git", Priority: "P0", Bench: "BenchmarkPush", Headline: "push_p50_ms", Op: "push",
		Window: 10 * time.Second, Warmup: time.Second, NoProfile: true,
	}
	for _, r := range []struct {
		name, title, kind string
		pumps, nodes      int
	}{
		{"one", "pushes of 1 commit, in turn with pushes to a bare repository", "one", 1, 1},
		{"pushers-100", "100 pushers at once, own branches; git fsck is clean", "pushers-100", 100, 1},
		{"one-branch", "10 pushers of one branch: fetch, rebase, push; no update is lost", "one-branch", 10, 1},
		{"nodes-3", "three nodes: pushes of 1 commit, in turn with pushes to a bare repository", "one", 1, 3},
	} {
		s.Rows = append(s.Rows, bench.RowSpec{
			Name: r.name, Title: r.title, Profiles: inFull, NoCeiling: true, Box: true,
			Shape: bench.Shape{Nodes: r.nodes, Shards: 1, Pumps: r.pumps, Kind: r.kind},
		})
	}
	s.Rows[0].Profiles = []string{Smoke, Full}
	s.Rows[0].Targets = []bench.Target{
		atMost("server_p50_ms", bench.Fsync, 8, 7, ofRefs), free(atMost("ratio_to_file_push", bench.Fsync, 2, 1.6, ofRefs)),
	}
	for i := range s.Rows[1:3] {
		s.Rows[1+i].Headline = "pushes_per_s"
	}
	s.Rows[3].Targets = []bench.Target{free(atMost("ratio_to_file_push", bench.Fsync, 2.5, 2, ofRefs))}
	return s
}

// manyRefs is the number of refs of the rows of a large repository.
const manyRefs = 1_000_000

// refsScale is what grows: refs, clients, nodes.
func refsScale() bench.Suite {
	s := bench.Suite{
		Name: "refs.scale", Title: "A million refs, 64 clients", Priority: "P0", Bench: "BenchmarkRefsScale", Headline: refsPerS, Op: "update",
		Window: 10 * time.Second, Warmup: time.Second, NoProfile: true,
	}
	const perRefs = "p50_ratio_to_100_refs"
	one := bench.Shape{Nodes: 1, Shards: 1, Pumps: 1, Prefill: manyRefs}
	for _, r := range []struct {
		// headline and shape differ from row to row, since each row is another question.
		name, title, headline string
		shape                 bench.Shape
		targets               []bench.Target
	}{
		{"clients-64", "64 clients, 1 ref per transaction", "updates_per_s", bench.Shape{Nodes: 1, Shards: 1, Producers: 64, Pumps: 1}, []bench.Target{atLeast("updates_per_s", bench.Fsync, 20_000, 30_000, ofRefs)}},
		{"refs-1m", "1,000,000 refs: create, update, delete, 1 and 100 per transaction", perRefs, one, []bench.Target{free(atMost(perRefs, anyDurability, 1.5, 1.2, ofRefs))}},
		{"tombstones", "the same after 500,000 deletions under one prefix", perRefs, one, []bench.Target{free(atMost(perRefs, anyDurability, 1.5, 1.2, ofRefs))}},
		{"ls-refs-1m", "list 1,000,000 refs as git does", "seconds", one, []bench.Target{
			atMost("seconds", anyDurability, 3, 2, ofRefs), atMost("first_byte_ms", anyDurability, 100, 0, ofRefs), atMost("memory_mib", anyDurability, 64, 0, ofRefs),
		}},
		{"load-1m", "load 1,000,000 refs", "seconds", one, []bench.Target{atMost("seconds", anyDurability, 20, 10, ofRefs)}},
		{"complete-ref", "completion with one ref op, 64 workers, in turn with completion alone", "ref_cycles_per_s", bench.Shape{Nodes: 1, Shards: 1, Producers: 1, Pumps: 64, Workers: 1, Slots: 64, Lease: lease}, []bench.Target{free(atLeast("ratio_to_completion", bench.Fsync, 0.8, 0.9, ofRefs))}},
		{
			"nodes-3", "three nodes: 100 refs per transaction by one client, 1 by 64", refsPerS,
			bench.Shape{Nodes: 3, Beside: true, Shards: 1, Pumps: 64},
			[]bench.Target{free(atLeast("ratio_to_one_node", bench.Fsync, 0.4, 0.6, ofRefs))},
		},
	} {
		r.shape.Kind = r.name
		row := bench.RowSpec{
			Name: r.name, Title: r.title, Profiles: inFull, Targets: r.targets, Shape: r.shape, Headline: r.headline, NoCeiling: true,
		}
		if r.shape.Prefill > 0 {
			row.Runs = 3
		}
		if r.shape.Workers > 0 {
			row.Op = "create"
		}
		s.Rows = append(s.Rows, row)
	}
	s.Rows[0].Profiles = []string{Smoke, Full}
	return s
}
