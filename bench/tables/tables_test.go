package tables

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/bench"
)

func suite(t *testing.T, name string) *bench.Suite {
	t.Helper()
	all := Suites()
	i := slices.IndexFunc(all, func(s bench.Suite) bool { return s.Name == name })
	if i < 0 {
		t.Fatalf("no suite %s", name)
	}
	return &all[i]
}

func row(t *testing.T, s *bench.Suite, name string) *bench.RowSpec {
	t.Helper()
	i := slices.IndexFunc(s.Rows, func(r bench.RowSpec) bool { return r.Name == name })
	if i < 0 {
		t.Fatalf("no row %s/%s", s.Name, name)
	}
	return &s.Rows[i]
}

func TestEverySuiteIsListed(t *testing.T) {
	var got []string
	for _, s := range Suites() {
		got = append(got, s.Name+" "+s.Priority)
	}
	want := []string{
		"queue.cycle P0", "queue.steady P0", "queue.raft P0", "queue.smart P0", "queue.coalesce P0", "queue.coalesce.raft P0",
		"queue.transport P0", "queue.codec P0", "queue.gc P0", "queue.latency P0", "queue.depth P0", "queue.restart P0", "queue.redrive P0", "queue.due P0",
		"queue.effects P0", "queue.keyed P0", "queue.after P0", "queue.idle P0", "queue.aux/depth P1", "queue.aux/mix P1", "queue.aux/k6 P1",
		"queue.failover P1", "streams.idle P1", "tenant.timing P1", "tenant.neighbour P1",
		"refs.gitaly P0", "refs.gitaly/git P0", "refs.push P0", "refs.scale P0",
		"kv.aurora.len P0", "kv.aurora.followers P0", "kv.aurora.steady P0", "kv.pingpong P0", "kv.latency P0", "kv.etcd P0", "kv.etcd.native P0", "raft.entry P0",
		"search.sweep P0", "search.mixed P0", "search.recall P0", "search.load P0", "search.judge P0",
		"search.restart P0", "search.graph P0", "search.gaps P1", "search.outage P0", "footprint P0", "commit.effects P0",
		"queue.peers.asynq P1", "queue.peers.beanstalkd P1", "queue.peers.jetstream P1", "queue.peers.rabbitmq P1", "queue.peers.river P1",
		"search.peers.pgvector P1",
	}
	if !slices.Equal(got, want) {
		t.Errorf("suites\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestPublishedFiguresAreThoseOfTheReferences restates what the references printed.
func TestPublishedFiguresAreThoseOfTheReferences(t *testing.T) {
	want := map[string][]float64{
		"queue.cycle/unbatched":           {76639},
		"queue.cycle/batch-32-8":          {83420},
		"queue.cycle/batch-32-8-shards-2": {65000, 71000},
		"queue.cycle/batch-32-8-shards-4": {83000},
		"queue.cycle/batch-32-8-shards-8": {88000},
		"queue.raft/shards-1":             {9400, 9380},
		"queue.raft/shards-4":             {10250, 10240},
		"queue.smart/rotation":            {596},
		"queue.smart/shards-1":            {3949},
		"queue.smart/shards-4":            {3883},
		"queue.transport/stream":          {130000},
		"queue.transport/rest":            {3000, 4000},
		"queue.aux/depth/100":             {8},
		"queue.aux/depth/1000":            {12},
		"queue.aux/depth/10000":           {15},
		"queue.aux/depth/100000":          {50},
		"queue.aux/k6/sustained":          {1082, 2081},
		"refs.gitaly/update-1":            {48.32, 20710401, 269, 12},
		"refs.gitaly/update-10":           {50.18, 199396022, 2881, 57},
		"refs.gitaly/update-100":          {49.96, 2002251276, 18808, 450},
		"refs.gitaly/delete-loose-1":      {1063, 941592, 206, 11},
		"refs.gitaly/delete-packed-1":     {47.23, 21183865, 278, 11},
		"refs.gitaly/delete-loose-10":     {2452, 4080364, 702, 38},
		"refs.gitaly/delete-packed-10":    {408.1, 24515611, 819, 39},
		"refs.gitaly/delete-loose-100":    {4090, 24458077, 5800, 308},
		"refs.gitaly/delete-packed-100":   {2699, 37074623, 5885, 309},
		"kv.aurora.len/value-32":          {18200, 29100},
		"kv.aurora.len/value-64":          {17700, 28300},
		"kv.aurora.len/value-128":         {15600, 25000},
		"kv.aurora.len/value-256":         {13400, 21400},
		"kv.aurora.len/value-512":         {8400, 13400},
		"kv.aurora.len/value-1024":        {6000, 9600},
		"kv.aurora.len/value-2048":        {2900, 4600},
		"kv.aurora.followers/followers-2": {17900, 28600},
		"kv.aurora.followers/followers-3": {13600, 21800},
		"kv.aurora.followers/followers-4": {12500, 20000},
		"kv.aurora.followers/followers-5": {9400, 15000},
		"kv.aurora.followers/followers-6": {8200, 13100},
		"kv.aurora.followers/followers-7": {7300, 11700},
		"kv.pingpong/grpc":                {20000},
		"kv.latency/value-32":             {1000, 2000},
		"search.sweep/clients-10":         {2704, 486733, 2.19, 2.99, 6.72, 651},
		"search.sweep/clients-50":         {6381, 1148543, 7.08, 14.96, 20.20, 77},
		"search.sweep/clients-100":        {6963, 1253389, 13.34, 27.44, 36.96, 182},
		"search.sweep/clients-200":        {8114, 1460676, 23.45, 44.20, 56.38, 225},
		"search.mixed/60-60": {
			12531, 1127854, 3.31, 10.22, 14.59, 4358, 392229, 12.68, 26.08, 33.78, 16889, 1520083, 5869424,
		},
		"footprint/search": {105, 33, 44, 41, 39, 82, 30, 67, 0.1, 22, 370, 374, 14900},
	}
	seen := 0
	for _, s := range Suites() {
		for _, r := range s.Rows {
			figures, ok := want[s.Name+"/"+r.Name]
			if !ok {
				continue
			}
			seen++
			var got []float64
			for _, ref := range r.References {
				got = append(got, ref.Value)
			}
			if !alike(got, figures) {
				t.Errorf("%s/%s: published %v, want %v", s.Name, r.Name, got, figures)
			}
		}
	}
	if seen != len(want) {
		t.Errorf("%d of %d rows were found", seen, len(want))
	}
}

// alike compares figures that were multiplied by 1,000.
func alike(a, b []float64) bool {
	return slices.EqualFunc(a, b, func(x, y float64) bool { return math.Abs(x-y) < 1e-6*math.Abs(y) })
}

func TestLinuxRemarkIsTheChartTimesOnePointSix(t *testing.T) {
	for _, c := range append(lengthCells(), followerCells()...) {
		if got := math.Round(c.chart*16) / 10; got != c.linux {
			t.Errorf("%d: %v × 1.6 is %v, the table says %v", c.n, c.chart, got, c.linux)
		}
	}
}

// targets of a row as "metric durability must aim", ≤ before what should be small and ! after what every machine must
// reach.
func targets(r *bench.RowSpec) []string {
	var out []string
	for _, t := range r.Targets {
		sign, mark, d := "≥", "", t.Durability
		if t.AtMost {
			sign = "≤"
		}
		if t.MachineFree {
			mark = "!"
		}
		if d == "" {
			d = "any"
		}
		out = append(out, fmt.Sprintf("%s %s %s %.4g %.4g%s", t.Metric, d, sign, t.Must, t.Aim, mark))
	}
	slices.Sort(out)
	return out
}

func TestTargetsAreThoseThatWereSet(t *testing.T) {
	for name, want := range map[string][]string{
		"queue.cycle/unbatched": {
			"create_mean_over_fdatasync fsync ≤ 5 4!", "cycles_per_s fsync ≥ 4.5e+04 6e+04", "cycles_per_s none ≥ 7e+04 8.5e+04",
			"fsyncs_per_op fsync ≤ 0.1 0", "mutations_per_op any ≤ 5 4!", "ratio_to_codeq any ≥ 3.5 0!",
		},
		"queue.cycle/batch-32-8": {
			"cpu_us_per_op fsync ≤ 20 13", "cycles_per_s fsync ≥ 1e+05 1.5e+05", "cycles_per_s none ≥ 1.1e+05 1.5e+05",
			"mutations_per_op any ≤ 5 4!", "ratio_to_codeq any ≥ 3.5 0!",
		},
		"queue.steady/batch-32-8": {"disk_growth any ≤ 1.25 0!", "steady_p99_ratio any ≤ 3 0!", "steady_ratio any ≥ 0.7 0!"},
		"queue.latency/half":      {"create_to_claim_p99_us fsync ≤ 5000 0"},
		"queue.depth/ready-10k":   nil,
		"queue.depth/ready-1m":    {"depth_claim_ratio any ≥ 0.8 0!", "depth_p99_ratio any ≤ 2 0!", "live_bytes_per_task any ≤ 200 0!"},
		"queue.depth/ready-10m":   {"depth_claim_ratio any ≥ 0.8 0!", "depth_p99_ratio any ≤ 2 0!", "live_bytes_per_task any ≤ 200 0!"},
		"queue.restart/tasks-50k": nil,
		"queue.restart/tasks-1m":  {"first_grant_s any ≤ 3 0"},
		"queue.redrive/dead-20k":  nil,
		"queue.redrive/dead-1m":   {"live_p99_ratio any ≤ 2 0!", "redriven_per_s any ≥ 5e+04 0"},
		"queue.due/due-20k":       nil,
		"queue.due/due-1m":        {"due_per_s any ≥ 1e+05 0", "live_p99_ratio any ≤ 3 0!"},
		"queue.effects/kv-put":    {"effects_ratio any ≥ 0.7 0!"},
		"queue.after/chains":      {"chain_ratio any ≥ 0.7 0!"},
		"queue.idle/streams-1000": {"alone_cpu_percent any ≤ 1 0", "rss_kib_per_stream any ≤ 60 0!", "streams_cpu_percent any ≤ 1 0"},
		"raft.entry/put":          {"cpu_us_per_op any ≤ 550 0"},
		"queue.raft/shards-1":     {"cycles_per_s fsync ≥ 2e+04 3e+04", "ratio_to_codeq any ≥ 1.2 0!"},
		"queue.smart/shards-1":    {"cycles_per_s fsync ≥ 5000 0", "requests_per_op any ≤ 1.7 0!"},
		"queue.smart/sdk":         {"requests_per_op any ≤ 1.05 0!"},
		"queue.transport/stream":  {"creates_per_s fsync ≥ 2e+05 0"},
		"queue.gc/enqueue":        {"gc_p999_ratio any ≤ 2 0!", "gc_pause_p99_us any ≤ 1000 0"},
		"refs.gitaly/update-1": {
			"ratio_to_git_files_synced fsync ≥ 1.5 1.9!", "ratio_to_git_reftable_synced fsync ≥ 4 6!",
			"update_mean_over_fdatasync fsync ≤ 2.5 2!",
		},
		"refs.gitaly/delete-packed-100": {
			"ratio_to_git_files_synced fsync ≥ 4 6!", "ratio_to_git_reftable_synced fsync ≥ 1 1.5!",
		},
		"kv.aurora.len/value-32": {
			"puts_per_s fsync ≥ 5.46e+04 7.28e+04", "ratio_to_linux_remark fsync ≥ 1.9 2.5", "replica_fsyncs_per_op fsync ≤ 0.1 0!",
			"replica_wal_overhead_bytes any ≤ 40 0!",
		},
		"kv.aurora.followers/followers-7": {
			"puts_per_s fsync ≥ 2.19e+04 2.92e+04", "ratio_to_linux_remark fsync ≥ 1.9 2.5", "replica_fsyncs_per_op fsync ≤ 0.1 0!",
			"replica_wal_overhead_bytes any ≤ 40 0!",
		},
		"kv.latency/followers-2":                {"put_p50_us fsync ≤ 2000 1000", "put_p99_us fsync ≤ 3000 0"},
		"kv.latency/followers-7":                {"put_p50_us fsync ≤ 2000 0"},
		"kv.etcd/put":                           {"ratio_to_etcd any ≥ 2 2.5!"},
		"kv.etcd/put-half":                      {"ratio_to_etcd any ≤ 0.7 0.5!"},
		"kv.etcd.native/callers-1000-members-3": {"judged_ratio_to_etcd fsync ≥ 4 5!"},
		"commit.effects/one-commit":             {"ratio_to_bare_cycle fsync ≥ 0.5 0!", "ratio_to_separate_calls fsync ≥ 3 0!"},
	} {
		s, r, _ := cutLast(name)
		if got := targets(row(t, suite(t, s), r)); !slices.Equal(got, want) {
			t.Errorf("%s:\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

func cutLast(name string) (before, after string, ok bool) {
	i := strings.LastIndex(name, "/")
	return name[:i], name[i+1:], i >= 0
}

func TestShapesAreThoseOfTheReferences(t *testing.T) {
	cycle := suite(t, "queue.cycle")
	if cycle.Window != 20*time.Second || cycle.Warmup != 2*time.Second {
		t.Errorf("queue.cycle: %v after %v", cycle.Window, cycle.Warmup)
	}
	u := row(t, cycle, "unbatched").Shape
	if u.Nodes != 1 || u.Shards != 1 || u.Producers != 1 || u.Pumps != 32 || u.Workers != 1 || u.Slots != 128 ||
		u.WorkerBatch != 1 || u.ProducerBatch != 1 || u.Lease != 300*time.Second || u.Payload != 0 {
		t.Errorf("unbatched: %+v", u)
	}
	b := row(t, cycle, "batch-32-8").Shape
	if b.WorkerBatch != 32 || b.ProducerBatch != 8 || b.Pumps != 32 || b.Slots != 128 {
		t.Errorf("batch-32-8: %+v", b)
	}
	for _, name := range []string{"shards-1", "shards-4"} {
		raft := row(t, suite(t, "queue.raft"), name).Shape
		if raft.Nodes != 3 || raft.Producers*raft.Shards != 4*raft.Nodes || raft.Loops() != 128 || raft.Workers != raft.Nodes || raft.Slots != 128 {
			t.Errorf("queue.raft/%s has not 4 streams a node that create, 1 worker with 128 slots, and 128 callers: %+v", name, raft)
		}
	}
	if s := suite(t, "queue.gc"); s.Window != time.Minute {
		t.Errorf("queue.gc: %v", s.Window)
	}
	if p := row(t, suite(t, "queue.transport"), "workers-stream").Shape.Prefill; p != 5_000 {
		t.Errorf("queue.transport: %d wait", p)
	}
	if s := suite(t, "queue.steady"); s.Window != 10*time.Minute || row(t, s, "batch-32-8").Shape != b {
		t.Errorf("queue.steady: %v of %+v, want 10 min of the batched cycle", s.Window, s.Rows[0].Shape)
	}
	if s := row(t, suite(t, "queue.effects"), "kv-put").Shape; s != b {
		t.Errorf("queue.effects: %+v, want the batched cycle", s)
	}
	for name, tasks := range map[string]int{"queue.depth/ready-1m": 1e6, "queue.depth/ready-10m": 1e7, "queue.restart/tasks-1m": 1e6, "queue.redrive/dead-1m": 1e6, "queue.due/due-1m": 1e6} {
		s, r, _ := cutLast(name)
		if p := row(t, suite(t, s), r).Shape.Prefill; p != tasks {
			t.Errorf("%s: %d tasks", name, p)
		}
	}
	for name, want := range map[string]bench.Shape{
		"kv.aurora.len/value-2048":        {Nodes: 3, Payload: 2048, Puts: 80_000},
		"kv.aurora.followers/followers-7": {Nodes: 8, Payload: 64, Puts: 80_000},
		"kv.aurora.steady/ten-minutes":    {Nodes: 3, Payload: 64},
		"kv.latency/followers-3":          {Nodes: 4, Payload: 64, Offered: 4_080},
		"kv.latency/value-2048":           {Nodes: 3, Payload: 2048, Offered: 870},
		"kv.latency/own-value-2048":       {Nodes: 3, Payload: 2048},
	} {
		s, r, _ := cutLast(name)
		want.Shards, want.Producers, want.Ahead, want.Key, want.Transport = 1, 1, 4096, 16, "stream"
		if got := row(t, suite(t, s), r).Shape; got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
	if s := suite(t, "queue.idle"); s.Window != 10*time.Second || s.Rows[0].Shape.Workers != 1000 {
		t.Errorf("queue.idle: %v of %+v", s.Window, s.Rows[0].Shape)
	}
}

func TestRowsHaveNamesOfTheirOwnAndStatedDurability(t *testing.T) {
	for _, s := range Suites() {
		seen := make(map[string]bool)
		for _, r := range s.Rows {
			if seen[r.Name] || r.Name == "" || r.Title == "" {
				t.Errorf("%s/%s: a row without a name of its own, or a title", s.Name, r.Name)
			}
			seen[r.Name] = true
			if !slices.Contains(r.Profiles, Full) {
				t.Errorf("%s/%s is not in the profile of all rows", s.Name, r.Name)
			}
			for _, ref := range r.References {
				if !strings.Contains(ref.Note, "×") && !strings.Contains(ref.Note, "durability not stated") {
					t.Errorf("%s/%s: %s %v does not say how durable it was", s.Name, r.Name, ref.System, ref.Value)
				}
			}
			for _, target := range r.Targets {
				if target.Source == "" || target.Must == 0 && target.Aim == 0 {
					t.Errorf("%s/%s: a target of %s without a figure or a source", s.Name, r.Name, target.Metric)
				}
			}
		}
		if s.Bench == "" || s.Headline == "" || s.Title == "" || s.Window == 0 {
			t.Errorf("%s lacks a title, a headline, a window or its name as a Go benchmark", s.Name)
		}
	}
}

// The first run of a published figure of search has the reference's window, those after it 45 s; without the gate the rate is
// held to the same figure.
func TestSearchesAreMeasuredOverTheirWindows(t *testing.T) {
	rows := 0
	for _, s := range Suites() {
		for _, r := range s.Rows {
			window := cmp.Or(r.Window, s.Window)
			switch {
			case s.Name == "search.sweep" && strings.HasPrefix(r.Name, "clients-"), s.Name == "search.mixed":
				rows++
				if want := map[string]time.Duration{"search.sweep": 180 * time.Second, "search.mixed": 90 * time.Second}[s.Name]; window != want || r.Later != 45*time.Second || r.Runs != 3 {
					t.Errorf("%s/%s: %d runs of %s, then %s", s.Name, r.Name, r.Runs, window, r.Later)
				}
			case s.Name == "search.sweep":
				rows++
				gated := s.Rows[slices.IndexFunc(s.Rows, func(o bench.RowSpec) bool { return o.Name == strings.Replace(r.Name, "ungated", "clients", 1) })]
				if window != 45*time.Second || len(r.Targets) != 1 || r.Targets[0].Must != gated.Targets[0].Must {
					t.Errorf("%s/%s: %s, %+v", s.Name, r.Name, window, r.Targets)
				}
			}
		}
	}
	if rows != 9 {
		t.Errorf("%d rows", rows)
	}
}

func TestProfilesHoldTheRowsThatTheyPromise(t *testing.T) {
	count := make(map[string]map[string]int)
	minutes := 0.0
	for _, s := range Suites() {
		minutes += s.Minutes
		for _, r := range s.Rows {
			for _, p := range r.Profiles {
				if count[p] == nil {
					count[p] = make(map[string]int)
				}
				count[p][s.Name]++
			}
		}
		smoke := 1
		if s.Name == "kv.etcd" || s.Peer != "" || s.Name == "queue.steady" || s.Name == "kv.aurora.steady" || s.Priority != "P0" || s.Name == "queue.coalesce.raft" || s.Name == "refs.gitaly/git" {
			smoke = 0
		}
		if got := count[Smoke][s.Name]; got != smoke {
			t.Errorf("%s has %d rows in smoke, want %d", s.Name, got, smoke)
		}
		if count[Seeds][s.Name] != count[Quick][s.Name] {
			t.Errorf("%s: quick does not have the rows of seeds", s.Name)
		}
	}
	for name, want := range map[string]int{
		"queue.cycle": 2, "queue.raft": 2, "queue.smart": 3, "queue.coalesce": 2, "queue.transport": 5, "queue.codec": 3, "queue.gc": 2,
		"queue.steady": 0, "queue.latency": 1, "queue.depth": 2, "queue.restart": 1, "queue.redrive": 1, "queue.due": 0, "queue.effects": 1, "queue.idle": 1,
		"refs.gitaly": 9, "kv.aurora.len": 7, "kv.aurora.followers": 6, "kv.aurora.steady": 0, "kv.pingpong": 3, "kv.latency": 13, "raft.entry": 0, "search.sweep": 4,
		"search.mixed": 1, "search.recall": 4,
	} {
		if got := count[Seeds][name]; got != want {
			t.Errorf("%s has %d rows in seeds, want %d", name, got, want)
		}
	}
	if minutes > 78 {
		t.Errorf("seeds is expected to take %v minutes, at most 78 are promised", minutes)
	}
}

func TestProfilesAreFour(t *testing.T) {
	want := map[string]string{
		Smoke: "1 run, 500ms of 20s, 500ms of 2s, fsync true, none false, verdicts false",
		Quick: "3 run, 5s of 20s, 2s of 2s, fsync true, none false, verdicts true",
		Seeds: "5 run, 20s of 20s, 2s of 2s, fsync true, none false, verdicts true",
		Full:  "5 run, 20s of 20s, 2s of 2s, fsync true, none true, verdicts true",
	}
	for _, p := range Profiles() {
		window := func(d time.Duration) time.Duration {
			if p.Window == nil {
				return d
			}
			return p.Window("queue.cycle", d)
		}
		got := fmt.Sprintf("%d run, %v of 20s, %v of 2s, fsync %v, none %v, verdicts %v", p.Runs, window(20*time.Second),
			window(2*time.Second), p.Fsync, p.None, p.Verdicts)
		if got != want[p.Name] {
			t.Errorf("%s: %s, want %s", p.Name, got, want[p.Name])
		}
		delete(want, p.Name)
	}
	if len(want) > 0 {
		t.Errorf("missing: %v", want)
	}
}
