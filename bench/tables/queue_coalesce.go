package tables

import (
	"fmt"
	"time"

	"github.com/millrace/millrace/bench"
)

// queueCoalesce is the same durable enqueue with group commit and with one commit per log entry.
func queueCoalesce() bench.Suite {
	return bench.Suite{
		Name: "queue.coalesce", Title: "Durable enqueue with group commit, and with one commit per entry", Priority: "P0",
		Bench: "BenchmarkQueueCoalesce", Headline: creates, Window: 6 * time.Second, Warmup: 2 * time.Second, Minutes: 2,
		Rows: coalesceRows(1),
	}
}

// queueCoalesceRaft is the same on three nodes.
func queueCoalesceRaft() bench.Suite {
	return bench.Suite{
		Name: "queue.coalesce.raft", Title: "Durable enqueue with and without group commit, three nodes", Priority: "P0",
		Bench: "BenchmarkQueueCoalesceRaft", Headline: creates, Window: 6 * time.Second, Warmup: 2 * time.Second,
		Rows: coalesceRows(3),
	}
}

// coalesceRows are three numbers of callers, each with both kinds of commits, on that many nodes.
func coalesceRows(nodes int) []bench.RowSpec {
	var rows []bench.RowSpec
	for _, parallelism := range []int{1, 4, 16} {
		for _, commit := range []string{"group", "single"} {
			// commit is how the server is started: with group commit, or with one commit for each
			// entry.
			r := bench.RowSpec{
				Name: fmt.Sprintf("%s-%d", commit, parallelism), Profiles: inFull,
				Title: fmt.Sprintf("%d callers, %s", parallelism, map[string]string{
					"group": "commits that arrive together share an entry", "single": "each commit has an entry of its own",
				}[commit]),
				Shape: bench.Shape{
					Nodes: nodes, Shards: 1, Producers: 1, Pumps: parallelism, ProducerBatch: 1, Transport: "stream", Commit: commit,
				},
			}
			// Sixteen callers on one node are the cell that was published.
			if parallelism == 16 && nodes == 1 {
				r.Profiles = inSeeds
				if commit == "group" {
					r.Profiles = inAll
				}
			}
			rows = append(rows, r)
		}
	}
	return rows
}
