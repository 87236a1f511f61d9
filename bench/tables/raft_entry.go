package tables

import (
	"time"

	"github.com/millrace/millrace/bench"
)

// entryCPU is the processor time of all processes for one operation.
const entryCPU = "cpu_us_per_op"

// raftEntry has one caller at a time over three nodes, so that each operation is an entry of the log: what an entry costs, however little
// is in it.
func raftEntry() bench.Suite {
	s := bench.Suite{
		Name: "raft.entry", Title: "Processor time of an entry with one operation, three nodes and the client together", Priority: "P0",
		Bench: "BenchmarkRaftEntry", Op: opPut, Headline: entryCPU, Window: 10 * time.Second, Warmup: time.Second,
	}
	s.Rows = []bench.RowSpec{{
		Name: "put", Title: "puts of a key by one caller", Profiles: []string{Smoke, Full}, NoCeiling: true,
		Shape:   bench.Shape{Nodes: 3, Shards: 1, Producers: 1, Pumps: 1, Payload: 64, Key: 16, Transport: "calls"},
		Targets: []bench.Target{atMost(entryCPU, anyDurability, 550, 0, ofBench)},
	}}
	return s
}
