package seedtest

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/bench"
)

// cycle is a result of one run that went well.
func cycle(t *testing.T) *bench.Result {
	t.Helper()
	l := bench.Label{Durability: bench.Fsync, Voters: 1, Topology: bench.InProc, Validity: bench.Valid}
	f, err := bench.NewFigure(l, "cycles/s", 45_000)
	if err != nil {
		t.Fatal(err)
	}
	return &bench.Result{Suites: []bench.Row{{
		Suite: "queue.cycle", Row: "unbatched", Durability: l.Class(), Label: l, Headline: "cycles_per_s", Summary: f,
		Shape: []bench.Param{{Name: "worker_batch", Value: "32"}, {Name: "producer_batch", Value: "8"}},
		Runs: []bench.Run{
			{
				Number: 1, Seconds: 20.004, Ops: 900_000,
				Metrics: map[string]bench.Metric{
					"creates_per_s": {Value: 45_010, Unit: "creates/s"}, "completes_per_s": {Value: 45_000, Unit: "completes/s"},
				},
				Audit: &bench.Audit{OK: true, Created: 990_000, Completed: 990_000, ReadBack: 9_900},
			},
			{Number: 2, Seconds: 20, Profiled: true, Metrics: map[string]bench.Metric{"creates_per_s": {Value: 1}}},
		},
		Diagnosis: &bench.Diagnosis{Overhead: 0.12},
	}}}
}

func TestLinesAreThoseThatScriptsOfTheReferenceLookFor(t *testing.T) {
	r := cycle(t)
	want := []string{
		"PROFILE WINDOW (20s):", "created = 900380 (45010/s) fsync×1", "completed = 900180 (45000/s) fsync×1",
		"a second window with profiles cost 12 % of the rate",
	}
	got := cycleLines(&r.Suites[0])
	if !slices.Equal(got, want) {
		t.Errorf("lines %q, want %q", got, want)
	}
	grep := regexp.MustCompile(`created.*=|completed.*=`)
	found := 0
	for _, line := range got {
		if grep.MatchString(line) {
			found++
		}
	}
	if found != 2 {
		t.Errorf("the reference's grep finds %d lines, want 2", found)
	}
}

func TestOnlyWhatWasMeasuredHasALine(t *testing.T) {
	r := cycle(t)
	row := &r.Suites[0]
	delete(row.Runs[0].Metrics, "completes_per_s")
	if got, want := rateLines(row, best(row)), []string{"created = 900380 (45010/s) fsync×1"}; !slices.Equal(got, want) {
		t.Errorf("lines %q, want %q", got, want)
	}
}

func TestLabelNamesBatchesAndTheAudit(t *testing.T) {
	r := cycle(t)
	want := "queue.cycle/unbatched: 45,000 cycles/s · fsync×1 · inproc · one run · worker_batch=32 producer_batch=8 · " +
		"audit clean: 990000 created, 990000 completed, 9900 read back"
	if got := labelLine(&r.Suites[0]); got != want {
		t.Errorf("label\n%s\nwant\n%s", got, want)
	}
	r.Suites[0].Runs[0].Audit = &bench.Audit{Violations: []string{"lost: t1"}}
	if got := labelLine(&r.Suites[0]); !strings.HasSuffix(got, "audit FAILED: lost: t1") {
		t.Errorf("label %s", got)
	}
}

func TestBenchmarksPrintDurabilityInTheUnitOfARate(t *testing.T) {
	row := cycle(t).Suites[0]
	l := row.Label
	l.Note = "one commit per entry"
	rate, err := bench.NewFigure(l, "creates/s", 40_000, 50_000, 60_000)
	if err != nil {
		t.Fatal(err)
	}
	tail, err := bench.NewFigure(l, "µs", 900)
	if err != nil {
		t.Fatal(err)
	}
	row.Summary = rate
	row.Figures = map[string]bench.Figure{"creates_per_s": rate, "create_p99_us": tail, "client_cpu_us_per_op": tail}
	want := []bench.Metric{
		{Value: 20_000, Unit: "ns/op"}, {Value: 50_000, Unit: "creates/s·fsync×1·one-commit-per-entry"}, {Value: 900, Unit: "create-p99-us"},
	}
	if got := metrics(&row); !slices.Equal(got, want) {
		t.Errorf("metrics %v, want %v", got, want)
	}
	row.Summary = bench.Figure{}
	if got := metrics(&row); got != nil {
		t.Errorf("without a figure: %v", got)
	}
}

func TestOnlyErrorsAuditsClocksAndInvertedRatiosFail(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(r *bench.Result)
		fails bool
	}{
		"nothing":         {func(*bench.Result) {}, false},
		"an error":        {func(r *bench.Result) { r.Suites[0].Runs[0].Errors = []bench.ErrorClass{{Op: "create"}} }, true},
		"a failed run":    {func(r *bench.Result) { r.Suites[0].Runs[0].Failed = "the server ended" }, true},
		"a row not run":   {func(r *bench.Result) { r.Suites[0].Error = "no server" }, true},
		"a failed audit":  {func(r *bench.Result) { r.Suites[0].Runs[0].Audit.OK = false }, true},
		"a jumping clock": {func(r *bench.Result) { exclude(r, bench.ClockJump) }, true},
		"a busy host":     {func(r *bench.Result) { exclude(r, bench.ForeignCPU) }, false},
		"a missed target": {func(r *bench.Result) {
			missed := false
			r.Suites[0].Targets = []bench.Target{{Must: 1, Judged: true, MustMet: &missed}}
		}, false},
		"a failing diagnosis": {func(r *bench.Result) {
			r.Suites[0].Diagnosis.Findings = []bench.Finding{{Level: bench.Fail}}
		}, false},
		"an inverted ratio":   {func(r *bench.Result) { r.Verdicts = []bench.Verdict{{Status: bench.Inverted}} }, true},
		"a suspicious ratio":  {func(r *bench.Result) { r.Verdicts = []bench.Verdict{{Status: bench.Suspicious}} }, false},
		"a ratio not decided": {func(r *bench.Result) { r.Verdicts = []bench.Verdict{{Status: bench.Undecided}} }, false},
	} {
		r := cycle(t)
		c.spoil(r)
		if got := failures(r); (len(got) > 0) != c.fails {
			t.Errorf("%s: failures %q", name, got)
		}
	}
}

func exclude(r *bench.Result, why bench.Cause) {
	r.Suites[0].Runs[0].Excluded = []bench.Exclusion{{Cause: why}}
}

func TestClockThatJumpedInOneOfTwoRunsIsNoFailure(t *testing.T) {
	r := cycle(t)
	r.Suites[0].Runs = append(r.Suites[0].Runs, r.Suites[0].Runs[0])
	exclude(r, bench.ClockJump)
	if got := failures(r); len(got) > 0 {
		t.Errorf("failures %q", got)
	}
	if run := best(&r.Suites[0]); run != &r.Suites[0].Runs[2] {
		t.Errorf("run %d stands for the row", run.Number)
	}
}

// profiles lays out profiles as a result's directory has them.
func profiles(t *testing.T, processes ...string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "profiles")
	for _, p := range processes {
		sub := filepath.Join(dir, "queue.cycle", "unbatched", "fsync", p)
		if err := os.MkdirAll(sub, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, kind := range []string{"cpu", "heap"} {
			if err := os.WriteFile(filepath.Join(sub, kind+".pb.gz"), []byte(p), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir
}

func TestProfilesOfOneProcessLieFlat(t *testing.T) {
	for _, c := range []struct{ processes, want []string }{
		{[]string{"driver"}, []string{"cpu.pb.gz", "heap.pb.gz"}},
		{[]string{"driver", "server-1"}, []string{"cpu.pb.gz", "driver-cpu.pb.gz", "driver-heap.pb.gz", "heap.pb.gz"}},
	} {
		to := filepath.Join(t.TempDir(), "millrace-profiles")
		if err := flatten(profiles(t, c.processes...), to); err != nil {
			t.Fatal(err)
		}
		entries, err := os.ReadDir(to)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range entries {
			got = append(got, e.Name())
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("files %q, want %q", got, c.want)
		}
		b, err := os.ReadFile(filepath.Join(to, "cpu.pb.gz"))
		if last := c.processes[len(c.processes)-1]; err != nil || string(b) != last {
			t.Errorf("cpu.pb.gz is of %q, want %s", b, last)
		}
	}
	if err := flatten(filepath.Join(t.TempDir(), "none"), t.TempDir()); err == nil {
		t.Error("a run without profiles passes")
	}
}

func TestEnvironmentNamesOfTheReferenceAreTaken(t *testing.T) {
	t.Setenv("PHASE6_BATCH", "32")
	t.Setenv("PHASE6_PROD_BATCH", "8")
	t.Setenv("PHASE8_SHARDS", "4")
	t.Setenv("RUN_COALESCER", "false")
	c := config(t, "queue.cycle/unbatched")
	if c.WorkerBatch != 32 || c.ProducerBatch != 8 || c.Shards != 4 || c.GroupCommit {
		t.Errorf("configuration %+v", c)
	}
	if c.Runs != 1 || c.Topology != bench.InProc || c.Durability != "fsync" {
		t.Errorf("defaults %+v", c)
	}
	t.Setenv("MILLRACE_BENCH_WORKER_BATCH", "16")
	if c := config(t, "queue.cycle/unbatched"); c.WorkerBatch != 16 {
		t.Errorf("worker batch %d: our own name wins", c.WorkerBatch)
	}
}

func TestLinesOfThreeNodesAreThoseOfTheReference(t *testing.T) {
	one, four := &clusterRates{9_400, 9_380, 3_949}, &clusterRates{10_250, 10_240, 3_883}
	for _, c := range []struct {
		b    clusterBench
		want []string
	}{
		{streamBench(), []string{"1-shard: create=9400/s complete=9380/s", "4-shard: create=10250/s complete=10240/s", "multi/single create ratio: 1.09x"}},
		{cyclesOf("", "", "", ""), []string{"1-shard cycles/s: 3949", "4-shard cycles/s: 3883", "multi-shard / single-shard ratio: 0.98x"}},
	} {
		if got := []string{c.b.line(1, one), c.b.line(4, four), c.b.ratio(one, four)}; !slices.Equal(got, c.want) {
			t.Errorf("lines %q, want %q", got, c.want)
		}
	}
}

func TestRatesAreThoseOfTheRunThatStandsForTheRow(t *testing.T) {
	r := cycle(t)
	row := &r.Suites[0]
	if got := ratesOf(row); got != nil {
		t.Errorf("without cycles: %+v", got)
	}
	row.Runs[0].Metrics["cycles_per_s"] = bench.Metric{Value: 44_990, Unit: "cycles/s"}
	if got := ratesOf(row); got == nil || *got != (clusterRates{45_010, 45_000, 44_990}) {
		t.Errorf("rates %+v", got)
	}
}

func TestServersOfAClusterAreProcessesUnlessTheEnvironmentSaysOtherwise(t *testing.T) {
	t.Setenv("MILLRACE_BENCH_TOPOLOGY", "inproc")
	if c := configIn(t, bench.Procs); c.Topology != bench.InProc {
		t.Errorf("topology %s", c.Topology)
	}
}
