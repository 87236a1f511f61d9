package tables

import (
	"time"

	"github.com/millrace/millrace/bench"
)

// Aurora's figures are read off its charts. Its text adds that Linux is 50 to 70 % faster.
const (
	auroraNote  = "chart; Windows leader, Mac followers, no fsync; none×3"
	auroraLinux = "chart × 1.6, its remark on Linux; no fsync; none×3"
)

// A cell of Aurora's charts is 80,000 puts of keys of 16 B, by one client that does not wait for one answer
// before the next put. auroraAhead is the number of puts that the server lets one stream have under way.
const (
	auroraPuts  = 80_000
	auroraKey   = 16
	auroraAhead = 4_096
)

// auroraCell is one cell of a chart: the rate at one length of the value, or at one number of followers.
type auroraCell struct {
	// n is the length of the value in bytes, or the number of followers.
	n int
	// chart is the rate in thousands of writes a second.
	chart float64
	// linux is the same × 1.6, as it is printed.
	linux float64
}

// lengthCells are the cells by length of the value, with two followers.
func lengthCells() []auroraCell {
	return []auroraCell{
		{32, 18.2, 29.1}, {64, 17.7, 28.3}, {128, 15.6, 25.0}, {256, 13.4, 21.4}, {512, 8.4, 13.4}, {1024, 6.0, 9.6}, {2048, 2.9, 4.6},
	}
}

// followerCells are the cells by number of followers, with short values.
func followerCells() []auroraCell {
	return []auroraCell{{2, 17.9, 28.6}, {3, 13.6, 21.8}, {4, 12.5, 20.0}, {5, 9.4, 15.0}, {6, 8.2, 13.1}, {7, 7.3, 11.7}}
}

// auroraShape is one client with one stream, as in the charts. puts of 0 means that the window ends
// by its time.
func auroraShape(nodes, value, puts int) bench.Shape {
	return bench.Shape{
		Nodes: nodes, Shards: 1, Producers: 1, Ahead: auroraAhead, Payload: value, Puts: puts, Key: auroraKey, Transport: "stream",
	}
}

// The must of a cell whose wall is the machine is twice the chart. Any other must is three times,
// which is about 1.9 times the remark on Linux. The aim is four times.
const (
	auroraMust, auroraAim, auroraBoxMust = 3, 4, 2
	linuxMust, linuxAim, linuxBoxMust    = 1.9, 2.5, 1.25
)

// The most that a put may cost the log of each replica: bytes in addition to its key and value, and syncs.
const (
	logOverhead = 40  // bytes
	logSyncs    = 0.1 // of each replica
)

// auroraRow judges a cell against the chart and against the remark on Linux. The costs per put hold
// on every machine.
func auroraRow(name string, c auroraCell, nodes, value int, note string) bench.RowSpec {
	rate := atLeast(putsPerS, bench.Fsync, auroraMust*c.chart*1000, auroraAim*c.chart*1000, ofKV)
	rate.BoxMust = auroraBoxMust * c.chart * 1000
	linux := atLeast(toLinux, bench.Fsync, linuxMust, linuxAim, ofKV)
	linux.BoxMust = linuxBoxMust
	chart := published("Aurora", "chart", c.chart*1000, "puts/s", auroraNote+note)
	chart.Ratio = toChart
	remark := published("Aurora", "chart × 1.6", c.linux*1000, "puts/s", auroraLinux+note)
	remark.Ratio = toLinux
	return bench.RowSpec{
		Name: name, Title: "one asynchronous client, 80,000 puts, all acknowledged", Profiles: inSeeds, Runs: 3, Box: true,
		Shape: auroraShape(nodes, value, auroraPuts), References: []bench.Reference{chart, remark},
		Targets: []bench.Target{
			rate, linux, free(atMost(walOverhead, anyDurability, logOverhead, 0, ofKV)),
			free(atMost(replicaSyncs, bench.Fsync, logSyncs, 0, ofKV)),
		},
	}
}

// auroraLength is the chart by length of the value. Its last row has no cell: it shows what more shards bring.
func auroraLength() bench.Suite {
	s := auroraSuite("kv.aurora.len", "Puts by length of the value, 2 followers, key of 16 B", "BenchmarkAuroraLength")
	for _, c := range lengthCells() {
		s.Rows = append(s.Rows, auroraRow(named("value", c.n), c, 3, c.n, ""))
	}
	s.Rows[0].Profiles = inAll
	shards := bench.RowSpec{
		Name: "value-64-shards-4", Title: "4 shards of as many partitions, one client with a stream to each", Profiles: inFull, Runs: 3, Box: true,
		Shape: auroraShape(3, 64, auroraPuts),
	}
	shards.Shape.Shards, shards.Shape.Ahead = 4, 4*auroraAhead
	s.Rows = append(s.Rows, shards)
	return s
}

// auroraFollowers is the chart by number of followers.
func auroraFollowers() bench.Suite {
	s := auroraSuite("kv.aurora.followers", "Puts by number of followers, value of 64 B", "BenchmarkAuroraFollowers")
	for _, c := range followerCells() {
		s.Rows = append(s.Rows, auroraRow(named("followers", c.n), c, c.n+1, 64, "; length of the value not stated"))
	}
	s.Rows[0].Profiles = inAll
	return s
}

// auroraSuite has windows that end with the last acknowledgement; their time is the most that they take.
func auroraSuite(name, title, benchmark string) bench.Suite {
	return bench.Suite{
		Name: name, Title: title, Priority: "P0", Bench: benchmark, Op: opPut, Headline: putsPerS, Window: 30 * time.Second,
		Warmup: time.Second, Minutes: 4.5,
	}
}

// auroraSteady is each cell again for long enough that stores compact and logs go round, and one of them for ten minutes.
func auroraSteady() bench.Suite {
	s := bench.Suite{
		Name: "kv.aurora.steady", Title: "The same cells for 20 s each, and one for 10 min", Priority: "P0", Bench: "BenchmarkAuroraSteady",
		Op: opPut, Headline: putsPerS, Window: 20 * time.Second, Warmup: time.Second, NoProfile: true,
	}
	add := func(name string, c auroraCell, nodes, value int) {
		r := auroraRow(name, c, nodes, value, "")
		r.Title, r.Profiles, r.Shape.Puts = "one asynchronous client, as long as the window", inFull, 0
		s.Rows = append(s.Rows, r)
	}
	for _, c := range lengthCells() {
		add(named("value", c.n), c, 3, c.n)
	}
	for _, c := range followerCells() {
		add(named("followers", c.n), c, c.n+1, 64)
	}
	long := bench.RowSpec{
		Name: "ten-minutes", Title: "2 followers, value of 64 B, against the first 20 s of the same run", Profiles: inFull, Runs: 1,
		Window: 10 * time.Minute, Box: true, Shape: auroraShape(3, 64, 0),
		Targets: []bench.Target{
			free(atLeast(steadyRatio, anyDurability, 0.7, 0, ofKV)), free(atMost(diskGrowth, anyDurability, 1.25, 0, ofKV)),
		},
	}
	s.Rows = append(s.Rows, long)
	return s
}
