package tables

import (
	"time"

	"github.com/millrace/millrace/bench"
)

// queueRaft is the full cycle on three nodes.
func queueRaft() bench.Suite {
	// created and completed are the published rates of the same shape, per second.
	row := func(name string, shards int, created, completed float64, targets ...bench.Target) bench.RowSpec {
		return bench.RowSpec{
			Name: name, Title: "3 nodes on loopback; per node 4 producer streams and 1 worker stream; 128 callers in all", Profiles: inSeeds,
			Shape: bench.Shape{
				Nodes: 3, Shards: shards, Producers: 12, Callers: 128, Workers: 3, Slots: 128, Lease: time.Minute, Transport: "stream",
			},
			References: []bench.Reference{
				codeq3("create", created, "creates/s"), codeq3("complete", completed, "cycles/s"),
			},
			Targets: append(targets, free(atLeast(toCodeQ, anyDurability, 1.2, 0, ofBench))),
		}
	}
	rows := []bench.RowSpec{
		row("shards-1", 1, 9_400, 9_380, atLeast(cycles, bench.Fsync, 20_000, 30_000, ofBench)),
		row("shards-4", 4, 10_250, 10_240),
	}
	rows[0].Profiles = inAll
	// A stream is of one partition, so a client has one to each: 3 clients have as many streams to 4
	// partitions as 12 have to one. A stream is of one partition: both rows have 12 producer streams in all.
	rows[1].Title = "the same streams, of 4 partitions: per node 1 client that creates, with a stream to each, and 1 worker; 128 callers in all"
	rows[1].Shape.Producers = 3
	many := rows[1]
	many.Name, many.Profiles, many.References, many.Targets = "shards-4-streams-48", inFull, nil, nil
	many.Title = "as many clients as with one shard, which have four times the streams: 16 a node that create"
	many.Shape.Producers = 12
	rows = append(rows, many)
	return bench.Suite{
		Name: "queue.raft", Title: "Full cycle, three nodes", Priority: "P0", Bench: "BenchmarkQueueRaft", Headline: cycles,
		Window: 8 * time.Second, Warmup: 2 * time.Second, Minutes: 3, Rows: rows,
	}
}

// queueSmart is the cycle over REST by clients that follow redirects to the leader. Each caller creates a task, claims
// one and completes it.
func queueSmart() bench.Suite {
	// The kind of a row is the kind of its clients; see package load.
	row := func(name, title, kind string, shards int, refs []bench.Reference, targets ...bench.Target) bench.RowSpec {
		return bench.RowSpec{
			Name: name, Title: title, Profiles: inSeeds, References: refs, Targets: targets,
			Shape: bench.Shape{
				Nodes: 3, Shards: shards, Producers: 1, Workers: 1, Callers: 32, Slots: 32, Lease: time.Minute, Transport: "rest", Kind: kind,
			},
		}
	}
	plain := func() bench.Target { return free(atMost(requests, anyDurability, 1.7, 0, ofBench)) }
	rows := []bench.RowSpec{
		row("rotation", "a client that tries the nodes in turn and follows nothing", "rotation", 1, []bench.Reference{codeq3("rotation", 596, "cycles/s")}),
		row("rotation-shards-4", "the same on 4 shards", "rotation", 4, nil),
		row("shards-1", "a plain client that asks any node and follows 307 with the body", "plain", 1, []bench.Reference{codeq3("smart, 1 shard", 3_949, "cycles/s")},
			crowded(atLeast(cycles, bench.Fsync, 5_000, 0, ofBench)), plain()),
		row("shards-4", "the same on 4 shards", "plain", 4, []bench.Reference{codeq3("smart, 4 shards", 3_883, "cycles/s")}, plain()),
		row("sdk", "our SDK, which remembers the leader; over gRPC", "sdk", 1, nil, free(atMost(requests, anyDurability, 1.05, 0, ofBench))),
	}
	rows[1].Profiles, rows[4].Profiles = inFull, inFull
	rows[2].Profiles = inAll
	rows[4].Shape.Transport, rows[4].NoCeiling = "grpc", true
	return bench.Suite{
		Name: "queue.smart", Title: "Cycle over REST, three nodes, clients that follow the leader", Priority: "P0",
		Bench: "BenchmarkQueueSmart", Headline: cycles, Window: 5 * time.Second, Warmup: time.Second, Minutes: 3, Rows: rows,
	}
}
