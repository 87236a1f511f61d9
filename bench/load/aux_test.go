package load

import (
	"testing"
	"time"

	"github.com/millrace/millrace/bench"
)

func TestAWorkerThatTakesOneTaskAtATimeIsTimedAtTheDepthOfItsRow(t *testing.T) {
	run := on(t, bench.InProc, small(ClaimDepth, bench.Shape{Prefill: 1_000}))
	clean(t, run)
	wantMetrics(t, run, "claim_p50_ms", "claim_p99_ms")
	if c := run.Audit.Counts; c["ready"] != 1_000 || c["completed"] == 0 {
		t.Errorf("%v, want as many ready as before and some completed", c)
	}
}

func TestTasksAreDealtOutToPriorities(t *testing.T) {
	s := small(Queue, cycling)
	s.Rows[0].Shape.Priorities = 3
	run := on(t, bench.InProc, s)
	clean(t, run)
	wantMetrics(t, run, "cycles_per_s")
}

func TestEachShapeOfLoadOverRESTIsDrained(t *testing.T) {
	for _, kind := range []string{shapeSustained, shapeBurst, shapePriorities, shapeDelayed} {
		t.Run(kind, func(t *testing.T) {
			s := small(Shapes, bench.Shape{Producers: 1, Pumps: 4, Workers: 1, Slots: 16, Kind: kind, Transport: "rest"})
			open := kind == shapeSustained || kind == shapeBurst
			if open && underRace {
				t.Skip("a server that the race detector watches does not keep up with a thousand calls a second")
			}
			run := on(t, bench.Procs, s)
			clean(t, run)
			wantMetrics(t, run, "requests_per_s")
			if open != (run.Latency["schedule_lag"].Count > 0) {
				t.Errorf("arrivals that were due: %d, want some: %v", run.Latency["schedule_lag"].Count, open)
			}
		})
	}
}

func TestALeaderThatIsKilledUnderLoadIsTimedAndLosesNothing(t *testing.T) {
	s := three(Failover, bench.Shape{Producers: 3, Callers: 8, Workers: 3, Slots: 16})
	run := on(t, bench.Procs, s)
	clean(t, run)
	wantMetrics(t, run, "kills", "first_ack_ms", "first_ack_max_ms")
}

func TestIdleStreamsBesideWorkersAreWeighedAndStillWait(t *testing.T) {
	s := small(IdleBeside, cycling)
	s.Rows[0].Shape.Idle, s.Rows[0].Shape.Serve = 60, "--limit-streams-tenant=100"
	run := on(t, bench.Procs, s)
	clean(t, run)
	wantMetrics(t, run, "cycles_per_s")
	if _, ok := run.Metrics["rss_kib_per_stream"]; !ok {
		t.Error("the memory of a stream is not there")
	}
}

func TestTheSettingsOfARowReachItsServer(t *testing.T) {
	s := small(IdleBeside, cycling)
	s.Rows[0].Shape.Idle, s.Rows[0].Shape.Serve = 60, "--limit-streams-tenant=50"
	if run := on(t, bench.Procs, s); run.Failed == "" {
		t.Error("more streams than the tenant may have were opened")
	}
}

func TestWhatIsMissingAndWhatIsAnotherTenantsIsAskedInTurn(t *testing.T) {
	s := small(TenantTiming, bench.Shape{})
	s.Rows[0].Shape.Tenants, s.Reads = 2, true
	run := on(t, bench.Procs, s)
	clean(t, run)
	wantMetrics(t, run, "missing_p50_us", "others_p50_us", "calls_of_each")
	if _, ok := run.Metrics["median_difference"]; !ok {
		t.Error("the difference is not there")
	}
}

func TestATenantIsTimedAloneAndNextToALoudOne(t *testing.T) {
	s := small(TenantNeighbour, bench.Shape{})
	s.Rows[0].Shape.Tenants, s.Reads = 2, true
	s.Window = 2 * neighbourPhase
	run := on(t, bench.Procs, s)
	clean(t, run)
	wantMetrics(t, run, "alone_p99_us", "beside_p99_us", "p99_ratio", "loud_asked_per_s", "loud_made_per_s")
	if asked, made := run.Metrics["loud_asked_per_s"].Value, run.Metrics["loud_made_per_s"].Value; made >= asked {
		t.Errorf("the loud tenant made %.0f tasks/s of %.0f that it asked for", made, asked)
	}
}

func TestAnIDThatWasNeverGivenHasTimeAndPartitionOfOneThatWas(t *testing.T) {
	const id = "01KAJ0C7Q4G00Q7W2V9D3M5T8Z"
	if got := neverGiven(id); got != "01KAJ0C7Q4G00Q7W2VAE4N6V90" {
		t.Errorf("%s of %s", got, id)
	}
}

func TestTheArrivalsOfAShapeFillItsWindow(t *testing.T) {
	rig := &bench.Rig{Shape: bench.Shape{Kind: shapeSustained}, Window: 9 * time.Second}
	shapeArrivals(rig)
	if rig.Rate < 590 || rig.Rate > 610 {
		t.Errorf("a mean of %v a second, want 600", rig.Rate)
	}
	rig.Shape.Kind, rig.Window = shapeBurst, 30*time.Second
	if shapeArrivals(rig); rig.Arrivals.Mean(0, 0, 10*time.Second) != 1_000 || rig.Arrivals.Mean(0, 10*time.Second, 20*time.Second) != 0 {
		t.Errorf("a burst has %v a second, then %v", rig.Arrivals.Mean(0, 0, 10*time.Second), rig.Arrivals.Mean(0, 10*time.Second, 20*time.Second))
	}
}
