package report

import (
	"testing"
	"time"

	"github.com/millrace/millrace/bench"
)

var began = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

func fig(t *testing.T, class bench.Durability, validity bench.Validity, unit string, values ...float64) bench.Figure {
	t.Helper()
	f, err := bench.NewFigure(label1(class, validity), unit, values...)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func label1(class bench.Durability, validity bench.Validity) bench.Label {
	return bench.Label{Durability: class, Voters: 1, Topology: bench.Procs, Validity: validity}
}

// sample is a result with something in every field.
func sample(t *testing.T) *bench.Result {
	t.Helper()
	unbatched := cycle(t, bench.Fsync, "unbatched", "1", 45_000, 44_000, 46_000, 45_500, 44_500, 45_200)
	batched := cycle(t, bench.Fsync, "batch-32-8", "32", 100_000, 99_000, 101_000)
	none := cycle(t, bench.None, "unbatched", "1", 71_000)
	spoil(&unbatched)
	broken := bench.Row{
		Suite: "queue.transport", Row: "rest", Durability: "fsync×1", Label: label1(bench.Fsync, bench.Invalid),
		Headline: "creates_per_s", Error: "the server ended", Bench: "BenchmarkQueueTransport",
	}
	codec := bench.Row{
		Suite: "queue.codec", Row: "ours-64", Durability: "none×1", Label: label1(bench.None, bench.Valid), Headline: "ns_per_op",
		Summary: fig(t, bench.None, bench.Valid, "ns/op", 120), Bench: "BenchmarkQueueCodec",
		Runs: []bench.Run{{Number: 1, Seconds: 1, Ops: 8_000_000, Metrics: map[string]bench.Metric{
			"ns_per_op": {Value: 120, Unit: "ns/op"}, "allocs_per_op": {Value: 2, Unit: "allocs/op"},
		}}},
	}
	return &bench.Result{
		Schema: bench.Schema, ID: "20260304-050607-abc", Command: "millrace bench run queue.cycle --durability both", Seed: 1,
		Profile: "custom", Started: began, Finished: began.Add(10 * time.Minute), Partial: true, Exit: 1,
		Env: environment(), Suites: []bench.Row{unbatched, batched, none, broken, codec},
		Verdicts: []bench.Verdict{
			{
				Name: "batched ÷ unbatched cycle", Status: bench.Healthy, Value: 100_000.0 / 45_100,
				Over:      bench.Side{Suite: "queue.cycle", Row: "batch-32-8", Metric: "cycles_per_s", Figure: batched.Summary},
				Under:     bench.Side{Suite: "queue.cycle", Row: "unbatched", Metric: "cycles_per_s", Figure: unbatched.Summary},
				Reference: "> 1", Cause: "batches share frames", Next: "millrace bench run queue.cycle", Durability: "fsync×1",
			},
			{
				Name: "stream ÷ REST creates", Status: bench.Undecided, Durability: "fsync×1", Cause: "one side is missing",
				Over:  bench.Side{Suite: "queue.transport", Row: "stream", Metric: "creates_per_s"},
				Under: bench.Side{Suite: "queue.transport", Row: "rest", Metric: "creates_per_s"},
			},
			{
				Name: "group commit ÷ capped, parallelism 16", Status: bench.Inverted, Value: 0.9, Durability: "fsync×1",
				Cause: "group commit not wired", LowerBound: true,
				Over:  bench.Side{Suite: "queue.coalesce", Row: "group-16", Figure: unbatched.Summary},
				Under: bench.Side{Suite: "queue.coalesce", Row: "single-16", Figure: batched.Summary},
			},
		},
	}
}

func environment() bench.Env {
	return bench.Env{
		Commit: "abcdef0", Dirty: true, Version: "v0.1.0", Go: "go1.26.0", Build: map[string]string{"-trimpath": "true", "GOAMD64": "v1"},
		ConfigHash: "c0ffee", HostHash: "h05t", Tools: map[string]string{"git": "2.39.5"},
		Host: bench.Host{
			OS: "linux", Arch: "amd64", CPU: "Example CPU @ 2.0 GHz", Flags: []string{"avx2", "sse4_2"}, Governor: "performance",
			Cores: 2, RAM: 8 << 30, Kernel: "6.1.0", FileSystem: "ext4", ClockSource: "tsc", Cgroup: "none", Load: "0.10",
			FdatasyncP50: 140, FdatasyncP99: 900, LoopbackP50: 25, LoopbackP99: 60,
		},
	}
}

// cycle makes a row with a run per rate.
func cycle(t *testing.T, class bench.Durability, name, batch string, rates ...float64) bench.Row {
	t.Helper()
	missed, reached := false, true
	cpu := make([]float64, len(rates))
	row := bench.Row{
		Suite: "queue.cycle", Row: name, Durability: label1(class, bench.Valid).Class(), Title: "create, claim, complete",
		Label: label1(class, bench.Valid), Headline: "cycles_per_s", Bench: "BenchmarkQueueCycle",
		Shape:     []bench.Param{{Name: "nodes", Value: "1"}, {Name: "shards", Value: "1"}, {Name: "worker_batch", Value: batch}},
		Ceiling:   &bench.Ceiling{Rate: 120_000, Unit: "cycles/s", Reached: 0.38},
		Reference: []bench.Reference{{System: "codeQ", Name: "full cycle", Value: 76_639, Unit: "cycles/s", Note: "12 cores, WSL2, none×1"}},
		Targets: []bench.Target{
			{Metric: "cycles_per_s", Must: 45_000, Aim: 60_000, Source: "queue targets", MustMet: &reached, AimMet: &missed},
			{Metric: "cpu_us_per_cycle", Must: 20, AtMost: true, Judged: true, Source: "bench targets"},
			{Metric: "create_fdatasync_ratio", Must: 5, Aim: 4, AtMost: true, MachineFree: true, Judged: true, Source: "queue targets"},
		},
		Warnings: []bench.Warning{{Code: "spread", Detail: "21 %", Value: 0.21}},
	}
	for i, rate := range rates {
		cpu[i] = 18
		row.Runs = append(row.Runs, bench.Run{
			Number: i + 1, Started: began, Seconds: 20, Ops: uint64(rate * 20),
			Metrics: map[string]bench.Metric{
				"cycles_per_s": {Value: rate, Unit: "cycles/s"}, "cpu_us_per_cycle": {Value: 18, Unit: "µs/cycle"},
				"fsyncs_per_s": {Value: 900, Unit: "fsyncs/s"},
			},
			Latency: map[string]bench.Latency{
				"create": {Count: 10, P50: 600, P90: 700, P95: 750, P99: 900, P999: 1500, Max: 3000, Mean: 620},
				"claim":  {Count: 10, P50: 100, P90: 110, P95: 120, P99: 200, P999: 300, Max: 400, Mean: 105},
			},
			Calls:  map[string]bench.Calls{"create": {OK: uint64(rate * 20)}},
			Audit:  &bench.Audit{OK: true, Created: 9, Completed: 9, Counted: 9, ReadBack: 1000, Checked: "every id"},
			Host:   bench.HostReport{Observed: true, Heartbeat: 1, FdatasyncUS: 140},
			Series: []bench.Second{{At: 0, Created: 9, CPU: map[string]float64{"server-1": 0.9, "driver": 0.8}, RSS: map[string]uint64{"server-1": 64 << 20, "driver": 32 << 20}}},
		})
	}
	row.Summary = fig(t, class, bench.Valid, "cycles/s", rates...)
	row.Figures = map[string]bench.Figure{
		"cycles_per_s": row.Summary, "cpu_us_per_cycle": fig(t, class, bench.Valid, "µs/cycle", cpu...),
	}
	row.Diagnosis = &bench.Diagnosis{
		Overhead: 0.12, Files: []string{"profiles/queue.cycle/" + name + "/server-1/cpu.pb.gz"},
		Findings: []bench.Finding{
			{Process: "server-1", Kind: "cpu", Level: bench.Fail, Name: "a.hot", Share: 0.5, Detail: "new bottleneck: a.hot has 50 % of the CPU"},
			{Process: "server-1", Kind: "gc", Level: bench.Info, Name: "garbage collection", Share: 0.05, Detail: "of the CPU"},
		},
	}
	return row
}

// spoil adds runs that are left out, that failed, and that were profiled.
func spoil(row *bench.Row) {
	n := len(row.Runs)
	out := row.Runs[0]
	out.Number, out.Excluded = n+1, []bench.Exclusion{
		{Cause: bench.ClockJump, Detail: "realtime moved", Value: 3_000_000, Limit: 50, Unit: "ms"},
		{Cause: bench.Steal, Detail: "second 3", Value: 5, Limit: 2, Unit: "%"},
	}
	failed := row.Runs[0]
	failed.Number, failed.Failed, failed.Kept, failed.Bound = n+2, "the server ended | in the window", "/data/x", "generator used 95 % of its CPU"
	failed.Audit = &bench.Audit{Violations: []string{"lost: task t1"}, Hashes: map[string]string{"server-1": "aa"}, Index: 7}
	failed.Errors = []bench.ErrorClass{{Op: "create", Code: "UNAVAILABLE", Count: 3, First: "gone"}}
	failed.Calls = map[string]bench.Calls{"create": {OK: 1, Refused: 2, Unknown: 3, Dropped: 4}}
	failed.Warnings = []bench.Warning{{Code: "little_law", Detail: "1.40 ms per request are missing", Value: 0.38}}
	failed.Logs, failed.Hists = []string{"logs/server-1.log"}, []string{"hist/create.hlog"}
	failed.Host.Observed = false
	profiled := row.Runs[0]
	profiled.Number, profiled.Profiled, profiled.Profiles = n+3, true, []string{"profiles/x"}
	row.Runs = append(row.Runs, out, failed, profiled)
}
