package tables

import (
	"time"

	"github.com/millrace/millrace/bench"
)

const (
	// redriven counts tasks that a bulk job made ready in a second, from its start to the answer that it has ended.
	redriven = "redriven_per_s"
	// liveTail is the p99 of live tasks while dead ones are redriven, over that of live tasks alone.
	liveTail = "live_p99_ratio"
)

// queueRedrive redrives dead tasks under live traffic.
func queueRedrive() bench.Suite {
	// On two cores the clients, the server and its writes of the state share the processors: 1.8 was measured there with fsync, and
	// 2.0 without. The live traffic is 32 clients that create a task, wait for it, and pause.
	row := func(name, title string, tasks int, profiles []string, targets ...bench.Target) bench.RowSpec {
		return bench.RowSpec{
			Name: name, Title: title, Profiles: profiles, NoCeiling: true, Targets: targets,
			Shape: bench.Shape{
				Nodes: 1, Shards: 1, Producers: 1, Pumps: 32, ProducerBatch: 1, Workers: 1, Slots: 64, WorkerBatch: 1, Lease: lease,
				Transport: "stream", Prefill: tasks, Redrive: 52_000,
			},
		}
	}
	s := bench.Suite{
		Name: "queue.redrive", Title: "Redrive of dead tasks under live traffic, against live traffic alone", Priority: "P0",
		Bench: "BenchmarkQueueRedrive", Headline: redriven, Window: 10 * time.Second, Warmup: 2 * time.Second, Minutes: 3, NoProfile: true,
		Rows: []bench.RowSpec{
			row("dead-20k", "20,000 dead tasks at 52,000 a second, at most", 20_000, []string{Smoke, Full}),
			row("dead-1m", "1,000,000 dead tasks at 52,000 a second, at most", 1_000_000, inSeeds,
				atLeast(redriven, anyDurability, 50_000, 0, ofQueue), crowded(free(atMost(liveTail, anyDurability, 2, 0, ofQueue)))),
		},
	}
	// The deep row takes long to fill, so it has fewer runs.
	s.Rows[1].Runs = 3
	return s
}
