package tables

import (
	"math"
	"time"

	"github.com/millrace/millrace/bench"
)

// kvSuites are the suites of keys.
func kvSuites() []bench.Suite {
	return []bench.Suite{auroraLength(), auroraFollowers(), auroraSteady(), kvPingPong(), kvLatency(), kvEtcd(), kvEtcdNative(), raftEntry()}
}

// kvPingPong is the ceiling of replication: a server that relays each put to two others, which
// answer at once. The same calls go to three nodes, which keep what they are given.
func kvPingPong() bench.Suite {
	s := bench.Suite{
		Name: "kv.pingpong", Title: "Relay of each put to 2 empty followers, no Raft, against nodes that keep it", Priority: "P0",
		Bench: "BenchmarkPingPong", Op: opPut, Headline: putsPerS, Window: 5 * time.Second, Warmup: time.Second, Minutes: 2,
	}
	// shape is that of all rows: calls that wait for their answer, as those of a relay.
	shape := bench.Shape{Nodes: 3, Shards: 1, Producers: 1, Pumps: pingPongCallers, Payload: 64, Key: 16, Transport: "calls"}
	for _, r := range []struct{ name, title string }{{"grpc", "over bare gRPC"}, {"transport", "over our transport"}} {
		shape.Kind = r.name
		s.Rows = append(s.Rows, bench.RowSpec{
			Name: r.name, Title: r.title, Profiles: inSeeds, Runs: 3, NoFsync: true, Servers: "pingpong-server", Shape: shape,
			References: []bench.Reference{published("Aurora", "ceiling, about", 20_000, "puts/s", auroraNote)},
		})
	}
	s.Rows[0].Profiles = inAll
	shape.Kind = ""
	s.Rows = append(s.Rows, bench.RowSpec{
		Name: "nodes", Title: "the same calls to 3 nodes: Raft, and a disk", Profiles: inSeeds, Runs: 3, Shape: shape,
	})
	return s
}

// crowdedFollowers is the largest number of followers whose puts, on two cores, wait for the disk
// and a majority more than for a processor.
const crowdedFollowers = 5

// pingPongCallers keep both cores busy; more of them would only wait longer.
const pingPongCallers = 128

// kvLatency offers 30 % of what the reference's cell takes in an open loop: the load that its latencies are of. Rows of their
// own offer 30 % of our own maximum.
func kvLatency() bench.Suite {
	const (
		// share is 30 %, in puts a second, of a cell of the chart, which counts thousands.
		share = 300
		// most and aim are the limits of the median latency, in microseconds.
		most = 2_000
		aim  = 1_000
	)
	s := bench.Suite{
		Name: "kv.latency", Title: "Latency of puts at 30 % of what the reference's cell takes, open loop", Priority: "P0",
		Bench: "BenchmarkKVLatency", Op: opPut, Headline: putP50, Window: 10 * time.Second, Warmup: time.Second, Minutes: 9,
	}
	// row is one cell with a shape of the charts. A puts of 0 lets the window end by its time.
	row := func(name, title string, nodes, value int) bench.RowSpec {
		return bench.RowSpec{Name: name, Title: title, Runs: 3, NoCeiling: true, Shape: auroraShape(nodes, value, 0)}
	}
	// add adds a row that offers a share of the reference's cell.
	add := func(name string, c auroraCell, nodes, value int, targets ...bench.Target) {
		r := row(name, "from when a put was due, and from when it was sent", nodes, value)
		r.Profiles, r.Shape.Offered = inSeeds, int(math.Round(share*c.chart))
		r.References = []bench.Reference{
			published("Aurora", "latency, from", 1_000, "µs", auroraNote), published("Aurora", "latency, to", 2_000, "µs", auroraNote),
		}
		r.Targets = targets
		s.Rows = append(s.Rows, r)
	}
	// near are the targets of rows with two followers, whose tail is judged too.
	near := func() []bench.Target {
		return []bench.Target{atMost(putP50, bench.Fsync, most, aim, ofBench), crowded(atMost(putP99, bench.Fsync, 3_000, 0, ofKV))}
	}
	for _, c := range lengthCells() {
		add(named("value", c.n), c, 3, c.n, near()...)
	}
	for _, c := range followerCells() {
		if c.n == 2 {
			add(named("followers", c.n), c, c.n+1, 64, near()...)
			continue
		}
		median := atMost(putP50, bench.Fsync, most, 0, ofBench)
		// With more followers than this the median waits for a processor on two cores.
		if c.n > crowdedFollowers {
			median = crowded(median)
		}
		add(named("followers", c.n), c, c.n+1, 64, median)
	}
	// The shortest and the longest value show our own curve.
	for _, n := range []int{32, 2048} {
		own := row(named("own-value", n), "at 30 % of our own maximum", 3, n)
		own.Profiles = inFull
		s.Rows = append(s.Rows, own)
	}
	s.Rows[0].Profiles = inAll
	return s
}

// kvEtcd is one etcd client against etcd and against our etcd door. A target is ours ÷ etcd, with a
// must and an aim; at most for latencies and memory, at least for rates.
func kvEtcd() bench.Suite {
	s := bench.Suite{
		Name: "kv.etcd", Title: "etcd's client against etcd and ours: key of 8 B, value of 256 B, 1,000 clients", Priority: "P0",
		Bench: "BenchmarkEtcd", Headline: "ratio_to_etcd", Window: 20 * time.Second, Warmup: 5 * time.Second,
	}
	for _, r := range []struct {
		name, title string
		// must and aim are of ours ÷ etcd's; atMost says that less is better.
		must, aim float64
		atMost    bool
	}{
		{"put", "put, sequential keys: rate", 2, 2.5, false},
		{"put-stream", "the same keyspace by native stream: rate", 4, 5, false},
		{"put-half", "put at half of etcd's maximum: p99", 0.7, 0.5, true},
		{"put-one", "put, 1 client on 1 connection: p50 and p99", 1, 0.8, true},
		{"range-linearizable", "range of 1 key, linearizable: rate", 1.5, 2, false},
		{"range-serializable", "range of 1 key, serializable: rate", 1, 1.5, false},
		{"watch-events", "100 streams of 100 watches: events a second", 2, 3, false},
		{"watch-latency", "latency of a watch at equal put rate: p99", 1, 0.7, true},
		{"txn-mixed", "transactions, reads to writes 1:1 and 4:1: rate", 1.5, 2, false},
		{"stm", "software transactions: rate", 1, 1.5, false},
		{"lease-keepalive", "renewals of leases, ours durable: rate", 0.8, 1, false},
		{"memory", "resident memory at 1,000,000 and 10,000,000 keys", 1, 0.7, true},
	} {
		// The limits are the same with fsync and without: both systems run alike.
		t := atLeast(s.Headline, anyDurability, r.must, r.aim, ofKV)
		t.AtMost = r.atMost
		s.Rows = append(s.Rows, bench.RowSpec{
			Name: r.name, Title: r.title, Profiles: inFull, Targets: []bench.Target{free(t)},
			Shape: bench.Shape{Nodes: 3, Shards: 1, Pumps: 1_000, Payload: 256, Kind: r.name},
		})
	}
	return s
}

// kvEtcdNative is etcd by its own client and our stream, in turn within each run. Callers wait for
// each answer. Where the client takes more than half of the machine, the servers' CPU per put is
// compared instead of the rate.
func kvEtcdNative() bench.Suite {
	s := bench.Suite{
		Name: "kv.etcd.native", Title: "etcd by its own client, and our stream: key of 8 B, value of 256 B", Priority: "P0", Peer: "etcd",
		Bench: "BenchmarkEtcdNative", Op: opPut, Headline: toEtcd, Window: 24 * time.Second, NoProfile: true,
	}
	for _, r := range []struct{ nodes, callers int }{{1, 1_000}, {3, 1_000}, {1, 1}, {3, 1}} {
		title := "1,000 callers; etcd's on 100 connections, ours on one"
		// Many callers are judged by the rate, one alone by its latency.
		judged := free(atLeast(etcdJudged, bench.Fsync, 4, 5, ofKV))
		if r.callers == 1 {
			title = "1 caller on 1 connection"
			judged = free(atMost(etcdTail, bench.Fsync, 1, 0.8, ofKV))
		}
		s.Rows = append(s.Rows, bench.RowSpec{
			Name: named(named("callers", r.callers)+"-members", r.nodes), Title: title, Profiles: inFull, NoCeiling: true,
			Shape:   bench.Shape{Nodes: r.nodes, Shards: 1, Callers: r.callers, Payload: 256, Key: 8},
			Targets: []bench.Target{judged},
		})
	}
	return s
}
