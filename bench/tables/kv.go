package tables

import (
	"time"

	"github.com/millrace/millrace/bench"
)

func kvSuites() []bench.Suite {
	return []bench.Suite{auroraLength(), auroraFollowers(), kvPingPong(), kvLatency(), kvEtcd()}
}

// Aurora's figures are read off its charts; its prose adds that Linux is 50 to 70 % faster.
const (
	auroraNote  = "chart; Windows leader, Mac followers, no fsync; none×3"
	auroraLinux = "chart × 1.6, its remark on Linux; no fsync; none×3"
)

// auroraCell is one cell of a chart.
type auroraCell struct {
	n     int     // value length in bytes, or followers
	chart float64 // thousands of writes a second
	linux float64 // the same × 1.6, as it is printed
}

func lengthCells() []auroraCell {
	return []auroraCell{
		{32, 18.2, 29.1}, {64, 17.7, 28.3}, {128, 15.6, 25.0}, {256, 13.4, 21.4}, {512, 8.4, 13.4}, {1024, 6.0, 9.6}, {2048, 2.9, 4.6},
	}
}

func followerCells() []auroraCell {
	return []auroraCell{{2, 17.9, 28.6}, {3, 13.6, 21.8}, {4, 12.5, 20.0}, {5, 9.4, 15.0}, {6, 8.2, 13.1}, {7, 7.3, 11.7}}
}

// auroraRow judges a cell against the chart: must 3 ×, which is about 1.9 × the remark on Linux; aim 4 ×.
func auroraRow(name string, c auroraCell, nodes, value int, note string) bench.RowSpec {
	return bench.RowSpec{
		Name: name, Title: "one asynchronous client, 80,000 puts, all acknowledged", Profiles: inSeeds, Runs: 3,
		Shape: bench.Shape{Nodes: nodes, Shards: 1, Producers: 1, Pumps: 1, Payload: value},
		References: []bench.Reference{
			published("Aurora", "chart", c.chart*1000, "puts/s", auroraNote+note),
			published("Aurora", "chart × 1.6", c.linux*1000, "puts/s", auroraLinux+note),
		},
		Targets: []bench.Target{
			atLeast(putsPerS, bench.Fsync, 3*c.chart*1000, 4*c.chart*1000, ofKV),
			atLeast(toLinux, bench.Fsync, 1.9, 2.5, ofKV),
		},
	}
}

func auroraLength() bench.Suite {
	s := bench.Suite{
		Name: "kv.aurora.len", Title: "Puts by length of the value, 2 followers, key of 16 B", Priority: "P0",
		Bench: "BenchmarkAuroraLength", Headline: putsPerS, Window: 5 * time.Second, Warmup: time.Second, Minutes: 5,
	}
	for _, c := range lengthCells() {
		s.Rows = append(s.Rows, auroraRow(named("value", c.n), c, 3, c.n, ""))
	}
	s.Rows[0].Profiles = inAll
	return s
}

func auroraFollowers() bench.Suite {
	s := bench.Suite{
		Name: "kv.aurora.followers", Title: "Puts by number of followers, value of 64 B", Priority: "P0",
		Bench: "BenchmarkAuroraFollowers", Headline: putsPerS, Window: 5 * time.Second, Warmup: time.Second, Minutes: 5,
	}
	for _, c := range followerCells() {
		s.Rows = append(s.Rows, auroraRow(named("followers", c.n), c, c.n+1, 64, "; length of the value not stated"))
	}
	s.Rows[0].Profiles = inAll
	return s
}

// kvPingPong is the ceiling of replication: a leader that relays each put to two followers, which answer at once.
func kvPingPong() bench.Suite {
	s := bench.Suite{
		Name: "kv.pingpong", Title: "Relay of each put to 2 empty followers, no Raft", Priority: "P0", Bench: "BenchmarkPingPong",
		Headline: putsPerS, Window: 5 * time.Second, Warmup: time.Second, Minutes: 1,
	}
	for _, r := range []struct{ name, title string }{{"grpc", "over bare gRPC"}, {"transport", "over our transport"}} {
		s.Rows = append(s.Rows, bench.RowSpec{
			Name: r.name, Title: r.title, Profiles: inSeeds, Runs: 3, NoFsync: true, Shape: bench.Shape{Nodes: 3, Kind: r.name},
			References: []bench.Reference{published("Aurora", "ceiling, about", 20_000, "puts/s", auroraNote)},
		})
	}
	s.Rows[0].Profiles = inAll
	return s
}

// kvLatency offers 30 % of each cell's own maximum in an open loop.
func kvLatency() bench.Suite {
	s := bench.Suite{
		Name: "kv.latency", Title: "Latency of puts at 30 % of the cell's maximum, open loop", Priority: "P0",
		Bench: "BenchmarkKVLatency", Headline: putP50, Window: 10 * time.Second, Warmup: time.Second, Minutes: 9,
	}
	add := func(name string, nodes, value int, must float64) {
		s.Rows = append(s.Rows, bench.RowSpec{
			Name: name, Title: "queue wait and service apart", Profiles: inSeeds, Runs: 3,
			Shape: bench.Shape{Nodes: nodes, Shards: 1, Producers: 1, Payload: value},
			References: []bench.Reference{
				published("Aurora", "latency, from", 1_000, "µs", auroraNote), published("Aurora", "latency, to", 2_000, "µs", auroraNote),
			},
			Targets: []bench.Target{atMost(putP50, bench.Fsync, must, 0, ofBench)},
		})
	}
	for _, c := range lengthCells() {
		add(named("value", c.n), 3, c.n, 1_000)
	}
	for _, c := range followerCells() {
		must := 2_000.0
		if c.n == 2 {
			must = 1_000
		}
		add(named("followers", c.n), c.n+1, 64, must)
	}
	s.Rows[0].Profiles = inAll
	return s
}

// kvEtcd is one etcd client against etcd and against our etcd door. Targets are ours ÷ etcd, aim beside must.
func kvEtcd() bench.Suite {
	s := bench.Suite{
		Name: "kv.etcd", Title: "etcd's client against etcd and ours: key of 8 B, value of 256 B, 1,000 clients", Priority: "P0",
		Bench: "BenchmarkEtcd", Headline: "ratio_to_etcd", Window: 20 * time.Second, Warmup: 5 * time.Second,
	}
	for _, r := range []struct {
		name, title string
		must, aim   float64
		atMost      bool
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
		t := atLeast(s.Headline, anyDurability, r.must, r.aim, ofKV)
		t.AtMost = r.atMost
		s.Rows = append(s.Rows, bench.RowSpec{
			Name: r.name, Title: r.title, Profiles: inFull, Targets: []bench.Target{free(t)},
			Shape: bench.Shape{Nodes: 3, Shards: 1, Pumps: 1_000, Payload: 256, Kind: r.name},
		})
	}
	return s
}
