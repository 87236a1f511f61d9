package tables

import (
	"time"

	"github.com/millrace/millrace/bench"
)

const (
	// redriven counts tasks that a bulk job made ready in a second, from its start to the answer that it has ended.
	redriven = "redriven_per_s"
	// due counts tasks that became ready in a second, from the instant at which all were due to the answer that all are ready.
	due = "due_per_s"
	// liveTail is the p99 of live tasks while something happens to many others, over that of live tasks alone.
	liveTail = "live_p99_ratio"
)

// liveRow is a row of many tasks next to live traffic: 32 clients that create a task, wait for it, and pause. redrive is as in Shape.
//
// On two cores the clients, the server and its writes of the state share the processors: while tasks were redriven, the tail of live ones
// was 1.8 times as long there with fsync, and 2.0 times without.
func liveRow(name, title string, tasks, redrive int, profiles []string, targets ...bench.Target) bench.RowSpec {
	return bench.RowSpec{
		Name: name, Title: title, Profiles: profiles, NoCeiling: true, Targets: targets,
		Shape: bench.Shape{
			Nodes: 1, Shards: 1, Producers: 1, Pumps: 32, ProducerBatch: 1, Workers: 1, Slots: 64, WorkerBatch: 1, Lease: lease,
			Transport: "stream", Prefill: tasks, Redrive: redrive,
		},
	}
}

// queueRedrive redrives dead tasks under live traffic.
func queueRedrive() bench.Suite {
	const redrives = 52_000
	s := bench.Suite{
		Name: "queue.redrive", Title: "Redrive of dead tasks under live traffic, against live traffic alone", Priority: "P0",
		Bench: "BenchmarkQueueRedrive", Headline: redriven, Window: 10 * time.Second, Warmup: 2 * time.Second, Minutes: 3, NoProfile: true,
		Rows: []bench.RowSpec{
			liveRow("dead-20k", "20,000 dead tasks at 52,000 a second, at most", 20_000, redrives, []string{Smoke, Full}),
			liveRow("dead-1m", "1,000,000 dead tasks at 52,000 a second, at most", 1_000_000, redrives, inSeeds,
				atLeast(redriven, anyDurability, 50_000, 0, ofQueue), crowded(free(atMost(liveTail, anyDurability, 2, 0, ofQueue)))),
		},
	}
	// The deep row takes long to fill, so it has fewer runs.
	s.Rows[1].Runs = 3
	return s
}

// queueDue has many tasks become due in one instant, under live traffic.
func queueDue() bench.Suite {
	s := bench.Suite{
		Name: "queue.due", Title: "Tasks that are all due in one instant, under live traffic, against live traffic alone", Priority: "P0",
		Bench: "BenchmarkQueueDue", Headline: due, Window: 10 * time.Second, Warmup: 2 * time.Second, NoProfile: true,
		Rows: []bench.RowSpec{
			liveRow("due-20k", "20,000 tasks", 20_000, 0, []string{Smoke, Full}),
			liveRow("due-1m", "1,000,000 tasks", 1_000_000, 0, []string{Full},
				atLeast(due, anyDurability, 100_000, 0, ofQueue), crowded(free(atMost(liveTail, anyDurability, 3, 0, ofQueue)))),
		},
	}
	s.Rows[1].Runs = 3
	return s
}
