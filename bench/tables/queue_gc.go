package tables

import (
	"time"

	"github.com/millrace/millrace/bench"
)

// queueGC looks for collections of garbage in the tail of the latency. Published: "no pathological tail", no figure.
func queueGC() bench.Suite {
	// The ratio of tails holds on every machine, the length of a pause does not.
	targets := []bench.Target{
		free(atMost(gcTail, anyDurability, 2, 0, ofBench)), atMost(gcPause, anyDurability, 1_000, 0, ofBench),
	}
	return bench.Suite{
		Name: "queue.gc", Title: "Collections of garbage and the tail of the latency", Priority: "P0", Bench: "BenchmarkQueueGC",
		Headline: creates, Window: time.Minute, Warmup: 2 * time.Second, Minutes: 2.5,
		Rows: []bench.RowSpec{
			{
				Name: "enqueue", Title: "sustained enqueue", Profiles: inAll, Runs: 1, Targets: targets,
				Shape: bench.Shape{Nodes: 1, Shards: 1, Producers: 1, Pumps: 32, ProducerBatch: 1, Transport: "stream", Kind: "enqueue"},
			},
			{
				Name: "claim-complete", Title: "claim and complete, tasks added as they are taken", Profiles: inSeeds, Runs: 1,
				Targets: targets, Headline: cycles,
				Shape: bench.Shape{
					Nodes: 1, Shards: 1, Producers: 1, Pumps: 32, ProducerBatch: 1, Workers: 1, Slots: 128, WorkerBatch: 1, Lease: lease,
					Transport: "stream", Kind: "cycle",
				},
			},
		},
	}
}
