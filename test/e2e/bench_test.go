package e2e

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/bench"
)

// benchRun is a bench in a process of its own.
type benchRun struct {
	t    *testing.T
	cmd  *exec.Cmd
	out  string // directory of the result
	data string // parent of data directories
	said bytes.Buffer
	end  chan error
}

// startBench starts `millrace bench run`, which must end within four minutes.
func startBench(t *testing.T, args ...string) *benchRun {
	t.Helper()
	if testing.Short() {
		t.Skip("real processes")
	}
	b := &benchRun{t: t, out: filepath.Join(t.TempDir(), "out"), data: t.TempDir(), end: make(chan error, 1)}
	b.start(append([]string{"--out", b.out, "--data", b.data}, args...)...)
	return b
}

func (b *benchRun) start(args ...string) {
	b.t.Helper()
	b.said.Reset()
	ctx, cancel := context.WithTimeout(b.t.Context(), 4*time.Minute)
	b.t.Cleanup(cancel)
	b.cmd = exec.CommandContext(ctx, program, append([]string{"bench", "run"}, args...)...)
	b.cmd.Stdout, b.cmd.Stderr = &b.said, &b.said
	noErr(b.t, b.cmd.Start())
	go func() { b.end <- b.cmd.Wait() }()
}

// code waits for the end and returns the exit code; -1 after a signal.
func (b *benchRun) code() int {
	b.t.Helper()
	err := <-b.end
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode()
	}
	noErr(b.t, err)
	return 0
}

// until waits for a state of the result on disk, while the bench runs.
func (b *benchRun) until(what string, f func(r *bench.Result) bool) *bench.Result {
	b.t.Helper()
	for {
		if r, err := bench.Load(b.out); err == nil && f(r) {
			return r
		}
		select {
		case err := <-b.end:
			b.t.Fatalf("the bench ended (%v) before %s\n%s", err, what, b.said.String())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// untilLoaded waits until a server of the bench has read more than it does without a run's load, however slow the machine is.
func (b *benchRun) untilLoaded() {
	b.t.Helper()
	b.until("its ceiling", func(r *bench.Result) bool { return len(r.Suites) > 0 && r.Suites[0].Ceiling != nil })
	b.until("a server under load", func(*bench.Result) bool {
		return slices.ContainsFunc(children(b.cmd.Process.Pid), func(pid int) bool { return bytesRead(pid) >= 256<<10 })
	})
}

func measured(r *bench.Result) (n int) {
	for i := range r.Suites {
		n += len(r.Suites[i].Runs)
	}
	return n
}

func TestTheSmokeProfileMeasuresAndAuditsEverySuiteThatIsBuilt(t *testing.T) {
	t.Parallel() // it waits for windows most of its time
	onlyInCheck(t, "it takes a minute of both processors")
	b := startBench(t, "--profile", "smoke")
	if code := b.code(); code != 0 {
		t.Fatalf("exit code %d\n%s", code, b.said.String())
	}
	r := got[*bench.Result](t)(bench.Load(b.out))
	suites := map[string]bool{}
	for i := range r.Suites {
		row := &r.Suites[i]
		suites[row.Suite] = true
		if row.Error != "" || len(row.Runs) != 1 || row.Summary.IsZero() || row.Summary.Median() <= 0 {
			t.Errorf("%s/%s: error %q, %d runs, figure %s", row.Suite, row.Row, row.Error, len(row.Runs), row.Summary)
			continue
		}
		leftOutByTheHost(t, row)
		if slices.Contains([]string{"queue.codec", "kv.pingpong", "search.graph", "search.outage"}, row.Suite) { // no servers of the bench, or a relay that keeps nothing
			continue
		}
		written := strings.HasPrefix(row.Suite, "queue.") || strings.HasPrefix(row.Suite, "kv.")
		if a := row.Runs[0].Audit; a == nil || !a.OK || written && a.ReadBack == 0 {
			t.Errorf("%s/%s: audit %+v", row.Suite, row.Row, a)
		}
	}
	for _, s := range []string{"queue.cycle", "queue.coalesce", "queue.transport", "queue.codec", "queue.gc", "queue.redrive", "kv.aurora.len", "refs.gitaly", "refs.push", "refs.scale", "search.sweep", "search.recall"} {
		if !suites[s] {
			t.Errorf("no row of %s was measured", s)
		}
	}
	if left := got[[]os.DirEntry](t)(os.ReadDir(b.data)); len(left) != 0 {
		t.Errorf("%v is left where data directories were made", left)
	}
	report := got[[]byte](t)(os.ReadFile(filepath.Join(b.out, "report.md")))
	again, err := exec.CommandContext(t.Context(), program, "bench", "report", b.out).Output()
	noErr(t, err)
	if !bytes.Equal(again, report) {
		t.Error("rendering the raw result again gives another report")
	}
}

// leftOutByTheHost says in the log why the run of a row does not count. That is the bench's judgement of a machine that is busy
// with other work, and no fault of the harness: what the run wrote is audited all the same, and no figure is held against
// anything. Other reasons fail the test.
func leftOutByTheHost(t *testing.T, row *bench.Row) {
	t.Helper()
	for _, e := range row.Runs[0].Excluded {
		switch e.Cause {
		case bench.HostStall, bench.Steal, bench.HostPressure, bench.ForeignCPU, bench.GeneratorSaturated:
			t.Logf("%s/%s does not count on this machine now: %s", row.Suite, row.Row, e.Detail)
		default:
			t.Errorf("%s/%s is left out: %s, %s", row.Suite, row.Row, e.Cause, e.Detail)
		}
	}
	if f := row.Runs[0].Failed; f != "" {
		t.Errorf("%s/%s failed: %s", row.Suite, row.Row, f)
	}
}

func TestABenchThatIsKilledLeavesNoChildAndIsResumed(t *testing.T) {
	t.Parallel()
	onlyInCheck(t, "it measures for seconds with both processors")
	b := startBench(t, "queue.transport/stream", "queue.cycle/unbatched", "--runs", "1", "--window", "2s", "--warm-up", "100ms", "--no-profile")
	b.until("its first run", func(r *bench.Result) bool { return measured(r) > 0 })
	var young []int
	for len(young) == 0 { // the next run's servers
		young = children(b.cmd.Process.Pid)
		time.Sleep(5 * time.Millisecond)
	}
	noErr(t, b.cmd.Process.Kill())
	b.code()
	for _, pid := range young {
		for runs(pid) {
			time.Sleep(10 * time.Millisecond)
		}
	}
	before := got[*bench.Result](t)(bench.Load(b.out))
	if !before.Partial || measured(before) == 0 {
		t.Fatalf("the result of the killed bench is partial=%v with %d runs", before.Partial, measured(before))
	}
	b.start("--resume", b.out)
	if code := b.code(); code != bench.ExitOK && code != bench.ExitNoVerdict {
		t.Fatalf("exit code %d\n%s", code, b.said.String())
	}
	after := got[*bench.Result](t)(bench.Load(b.out))
	if after.Partial || len(after.Suites) != 2 {
		t.Fatalf("the resumed result is partial=%v with %d rows, want 2", after.Partial, len(after.Suites))
	}
	if first := before.Suites[0].Runs[0]; after.Suites[0].Runs[0].Ops != first.Ops || !after.Suites[0].Runs[0].Started.Equal(first.Started) {
		t.Errorf("the first run was %+v, and is %+v after the resume", first, after.Suites[0].Runs[0])
	}
	b.start("--resume", b.out, "queue.cycle/unbatched", "--window", "3s")
	if code := b.code(); code != bench.ExitUsage {
		t.Errorf("another configuration: exit code %d, want %d", code, bench.ExitUsage)
	}
}

func TestAStoppedBenchLeavesItsRunOutAndAnInterruptedOneIsPartial(t *testing.T) {
	onlyInCheck(t, "two benches run for their whole windows")
	t.Parallel()
	b := startBench(t, "queue.cycle/unbatched", "--runs", "2", "--window", "12s", "--warm-up", "0s", "--no-profile")
	b.untilLoaded()
	noErr(t, b.cmd.Process.Signal(syscall.SIGSTOP))
	time.Sleep(2 * time.Second)
	noErr(t, b.cmd.Process.Signal(syscall.SIGCONT))
	r := b.until("its first run", func(r *bench.Result) bool { return measured(r) > 0 })
	stalled := false
	for _, e := range r.Suites[0].Runs[0].Excluded {
		stalled = stalled || e.Cause == bench.HostStall
	}
	if !stalled {
		t.Errorf("a run that stood still for 2 s is left out for %+v, want %s", r.Suites[0].Runs[0].Excluded, bench.HostStall)
	}
	noErr(t, b.cmd.Process.Signal(syscall.SIGINT))
	if code := b.code(); code != bench.ExitInterrupted {
		t.Errorf("exit code %d after an interrupt, want %d\n%s", code, bench.ExitInterrupted, b.said.String())
	}
	if r := got[*bench.Result](t)(bench.Load(b.out)); !r.Partial {
		t.Error("the result of an interrupted bench does not say that it is partial")
	}
	if left := got[[]os.DirEntry](t)(os.ReadDir(b.data)); len(left) != 0 {
		t.Errorf("%v is left where data directories were made", left)
	}
}

func TestAServerThatDiesWithinTheWindowFailsTheRunAndIsAuditedAfterARestart(t *testing.T) {
	t.Parallel()
	onlyInCheck(t, "it measures for seconds with both processors")
	b := startBench(t, "queue.transport/stream", "--runs", "1", "--window", "10s", "--warm-up", "0s", "--no-profile")
	b.untilLoaded()
	for _, pid := range children(b.cmd.Process.Pid) {
		noErr(t, syscall.Kill(pid, syscall.SIGKILL))
	}
	if code := b.code(); code != bench.ExitFail {
		t.Errorf("exit code %d, want %d\n%s", code, bench.ExitFail, b.said.String())
	}
	r := got[*bench.Result](t)(bench.Load(b.out))
	first := r.Suites[0].Runs[0]
	if !strings.Contains(first.Failed, "ended by itself") {
		t.Errorf("the run failed with %q, want the server's end", first.Failed)
	}
	if first.Audit == nil || !first.Audit.OK || first.Audit.Created == 0 {
		t.Errorf("audit after the restart: %+v", first.Audit)
	}
	if len(first.Logs) == 0 || first.Kept == "" {
		t.Errorf("logs %q and data %q are kept, want both", first.Logs, first.Kept)
	}
}

func TestAnAuditIsRepeatedOnDataThatWasKeptAndFindsALoss(t *testing.T) {
	t.Parallel()
	b := startBench(t, "queue.cycle/unbatched", "--runs", "1", "--window", "1s", "--warm-up", "100ms", "--no-profile", "--keep", "always")
	b.code() // on a busy host there may be no verdict
	r, err := bench.Load(b.out)
	noErr(t, err)
	kept := r.Suites[0].Runs[0].Kept
	verify := func(want int, said string, args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), program, append([]string{"bench", "verify"}, args...)...)
		cmd.Env = append(os.Environ(), "MILLRACE_TOKEN=none")
		out, _ := cmd.CombinedOutput() // the exit code says more
		if got := cmd.ProcessState.ExitCode(); got != want || !strings.Contains(string(out), said) {
			t.Errorf("verify %v ends with %d, want %d and %q:\n%s", args, got, want, said, out)
		}
	}
	verify(bench.ExitOK, "holds", kept)
	file := filepath.Join(kept, "evidence.json")
	evidence, err := os.ReadFile(file)
	noErr(t, err)
	noErr(t, os.WriteFile(file, bytes.Replace(evidence, []byte(`"created": `), []byte(`"created": 9`), 1), 0o600))
	verify(bench.ExitAudit, "lost", kept)
	verify(bench.ExitUsage, "evidence", "--target", "127.0.0.1:1", t.TempDir())
	verify(bench.ExitUsage, "--namespace", "--namespace", "a", b.out)
	verify(bench.ExitUsage, "")
	noErr(t, os.WriteFile(file, evidence, 0o600))
	verify(bench.ExitCannot, "", "--target", "127.0.0.1:1", file)
}

func TestARefusalOfTheBenchSaysItsFieldAsJSON(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), program, "--json", "bench", "run", "queue.cycle", "--runs", "101")
	var said bytes.Buffer
	cmd.Stderr = &said
	_ = cmd.Run() // the exit code says more
	const want = `{"error":{"code":"INVALID_ARGUMENT","field":"runs","message":"101 is not in 1..100","outcome":"refused"}}`
	if code := cmd.ProcessState.ExitCode(); code != bench.ExitUsage || strings.TrimSpace(said.String()) != want {
		t.Errorf("exit code %d, %s; want %s", code, said.String(), want)
	}
}
