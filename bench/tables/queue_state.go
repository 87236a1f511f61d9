package tables

import (
	"time"

	"github.com/millrace/millrace/bench"
)

// queueLatency is the way of a task to a worker while the server is half busy.
func queueLatency() bench.Suite {
	return bench.Suite{
		Name: "queue.latency", Title: "From create to claim at half of the maximum, open loop", Priority: "P0",
		Bench: "BenchmarkQueueLatency", Headline: claimTail, Window: 10 * time.Second, Warmup: 2 * time.Second, Minutes: 1.5,
		Rows: []bench.RowSpec{{
			Name: "half", Title: "a closed loop finds the maximum first; --rate sets another rate", Profiles: inAll, NoCeiling: true,
			Shape: bench.Shape{
				Nodes: 1, Shards: 1, Producers: 1, Pumps: 32, ProducerBatch: 1, Workers: 1, Slots: 128, WorkerBatch: 1, Lease: lease,
				Transport: "stream",
			},
			Targets: []bench.Target{atMost(claimTail, bench.Fsync, 5_000, 0, ofQueue)},
		}},
	}
}

// queueDeep is claims from a queue in which many tasks wait, and the memory of each.
func queueDeep() bench.Suite {
	// row is a queue of that many ready tasks.
	row := func(name, title string, tasks int, profiles []string, targets ...bench.Target) bench.RowSpec {
		return bench.RowSpec{
			Name: name, Title: title, Profiles: profiles, NoCeiling: true, Targets: targets,
			Shape: bench.Shape{Nodes: 1, Shards: 1, Lease: lease, Prefill: tasks},
		}
	}
	// deep are the targets of a deep queue. The heap per task and the ratios to the shallow queue
	// hold on every machine.
	deep := func() []bench.Target {
		return []bench.Target{
			free(atMost(taskBytes, anyDurability, 200, 0, ofQueue)), free(atLeast(depthClaims, anyDurability, 0.8, 0, ofQueue)),
			free(atMost(depthTail, anyDurability, 2, 0, ofQueue)),
		}
	}
	s := bench.Suite{
		Name: "queue.depth", Title: "Claims, and memory per task, by how many tasks wait", Priority: "P0", Bench: "BenchmarkQueueDeep",
		Headline: claims, Window: 5 * time.Second, Warmup: time.Second, Minutes: 2, NoProfile: true,
		Rows: []bench.RowSpec{
			row("ready-10k", "10,000 tasks are ready", 10_000, inAll),
			row("ready-1m", "1,000,000 tasks are ready; before, on the same server, 10,000", 1_000_000, inSeeds, deep()...),
			row("ready-10m", "10,000,000 tasks are ready; before, on the same server, 10,000", 10_000_000, inFull, deep()...),
		},
	}
	// Deep rows take long to fill, so they have fewer runs.
	s.Rows[1].Runs, s.Rows[2].Runs = 3, 1
	return s
}

// queueEffects is the batched cycle whose completions bring a change of a key.
func queueEffects() bench.Suite {
	return bench.Suite{
		Name: "queue.effects", Title: "Batched cycle with a key put by each completion, against the same without", Priority: "P0",
		Bench: "BenchmarkQueueEffects", Headline: putCycles, Window: 10 * time.Second, Warmup: 2 * time.Second, Minutes: 1.5,
		Rows: []bench.RowSpec{{
			Name: "kv-put", Title: "ten slices of the window, without and with in turn", Profiles: inAll,
			Shape: bench.Shape{
				Nodes: 1, Shards: 1, Producers: 1, Pumps: 32, Workers: 1, Slots: 128, WorkerBatch: 32, ProducerBatch: 8, Lease: lease,
				Transport: "stream",
			},
			Targets: []bench.Target{free(atLeast(putShare, anyDurability, 0.7, 0, ofQueue))},
		}},
	}
}

// queueKeyed is the batched cycle of tasks with keys, next to the same without.
func queueKeyed() bench.Suite {
	// row is the cycle with a use of keys.
	row := func(name, title, kind string, keys int) bench.RowSpec {
		return bench.RowSpec{
			Name: name, Title: title, Profiles: inFull, NoCeiling: true,
			Shape: bench.Shape{
				Nodes: 1, Shards: 1, Producers: 1, Pumps: 32, Workers: 1, Slots: 128, WorkerBatch: 32, ProducerBatch: 8, Lease: lease,
				Transport: "stream", Kind: kind, Keys: keys, Prefill: 20_000,
			},
		}
	}
	s := bench.Suite{
		Name: "queue.keyed", Title: "Batched cycle of tasks with keys, limits of keys and unique keys, next to tasks without", Priority: "P0",
		Bench: "BenchmarkQueueKeyed", Headline: cycles, Window: 10 * time.Second, Warmup: 2 * time.Second,
		Rows: []bench.RowSpec{
			row(keyedBare, "without keys", "", 0),
			row(keyedLanes, "each task has one of 10,000 keys", "keys", 10_000),
			row(keyedLimits, "the same, and at most 4 tasks of each key run at once", "limits", 10_000),
			row(keyedUnique, "each task has one of 100,000 unique keys, which its end frees", "unique", 100_000),
		},
	}
	s.Rows[1].Profiles = []string{Smoke, Full}
	return s
}

// queueAfter is the batched cycle of tasks that wait for each other.
func queueAfter() bench.Suite {
	return bench.Suite{
		Name: "queue.after", Title: "Batched cycle of chains of 8 tasks, each of which waits for the one before, against single tasks", Priority: "P0",
		Bench: "BenchmarkQueueAfter", Headline: chainCycles, Window: 10 * time.Second, Warmup: 2 * time.Second,
		Rows: []bench.RowSpec{{
			Name: "chains", Title: "ten slices of the window, single tasks and chains in turn", Profiles: []string{Smoke, Full}, NoCeiling: true,
			Shape: bench.Shape{
				Nodes: 1, Shards: 1, Producers: 1, Pumps: 32, Workers: 1, Slots: 128, WorkerBatch: 32, ProducerBatch: 8, Lease: lease,
				Transport: "stream",
			},
			Targets: []bench.Target{free(atLeast(chainShare, anyDurability, 0.7, 0, ofQueue))},
		}},
	}
}

// queueIdle weighs workers' streams on which nothing happens, and the server that has none.
func queueIdle() bench.Suite {
	return bench.Suite{
		Name: "queue.idle", Title: "Idle worker streams, and a server without any", Priority: "P0", Bench: "BenchmarkQueueIdle",
		Headline: streamMemory, Window: 10 * time.Second, Warmup: time.Second, Minutes: 1.2, NoProfile: true,
		Rows: []bench.RowSpec{{
			Name: "streams-1000", Title: "1,000 workers wait on 4 connections", Profiles: inAll, NoCeiling: true, Runs: 3,
			Shape: bench.Shape{Nodes: 1, Shards: 1, Workers: 1_000, Slots: 1, Lease: lease, Transport: "stream"},
			Targets: []bench.Target{
				free(atMost(streamMemory, anyDurability, 60, 0, ofQueue)), atMost(streamsCPU, anyDurability, 1, 0, ofQueue),
				atMost(aloneCPU, anyDurability, 1, 0, ofQueue),
			},
		}},
	}
}
