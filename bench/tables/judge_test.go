package tables

import (
	"strings"
	"testing"

	"github.com/millrace/millrace/bench"
)

// measured makes a row of a result with a headline per run.
func measured(t *testing.T, name string, d bench.Durability, voters int, v bench.Validity, unit string, values ...float64) bench.Row {
	t.Helper()
	s, r, _ := cutLast(name)
	spec := suite(t, s)
	l := bench.Label{Durability: d, Voters: voters, Topology: bench.Procs, Validity: v}
	out := bench.Row{
		Suite: s, Row: r, Durability: l.Class(), Label: l, Headline: spec.Headline, Figures: map[string]bench.Figure{},
		Targets: row(t, spec, r).Targets, Reference: row(t, spec, r).References,
	}
	if len(values) > 0 {
		f, err := bench.NewFigure(l, unit, values...)
		if err != nil {
			t.Fatal(err)
		}
		out.Summary = f
		out.Figures[out.Headline] = f
	}
	return out
}

// fast makes a row of five equal runs.
func fast(t *testing.T, name string, value float64) bench.Row {
	t.Helper()
	return measured(t, name, bench.Fsync, 1, bench.Valid, "x/s", value, value, value, value, value)
}

func verdictOf(t *testing.T, name string, rows ...bench.Row) bench.Verdict {
	t.Helper()
	return verdictIn(t, name, &bench.Result{Suites: rows})
}

func verdictIn(t *testing.T, name string, r *bench.Result) bench.Verdict {
	t.Helper()
	for _, v := range Judge(r, false, false) {
		if v.Name == name {
			return v
		}
	}
	t.Fatalf("no verdict on %s", name)
	return bench.Verdict{}
}

func TestRatiosAreJudgedByTheirBands(t *testing.T) {
	for _, c := range []struct {
		name, over, under string
		a, b              float64
		status            bench.Status
		says              string
	}{
		{"1 node ÷ 3 nodes, stream", "queue.cycle/unbatched", "queue.raft/shards-1", 16, 1, bench.Notable, "profile the replicas"},
		{"1 node ÷ 3 nodes, stream", "queue.cycle/unbatched", "queue.raft/shards-1", 8, 1, bench.Healthy, ""},
		{"1 node ÷ 3 nodes, stream", "queue.cycle/unbatched", "queue.raft/shards-1", 2, 1, bench.Healthy, "replication is cheap"},
		{"1 node ÷ 3 nodes, stream", "queue.cycle/unbatched", "queue.raft/shards-1", 0.9, 1, bench.Inverted, ""},
		{"4 shards ÷ 1, stream", "queue.raft/shards-4", "queue.raft/shards-1", 1.5, 1, bench.Healthy, ""},
		{"4 shards ÷ 1, stream", "queue.raft/shards-4", "queue.raft/shards-1", 1.2, 1, bench.Healthy, "some gain"},
		{"4 shards ÷ 1, stream", "queue.raft/shards-4", "queue.raft/shards-1", 1.0, 1, bench.Flat, "CPU saturated"},
		{"4 shards ÷ 1, stream", "queue.raft/shards-4", "queue.raft/shards-1", 0.89, 1, bench.Inverted, ""},
		{"4 shards ÷ 1, REST", "queue.smart/shards-4", "queue.smart/shards-1", 1.2, 1, bench.Healthy, ""},
		{"4 shards ÷ 1, REST", "queue.smart/shards-4", "queue.smart/shards-1", 0.98, 1, bench.Flat, "use streams"},
		{"4 shards ÷ 1, REST", "queue.smart/shards-4", "queue.smart/shards-1", 0.8, 1, bench.Inverted, ""},
		{"smart ÷ rotation, REST", "queue.smart/shards-1", "queue.smart/rotation", 1.3, 1, bench.Healthy, ""},
		{"smart ÷ rotation, REST", "queue.smart/shards-1", "queue.smart/rotation", 1.1, 1, bench.Notable, ""},
		{"smart ÷ rotation, REST", "queue.smart/shards-1", "queue.smart/rotation", 0.9, 1, bench.Suspicious, "leader hint not followed"},
		{"group commit ÷ capped, parallelism 16", "queue.coalesce/group-16", "queue.coalesce/single-16", 1.3, 1, bench.Healthy, ""},
		{"group commit ÷ capped, parallelism 16", "queue.coalesce/group-16", "queue.coalesce/single-16", 1.2, 1, bench.Notable, ""},
		{"group commit ÷ capped, parallelism 16", "queue.coalesce/group-16", "queue.coalesce/single-16", 1.0, 1, bench.Suspicious, "group commit not wired"},
		{"stream ÷ REST creates", "queue.transport/stream", "queue.transport/rest", 100_000, 10_000, bench.Healthy, ""},
		{"stream ÷ REST creates", "queue.transport/stream", "queue.transport/rest", 40_000, 8_000, bench.Healthy, "REST itself is fast"},
		{"stream ÷ REST creates", "queue.transport/stream", "queue.transport/rest", 40_000, 7_999, bench.Notable, "REST is slow"},
		{"stream ÷ REST creates", "queue.transport/stream", "queue.transport/rest", 20_000, 8_000, bench.Suspicious, ""},
		{"batched ÷ unbatched cycle", "queue.cycle/batch-32-8", "queue.cycle/unbatched", 1.2, 1, bench.Healthy, ""},
		{"batched ÷ unbatched cycle", "queue.cycle/batch-32-8", "queue.cycle/unbatched", 1.1, 1, bench.Notable, ""},
		{"batched ÷ unbatched cycle", "queue.cycle/batch-32-8", "queue.cycle/unbatched", 0.99, 1, bench.Inverted, ""},
		{"refs update, 100 per transaction ÷ 1", "refs.gitaly/update-100", "refs.gitaly/update-1", 1.03, 1, bench.Suspicious, "one sync per ref"},
		{"refs delete packed, 100 per transaction ÷ 1", "refs.gitaly/delete-packed-100", "refs.gitaly/delete-packed-1", 57, 1, bench.Healthy, ""},
		{"refs delete at 1, packed ÷ loose", "refs.gitaly/delete-packed-1", "refs.gitaly/delete-loose-1", 0.6, 1, bench.Notable, ""},
		{"KV 32 ÷ 2,048 B", "kv.aurora.len/value-32", "kv.aurora.len/value-2048", 3, 1, bench.Healthy, ""},
		{"KV 32 ÷ 2,048 B", "kv.aurora.len/value-32", "kv.aurora.len/value-2048", 6.3, 1, bench.Notable, ""},
		{"KV 32 ÷ 2,048 B", "kv.aurora.len/value-32", "kv.aurora.len/value-2048", 6.4, 1, bench.Suspicious, ""},
		{"KV 4 shards ÷ 1, stream", "kv.aurora.len/value-64-shards-4", "kv.aurora.len/value-64", 0.9, 1, bench.Flat, "2 cores"},
		{"KV 4 shards ÷ 1, stream", "kv.aurora.len/value-64-shards-4", "kv.aurora.len/value-64", 0.8, 1, bench.Inverted, ""},
		{"KV put ÷ ping-pong ceiling", "kv.pingpong/nodes", "kv.pingpong/grpc", 0.91, 1, bench.Healthy, ""},
		{"KV stream ÷ ping-pong ceiling", "kv.aurora.len/value-64", "kv.pingpong/grpc", 2.4, 1, bench.Notable, ""},
		{"KV 32 ÷ 2,048 B", "kv.aurora.len/value-32", "kv.aurora.len/value-2048", 15 * 11_600, 11_600, bench.Healthy, "beyond their aim"},
		{"KV 32 ÷ 2,048 B", "kv.aurora.len/value-32", "kv.aurora.len/value-2048", 15 * 11_599, 11_599, bench.Suspicious, "steeper"},
		{"KV 2 ÷ 7 followers", "kv.aurora.followers/followers-2", "kv.aurora.followers/followers-7", 3 * 29_200, 29_200, bench.Healthy, "beyond"},
		{"KV 2 ÷ 7 followers", "kv.aurora.followers/followers-2", "kv.aurora.followers/followers-7", 3 * 29_199, 29_199, bench.Notable, "steeper"},
		{"KV 2 ÷ 7 followers", "kv.aurora.followers/followers-2", "kv.aurora.followers/followers-7", 2.45, 1, bench.Healthy, ""},
		{"search, 200 ÷ 10 clients", "search.sweep/clients-200", "search.sweep/clients-10", 3, 1, bench.Healthy, ""},
		{"search, 200 ÷ 10 clients", "search.sweep/clients-200", "search.sweep/clients-10", 1.5, 1, bench.Notable, ""},
		{"search, 200 ÷ 10 clients", "search.sweep/clients-200", "search.sweep/clients-10", 1.05, 1, bench.Healthy, "at the maximum already"},
		{"search, 200 ÷ 10 clients", "search.sweep/clients-200", "search.sweep/clients-10", 0.7, 1, bench.Healthy, "at the maximum already"},
	} {
		v := verdictOf(t, c.name, fast(t, c.over, c.a), fast(t, c.under, c.b))
		if v.Status != c.status || !strings.Contains(v.Cause, c.says) {
			t.Errorf("%s = %v: %s (%s), want %s (%s)", c.name, v.Value, v.Status, v.Cause, c.status, c.says)
		}
		if v.Cause == "" || v.Status.Fails() && v.Next == "" {
			t.Errorf("%s: %s without a cause or a next command", c.name, v.Status)
		}
	}
}

// Three nodes and their client are four processes: where they have fewer cores, one shard uses all of them up.
func TestFourShardsAreHeldAgainstOneWhereThereAreCoresForThem(t *testing.T) {
	for _, c := range []struct {
		cores  int
		value  float64
		status bench.Status
	}{
		{2, 0.9, bench.Flat},
		{2, 0.75, bench.Notable},
		{2, 0.6, bench.Notable},
		{2, 0.59, bench.Inverted},
		{3, 0.75, bench.Notable},
		{4, 0.89, bench.Inverted},
		{4, 0.9, bench.Flat},
		{4, 1.5, bench.Healthy},
	} {
		r := &bench.Result{Suites: []bench.Row{fast(t, "queue.raft/shards-4", c.value), fast(t, "queue.raft/shards-1", 1)}}
		r.Env.Host.Cores = c.cores
		if v := verdictIn(t, "4 shards ÷ 1, stream", r); v.Status != c.status {
			t.Errorf("%v on %d cores: %s (%s), want %s", c.value, c.cores, v.Status, v.Cause, c.status)
		}
	}
}

func TestSearchThatShrinksBelowOtherCellsIsACollapse(t *testing.T) {
	v := verdictOf(t, "search, 200 ÷ 10 clients", fast(t, "search.sweep/clients-200", 70), fast(t, "search.sweep/clients-10", 100),
		fast(t, "search.sweep/clients-50", 150))
	if v.Status != bench.Suspicious || v.Cause != "collapse" {
		t.Errorf("%s (%s)", v.Status, v.Cause)
	}
}

func TestRequestsPerOperationAreJudgedByThemselves(t *testing.T) {
	for value, want := range map[float64]bench.Status{1.7: bench.Healthy, 1.9: bench.Notable, 2.1: bench.Suspicious} {
		r := fast(t, "queue.smart/shards-1", 5_000)
		f, err := bench.NewFigure(r.Label, "requests", value, value, value)
		if err != nil {
			t.Fatal(err)
		}
		r.Figures[requests] = f
		v := verdictOf(t, "requests per operation, plain client that follows", r)
		if v.Status != want || v.Value != value {
			t.Errorf("%v requests: %s, value %v, want %s", value, v.Status, v.Value, want)
		}
	}
}

func TestThereIsNoVerdictWithoutThreeValidRunsOfBothSides(t *testing.T) {
	const name = "batched ÷ unbatched cycle"
	good := fast(t, "queue.cycle/unbatched", 50_000)
	for says, other := range map[string]bench.Row{
		"has 2 valid runs": measured(t, "queue.cycle/batch-32-8", bench.Fsync, 1, bench.Valid, "x/s", 1, 1),
		"one side is missing: queue.cycle/batch-32-8": measured(t, "queue.cycle/batch-32-8", bench.Fsync, 1, bench.Invalid, "x/s"),
		"is audit failed": measured(t, "queue.cycle/batch-32-8", bench.Fsync, 1, bench.AuditFailed, "x/s", 1, 1, 1),
		"spreads by 40 %": measured(t, "queue.cycle/batch-32-8", bench.Fsync, 1, bench.Valid, "x/s", 80, 100, 120),
		"spreads by 10 %": measured(t, "queue.cycle/batch-32-8", bench.Fsync, 1, bench.NoVerdict, "x/s", 95, 100, 105),
		"is 0":            measured(t, "queue.cycle/batch-32-8", bench.Fsync, 1, bench.Valid, "x/s", 0, 0, 0),
	} {
		if v := verdictOf(t, name, good, other); v.Status != bench.Undecided || !strings.Contains(v.Cause, says) {
			t.Errorf("%s (%s), want no verdict (%s)", v.Status, v.Cause, says)
		}
	}
	if v := verdictOf(t, name, good); v.Status != bench.Undecided {
		t.Errorf("without a side: %s", v.Status)
	}
	for _, v := range Judge(&bench.Result{Suites: []bench.Row{good}}, false, false) {
		if v.Over.Suite != "queue.cycle" || v.Under.Suite != "queue.cycle" {
			t.Errorf("a verdict on a suite that was not asked for: %s", v.Name)
		}
	}
	if got := Judge(&bench.Result{Profile: Smoke, Suites: []bench.Row{good}}, false, false); len(got) > 0 {
		t.Errorf("a smoke result has verdicts: %v", got)
	}
}

func TestThreeRunsAreALook(t *testing.T) {
	v := verdictOf(t, "batched ÷ unbatched cycle", fast(t, "queue.cycle/unbatched", 50),
		measured(t, "queue.cycle/batch-32-8", bench.Fsync, 1, bench.Valid, "x/s", 100, 100, 100))
	if v.Status != bench.Healthy || !strings.HasSuffix(v.Cause, "3 runs: a look") {
		t.Errorf("%s (%s)", v.Status, v.Cause)
	}
}

func TestLowerBoundDecidesOnlyWhereItCan(t *testing.T) {
	bound := func(name string, v float64) bench.Row {
		return measured(t, name, bench.Fsync, 1, bench.LowerBound, "x/s", v, v, v)
	}
	const name = "batched ÷ unbatched cycle"
	for _, c := range []struct {
		over, under bench.Row
		want        bench.Status
	}{
		{bound("queue.cycle/batch-32-8", 150), fast(t, "queue.cycle/unbatched", 100), bench.Healthy},
		{bound("queue.cycle/batch-32-8", 110), fast(t, "queue.cycle/unbatched", 100), bench.Undecided},
		{fast(t, "queue.cycle/batch-32-8", 150), bound("queue.cycle/unbatched", 100), bench.Undecided},
		{fast(t, "queue.cycle/batch-32-8", 90), bound("queue.cycle/unbatched", 100), bench.Inverted},
		{bound("queue.cycle/batch-32-8", 150), bound("queue.cycle/unbatched", 100), bench.Undecided},
	} {
		v := verdictOf(t, name, c.over, c.under)
		if v.Status != c.want || !v.LowerBound {
			t.Errorf("%s over %s: %s, want %s", c.over.Summary, c.under.Summary, v.Status, c.want)
		}
	}
}

func TestOneNodeIsHeldAgainstThree(t *testing.T) {
	v := verdictOf(t, "1 node ÷ 3 nodes, stream", fast(t, "queue.cycle/unbatched", 100),
		measured(t, "queue.raft/shards-1", bench.Fsync, 3, bench.Valid, "x/s", 20, 20, 20, 20, 20))
	if v.Status != bench.Healthy || v.Durability != "fsync×1 and fsync×3" {
		t.Errorf("%s, %s", v.Status, v.Durability)
	}
}

func TestDurabilitiesAreNeverMixedAndTheirRatioIsPrintedOnly(t *testing.T) {
	none := measured(t, "queue.cycle/batch-32-8", bench.None, 1, bench.Valid, "x/s", 100, 100, 100)
	verdicts := Judge(&bench.Result{Suites: []bench.Row{fast(t, "queue.cycle/unbatched", 50), none}}, false, false)
	for _, v := range verdicts {
		if v.Name == "batched ÷ unbatched cycle" && v.Status != bench.Undecided {
			t.Errorf("none was held against fsync: %+v", v)
		}
	}
	both := Judge(&bench.Result{Suites: []bench.Row{fast(t, "queue.cycle/batch-32-8", 50), none}}, false, false)
	last := both[len(both)-1]
	if last.Name != "none ÷ fsync, queue.cycle/batch-32-8" || last.Status != bench.Printed || last.Value != 2 ||
		last.Durability != "none×1 and fsync×1" {
		t.Errorf("%+v", last)
	}
}

func TestTargetsAreJudgedWhereTheyHold(t *testing.T) {
	judged := func(judge bool, v bench.Validity, values ...float64) map[string]bench.Target {
		r := measured(t, "queue.cycle/unbatched", bench.Fsync, 1, v, "cycles/s", values...)
		ratios := make([]float64, len(values))
		for i := range ratios {
			ratios[i] = 5.5
		}
		f, err := bench.NewFigure(r.Label, "×", ratios...)
		if err != nil {
			t.Fatal(err)
		}
		r.Figures[createSync] = f
		res := &bench.Result{Suites: []bench.Row{r}}
		Judge(res, judge, false)
		out := make(map[string]bench.Target)
		for _, target := range res.Suites[0].Targets {
			out[target.Metric+" "+target.Durability] = target
		}
		return out
	}
	got := judged(false, bench.Valid, 50_000, 50_000, 50_000)
	if _, ok := got["cycles_per_s none"]; ok {
		t.Error("a target of the other durability stayed")
	}
	rate := got["cycles_per_s fsync"]
	if rate.MustMet == nil || !*rate.MustMet || rate.AimMet == nil || *rate.AimMet || rate.Judged {
		t.Errorf("50,000 of 45,000 and 60,000: %+v", rate)
	}
	ratio := got["create_mean_over_fdatasync fsync"]
	if ratio.MustMet == nil || *ratio.MustMet || !ratio.Judged {
		t.Errorf("5.5 of at most 5 on every machine: %+v", ratio)
	}
	if other := got["ratio_to_codeq "]; other.MustMet != nil || other.Judged {
		t.Errorf("what was not measured: %+v", other)
	}
	if rate := judged(true, bench.Valid, 50_000, 50_000, 50_000)["cycles_per_s fsync"]; !rate.Judged {
		t.Error("rates are not judged when asked for")
	}
	if ratio := judged(true, bench.Valid, 50_000, 50_000)["create_mean_over_fdatasync fsync"]; ratio.Judged || ratio.MustMet == nil {
		t.Errorf("two runs are judged: %+v", ratio)
	}
	bound := judged(true, bench.LowerBound, 50_000, 50_000, 50_000)["cycles_per_s fsync"]
	if bound.MustMet == nil || !*bound.MustMet || bound.AimMet != nil {
		t.Errorf("a lower bound of 50,000: %+v", bound)
	}
	for _, bad := range []bench.Validity{bench.NoVerdict, bench.Invalid, bench.AuditFailed} {
		if rate := judged(true, bad, 50_000, 50_000, 50_000)["cycles_per_s fsync"]; rate.MustMet != nil || rate.Judged {
			t.Errorf("%s: %+v", bad, rate)
		}
	}
	if rate := judged(true, bench.Valid, 40_000, 50_000, 60_000)["cycles_per_s fsync"]; rate.MustMet != nil {
		t.Errorf("a spread of 40 %%: %+v", rate)
	}
}

func TestReferencesFailARunOnlyWhenRequired(t *testing.T) {
	slow := measured(t, "queue.cycle/unbatched", bench.Fsync, 1, bench.Valid, "cycles/s", 50_000, 50_000, 50_000)
	deep := measured(t, "queue.aux/depth/100", bench.Fsync, 1, bench.Valid, "ms", 9, 9, 9)
	res := &bench.Result{Suites: []bench.Row{slow, deep}}
	for _, v := range Judge(res, false, false) {
		if strings.HasPrefix(v.Name, "ours ÷") {
			t.Errorf("a reference was judged: %+v", v)
		}
	}
	status := make(map[string]bench.Status)
	for _, v := range Judge(res, false, true) {
		status[v.Name] = v.Status
	}
	for _, name := range []string{"ours ÷ codeQ, full cycle, unbatched", "ours ÷ codeQ, claim p50"} {
		if status[name] != bench.Suspicious {
			t.Errorf("%s: %q", name, status[name])
		}
	}
	fastRow := measured(t, "queue.cycle/unbatched", bench.Fsync, 1, bench.Valid, "cycles/s", 80_000, 80_000, 80_000)
	for _, v := range Judge(&bench.Result{Suites: []bench.Row{fastRow}}, false, true) {
		if v.Name == "ours ÷ codeQ, full cycle, unbatched" && v.Status != bench.Healthy {
			t.Errorf("80,000 over 76,639: %s", v.Status)
		}
	}
}

func TestEveryRatioNamesRowsThatThereAre(t *testing.T) {
	for _, r := range Ratios() {
		for _, p := range []Pick{r.Over, r.Under} {
			if p.Suite != "" {
				row(t, suite(t, p.Suite), p.Row)
			}
		}
		for _, bands := range [][]Band{r.Bands, r.Crowded} {
			if len(bands) == 0 {
				continue // few cores are not a case of their own
			}
			last := bands[len(bands)-1]
			if last.Min != 0 || last.Max != 0 || last.UnderMin != 0 {
				t.Errorf("%s has values without a verdict", r.Name)
			}
		}
	}
}

func TestACellWhoseWallIsTheMachineHasALowerMust(t *testing.T) {
	for _, c := range []struct {
		bound float64
		rate  float64
		met   bool
	}{{0, 40_000, false}, {1, 40_000, true}, {1, 36_000, false}} {
		row := auroraRow("value-32", lengthCells()[0], 3, 32, "")
		r := bench.Row{Suite: "kv.aurora.len", Row: row.Name, Headline: putsPerS, Targets: row.Targets[:1], Figures: map[string]bench.Figure{}}
		r.Label = bench.Label{Durability: bench.Fsync, Voters: 3, Topology: bench.Procs, Validity: bench.Valid}
		r.Summary = mustFigure(t, r.Label, "puts/s", c.rate, c.rate, c.rate)
		r.Figures[bench.CPUBound] = mustFigure(t, r.Label, "0 or 1", c.bound, c.bound, c.bound)
		judgeRow(&r, true, 2)
		got := r.Targets[0]
		if got.MustMet == nil || *got.MustMet != c.met || got.BoxBound != (c.bound == 1) {
			t.Errorf("%v puts/s, bound %v: %+v, want met %v", c.rate, c.bound, got, c.met)
		}
	}
}

func TestATargetThatWantsCoresIsPrintedOnFewer(t *testing.T) {
	for cores, judged := range map[int]bool{2: false, 3: false, 4: true, 0: true} {
		r := fast(t, "queue.smart/shards-1", 3_000)
		judgeRow(&r, true, cores)
		got := r.Targets[0]
		if got.Metric != cycles || got.MustMet == nil || *got.MustMet || got.Judged != judged {
			t.Errorf("3,000 cycles/s on %d cores: %+v, want missed, judged %v", cores, got, judged)
		}
	}
}

func mustFigure(t *testing.T, l bench.Label, unit string, values ...float64) bench.Figure {
	t.Helper()
	f, err := bench.NewFigure(l, unit, values...)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// The part of a call outside the disk takes as long on a fast disk. So a limit in multiples of the disk's time is taken of a
// usual disk there.
func TestAMultipleOfTheDisksTimeIsOfAUsualDiskAtTheLeast(t *testing.T) {
	judged := func(disk, mean float64) bench.Target {
		r := measured(t, "queue.cycle/unbatched", bench.Fsync, 1, bench.Valid, "cycles/s", 50_000, 50_000, 50_000)
		for name, v := range map[string]float64{createSync: mean / disk, "create_mean_us": mean} {
			f, err := bench.NewFigure(r.Label, "x", v, v, v)
			if err != nil {
				t.Fatal(err)
			}
			r.Figures[name] = f
		}
		res := &bench.Result{Suites: []bench.Row{r}}
		Judge(res, false, false)
		for _, target := range res.Suites[0].Targets {
			if target.Metric == createSync {
				return target
			}
		}
		t.Fatal("no target of the mean latency")
		return bench.Target{}
	}
	for _, row := range []struct {
		disk, mean float64
		must, aim  bool
	}{
		{140, 690, true, false},
		{140, 710, false, false},
		{280, 1390, true, false},
		{280, 1410, false, false},
		{70, 690, true, false},
		{70, 710, false, false},
		{70, 550, true, true},
	} {
		if got := judged(row.disk, row.mean); !got.Judged || *got.MustMet != row.must || *got.AimMet != row.aim {
			t.Errorf("%v µs on a disk of %v µs: must %v, aim %v", row.mean, row.disk, *got.MustMet, *got.AimMet)
		}
	}
}

func TestRunsThatDifferMuchDecideWhereAllAreOnOneSide(t *testing.T) {
	for _, row := range []struct {
		values []float64
		met    *bool
	}{
		{[]float64{50_000, 70_000, 90_000}, new(true)}, {[]float64{10_000, 20_000, 30_000}, new(false)}, {[]float64{30_000, 50_000, 60_000}, nil},
	} {
		r := measured(t, "queue.cycle/unbatched", bench.Fsync, 1, bench.Valid, "cycles/s", row.values...)
		res := &bench.Result{Suites: []bench.Row{r}}
		Judge(res, true, false)
		for _, target := range res.Suites[0].Targets {
			if target.Metric != cycles {
				continue
			}
			if (target.MustMet == nil) != (row.met == nil) || row.met != nil && *row.met != *target.MustMet {
				t.Errorf("%v: %v", row.values, target.MustMet)
			}
		}
	}
}
