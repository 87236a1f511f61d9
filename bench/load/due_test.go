package load

import (
	"context"
	"strings"
	"testing"

	"github.com/millrace/millrace/bench"
)

// due is the shape of few tasks that become due under live traffic.
var due = bench.Shape{Producers: 1, Pumps: 8, Workers: 1, Slots: 64, Prefill: 2_000}

func TestTasksBecomeDueUnderLiveTraffic(t *testing.T) {
	run := on(t, bench.Procs, small(Due, due))
	clean(t, run)
	wantMetrics(t, run, "due_per_s", "due_s", "live_p50_ratio", "live_p99_ratio", "alone_p99_us", "under_p99_us", "cycles_per_s")
	if n := run.Metrics["tasks"].Value; n != 2_000 {
		t.Errorf("%v tasks were due, want 2,000", n)
	}
}

func TestDueTasksThatAreNotReadyAfterwardsFailTheAudit(t *testing.T) {
	run := on(t, bench.InProc, small(func(ctx context.Context, rig *bench.Rig) error {
		if err := Due(ctx, rig); err != nil {
			return err
		}
		return cancelReady(ctx, rig, dueSuffix)
	}, due))
	if run.Failed != "" {
		t.Fatalf("failed %q", run.Failed)
	}
	if run.Audit == nil || run.Audit.OK || !strings.Contains(strings.Join(run.Audit.Violations, "\n"), "0 are ready") {
		t.Errorf("audit %+v, want one that misses ready tasks", run.Audit)
	}
}
