package tables

import (
	"fmt"
	"time"

	"github.com/millrace/millrace/bench"
)

// queueTransport compares the doors: streams, streams with batches, and REST.
func queueTransport() bench.Suite {
	// producers rows only create.
	producers := func(name, title, transport string, batch int, profiles []string) bench.RowSpec {
		return bench.RowSpec{
			Name: name, Title: title, Profiles: profiles, Headline: creates,
			Shape: bench.Shape{
				Nodes: 1, Shards: 1, Producers: 1, Pumps: 32, ProducerBatch: batch, Transport: transport, Kind: "producers",
			},
		}
	}
	// workers rows complete what waits before the window, and what callers add meanwhile so that
	// the queue does not run empty.
	workers := func(name, title, transport string) bench.RowSpec {
		return bench.RowSpec{
			Name: name, Title: title, Profiles: inSeeds, Headline: completes,
			Shape: bench.Shape{
				Nodes: 1, Shards: 1, Producers: 1, Pumps: 32, ProducerBatch: 1, Workers: 1, Slots: 128, WorkerBatch: 1, Lease: lease,
				Transport: transport, Prefill: 5_000, Kind: "workers",
			},
		}
	}
	stream := producers("stream", "producers only, one stream", "stream", 1, inAll)
	stream.References = []bench.Reference{codeq("producers, stream, more than", 130_000, "creates/s")}
	stream.Targets = []bench.Target{atLeast(creates, bench.Fsync, 200_000, 0, ofQueue)}
	batched := producers("stream-batch-16", "producers only, one stream, 16 tasks per call", "stream", 16, inSeeds)
	batched.Targets = stream.Targets
	rest := producers("rest", "producers only, one request per task", "rest", 1, inSeeds)
	rest.References = []bench.Reference{
		codeq("producers, REST, from", 3_000, "creates/s"), codeq("producers, REST, to", 4_000, "creates/s"),
	}
	return bench.Suite{
		Name: "queue.transport", Title: "Streams against REST, one node", Priority: "P0", Bench: "BenchmarkQueueTransport",
		Headline: creates, Window: 6 * time.Second, Warmup: 2 * time.Second, Minutes: 2,
		Rows: []bench.RowSpec{
			stream,
			batched,
			rest,
			workers("workers-stream", "workers on a stream: 5,000 tasks wait and 32 callers add", "stream"),
			workers("workers-rest", "workers over REST: 5,000 tasks wait and 32 callers add", "rest"),
		},
	}
}

// queueCodec compares encodings of the same tasks, without a server.
func queueCodec() bench.Suite {
	var rows []bench.RowSpec
	for _, kind := range []string{"ours", "protobuf", "json"} {
		for _, size := range []int{64, 1024, 8192} {
			r := bench.RowSpec{
				Name: fmt.Sprintf("%s-%d", kind, size), Profiles: inFull, NoFsync: true, NoCeiling: true,
				Title: fmt.Sprintf("encode and decode a task with a payload of %d B, %s", size, map[string]string{
					"ours": "our entries", "protobuf": "protocol buffers", "json": "encoding/json",
				}[kind]),
				Shape: bench.Shape{Payload: size, Kind: kind},
			}
			switch {
			case kind == "ours" && size == 1024:
				r.Profiles = inAll
			case size == 1024:
				r.Profiles = inSeeds
			}
			rows = append(rows, r)
		}
	}
	return bench.Suite{
		Name: "queue.codec", Title: "Our codec, protocol buffers and encoding/json, both ways", Priority: "P0",
		Bench: "BenchmarkQueueCodec", Headline: perOp, Window: time.Second, Minutes: 0.5, Local: true, Rows: rows,
	}
}
