package seedtest

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/millrace/millrace/bench"
)

// shardCounts are the numbers of shards that the reference compares.
var shardCounts = []int{1, 4}

// clusterBench is a test of three nodes that measures one row for each number of shards.
type clusterBench struct {
	// test is the name of the test, as go test is given it. It becomes part of the command that the
	// result names.
	test string
	// timeout is what go test is given, for the command too.
	timeout string
	// kind is what the names of the subtests have in brackets.
	kind string
	// rows has the row of the bench by number of shards.
	rows map[int]string
	// line and ratio print what the reference's test prints, word for word, since scripts read it.
	line  func(shards int, r *clusterRates) string
	ratio func(one, four *clusterRates) string
}

// clusterRates are the rates of one row, of the run that stands for it, per second. cycles are tasks that were created,
// claimed and completed.
type clusterRates struct{ create, complete, cycles float64 }

// RaftStreams measures the cycle through streams on three nodes, with 1 shard and with 4.
func RaftStreams(t *testing.T) {
	t.Helper()
	streamBench().run(t)
}

// streamBench is the test of streams, which prints creates and completions.
func streamBench() clusterBench {
	return clusterBench{
		test: "TestRaftBench_GRPC", timeout: "180s", kind: "raft + gRPC",
		rows: map[int]string{1: "queue.raft/shards-1", 4: "queue.raft/shards-4"},
		line: func(shards int, r *clusterRates) string {
			return fmt.Sprintf("%d-shard: create=%.0f/s complete=%.0f/s", shards, r.create, r.complete)
		},
		ratio: func(one, four *clusterRates) string {
			return fmt.Sprintf("multi/single create ratio: %.2fx", four.create/one.create)
		},
	}
}

// SmartRouting measures the cycle over REST on three nodes, by clients that follow redirects, with 1 shard and with 4.
func SmartRouting(t *testing.T) {
	t.Helper()
	cyclesOf("TestRaftBench_SmartRouting", "raft + smart routing", "queue.smart/shards-1", "queue.smart/shards-4").run(t)
}

// MultiShardScale measures the same by clients that try the nodes in turn.
func MultiShardScale(t *testing.T) {
	t.Helper()
	cyclesOf("TestRaftBench_MultiShardScale", "raft + rotation", "queue.smart/rotation", "queue.smart/rotation-shards-4").run(t)
}

// cyclesOf makes a test that prints cycles alone.
func cyclesOf(test, kind, one, four string) clusterBench {
	return clusterBench{
		test: test, timeout: "120s", kind: kind, rows: map[int]string{1: one, 4: four},
		line: func(shards int, r *clusterRates) string {
			return fmt.Sprintf("%d-shard cycles/s: %.0f", shards, r.cycles)
		},
		ratio: func(one, four *clusterRates) string {
			return fmt.Sprintf("multi-shard / single-shard ratio: %.2fx", four.cycles/one.cycles)
		},
	}
}

// run measures each number of shards in a subtest of its own. An environment that names a number of
// shards skips the others, and then no ratio is printed.
func (b clusterBench) run(t *testing.T) {
	t.Helper()
	skipUnlessNamed(t)
	c := configIn(t, bench.Procs)
	c.NoProfile = true
	c.Command = "go test -v -run='^" + b.test + "$' -count=1 -timeout=" + b.timeout + " ./pkg/app"
	// rates has the rates by the number of shards, of those that were measured.
	rates := map[int]*clusterRates{}
	for _, shards := range shardCounts {
		t.Run("3-node × "+strconv.Itoa(shards)+"-shard ("+b.kind+")", func(t *testing.T) {
			if c.Shards > 0 && c.Shards != shards {
				t.Skipf("%d shards are asked for", c.Shards)
			}
			// Each subtest has a copy, since its row is its own.
			c := c
			c.Select = []string{b.rows[shards]}
			r := execute(t, &c)
			row := &r.Suites[0]
			if rates[shards] = ratesOf(row); rates[shards] != nil {
				t.Log(b.line(shards, rates[shards]))
			}
			t.Log(labelLine(row))
			for _, f := range failures(r) {
				t.Error(f)
			}
		})
	}
	if one, four := rates[1], rates[4]; one != nil && four != nil {
		t.Log(b.ratio(one, four))
	}
}

// ratesOf returns the rates of a row, or nil when nothing was completed.
func ratesOf(row *bench.Row) *clusterRates {
	run := best(row)
	if run == nil || run.Metrics["cycles_per_s"].Value <= 0 {
		return nil
	}
	// A metric that was not measured is 0 here.
	of := func(name string) float64 { return run.Metrics[name].Value }
	return &clusterRates{of("creates_per_s"), of("completes_per_s"), of("cycles_per_s")}
}
