package tables

import (
	"fmt"
	"time"

	"github.com/millrace/millrace/bench"
	"github.com/millrace/millrace/bench/load"
)

// inSmoke is the profiles of rows that no published table has.
var inSmoke = []string{Smoke, Full}

// searchSuites are the suites of searches.
func searchSuites() []bench.Suite {
	return []bench.Suite{searchSweep(), searchMixed(), searchRecall(), searchLoad(), searchJudge(), searchRestart(), searchGraph(), searchGaps(), searchOutage()}
}

// searchMemory is what servers of these suites may use, in MiB. G5's processes took 370 MB together.
const searchMemory = 256

// laterWindow is the window of the runs after the first, which has G5's own.
const laterWindow = 45 * time.Second

// smallRSS is the target of all the memory that the process takes, in MiB.
func smallRSS() bench.Target {
	return free(atMost("server_1_rss_peak", anyDurability, 352, 143, ofSearch))
}

// g5Note says what G5's figures were measured on.
const g5Note = "11 processes, hardware and durability not stated"

// g5Cell is one line of G5's tables. Latencies are in milliseconds.
type g5Cell struct {
	// clients is the number of clients, each of which waits for its answer.
	clients int
	// requests is how many were answered in the whole run.
	requests float64
	// rps is requests a second. max is 0 where it was not published.
	rps, p50, p95, p99, max float64
}

// sweepCells are the lines by number of clients.
func sweepCells() []g5Cell {
	return []g5Cell{
		{10, 486_733, 2_704, 2.19, 2.99, 6.72, 651},
		{50, 1_148_543, 6_381, 7.08, 14.96, 20.20, 77},
		{100, 1_253_389, 6_963, 13.34, 27.44, 36.96, 182},
		{200, 1_460_676, 8_114, 23.45, 44.20, 56.38, 225},
	}
}

// mixedCells are the lines of embedding and search at once, by operation.
func mixedCells() map[string]g5Cell {
	return map[string]g5Cell{
		"embed":  {60, 1_127_854, 12_531, 3.31, 10.22, 14.59, 0},
		"search": {60, 392_229, 4_358, 12.68, 26.08, 33.78, 0},
	}
}

// The figures of both operations together.
const (
	// mixedTotalRequests is the number of requests of the run.
	mixedTotalRequests = 1_520_083
	// mixedTotalRPS is the number of requests a second.
	mixedTotalRPS = 16_889
	// g5Total is the number of requests of all runs that G5 has published.
	g5Total = 5_869_424
)

// references makes references of a cell, whose names begin with prefix.
func (c g5Cell) references(prefix string) []bench.Reference {
	out := []bench.Reference{
		published("G5", prefix+"rate", c.rps, "requests/s", g5Note), published("G5", prefix+"requests", c.requests, "requests", g5Note),
		published("G5", prefix+"p50", c.p50, "ms", g5Note), published("G5", prefix+"p95", c.p95, "ms", g5Note),
		published("G5", prefix+"p99", c.p99, "ms", g5Note),
	}
	if c.max > 0 {
		out = append(out, published("G5", prefix+"max", c.max, "ms", g5Note))
	}
	return out
}

// searchSweep is the matrix search by number of clients, in a closed loop.
func searchSweep() bench.Suite {
	s := bench.Suite{
		Name: "search.sweep", Title: "Matrix search, 5,000 workers, 200 bodies in turn, warm cache, built-in embedder", Priority: "P0",
		Bench: "BenchmarkSearchSweep", Headline: requestsPerS, Reads: true, Window: 180 * time.Second, Warmup: 5 * time.Second, Minutes: 19,
	}
	for _, c := range sweepCells() {
		r := bench.RowSpec{
			Name: named("clients", c.clients), Title: "gated, judged, merged", Profiles: inSeeds, Runs: 3, Later: laterWindow, NoCeiling: true, References: c.references(""),
			Shape:   bench.Shape{Nodes: 1, Shards: 1, Pumps: c.clients, Transport: "rest", Memory: searchMemory},
			Targets: []bench.Target{atLeast(requestsPerS, anyDurability, c.rps, 0, ofSearch), atMost("server_cpu_us_per_op", anyDurability, 0, 100, ofSearch), smallRSS()},
		}
		// Only these two cells have a limit of p99, in microseconds.
		if p99 := map[int]float64{10: 6_700, 200: 56_000}[c.clients]; p99 > 0 {
			r.Targets = append(r.Targets, atMost("search_p99_us", anyDurability, p99, 0, ofSearch))
		}
		s.Rows = append(s.Rows, r)
		// The row without the gate has the same clients, and is judged by the same rate.
		ungated := bench.RowSpec{
			Name: named("ungated", c.clients), Title: "without the gate", Profiles: inFull, Shape: r.Shape, Window: laterWindow, NoCeiling: true,
			Targets: []bench.Target{atLeast(requestsPerS, anyDurability, c.rps, 0, ofSearch)},
		}
		s.Rows = append(s.Rows, ungated)
	}
	s.Rows[0].Profiles = inAll
	return s
}

// searchMixed is embedding and search at once.
func searchMixed() bench.Suite {
	m := mixedCells()
	refs := append(m["embed"].references("embed "), m["search"].references("search ")...)
	refs = append(refs, published("G5", "total rate", mixedTotalRPS, "requests/s", g5Note),
		published("G5", "total requests", mixedTotalRequests, "requests", g5Note),
		published("G5", "requests of all runs, 0 errors", g5Total, "requests", g5Note))
	return bench.Suite{
		Name: "search.mixed", Title: "Embedding and search, 60 clients each, built-in embedder", Priority: "P0", Bench: "BenchmarkSearchMixed", Reads: true,
		Headline: requestsPerS, Window: 90 * time.Second, Warmup: 5 * time.Second, Minutes: 5,
		Rows: []bench.RowSpec{{
			Name: "60-60", Title: "both at once", Profiles: inAll, Runs: 3, Later: laterWindow, NoCeiling: true, References: refs,
			Shape: bench.Shape{Nodes: 1, Shards: 1, Pumps: 120, Transport: "rest", Memory: searchMemory},
			Targets: []bench.Target{
				atLeast("embed_per_s", anyDurability, 12_531, 0, ofSearch), atLeast("search_per_s", anyDurability, 4_358, 0, ofSearch),
				atLeast(requestsPerS, anyDurability, 16_889, 0, ofSearch), smallRSS(),
			},
		}},
	}
}

// searchRecall compares answers with the exact ones. No rate of a search is printed without its recall.
func searchRecall() bench.Suite {
	s := bench.Suite{
		Name: "search.recall", Title: "Recall at 10 against exact search, built-in embedder", Priority: "P0", Bench: "BenchmarkSearchRecall", Reads: true, NoProfile: true,
		Headline: "recall_at_10", Window: 10 * time.Second, Minutes: 2,
	}
	for _, share := range []int{100, 50, 10, 1} {
		s.Rows = append(s.Rows, bench.RowSpec{
			Name: named("filter", share), Title: "a filter that lets this many percent through", Profiles: inSeeds, Runs: 1, NoCeiling: true,
			Shape: bench.Shape{Nodes: 1, Shards: 1, Transport: "rest", Kind: named("filter", share)},
			Targets: []bench.Target{
				free(atLeast("recall_at_10", anyDurability, 0.99, 1, ofSearch)),
			},
		})
	}
	s.Rows[0].Profiles = inAll
	return s
}

// searchLoad fills an empty collection with vectors that clients bring.
func searchLoad() bench.Suite {
	// perS is the headline.
	const perS = "points_per_s"
	// row fills a collection with that many points.
	row := func(points int, profiles []string, targets ...bench.Target) bench.RowSpec {
		return bench.RowSpec{
			Name: named("points", points), Title: "batches of 100 vectors of 384 numbers, by 4 clients", Profiles: profiles, NoCeiling: true, Targets: targets,
			Shape: bench.Shape{Nodes: 1, Shards: 1, Pumps: 4, Transport: "rest", Puts: points},
		}
	}
	return bench.Suite{
		Name: "search.load", Title: "Points stored from clients' own vectors", Priority: "P0", Bench: "BenchmarkSearchLoad", Reads: true, NoProfile: true,
		Headline: perS, Window: 10 * time.Second,
		Rows: []bench.RowSpec{
			row(10_000, inSmoke), row(100_000, inFull, atLeast(perS, anyDurability, 5_000, 0, ofSearch)),
		},
	}
}

// searchJudge times the rules of a ruleset, by the server's own clock.
func searchJudge() bench.Suite {
	// each is the headline: the time of one rule on one row, in microseconds.
	const each = "judge_us_per_rule_row"
	return bench.Suite{
		Name: "search.judge", Title: "Five rules on each of 5,000 rows, by the server's clock", Priority: "P0", Bench: "BenchmarkSearchJudge", Reads: true,
		NoProfile: true, Headline: each, Window: 10 * time.Second,
		Rows: []bench.RowSpec{{
			Name: "rules-5", Title: "one client, each search with the rules and without", Profiles: inSmoke, NoCeiling: true,
			Shape:   bench.Shape{Nodes: 1, Shards: 1, Transport: "rest"},
			Targets: []bench.Target{atMost(each, anyDurability, 0.2, 0, ofSearch)},
		}, {
			Name: "interpreted-5", Title: "the same rules, in a form that is left to the interpreter", Profiles: inFull, NoCeiling: true,
			Shape: bench.Shape{Nodes: 1, Shards: 1, Transport: "rest", Kind: load.JudgeInterpreted},
		}},
	}
}

// searchRestart kills the server and starts it on the points that it had.
func searchRestart() bench.Suite {
	// first is the headline: from the start to the first answer that has the rows of before.
	const first = "first_answer_s"
	return bench.Suite{
		Name: "search.restart", Title: "From the start of a server that was killed to the first correct answer", Priority: "P0",
		Bench: "BenchmarkSearchRestart", Reads: true, NoProfile: true, Headline: first, Window: 5 * time.Second,
		Rows: []bench.RowSpec{{
			Name: "points-5000", Title: "5,000 workers", Profiles: inSmoke, NoCeiling: true, Shape: bench.Shape{Nodes: 1, Shards: 1, Transport: "rest"},
			Targets: []bench.Target{atMost(first, anyDurability, 1, 0, ofSearch)},
		}},
	}
}

// searchGraph walks the graph of a large collection, without a server around it.
func searchGraph() bench.Suite {
	// perS is the headline.
	const perS = "queries_per_s"
	// row walks a graph over that many vectors of a kind.
	row := func(kind string, points int, profiles []string, targets ...bench.Target) bench.RowSpec {
		return bench.RowSpec{
			Name: named(kind, points), Title: map[string]string{"text": "made-up workers, built-in embedder; queries are job orders"}[kind],
			Profiles: profiles, Runs: 3, NoCeiling: true, Targets: targets, Shape: bench.Shape{Kind: kind, Puts: points},
		}
	}
	// recall is the share of the ten nearest that walks find.
	const recall = "recall_at_10"
	// large are the targets of graphs of 100,000 vectors.
	large := []bench.Target{
		free(atLeast(recall, anyDurability, 0.98, 0, ofSearch)), free(atLeast(recall+"_half_deleted", anyDurability, 0.98, 0, ofSearch)),
		atLeast(perS, anyDurability, 15_000, 0, ofSearch), atMost("build_s", anyDurability, 15, 0, ofSearch),
	}
	s := bench.Suite{
		Name: "search.graph", Title: "Walks over a graph of vectors of 384 numbers, by 2 threads of one process, with the recall of 98 %", Priority: "P0",
		Bench: "BenchmarkSearchGraph", NoProfile: true, Local: true, Headline: perS, Window: 10 * time.Second, Warmup: time.Second,
		Rows: []bench.RowSpec{
			row("text", 2_000, inSmoke), row("text", 100_000, inFull, large...), row(load.GraphClusters, 100_000, inFull, large...),
		},
	}
	s.Rows[2].Title = "random vectors around 1,000 centres"
	return s
}

// searchGaps is what G5's tables do not cover. package load says what each kind does.
func searchGaps() bench.Suite {
	s := bench.Suite{
		Name: "search.gaps", Title: "Unique queries, soak, bursts, a process killed", Priority: "P1", Reads: true, NoProfile: true, Bench: "BenchmarkSearchGaps",
		Headline: requestsPerS, Window: 45 * time.Second, Warmup: 5 * time.Second,
	}
	for _, r := range []struct {
		name, title string
		// window is that of the row; 0: the suite's.
		window  time.Duration
		targets []bench.Target
	}{
		{"unique", "every text unique, 10 clients", 0, []bench.Target{free(atLeast("cold_to_warm", anyDurability, 0.8, 0, ofSearch))}},
		{"soak", "half of what 100 clients reach", 10 * time.Minute, []bench.Target{
			free(atMost("rss_growth", anyDurability, 0.1, 0, ofSearch)), free(atMost("goroutine_growth", anyDurability, 0.1, 0, ofSearch)),
		}},
		{"poisson", "Poisson arrivals, 60 % of what G5 reaches at most", 0, nil},
		{"burst", "one second in ten with 5 × the arrivals, 60 % of what G5 reaches at most", 0, nil},
	} {
		s.Rows = append(s.Rows, bench.RowSpec{
			Name: r.name, Title: r.title, Profiles: inFull, Window: r.window, NoCeiling: true, Targets: r.targets,
			Shape: bench.Shape{
				Nodes: 1, Shards: 1, Transport: "rest", Kind: r.name, Serve: fmt.Sprintf("--limit-connections-address=%d", load.GapConnections),
			},
		})
	}
	return s
}

// searchOutage is what the fault of a provider of vectors does to searches that do not need it.
func searchOutage() bench.Suite {
	// ratio is the headline: the worst p99 under a fault over that before it.
	const ratio = "cached_p99_ratio"
	return bench.Suite{
		Name: "search.outage", Title: "Searches of known texts, 1,000 a second, while the provider of vectors has each of ten faults in turn; server in this process",
		Priority: "P0", Bench: "BenchmarkSearchOutage", Reads: true, NoProfile: true, Local: true, Headline: ratio, Window: 100 * time.Second,
		Rows: []bench.RowSpec{{
			Name: "refuse", Title: "one fault", Profiles: inSmoke, NoCeiling: true, Shape: bench.Shape{Kind: "refuse"},
		}, {
			Name: "faults", Title: "p99 under the worst fault, by that before it", Profiles: inFull, Runs: 3, NoCeiling: true, Shape: bench.Shape{Kind: "faults"},
			Targets: []bench.Target{
				free(atMost(ratio, anyDurability, 1.2, 0, ofSearch)), free(atMost("back_s", anyDurability, 10, 0, ofSearch)),
			},
		}},
	}
}
