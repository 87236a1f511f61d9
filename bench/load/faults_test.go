package load

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/bench"
)

// cycle is a small row of queue.cycle, for servers that are at fault.
func cycle(drive bench.Driver) bench.Suite {
	return bench.Suite{
		Name: "queue.cycle", Headline: "cycles_per_s", Window: time.Second, Warmup: 50 * time.Millisecond, Drive: drive,
		Rows: []bench.RowSpec{{Name: "unbatched", NoCeiling: true, Shape: bench.Shape{
			Nodes: 1, Shards: 1, Producers: 1, Pumps: 8, Workers: 1, Slots: 64, Lease: 300 * time.Second,
		}}},
	}
}

// measure runs one suite once against a server that already runs, in parallel with other tests.
func measure(t *testing.T, s bench.Suite, address string, change func(c *bench.Config, h *bench.Harness)) *bench.Result {
	t.Helper()
	t.Parallel()
	return measureAlone(t, s, address, change)
}

// measureAlone is measure while no other test runs.
func measureAlone(t *testing.T, s bench.Suite, address string, change func(c *bench.Config, h *bench.Harness)) *bench.Result {
	t.Helper()
	if testing.Short() {
		t.Skip("measures for a second")
	}
	c := bench.Defaults()
	c.Select, c.Target, c.Out, c.Token, c.Data = []string{s.Name}, address, t.TempDir(), "none", t.TempDir()
	c.Profile = "look"
	h := bench.Harness{Suites: []bench.Suite{s}, Profiles: []bench.Profile{{Name: "look", Runs: 1}}, DrainWithin: 2 * time.Second}
	for i := range h.Suites[0].Rows {
		h.Suites[0].Rows[i].Profiles = []string{"look"}
	}
	if change != nil {
		change(&c, &h)
	}
	r, err := bench.Execute(t.Context(), c, h)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// onlyRun returns the run of a result that has one.
func onlyRun(t *testing.T, r *bench.Result) *bench.Run {
	t.Helper()
	if len(r.Suites) != 1 || len(r.Suites[0].Runs) != 1 {
		t.Fatalf("the result has rows %+v, want one with one run", r.Suites)
	}
	if r.Suites[0].Error != "" {
		t.Fatal(r.Suites[0].Error)
	}
	return &r.Suites[0].Runs[0]
}

func wantViolation(t *testing.T, r *bench.Result, rule string) {
	t.Helper()
	run := onlyRun(t, r)
	if r.Exit != bench.ExitAudit {
		t.Errorf("exit code %d, want %d", r.Exit, bench.ExitAudit)
	}
	if r.Suites[0].Label.Validity != bench.AuditFailed {
		t.Errorf("the row is %q, want %q", r.Suites[0].Label.Validity, bench.AuditFailed)
	}
	if !strings.Contains(strings.Join(run.Audit.Violations, "\n"), rule) {
		t.Errorf("violations %q, want one of %q", run.Audit.Violations, rule)
	}
}

func TestAServerThatKeepsItsPromisesPassesTheAudit(t *testing.T) {
	r := measure(t, cycle(Queue), startFaulty(t, faults{}), nil)
	run := onlyRun(t, r)
	if !run.Audit.OK || len(run.Errors) != 0 || run.Failed != "" {
		t.Fatalf("audit %+v, errors %+v, failed %q", run.Audit, run.Errors, run.Failed)
	}
	if r.Exit != bench.ExitOK {
		t.Errorf("exit code %d, want %d", r.Exit, bench.ExitOK)
	}
	if run.Ops == 0 || run.Audit.Created != run.Audit.Completed || run.Audit.ReadBack == 0 {
		t.Errorf("%d operations; %d created, %d completed, %d read back", run.Ops, run.Audit.Created, run.Audit.Completed, run.Audit.ReadBack)
	}
}

func TestEveryAcknowledgedWriteIsReadBackWhenAskedTo(t *testing.T) {
	r := measure(t, cycle(Queue), startFaulty(t, faults{}), func(c *bench.Config, _ *bench.Harness) { c.Validate = "full" })
	run := onlyRun(t, r)
	if !run.Audit.OK || run.Audit.ReadBack != run.Audit.Created {
		t.Errorf("%d of %d read back, violations %q", run.Audit.ReadBack, run.Audit.Created, run.Audit.Violations)
	}
}

func TestOneLostTaskOfTenThousandFailsTheAudit(t *testing.T) {
	wantViolation(t, measure(t, cycle(Queue), startFaulty(t, faults{dropEvery: 10_000}), nil), "lost")
}

func TestATaskCompletedTwiceFailsTheAudit(t *testing.T) {
	wantViolation(t, measure(t, cycle(Queue), startFaulty(t, faults{doubleEvery: 1_000}), nil), "doubled")
}

func TestADifferentPayloadFailsTheAudit(t *testing.T) {
	wantViolation(t, measure(t, cycle(Queue), startFaulty(t, faults{spoilEvery: 10}), nil), "different")
}

func TestAServerThatSaysFsyncAndCountsNoneFailsTheAudit(t *testing.T) {
	wantViolation(t, measure(t, cycle(Queue), startFaulty(t, faults{noFsync: true}), nil), "durability")
}

func TestAHandlerWhoseCompletionIsNotAcknowledgedCountsNothing(t *testing.T) {
	r := measure(t, cycle(Queue), startFaulty(t, faults{mute: true}), nil)
	run := onlyRun(t, r)
	if m := run.Metrics["cycles_per_s"]; run.Ops != 0 || m.Value != 0 || run.Audit.Completed != 0 {
		t.Errorf("%d cycles at %v/s, %d completed, though nothing was acknowledged", run.Ops, m.Value, run.Audit.Completed)
	}
	if r.Exit != bench.ExitFail {
		t.Errorf("exit code %d, want %d: the queue was not drained", r.Exit, bench.ExitFail)
	}
}

func TestADurabilityThatTheServerDoesNotHaveIsRefused(t *testing.T) {
	c := bench.Defaults()
	c.Select, c.Target, c.Out, c.Data, c.Durability = []string{"queue.cycle"}, startFaulty(t, faults{}), t.TempDir(), t.TempDir(), "none"
	_, err := bench.Execute(t.Context(), c, bench.Harness{Suites: []bench.Suite{cycle(Queue)}})
	var refused *bench.UsageError
	if !errors.As(err, &refused) || refused.Field != "durability" {
		t.Errorf("error %v, want a refusal of durability", err)
	}
}

func TestStallsOfTheServerStandInTheTailOfAnOpenLoop(t *testing.T) {
	s := cycle(Queue)
	s.Window = 3 * time.Second
	r := measure(t, s, startFaulty(t, faults{stall: time.Second, stallEvery: 2 * time.Second}), func(c *bench.Config, _ *bench.Harness) {
		c.Rate, c.Arrivals = 500, "poisson"
	})
	run := onlyRun(t, r)
	if l := run.Latency["create"]; l.P999 < 900_000 {
		t.Errorf("p99.9 of the latency is %.0f µs, though the server stalled for a second: %+v", l.P999, run)
	}
	if run.Audit == nil || !run.Audit.OK {
		t.Errorf("audit %+v", run.Audit)
	}
}

func TestMoreCallsThanMayBeInFlightAreDroppedAndMakeTheRunALowerBound(t *testing.T) {
	s := cycle(Queue)
	r := measure(t, s, startFaulty(t, faults{stall: 900 * time.Millisecond, stallEvery: time.Second}), func(c *bench.Config, _ *bench.Harness) {
		c.Rate, c.InFlight = 1_000, 10
	})
	run := onlyRun(t, r)
	if !excluded(run, bench.GeneratorSaturated) || run.Bound == "" {
		t.Errorf("left out for %+v, bound %q, want a saturated generator", run.Excluded, run.Bound)
	}
	if v := r.Suites[0].Label.Validity; v != bench.LowerBound {
		t.Errorf("the row is %q, want %q", v, bench.LowerBound)
	}
	if s := r.Suites[0].Summary.String(); !strings.HasPrefix(s, "≥ ") {
		t.Errorf("the figure reads %q, want a lower bound", s)
	}
}

func excluded(run *bench.Run, cause bench.Cause) bool {
	for _, e := range run.Excluded {
		if e.Cause == cause {
			return true
		}
	}
	return false
}

func warned(run *bench.Run, code string) *bench.Warning {
	for i := range run.Warnings {
		if run.Warnings[i].Code == code {
			return &run.Warnings[i]
		}
	}
	return nil
}

// holding is a driver whose pumps spend time outside the call that is measured.
func holding(d time.Duration) bench.Driver {
	return func(ctx context.Context, rig *bench.Rig) error {
		op := rig.Op("create")
		done := rig.Generate(ctx, rig.Shape.Pumps, func(_ context.Context, p *bench.Pump) {
			start := time.Now()
			<-time.After(time.Millisecond)
			op.Record(p.Number, start, 1, nil)
			<-time.After(d)
		})
		err := rig.Measure(ctx)
		<-done
		return err
	}
}

func TestTimeOutsideTheMeasuredCallRaisesLittlesLaw(t *testing.T) {
	s := cycle(holding(20 * time.Millisecond))
	s.Rows[0].Shape.Workers, s.Headline = 0, "creates_per_s"
	run := onlyRun(t, measure(t, s, startFaulty(t, faults{}), nil))
	if w := warned(run, "little_law"); w == nil || !strings.Contains(w.Detail, "outside the measured call") {
		t.Errorf("warnings %+v, want one of Little's law", run.Warnings)
	}
}

// steppedClock is the kernel's, but its wall clock jumps once the window has begun.
type steppedClock struct {
	start time.Time
	jump  time.Duration
	reads atomic.Int64
}

func (c *steppedClock) Realtime() time.Duration {
	d := c.Monotonic()
	if c.reads.Add(1) > 3 {
		d += c.jump
	}
	return d
}
func (c *steppedClock) Monotonic() time.Duration { return time.Since(c.start) }
func (c *steppedClock) Boottime() time.Duration  { return c.Monotonic() }

func TestAStepOfTheWallClockMakesTheRunInvalidAndNamesItsSize(t *testing.T) {
	r := measure(t, cycle(Queue), startFaulty(t, faults{}), func(_ *bench.Config, h *bench.Harness) {
		h.Clocks = &steppedClock{start: time.Now(), jump: 50 * time.Minute}
	})
	run := onlyRun(t, r)
	if !excluded(run, bench.ClockJump) || !strings.Contains(run.Excluded[0].Detail, "50.0 min") {
		t.Errorf("left out for %+v, want a clock jump of 50.0 min", run.Excluded)
	}
	if v := r.Suites[0].Label.Validity; v != bench.Invalid {
		t.Errorf("the row is %q, want %q", v, bench.Invalid)
	}
	if s := r.Suites[0].Summary.String(); !strings.Contains(s, "invalid") {
		t.Errorf("the figure reads %q and does not say that it is invalid", s)
	}
}

// stolen is a host whose hypervisor takes a share of the CPU.
type stolen struct {
	start time.Time
	share float64
}

func (s *stolen) CPU() (bench.HostCPU, error) {
	d := time.Since(s.start).Seconds() * 2
	return bench.HostCPU{Idle: d * (1 - s.share), Steal: d * s.share}, nil
}
func (s *stolen) Pressure() (bench.Pressure, error)     { return bench.Pressure{}, nil }
func (s *stolen) Process(int) (bench.ProcessUse, error) { return bench.ProcessUse{}, nil }
func (s *stolen) Cores() int                            { return 2 }

func TestStolenCPUMakesTheRunInvalidAndItIsRepeatedTwiceAsOften(t *testing.T) {
	r := measure(t, cycle(Queue), startFaulty(t, faults{}), func(c *bench.Config, h *bench.Harness) {
		h.Observer = &stolen{time.Now(), 0.05}
		h.Profiles[0].Verdicts, c.Runs, c.Force = true, 1, true // unforced it would not begin on such a host
	})
	if len(r.Suites) != 1 || len(r.Suites[0].Runs) != 2 {
		t.Fatalf("%+v, want 2 runs for 1 that counts", r.Suites)
	}
	for i := range r.Suites[0].Runs {
		if run := &r.Suites[0].Runs[i]; !excluded(run, bench.Steal) {
			t.Errorf("run %d is left out for %+v, want steal", run.Number, run.Excluded)
		}
	}
	if r.Exit != bench.ExitNoVerdict {
		t.Errorf("exit code %d, want %d", r.Exit, bench.ExitNoVerdict)
	}
}

func TestARowNearTheGeneratorsCeilingIsALowerBound(t *testing.T) {
	row := bench.Row{Ceiling: &bench.Ceiling{Rate: 120_000}}
	if got := row.Bounded(100_000); !got || row.Ceiling.Reached < 0.8 {
		t.Errorf("100,000 of 120,000 must not be a lower bound: %+v", row.Ceiling)
	}
	if got := row.Bounded(90_000); got {
		t.Errorf("90,000 of 120,000 is a lower bound: %+v", row.Ceiling)
	}
}
