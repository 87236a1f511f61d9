package tables

import (
	"time"

	"github.com/millrace/millrace/bench"
)

// queueCycle is the full cycle on one node: create, claim, complete, each acknowledged.
func queueCycle() bench.Suite {
	// shape is one stream of each kind with 32 callers; batches are the only thing that differs.
	shape := func(workerBatch, producerBatch int) bench.Shape {
		return bench.Shape{
			Nodes: 1, Shards: 1, Producers: 1, Pumps: 32, Workers: 1, Slots: 128, WorkerBatch: workerBatch,
			ProducerBatch: producerBatch, Lease: lease, Transport: "stream",
		}
	}
	// sized is a shape with another size of payload, in bytes.
	sized := func(s bench.Shape, bytes int) bench.Shape {
		s.Payload = bytes
		return s
	}
	// row is a row with the one target that all rows have.
	row := func(name, title string, s bench.Shape, profiles []string) bench.RowSpec {
		return bench.RowSpec{
			Name: name, Title: title, Shape: s, Profiles: profiles,
			Targets: []bench.Target{free(atMost(mutations, anyDurability, 5, 4, ofBench))},
		}
	}
	unbatched := row("unbatched", "one call per task; the client gathers concurrent calls into frames", shape(1, 1), inAll)
	unbatched.References = []bench.Reference{codeq("full cycle, unbatched", 76_639, "cycles/s")}
	unbatched.Targets = append(unbatched.Targets,
		atLeast(cycles, bench.Fsync, 45_000, 60_000, ofBench),
		atLeast(cycles, bench.None, 70_000, 85_000, ofBench),
		overDisk(atMost(createSync, bench.Fsync, 5, 4, ofBench)),
		atMost(fsyncs, bench.Fsync, 0.1, 0, ofQueue), // at 45,000 cycles/s and above
		free(atLeast(toCodeQ, anyDurability, 3.5, 0, ofBench)),
	)
	batched := row("batch-32-8", "a worker takes up to 32 tasks at once, a create call makes 8", shape(32, 8), inSeeds)
	batched.References = []bench.Reference{codeq("full cycle, batched, 4 shards", 83_420, "cycles/s")}
	batched.Targets = append(batched.Targets,
		atLeast(cycles, bench.Fsync, 100_000, 150_000, ofBench),
		atLeast(cycles, bench.None, 110_000, 150_000, ofBench),
		atMost(cpuPerOp, bench.Fsync, 20, 13, ofBench),
		free(atLeast(toCodeQ, anyDurability, 3.5, 0, ofBench)),
	)
	// sharded rows show what shards cost or bring on one node. They have no targets of their own
	// except mutations.
	sharded := func(n int, name string, refs ...bench.Reference) bench.RowSpec {
		s := shape(32, 8)
		s.Shards = n
		r := row(name, "batched, with more shards", s, inFull)
		r.References = refs
		return r
	}
	return bench.Suite{
		Name: "queue.cycle", Title: "Full cycle, one node: create, claim, complete", Priority: "P0", Bench: "BenchmarkQueueCycle",
		Headline: cycles, Window: 20 * time.Second, Warmup: 2 * time.Second, Minutes: 4,
		Rows: []bench.RowSpec{
			unbatched, batched,
			row("unbatched-256", "unbatched, payload of 256 B", sized(shape(1, 1), 256), inFull),
			row("unbatched-4096", "unbatched, payload of 4 KiB", sized(shape(1, 1), 4096), inFull),
			row("batch-32-8-256", "batched, payload of 256 B", sized(shape(32, 8), 256), inFull),
			row("batch-32-8-4096", "batched, payload of 4 KiB", sized(shape(32, 8), 4096), inFull),
			sharded(2, "batch-32-8-shards-2", codeq("2 shards, first series", 65_000, "cycles/s"), codeq("2 shards, second series", 71_000, "cycles/s")),
			sharded(4, "batch-32-8-shards-4", codeq("4 shards", 83_000, "cycles/s")),
			sharded(8, "batch-32-8-shards-8", codeq("8 shards", 88_000, "cycles/s")),
		},
	}
}

// Rate and latency are judged against the run's own first 20 s, and disk use against the middle of
// the window, so that the targets hold on every machine. queueSteady is the batched cycle for long
// enough that retention deletes as fast as work arrives.
func queueSteady() bench.Suite {
	return bench.Suite{
		Name: "queue.steady", Title: "Batched cycle for 10 minutes with the retention of 1 GiB reached", Priority: "P0",
		Bench: "BenchmarkQueueSteady", Headline: cycles, Window: 10 * time.Minute, Warmup: 2 * time.Second, NoProfile: true,
		Rows: []bench.RowSpec{{
			Name: "batch-32-8", Title: "against the figure of 20 s; disk use and compaction debt per second", Profiles: inFull, Runs: 1,
			Shape: bench.Shape{
				Nodes: 1, Shards: 1, Producers: 1, Pumps: 32, Workers: 1, Slots: 128, WorkerBatch: 32, ProducerBatch: 8, Lease: lease,
				Transport: "stream",
			},
			Targets: []bench.Target{
				free(atLeast(steadyRatio, anyDurability, 0.7, 0, ofBench)), free(atMost(steadyTail, anyDurability, 3, 0, ofBench)),
				free(atMost(diskGrowth, anyDurability, 1.25, 0, ofQueue)), // 1.5 is what a disk use has that only rises
			},
		}},
	}
}
