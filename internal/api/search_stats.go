package api

import (
	"sync/atomic"

	"github.com/millrace/millrace/internal/core"
)

// searchPlans are the ways in which rows are found, as answers name them.
var searchPlans = [...]string{"scan", "exact", "hnsw", "hnsw+scan"}

// searchStages are the parts of a search that are timed, in order.
var searchStages = [...]string{"embed", "gate", "retrieve", "judge", "merge"}

// searchCounts counts what searches did. It is safe for concurrent use.
type searchCounts struct {
	// plans counts answers by the way in which rows were found; the last is of ways that are not
	// listed.
	plans [len(searchPlans) + 1]atomic.Uint64
	// nanos adds up the time of each stage, in nanoseconds.
	nanos [len(searchStages)]atomic.Int64
	// passed and judged are rows: those that passed gates, and those that rules judged.
	passed atomic.Uint64
	judged atomic.Uint64
}

// count takes an answer into account, and how long its text took to embed.
func (c *searchCounts) count(a *core.SearchAnswer, embedNanos int64) {
	plan := 0
	for plan < len(searchPlans) && searchPlans[plan] != a.Plan {
		plan++
	}
	c.plans[plan].Add(1)
	for i, n := range [...]int64{embedNanos, a.GateNanos, a.RetrieveNanos, a.JudgeNanos, a.MergeNanos} {
		c.nanos[i].Add(n)
	}
	c.passed.Add(a.Gate.Passed)
	c.judged.Add(a.Judged)
}

// SearchStats is what searches did since the start, and how many there are now.
type SearchStats struct {
	Plans   map[string]uint64  // searches that were answered, by how rows were found
	Seconds map[string]float64 // that they took, by part
	Passed  uint64             // rows that passed gates
	Judged  uint64             // rows that were judged
	Running int                // searches and counts that have their turn
	Waiting int64              // that wait for it

	Embedding        int64 // numbers of the vectors that calls for vectors are being made of
	EmbeddingTenants int   // that make such calls
}

// stats shows the counts, and how many searches a has now.
func (c *searchCounts) stats(a *admission) SearchStats {
	out := SearchStats{Plans: make(map[string]uint64), Seconds: make(map[string]float64), Passed: c.passed.Load(), Judged: c.judged.Load()}
	for i, name := range searchPlans {
		out.Plans[name] = c.plans[i].Load()
	}
	if n := c.plans[len(searchPlans)].Load(); n > 0 {
		out.Plans["other"] = n
	}
	for i, name := range searchStages {
		out.Seconds[name] = float64(c.nanos[i].Load()) / 1e9
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	out.Running, out.Waiting = a.running, a.waiting
	return out
}
