package tables

import (
	"fmt"
	"time"

	"github.com/millrace/millrace/bench"
)

// queueDepth is the time of a claim by the number of tasks that wait.
func queueDepth() bench.Suite {
	s := bench.Suite{
		Name: "queue.aux/depth", Title: "Claim latency by depth of the queue", Priority: "P1", Bench: "BenchmarkQueueDepth",
		Headline: "claim_p50_ms", Window: 10 * time.Second, Warmup: time.Second, NoProfile: true,
	}
	for _, d := range []struct {
		depth int
		// ms is what was published; 0: nothing was.
		ms float64
	}{{100, 8}, {1_000, 12}, {10_000, 15}, {100_000, 50}, {1_000_000, 0}} {
		r := bench.RowSpec{
			Name: fmt.Sprint(d.depth), Title: fmt.Sprintf("%d tasks wait", d.depth), Profiles: inFull,
			NoCeiling: true,
			Shape:     bench.Shape{Nodes: 1, Shards: 1, Lease: lease, Prefill: d.depth},
		}
		if d.ms > 0 {
			r.References = []bench.Reference{codeq("claim p50", d.ms, "ms")}
		}
		s.Rows = append(s.Rows, r)
	}
	return s
}

// queueMix holds the smaller tables: batches, priorities, nodes. A row that the server cannot serve
// yet says so in lacks: it is listed and never run.
func queueMix() bench.Suite {
	// one is the shape that the rows differ from in one thing each.
	one := bench.Shape{
		Nodes: 1, Shards: 1, Producers: 1, Pumps: 32, Workers: 1, Slots: 128, WorkerBatch: 1, ProducerBatch: 1, Lease: lease,
		Transport: "stream",
	}
	s := bench.Suite{
		Name: "queue.aux/mix", Title: "Batches, priorities, nodes", Priority: "P1", Bench: "BenchmarkQueueMix",
		Headline: cycles, Window: 10 * time.Second, Warmup: time.Second,
	}
	// add adds a row; a text in lacks says why it is never run.
	add := func(name, title string, shape bench.Shape, lacks string) {
		s.Rows = append(s.Rows, bench.RowSpec{Name: name, Title: title, Profiles: inFull, Shape: shape, Lacks: lacks})
	}
	tens := one
	tens.WorkerBatch = 10
	add("complete-batch-10", "a worker takes and completes ten tasks at once", tens, "")
	for _, n := range []int{1, 3, 5, 10} {
		mixed := one
		mixed.Priorities = n
		add(named("priorities", n), fmt.Sprintf("tasks of %d priorities", n), mixed, "")
	}
	for _, ms := range []int{50, 200, 1_000} {
		add(fmt.Sprintf("webhook-%dms", ms), fmt.Sprintf("webhook targets that take %d ms", ms), one, "the server calls no webhooks")
	}
	for _, n := range []int{1, 3, 5} {
		many := one
		many.Nodes, many.Producers, many.Workers, many.Lease = n, n, n, time.Minute
		many.Pumps, many.Callers = 0, 96
		add(named("nodes", n), "one producer and one worker stream per node, 96 callers in all", many, "")
	}
	return s
}

// queueK6 holds the load shapes of a REST load tool.
func queueK6() bench.Suite {
	s := bench.Suite{
		Name: "queue.aux/k6", Title: "Load shapes over REST", Priority: "P1", Bench: "BenchmarkQueueK6", Headline: requestsPerS,
		Window: 30 * time.Second, Warmup: time.Second,
	}
	refs := []bench.Reference{codeq("REST, from", 1_082, "requests/s"), codeq("REST, to", 2_081, "requests/s")}
	for _, r := range []struct {
		name, title string
		// workers is the number of slots, prefilled the number of tasks that wait before the
		// window.
		workers, prefilled int
		// open says that its arrivals set the rate, so that there is no ceiling to come near.
		open bool
	}{
		{"sustained", "200 to 1,000 tasks a second", 32, 0, true},
		{"burst", "10,000 tasks in 10 s, then the drain", 32, 0, true},
		{"workers-100", "100 workers", 100, 0, false},
		{"prefill-100k", "100,000 tasks wait", 32, 100_000, false},
		{"priorities", "priorities 50 %, 30 %, 20 %", 32, 0, false},
		{"delayed", "half delayed by 1 to 5 s", 32, 0, false},
	} {
		s.Rows = append(s.Rows, bench.RowSpec{
			Name: r.name, Title: r.title, Profiles: inFull, References: refs, NoCeiling: r.open || r.prefilled > 0,
			Shape: bench.Shape{
				Nodes: 1, Shards: 1, Transport: "rest", Kind: r.name, Producers: 1, Pumps: 16, ProducerBatch: 1, Workers: 1,
				Slots: r.workers, WorkerBatch: 1, Lease: lease, Prefill: r.prefilled,
			},
		})
	}
	return s
}

// queueFailover kills the leader under load.
func queueFailover() bench.Suite {
	return bench.Suite{
		Name: "queue.failover", Title: "The leader is killed under load", Priority: "P1", Bench: "BenchmarkQueueFailover",
		Headline: "first_ack_ms", Window: 30 * time.Second, Warmup: 2 * time.Second, NoProfile: true,
		Rows: []bench.RowSpec{{
			Name: "kill", Title: "from each death to the first acknowledgement of a create that began after it; nothing is lost",
			Profiles: inFull, NoCeiling: true, OnlyFsync: true,
			Shape: bench.Shape{
				Nodes: 3, Shards: 1, Producers: 3, Callers: 96, Workers: 3, Slots: 128, WorkerBatch: 1, ProducerBatch: 1,
				Lease: time.Minute, Transport: "stream",
			},
			Targets: []bench.Target{
				atMost("first_ack_ms", bench.Fsync, 1_800, 0, ofQueue), atMost("first_ack_max_ms", bench.Fsync, 3_000, 0, ofQueue),
			},
		}},
	}
}

// streamsIdle measures what idle streams cost while others work.
func streamsIdle() bench.Suite {
	return bench.Suite{
		Name: "streams.idle", Title: "10,000 idle and 200 active streams", Priority: "P1", Bench: "BenchmarkStreamsIdle",
		Headline: streamMemory, Window: 30 * time.Second, Warmup: 2 * time.Second, NoProfile: true,
		Rows: []bench.RowSpec{{
			Name: "10000-200", Title: "memory per idle stream; the active ones complete tasks", Profiles: inFull, NoCeiling: true,
			Shape: bench.Shape{
				Nodes: 1, Shards: 1, Producers: 1, Pumps: 32, ProducerBatch: 1, Workers: 200, Slots: 1, WorkerBatch: 1, Lease: lease,
				Transport: "stream", Idle: 10_000, Serve: "--limit-streams-tenant=20000",
			},
			Targets: []bench.Target{free(atMost(streamMemory, anyDurability, 60, 0, ofQueue))},
		}},
	}
}

// A difference would tell a tenant that an id exists. tenantTiming compares calls that ask for what
// is not there with calls that ask for what is another's.
func tenantTiming() bench.Suite {
	return bench.Suite{
		Name: "tenant.timing", Title: "Missing ids against ids of another tenant", Priority: "P1", Bench: "BenchmarkTenantTiming",
		Headline: "median_difference", Window: 10 * time.Second, Warmup: time.Second, NoProfile: true, Reads: true,
		Rows: []bench.RowSpec{{
			Name: "interleaved", Title: "10,000 calls of each, in turn", Profiles: inFull, NoCeiling: true,
			Shape:   bench.Shape{Nodes: 1, Shards: 1, Tenants: 2},
			Targets: []bench.Target{free(atMost("median_difference", anyDurability, 0.05, 0, "reliability targets"))},
		}},
	}
}

// tenantNeighbour compares a tenant that is alone with the same tenant next to one that asks for ten times its rate.
func tenantNeighbour() bench.Suite {
	return bench.Suite{
		Name: "tenant.neighbour", Title: "A tenant next to one that asks for ten times its rate", Priority: "P1", Bench: "BenchmarkTenantNeighbour",
		Headline: "p99_ratio", Window: 20 * time.Second, Warmup: time.Second, NoProfile: true, Reads: true,
		Rows: []bench.RowSpec{{
			Name: "ten-times", Title: "200 creates/s of one tenant, in turn alone and next to 20,000 creates/s of another whose rate is 2,000", Profiles: inFull, NoCeiling: true,
			Shape:   bench.Shape{Nodes: 1, Shards: 1, Tenants: 2},
			Targets: []bench.Target{free(atMost("p99_ratio", bench.Fsync, 1.5, 0, ofQueue))},
		}},
	}
}
