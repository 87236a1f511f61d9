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
		Headline: "claim_p50_ms", Window: 10 * time.Second, Warmup: time.Second,
	}
	for _, d := range []struct {
		depth int
		ms    float64 // published; 0: none
	}{{100, 8}, {1_000, 12}, {10_000, 15}, {100_000, 50}, {1_000_000, 0}} {
		r := bench.RowSpec{
			Name: fmt.Sprint(d.depth), Title: fmt.Sprintf("%d tasks wait", d.depth), Profiles: inFull,
			Shape: bench.Shape{Nodes: 1, Shards: 1, Workers: 1, Slots: 1, Lease: lease, Prefill: d.depth},
		}
		if d.ms > 0 {
			r.References = []bench.Reference{codeq("claim p50", d.ms, "ms")}
		}
		s.Rows = append(s.Rows, r)
	}
	return s
}

// queueMix holds the smaller tables: batches, priorities, webhooks, nodes.
func queueMix() bench.Suite {
	s := bench.Suite{
		Name: "queue.aux/mix", Title: "Batches, priorities, webhooks, nodes", Priority: "P1", Bench: "BenchmarkQueueMix",
		Headline: cycles, Window: 10 * time.Second, Warmup: time.Second,
	}
	for _, r := range []struct{ name, title string }{
		{"complete-batch-10", "ten completions per call"},
		{"priorities-1", "1 priority"},
		{"priorities-3", "3 priorities"},
		{"priorities-5", "5 priorities"},
		{"priorities-10", "10 priorities"},
		{"webhook-50ms", "webhook targets that take 50 ms"},
		{"webhook-200ms", "webhook targets that take 200 ms"},
		{"webhook-1000ms", "webhook targets that take 1 s"},
		{"nodes-1", "1 node"},
		{"nodes-3", "3 nodes"},
		{"nodes-5", "5 nodes"},
	} {
		s.Rows = append(s.Rows, bench.RowSpec{Name: r.name, Title: r.title, Profiles: inFull, Shape: bench.Shape{Kind: r.name}})
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
	for _, r := range []struct{ name, title string }{
		{"sustained", "200 to 1,000 tasks a second"},
		{"burst", "10,000 tasks in 10 s, then the drain"},
		{"workers-100", "100 workers"},
		{"prefill-100k", "100,000 tasks wait"},
		{"priorities", "priorities 50 %, 30 %, 20 %"},
		{"delayed", "half delayed by 1 to 5 s"},
	} {
		s.Rows = append(s.Rows, bench.RowSpec{
			Name: r.name, Title: r.title, Profiles: inFull, References: refs,
			Shape: bench.Shape{Nodes: 1, Shards: 1, Transport: "rest", Kind: r.name},
		})
	}
	return s
}

// queueFailover kills the leader under load.
func queueFailover() bench.Suite {
	return bench.Suite{
		Name: "queue.failover", Title: "The leader is killed under load", Priority: "P1", Bench: "BenchmarkQueueFailover",
		Headline: "first_ack_ms", Window: 30 * time.Second, Warmup: 2 * time.Second,
		Rows: []bench.RowSpec{{
			Name: "kill", Title: "time to the first acknowledgement; nothing is lost", Profiles: inFull,
			Shape: bench.Shape{Nodes: 3, Shards: 1, Producers: 3, Pumps: 32, Workers: 3, Slots: 128, Lease: time.Minute},
		}},
	}
}

// streamsIdle weighs streams that do nothing.
func streamsIdle() bench.Suite {
	return bench.Suite{
		Name: "streams.idle", Title: "10,000 idle and 200 active streams", Priority: "P1", Bench: "BenchmarkStreamsIdle",
		Headline: "rss_kib_per_stream", Window: 30 * time.Second, Warmup: 2 * time.Second,
		Rows: []bench.RowSpec{{
			Name: "10000-200", Title: "memory per stream", Profiles: inFull, Shape: bench.Shape{Nodes: 1, Shards: 1, Workers: 10_200},
		}},
	}
}

// tenantTiming compares calls that ask for what is not there with calls that ask for what is another's.
func tenantTiming() bench.Suite {
	return bench.Suite{
		Name: "tenant.timing", Title: "Missing ids against ids of another tenant", Priority: "P1", Bench: "BenchmarkTenantTiming",
		Headline: "median_difference", Window: 10 * time.Second, Warmup: time.Second,
		Rows: []bench.RowSpec{{
			Name: "interleaved", Title: "10,000 calls of each, in turn", Profiles: inFull, Shape: bench.Shape{Nodes: 1, Shards: 1},
			Targets: []bench.Target{free(atMost("median_difference", anyDurability, 0.05, 0, "reliability targets"))},
		}},
	}
}
