package tables

import (
	"time"

	"github.com/millrace/millrace/bench"
)

// queueRestart kills the server and starts it on what it had.
func queueRestart() bench.Suite {
	// The window is the time of the whole run: it begins with the kill.
	row := func(name, title string, tasks int, profiles []string, targets ...bench.Target) bench.RowSpec {
		return bench.RowSpec{
			Name: name, Title: title, Profiles: profiles, NoCeiling: true, Targets: targets,
			Shape: bench.Shape{Nodes: 1, Shards: 1, Lease: lease, Prefill: tasks},
		}
	}
	return bench.Suite{
		Name: "queue.restart", Title: "From the start of a server that was killed to the first task given", Priority: "P0",
		Bench: "BenchmarkQueueRestart", Headline: firstGrant, Window: 5 * time.Second, Minutes: 0.7, NoProfile: true,
		Rows: []bench.RowSpec{
			row("tasks-50k", "50,000 tasks: half ready, a quarter each delayed and leased", 50_000, inAll),
			row("tasks-1m", "1,000,000 tasks, likewise", 1_000_000, inFull, atMost(firstGrant, anyDurability, 3, 0, ofQueue)),
		},
	}
}
