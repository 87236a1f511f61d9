package load

import (
	"context"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/bench"
	millrace "github.com/millrace/millrace/sdk/go"
)

// small is a suite of one row that a test measures for a second.
func small(drive bench.Driver, shape bench.Shape) bench.Suite {
	shape.Nodes, shape.Shards, shape.Lease = 1, 1, 300*time.Second
	return bench.Suite{
		Name: "queue.small", Headline: "headline", Window: time.Second, Warmup: 50 * time.Millisecond, Drive: drive,
		Rows: []bench.RowSpec{{Name: "row", NoCeiling: true, Shape: shape}},
	}
}

// self is this program, which serves where a bench starts it.
func self(t *testing.T) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return exe
}

// on measures servers that the bench starts.
func on(t *testing.T, topology bench.Topology, s bench.Suite) *bench.Run {
	t.Helper()
	return measureOn(t, topology, self(t), s)
}

// onProgram measures servers that are processes of a program.
func onProgram(t *testing.T, exe string, s bench.Suite) *bench.Run {
	t.Helper()
	return measureOn(t, bench.Procs, exe, s)
}

// measureOn is left to make check: each of these runs keeps both processors busy for a second and more, and its smoke profile
// goes through every driver as well. What finds a fault of a server or of the host has servers at fault, and always runs.
func measureOn(t *testing.T, topology bench.Topology, exe string, s bench.Suite) *bench.Run {
	t.Helper()
	if os.Getenv("MILLRACE_CHECK") == "" {
		t.Skip("make check measures servers that work; MILLRACE_CHECK=1 does so here")
	}
	r := measure(t, s, "", func(c *bench.Config, h *bench.Harness) {
		c.Topology, c.Executable, h.DrainWithin = topology, exe, time.Minute
	})
	return onlyRun(t, r)
}

// clean fails the test unless the run went well.
func clean(t *testing.T, run *bench.Run) {
	t.Helper()
	if run.Failed != "" || len(run.Errors) > 0 {
		t.Fatalf("failed %q, errors %+v", run.Failed, run.Errors)
	}
	if run.Audit == nil || !run.Audit.OK {
		t.Fatalf("audit %+v", run.Audit)
	}
}

func wantMetrics(t *testing.T, run *bench.Run, names ...string) {
	t.Helper()
	for _, name := range names {
		if m, ok := run.Metrics[name]; !ok || m.Value <= 0 {
			t.Errorf("%s is %v, want more than 0", name, m)
		}
	}
}

// cycling is the shape of a small full cycle.
var cycling = bench.Shape{Producers: 1, Pumps: 8, Workers: 1, Slots: 64}

func TestAServerThatWasKilledHasEveryTaskInItsStateAndGivesOne(t *testing.T) {
	run := on(t, bench.Procs, small(Restart, bench.Shape{Prefill: 2_000}))
	clean(t, run)
	wantMetrics(t, run, "first_grant_s", "serving_s")
	c := run.Audit.Counts
	if c["scheduled"] != 500 || c["running"] != 501 || c["ready"] != 999 {
		t.Errorf("states %v, want 500 scheduled, 501 running, 999 ready", c)
	}
}

func TestAServerInTheDriversProcessCannotBeKilled(t *testing.T) {
	run := on(t, bench.InProc, small(Restart, bench.Shape{Prefill: 100}))
	if !strings.Contains(run.Failed, "killed") {
		t.Errorf("failed %q, want a word on why nothing was killed", run.Failed)
	}
}

func TestIdleStreamsAreWeighedAndStillWaitForWork(t *testing.T) {
	run := on(t, bench.Procs, small(Idle, bench.Shape{Workers: 40, Slots: 1}))
	clean(t, run)
	for _, name := range []string{"alone_cpu_percent", "streams_cpu_percent", "rss_kib_per_stream"} {
		if _, ok := run.Metrics[name]; !ok {
			t.Errorf("%s is not there", name)
		}
	}
	if run.Audit.Completed != 1 {
		t.Errorf("%d tasks were completed, want the one that proves that a stream is alive", run.Audit.Completed)
	}
}

func TestADeepQueueStaysAsDeepWhileItIsMeasured(t *testing.T) {
	run := on(t, bench.Procs, small(Depth, bench.Shape{Prefill: depthBase + 2_000}))
	clean(t, run)
	wantMetrics(t, run, "claims_per_s", "shallow_claims_per_s", "depth_claim_ratio", "depth_p99_ratio")
	if _, ok := run.Metrics["live_bytes_per_task"]; !ok {
		t.Error("the memory per task is not there")
	}
	if c := run.Audit.Counts; c["ready"] != depthBase+2_000 || c["completed"] == 0 {
		t.Errorf("%v, want as many ready as before and some completed", c)
	}
}

func TestMemoryThatCannotBeReadIsWarnedOf(t *testing.T) {
	run := on(t, bench.InProc, small(Depth, bench.Shape{Prefill: depthBase + 512}))
	clean(t, run)
	if warned(run, "memory_unseen") == nil {
		t.Errorf("warnings %+v, want one of memory", run.Warnings)
	}
}

func TestCompletionsWithAndWithoutAKeyAreCountedInTurn(t *testing.T) {
	run := on(t, bench.InProc, small(Effects, cycling))
	clean(t, run)
	wantMetrics(t, run, "kv_put_cycles_per_s", "bare_cycles_per_s", "effects_ratio")
	put, bare, share := run.Metrics["kv_put_cycles_per_s"].Value, run.Metrics["bare_cycles_per_s"].Value, run.Metrics["effects_ratio"].Value
	if math.Abs(put/bare-share) > 1e-9 {
		t.Errorf("the share is %v, want %v of %v", share, put, bare)
	}
}

func TestTasksWithKeysGoThroughTheCycle(t *testing.T) {
	for _, kind := range []string{keyedLanes, keyedLimits, keyedUnique} {
		t.Run(kind, func(t *testing.T) {
			clean(t, on(t, bench.InProc, small(Keyed, bench.Shape{
				Producers: 1, Pumps: 4, Workers: 1, Slots: 16, WorkerBatch: 4, ProducerBatch: 4, Prefill: 50, Kind: kind, Keys: 10_000,
			})))
		})
	}
}

func TestChainsAndSingleTasksAreCountedInTurn(t *testing.T) {
	run := on(t, bench.InProc, small(Chains, bench.Shape{Producers: 1, Pumps: 8, Workers: 1, Slots: 16, WorkerBatch: 4, ProducerBatch: 4}))
	clean(t, run)
	wantMetrics(t, run, "chain_cycles_per_s", "bare_cycles_per_s", "chain_ratio")
}

// resting is Effects with pumps that rest for longer than a slice takes: few slices have a completion, and none need have one within
// the window's time.
func resting(ctx context.Context, rig *bench.Rig) error {
	e := newKeyEffects(rig)
	pump := e.q.pump()
	e.q.call = func(ctx context.Context, p *bench.Pump) {
		if rig.Measuring() {
			<-time.After(rig.Window*3/2 + time.Duration(p.Number)*37*time.Millisecond)
		}
		pump(ctx, p)
	}
	_, err := e.run(ctx, "kv_put_cycles_per_s", "effects_ratio")
	return err
}

func TestAWindowGoesOnUntilEachKindOfCompletionWasCounted(t *testing.T) {
	s := small(resting, cycling)
	s.Window = 300 * time.Millisecond
	run := on(t, bench.InProc, s)
	clean(t, run)
	wantMetrics(t, run, "kv_put_cycles_per_s", "bare_cycles_per_s", "effects_ratio")
	if run.Seconds < s.Window.Seconds() || run.Ops == 0 {
		t.Errorf("%d operations in a window of %v s", run.Ops, run.Seconds)
	}
}

// forgetful is Effects with a task whose key was never put.
func forgetful(ctx context.Context, rig *bench.Rig) error {
	e := &effectsRun{rig: rig, q: newQueueRun(rig), tasks: []string{"never"}}
	e.find = func(ctx context.Context, c *millrace.Client, id string) error {
		_, err := c.KV(effectsKeyspace).Get(ctx, id)
		return err
	}
	if err := e.q.run(ctx); err != nil {
		return err
	}
	_, err := e.readBack(ctx)
	return err
}

func TestAKeyThatIsNotThereAfterTheCompletionFailsTheRun(t *testing.T) {
	if run := on(t, bench.InProc, small(forgetful, cycling)); !strings.Contains(run.Failed, "lost") {
		t.Errorf("failed %q, want a lost key", run.Failed)
	}
}

func TestAnOpenLoopRunsAtHalfOfTheMaximumThatWasFound(t *testing.T) {
	run := on(t, bench.InProc, small(Latency, cycling))
	clean(t, run)
	wantMetrics(t, run, "maximum_cycles_per_s", "offered_per_s")
	if most, rate := run.Metrics["maximum_cycles_per_s"].Value, run.Metrics["offered_per_s"].Value; rate != most/2 {
		t.Errorf("offered %v of %v a second, want half", rate, most)
	}
}

func TestRetentionIsSetBeforeTheWindowAndWhatItRemovesIsNotLost(t *testing.T) {
	run := on(t, bench.Procs, small(Steady, cycling))
	clean(t, run)
	wantMetrics(t, run, "retain_mib", "disk_peak_mib")
	gauges := 0
	for _, s := range run.Series {
		if s.Gauges["disk_bytes"] > 0 {
			gauges++
		}
	}
	if gauges == 0 && len(run.Series) > 0 {
		t.Error("no second of the series tells of disk use")
	}
}

// sampledRun is a steady run whose samples are one a second: rate completions a second, disk bytes used.
func sampledRun(window int, rate, disk func(second int) float64) *steadyRun {
	s := &steadyRun{
		rig: &bench.Rig{Window: time.Duration(window) * time.Second}, first: 20 * time.Second, early: newLatencies(), late: newLatencies(),
	}
	done := 0.0
	for i := range window + 1 {
		s.samples = append(s.samples, steadySample{at: time.Duration(i) * time.Second, done: uint64(done), disk: disk(i)})
		done += rate(i)
	}
	return s
}

func TestTheSecondHalfIsHeldAgainstTheFirstTwentySeconds(t *testing.T) {
	s := sampledRun(600, func(i int) float64 {
		if i < 20 {
			return 1_000
		}
		return 700
	}, func(int) float64 { return 1 })
	if first := rate(s.between(0, s.first)); first != 1_000 {
		t.Errorf("first %v/s, want 1,000", first)
	}
	if last := rate(s.between(300*time.Second, 600*time.Second)); last != 700 {
		t.Errorf("last %v/s, want 700", last)
	}
	if got := rate(s.between(0, 0)); got != 0 {
		t.Errorf("the rate of one sample is %v, want 0", got)
	}
}

func TestADiskUseThatOnlyRisesIsToldFromOneThatIsBounded(t *testing.T) {
	growth := func(disk func(second int) float64) float64 {
		s := sampledRun(600, func(int) float64 { return 1 }, disk)
		of := func(x steadySample) float64 { return x.disk }
		w := s.rig.Window
		return peak(s.between(w*2/3, w), of) / peak(s.between(w/3, w*2/3), of)
	}
	if got := growth(func(i int) float64 { return float64(i) }); math.Abs(got-1.5) > 0.01 {
		t.Errorf("growth %v of what rises with time, want 1.5", got)
	}
	if got := growth(func(i int) float64 { return float64(min(i, 100)) }); got != 1 {
		t.Errorf("growth %v of what is full after 100 s, want 1", got)
	}
}
