package tables

import (
	"fmt"
	"time"

	"github.com/millrace/millrace/bench"
)

// Names of figures of rows that alternate with a peer, and the shapes of such rows.
const (
	// ratioToPeer is our rate over the peer's.
	ratioToPeer = "ratio_to_peer"
	// Payloads are in bytes. peerBatch is the number of tasks of one call.
	peerPayload  = 256
	largePayload = 4 << 10
	peerBatch    = 32
	// peerLease is the lease of the tasks of both systems.
	peerLease = 30 * time.Second
	// leastDepth bounds from below how many tasks may wait, so that workers of few clients find some.
	leastDepth = 64
	// peerVectors is the number of vectors that both systems hold.
	peerVectors = 20_000
	// peerWidth is the number of rows that a walk over a peer's graph keeps in sight (ef).
	// narrowWidth is the peer's default, with a lower recall.
	peerWidth   = 80
	narrowWidth = 40
)

// queuePeerSuites are queues that others run, each in turn with ours within each run, at the same
// shape: a create that is acknowledged, a claim, and a completion that is acknowledged. What a peer
// syncs is read back from it or declared, and both sides of a row are of one class.
func queuePeerSuites() []bench.Suite {
	var out []bench.Suite
	for _, p := range []struct {
		name, title string
		// batches says that its client creates many tasks in one call.
		batches bool
		// onlyFsync says that it has no class without syncs.
		onlyFsync bool
	}{
		{"asynq", "Redis with asynq, and ours", false, false},
		{"beanstalkd", "beanstalkd, and ours", false, false},
		{"jetstream", "NATS JetStream, a work queue with explicit double acknowledgements, and ours", true, false},
		{"rabbitmq", "RabbitMQ, a quorum queue with publisher confirms, and ours", true, true},
		{"river", "PostgreSQL with River, and ours", true, false},
	} {
		s := bench.Suite{
			Name: "queue.peers." + p.name, Title: p.title, Priority: "P1", Peer: p.name, Bench: "BenchmarkQueuePeers", Headline: ratioToPeer,
			Window: 24 * time.Second, NoProfile: true,
		}
		for _, r := range []struct {
			name, title string
			// payload is in bytes, and batch the number of tasks of one call.
			clients, payload, batch int
		}{
			{"clients-1", "1 client, which waits for each answer", 1, peerPayload, 1},
			{"clients-16", "16 clients", 16, peerPayload, 1},
			{"clients-128", "128 clients", 128, peerPayload, 1},
			{"clients-1024", "1,024 clients", 1024, peerPayload, 1},
			{"payload-4096", "128 clients, 4 KiB", 128, largePayload, 1},
			{"batch-32", "16 clients, 32 tasks a call", 16, peerPayload, peerBatch},
		} {
			// Without a call for many tasks a row of batches would be one of single calls.
			if r.batch > 1 && !p.batches {
				continue
			}
			s.Rows = append(s.Rows, bench.RowSpec{
				Name: r.name, Title: r.title, Profiles: inFull, Runs: 3, NoCeiling: true, OnlyFsync: p.onlyFsync,
				Shape: bench.Shape{
					Nodes: 1, Shards: 1, Producers: 1, Callers: r.clients, Workers: 1, Slots: r.clients, ProducerBatch: r.batch, Payload: r.payload,
					Lease: peerLease, Depth: max(leastDepth, 4*r.clients*r.batch),
				},
			})
		}
		out = append(out, s)
	}
	return out
}

// vectorPeerSuites are searches by vector that others answer, each in turn with ours within each
// run. Both have the same vectors and the same queries, and the recall of both is measured in
// addition to their rates. Only the wide walks are judged: a narrow one reaches another recall, and
// rates at different recalls do not compare.
func vectorPeerSuites() []bench.Suite {
	s := bench.Suite{
		Name: "search.peers.pgvector", Title: "PostgreSQL with pgvector over TCP, and ours over HTTP: 20,000 vectors of 384 numbers, 10 nearest", Priority: "P1",
		Peer: "pgvector", Bench: "BenchmarkVectorPeers", Op: "search", Headline: ratioToPeer, Reads: true, Window: 24 * time.Second, NoProfile: true,
	}
	for _, r := range []struct {
		clients, ef int
	}{{1, peerWidth}, {2, peerWidth}, {10, peerWidth}, {10, narrowWidth}} {
		row := bench.RowSpec{
			Name:  named(named("clients", r.clients)+"-ef", r.ef),
			Title: fmt.Sprintf("walks keep %d rows in sight", r.ef), Profiles: inFull, Runs: 3, NoCeiling: true,
			Shape: bench.Shape{Nodes: 1, Shards: 1, Callers: r.clients, Puts: peerVectors, Transport: "rest", Kind: named("ef", r.ef)},
		}
		if r.ef == peerWidth {
			row.Targets = []bench.Target{
				free(atLeast("ours_recall_at_10", anyDurability, 0.98, 0, ofSearch)), free(atLeast(ratioToPeer, anyDurability, 3, 0, ofSearch)),
			}
		}
		s.Rows = append(s.Rows, row)
	}
	return []bench.Suite{s}
}
