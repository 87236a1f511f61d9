// Package seedtest measures from go test, under the names and with the log lines of the reference benches, so that their
// invocations work here as they are written:
//
//	go test -v -run='^TestProfile_FullCycle$' -count=1 -timeout=180s ./internal/bench/
//	go test -v -run='^TestRaftBench_GRPC$' -count=1 -timeout=180s ./pkg/app
//	go test -run='^$' -bench='^BenchmarkEnqueueParallel' ./pkg/app
//
// They measure once, with fsync, one node in this process and several in processes of their own. The
// environment may say otherwise: by MILLRACE_BENCH_WORKER_BATCH, _PRODUCER_BATCH, _SHARDS,
// _DURABILITY, _TOPOLOGY, _RUNS and _OUT, or by the references' PHASE6_BATCH, PHASE6_PROD_BATCH,
// PHASE8_SHARDS and RUN_COALESCER. An ordinary go test ./... measures nothing.
//
// Promised: a test fails on errors, a failed audit, an invalid clock or an inverted ratio, and never on a rate.
package seedtest

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/millrace/millrace/bench"
	"github.com/millrace/millrace/bench/tables"
)

// profileDir is where profiles lie, below the directory for temporary files, unless
// MILLRACE_BENCH_OUT names another directory.
const profileDir = "millrace-profiles"

// FullCycle measures the full cycle on one node, then once more with profiles.
func FullCycle(t *testing.T) {
	t.Helper()
	skipUnlessNamed(t)
	c := config(t, "queue.cycle/unbatched")
	// The settings of the batched row choose that row, whose name results know.
	if c.WorkerBatch == 32 && c.ProducerBatch == 8 {
		c.Select = []string{"queue.cycle/batch-32-8"}
	}
	c.Command = "go test -v -run='^TestProfile_FullCycle$' -count=1 -timeout=180s ./internal/bench/"
	// profiles is where profiles lie at the end; without a directory of the user's they lie below the one for temporary
	// files.
	profiles := c.Out
	if profiles == "" {
		profiles = filepath.Join(os.TempDir(), profileDir)
	}
	r := execute(t, &c)
	for i := range r.Suites {
		row := &r.Suites[i]
		for _, line := range cycleLines(row) {
			t.Log(line)
		}
	}
	// The harness writes profiles by process; the reference's command finds them in one directory.
	if err := flatten(filepath.Join(c.Out, "profiles"), profiles); err != nil {
		t.Fatal(err)
	}
	t.Logf("PROFILES written to %s", profiles)
	t.Logf("Next: go tool pprof -top %s", filepath.Join(profiles, "cpu.pb.gz"))
	for i := range r.Suites {
		t.Log(labelLine(&r.Suites[i]))
	}
	for _, f := range failures(r) {
		t.Error(f)
	}
}

// Transport measures one row of queue.transport: callers that only create, or workers that complete
// what waits and what callers add.
func Transport(t *testing.T, row string) {
	t.Helper()
	skipUnlessNamed(t)
	c := config(t, "queue.transport/"+row)
	c.NoProfile = true
	c.Command = "go test -v -run='^" + t.Name() + "$' -count=1 ./pkg/app"
	r := execute(t, &c)
	for i := range r.Suites {
		s := &r.Suites[i]
		if run := best(s); run != nil {
			for _, line := range rateLines(s, run) {
				t.Log(line)
			}
		}
		t.Log(labelLine(s))
	}
	for _, f := range failures(r) {
		t.Error(f)
	}
}

// Enqueue measures durable enqueues of 16 callers, with group commit or with one commit per log entry.
func Enqueue(b *testing.B, group bool) {
	b.Helper()
	row, name := "group-16", "Coalesced"
	if !group {
		row, name = "single-16", "Direct"
	}
	measure(b, "queue.coalesce/"+row, "EnqueueParallel_"+name)
}

// GCEnqueue measures enqueues for a minute, and what collections of garbage do to their tail.
func GCEnqueue(b *testing.B) {
	b.Helper()
	measure(b, "queue.gc/enqueue", "GCPressure_SustainedEnqueue")
}

// GCCycle measures claims and completions for a minute, and what collections of garbage do to their tail.
func GCCycle(b *testing.B) {
	b.Helper()
	measure(b, "queue.gc/claim-complete", "GCPressure_ClaimSubmitCycle")
}

// measure makes a benchmark of one row. An operation of the benchmark is one that the server acknowledged, and
// its time comes from the row, not from b: the harness warms up and repeats by itself.
func measure(b *testing.B, row, name string) {
	b.Helper()
	if testing.Short() {
		b.Skip("measures for seconds")
	}
	c := config(b, row)
	c.NoProfile = true
	c.Command = "go test -run='^$' -bench='^Benchmark" + name + "$'"
	var last *bench.Result
	for b.Loop() {
		// Each round writes its result into a directory of its own.
		c.Out = ""
		last = execute(b, &c)
		for _, f := range failures(last) {
			b.Error(f)
		}
	}
	if last == nil {
		return
	}
	for i := range last.Suites {
		s := &last.Suites[i]
		b.Log(labelLine(s))
		for _, m := range metrics(s) {
			b.ReportMetric(m.Value, m.Unit)
		}
	}
}

// skipUnlessNamed keeps an ordinary go test ./... from measuring: only -run with a name does.
func skipUnlessNamed(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("measures for seconds")
	}
	// go test -run with a name sets this flag.
	if f := flag.Lookup("test.run"); f == nil || f.Value.String() == "" {
		t.Skip("measures only when -run names it")
	}
}

// config returns what a test measures in this process, with the environment applied. c.Out is what
// MILLRACE_BENCH_OUT says.
func config(t testing.TB, row string) bench.Config {
	t.Helper()
	return configIn(t, bench.InProc, row)
}

// configIn is config for several rows and with the servers elsewhere, unless the environment says
// where they are.
func configIn(t testing.TB, topology bench.Topology, rows ...string) bench.Config {
	t.Helper()
	// One run is enough: these tests judge no rate.
	c := bench.Defaults()
	c.Select, c.Runs, c.Topology = rows, 1, topology
	if err := c.FromEnvironment(os.Environ(), nil); err != nil {
		t.Fatal(err)
	}
	if c.Topology == bench.Procs {
		c.Executable = build(t)
	}
	return c
}

// build makes the server's executable, for servers in processes of their own.
func build(t testing.TB) string {
	t.Helper()
	exe := filepath.Join(t.TempDir(), "millrace")
	out, err := exec.Command("go", "build", "-o", exe, "github.com/millrace/millrace/cmd/millrace").CombinedOutput()
	if err != nil {
		t.Fatalf("build millrace: %v\n%s", err, out)
	}
	return exe
}

// execute measures. The results are in c.Out, a directory that is removed with the test. A wrong
// configuration ends the test.
func execute(t testing.TB, c *bench.Config) *bench.Result {
	t.Helper()
	c.Out = filepath.Join(t.TempDir(), "out")
	h := tables.Harness()
	h.NullServer = nil // it needs an executable, and a rate decides nothing here
	r, err := bench.Execute(t.Context(), *c, h)
	if usage, ok := errors.AsType[*bench.UsageError](err); ok {
		t.Fatalf("%s: %s", usage.Field, usage.Message)
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Suites) == 0 {
		t.Fatal(fmt.Errorf("nothing was measured of %v", c.Select))
	}
	return r
}
