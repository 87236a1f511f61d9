package load

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/bench"
)

// refsSuite is a suite of one row that works on refs for a second at most.
func refsSuite(t *testing.T, drive bench.Driver, op string, shape bench.Shape) bench.Suite {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed")
	}
	shape.Nodes, shape.Shards = max(shape.Nodes, 1), 1
	return bench.Suite{
		Name: "refs.small", Op: op, Headline: "refs_per_s", Window: 300 * time.Millisecond, Warmup: 50 * time.Millisecond, Drive: drive,
		Rows: []bench.RowSpec{{Name: "row", NoCeiling: true, Shape: shape}},
	}
}

func TestACellOfRefsIsMeasuredInTurnWithGitAndAllRefsAreReadBack(t *testing.T) {
	run := on(t, bench.Procs, refsSuite(t, RefsGitaly, "delete", bench.Shape{Pumps: 1, Kind: "delete-packed-10"}))
	clean(t, run)
	wantMetrics(t, run, "refs_per_s", "git_files_synced_refs_per_s", "git_files_default_refs_per_s", "ratio_to_git_files_synced",
		"stream_round_trip_us", "client_bytes_per_transaction", "client_allocs_per_transaction", "ns_per_transaction")
	if got := run.Audit.ReadBack; got != refsCount+2 || run.Audit.Created == 0 {
		t.Errorf("%d refs read back of %d and the 2 that were pushed; %d changes acknowledged", got, refsCount, run.Audit.Created)
	}
	if run.Latency["git_synced"].Count == 0 || run.Latency["git_default"].Count == 0 {
		t.Errorf("latencies %v lack git's", run.Latency)
	}
}

// forging is RefsGitaly with a ledger of ours that says something else than what the server acknowledged.
func forging(forge func(rig *bench.Rig)) bench.Driver {
	return func(ctx context.Context, rig *bench.Rig) error {
		err := RefsGitaly(ctx, rig)
		forge(rig)
		return err
	}
}

func TestRefsThatAreNotAsAcknowledgedFailTheAudit(t *testing.T) {
	for what, forge := range map[string]func(rig *bench.Rig){
		"different":  func(rig *bench.Rig) { rig.Refs.Acked(0, strings.Repeat("1", 40)) },
		"lost":       func(rig *bench.Rig) { rig.Refs.Acked(7, strings.Repeat("1", 40)) },
		"unexpected": func(rig *bench.Rig) { rig.Refs.Acked(0, "") },
		"git, lost": func(rig *bench.Rig) {
			rig.Proofs = append(rig.Proofs, func(context.Context) ([]string, error) { return []string{"git, lost: a ref"}, nil })
		},
	} {
		t.Run(what, func(t *testing.T) {
			s := refsSuite(t, forging(forge), "update", bench.Shape{Pumps: 1, Kind: "default-update-1"})
			run := on(t, bench.InProc, s)
			if run.Audit == nil || run.Audit.OK || !strings.Contains(strings.Join(run.Audit.Violations, "\n"), what) {
				t.Errorf("audit %+v, want one that finds a ref %s", run.Audit, what)
			}
		})
	}
}

func TestTablesOfRefsAreSkippedWithAnOldGit(t *testing.T) {
	if hasReftable(t.Context()) {
		t.Skip("this git has them")
	}
	s := refsSuite(t, RefsGitaly, "update", bench.Shape{Pumps: 1, Kind: "reftable-update-1"})
	r := measure(t, s, "", func(c *bench.Config, _ *bench.Harness) { c.Topology = bench.InProc })
	if row := r.Suites[0]; row.Skipped != noReftable || row.Error != "" || len(row.Runs) != 0 || r.Exit != bench.ExitOK {
		t.Errorf("skipped %q, error %q, %d runs, exit code %d", row.Skipped, row.Error, len(row.Runs), r.Exit)
	}
}

func TestPushesLandAndAreProvedByAClone(t *testing.T) {
	for _, c := range []struct {
		kind    string
		pumps   int
		nodes   int
		metrics []string
	}{
		{"one", 1, 1, []string{"push_p50_ms", "server_p50_ms", "file_push_p50_ms", "ratio_to_file_push"}},
		{"own", 4, 1, []string{"pushes_per_s", "push_p50_ms"}},
		{"one-branch", 3, 1, []string{"pushes_per_s", "push_p50_ms"}},
		{"one", 1, 3, []string{"push_p50_ms", "ratio_to_file_push"}},
	} {
		t.Run(fmt.Sprintf("%s, %d nodes", c.kind, c.nodes), func(t *testing.T) {
			run := on(t, bench.Procs, refsSuite(t, RefsPush, "push", bench.Shape{Nodes: c.nodes, Pumps: c.pumps, Kind: c.kind}))
			clean(t, run)
			wantMetrics(t, run, c.metrics...)
			if run.Ops == 0 || run.Audit.ReadBack == 0 {
				t.Errorf("%d pushes, %d refs read back", run.Ops, run.Audit.ReadBack)
			}
		})
	}
}

func TestManyRefsAndManyClientsAreMeasured(t *testing.T) {
	for _, c := range []struct {
		kind    string
		shape   bench.Shape
		metrics []string
	}{
		{"clients-64", bench.Shape{Producers: 8, Pumps: 1}, []string{"updates_per_s"}},
		{"tombstones", bench.Shape{Prefill: 2_000}, []string{"p50_ratio_to_100_refs", "create_1_p50_us", "delete_100_p50_us", "update_1_p50_us_of_100_refs"}},
		{"ls-refs-1m", bench.Shape{Prefill: 2_000}, []string{"seconds", "first_byte_ms"}},
		{"load-1m", bench.Shape{Prefill: 2_000}, []string{"seconds", "refs_per_s"}},
	} {
		t.Run(c.kind, func(t *testing.T) {
			c.shape.Kind = c.kind
			run := on(t, bench.Procs, refsSuite(t, RefsScale, "update", c.shape))
			clean(t, run)
			wantMetrics(t, run, c.metrics...)
			if run.Ops == 0 && c.kind != "ls-refs-1m" || run.Audit.ReadBack < 10 {
				t.Errorf("%d refs changed, %d read back", run.Ops, run.Audit.ReadBack)
			}
		})
	}
}

func TestCompletionsWithAndWithoutARefAreCountedInTurn(t *testing.T) {
	s := refsSuite(t, RefsScale, "create", cycling)
	s.Rows[0].Shape.Kind, s.Rows[0].Shape.Lease = "complete-ref", time.Minute
	run := on(t, bench.Procs, s)
	clean(t, run)
	wantMetrics(t, run, "ref_cycles_per_s", "bare_cycles_per_s", "ratio_to_completion")
}

// nodes3 is a small row of refs on three nodes, with a single-node server next to them.
func nodes3(t *testing.T, drive bench.Driver) bench.Suite {
	t.Helper()
	return refsSuite(t, drive, "update", bench.Shape{Nodes: 3, Beside: true, Pumps: 4, Kind: "nodes-3"})
}

func TestRefsOnThreeNodesAreHeldAgainstOneNodeInTurn(t *testing.T) {
	run := on(t, bench.Procs, nodes3(t, RefsScale))
	clean(t, run)
	wantMetrics(t, run, "refs_per_s", "clients_refs_per_s", "one_node_refs_per_s", "one_node_clients_refs_per_s", "refs_ratio_to_one_node",
		"clients_ratio_to_one_node", "ratio_to_one_node", "server_3_fsyncs_per_op")
	if least := min(run.Metrics["refs_ratio_to_one_node"].Value, run.Metrics["clients_ratio_to_one_node"].Value); run.Metrics["ratio_to_one_node"].Value != least {
		t.Errorf("the ratio is %v, want the smaller of both, %v", run.Metrics["ratio_to_one_node"].Value, least)
	}
	if got, want := run.Audit.ReadBack, uint64(3*(4+scaleMany+2)); got != want {
		t.Errorf("%d refs read back from three nodes, want %d", got, want)
	}
	if run.Latency["one_node_update"].Count == 0 {
		t.Errorf("latencies %v lack those of one node", run.Latency)
	}
	for name := range run.Metrics {
		if strings.HasPrefix(name, "one_node_cpu_us") {
			t.Errorf("%s: what the single node used is counted as a cost of the others", name)
		}
	}
}

func TestARefThatIsLostOnEitherSideFailsTheAudit(t *testing.T) {
	for what, forge := range map[string]func(r *nodesRun){
		"server-2: lost": func(r *nodesRun) { r.sides[0].ledger.Acked(1000, r.sides[0].stock.commits[0]) },
		"one node: lost": func(r *nodesRun) { r.sides[1].ledger.Acked(1000, r.sides[1].stock.commits[0]) },
	} {
		t.Run(what, func(t *testing.T) {
			run := on(t, bench.Procs, nodes3(t, func(ctx context.Context, rig *bench.Rig) error {
				r := &nodesRun{rig: rig}
				err := r.run(ctx)
				forge(r)
				return err
			}))
			if run.Audit == nil || run.Audit.OK || !strings.Contains(strings.Join(run.Audit.Violations, "\n"), what) {
				t.Errorf("audit %+v, want %q", run.Audit, what)
			}
		})
	}
}

func TestOneNodeThatIsNotTheBenchsIsNotHeldAgainst(t *testing.T) {
	run := on(t, bench.InProc, refsSuite(t, RefsScale, "update", bench.Shape{Pumps: 4, Kind: "nodes-3"}))
	if !strings.Contains(run.Failed, "no single-node server runs") {
		t.Errorf("failed %q, want a word on the server that is not there", run.Failed)
	}
}

func TestEffectsOfACommitAreMeasuredBesideSeparateCallsAndApplyOnce(t *testing.T) {
	for _, nodes := range []int{1, 3} {
		t.Run(fmt.Sprintf("%d nodes", nodes), func(t *testing.T) {
			s := refsSuite(t, CommitEffects, "create", cycling)
			s.Rows[0].Shape.Nodes, s.Rows[0].Shape.Lease = nodes, time.Minute
			s.Window = 3 * time.Second // each slice has calls of four kinds in turn, also on a slow disk
			run := on(t, bench.Procs, s)
			clean(t, run)
			wantMetrics(t, run, "bare_cycles_per_s", "one_commit_cycles_per_s", "separate_cycles_per_s", "ratio_to_separate_calls", "ratio_to_bare_cycle", "tasks_with_effects")
			for _, kind := range commitKinds {
				// Of completions one in 64 is looked at.
				creates, completes := run.Latency[kind+"_create"].Count, run.Latency[kind+"_complete"].Count
				if creates == 0 || completes == 0 && creates > 1_000 {
					t.Errorf("latencies %v lack those of %s", run.Latency, kind)
				}
			}
		})
	}
}
