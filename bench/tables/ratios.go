package tables

import "github.com/millrace/millrace/bench"

// Pick names one side of a ratio: a metric of a row, or the headline of the row when Metric is empty.
type Pick struct {
	// The suite and the row by their names, and the metric by its own.
	Suite, Row, Metric string
}

// Band is the verdict on values within it. The first band that a value is in decides. Both limits
// are in it, and 0 stands for no limit.
type Band struct {
	// Min and Max are the limits of the band.
	Min, Max float64
	// UnderMin is what the lower side must reach too, in its own unit.
	UnderMin float64
	// Status is the verdict on values in the band.
	Status bench.Status
	// Cause says in words what is likely.
	Cause string
	// Next is a command that looks further; empty: there is nothing to look for.
	Next string
}

// crowdedCores is the number of cores from which three nodes and a client leave processors idle
// with one shard.
const crowdedCores = 4

// Ratio is a judgement on one figure over another, or on one figure alone when Under names no row.
type Ratio struct {
	// Name is what reports call the ratio. Stored results have it too.
	Name string
	// Over and Under are the sides: Over is divided by Under.
	Over  Pick
	Under Pick
	// Reference is the same ratio of the published figures, as text.
	Reference string
	// Bands are tried in order. The last one has no limits.
	Bands []Band
	// Crowded takes the place of Bands on fewer than crowdedCores cores; nil: Bands hold there too.
	Crowded []Band
	// AtBest replaces the band's status by healthy when it says yes. It is for rules that take more
	// than the two sides; under is the median of the lower one.
	AtBest func(r *bench.Result, d bench.Durability, under float64) bool
	// Best is the cause that is named then.
	Best string
	// UnderAny takes the lower side without fsync where it was not measured with fsync: it keeps
	// nothing that could be synced.
	UnderAny bool
}

// alone reports whether one figure is judged by itself.
func (r *Ratio) alone() bool { return r.Under.Suite == "" }

// Ratios returns every ratio, those of suites that are not built too. A ratio of which no side was
// measured makes no verdict.
func Ratios() []Ratio {
	return append(append(queueRatios(), refsRatios()...), otherRatios()...)
}

// queueRatios are the ratios of the queue: those of three nodes here, those of one node in queueOneNode.
func queueRatios() []Ratio {
	// run begins the commands that look further.
	const run = "millrace bench run "
	return append([]Ratio{
		{
			Name: "1 node ÷ 3 nodes, stream", Reference: "8.2",
			Over: Pick{"queue.cycle", "unbatched", ""}, Under: Pick{"queue.raft", "shards-1", ""},
			Bands: []Band{
				{Min: 1, Max: 3, Status: bench.Healthy, Cause: "replication is cheap"},
				{Min: 3, Max: 15, Status: bench.Healthy, Cause: "the price of two more logs"},
				{Min: 15, Status: bench.Notable, Cause: "profile the replicas", Next: run + "queue.raft/shards-1"},
				{Status: bench.Inverted, Cause: "three nodes are faster than one: one of the two was not measured right", Next: run + "queue.cycle queue.raft"},
			},
		},
		{
			Name: "4 shards ÷ 1, stream", Reference: "1.09",
			Over: Pick{"queue.raft", "shards-4", ""}, Under: Pick{"queue.raft", "shards-1", ""},
			Bands: []Band{
				{Min: 1.5, Status: bench.Healthy, Cause: "shards add up"},
				{Min: 1.15, Status: bench.Healthy, Cause: "some gain"},
				{Min: 0.9, Status: bench.Flat, Cause: "CPU saturated, which is normal on 2 cores", Next: run + "queue.raft --profile full"},
				{Status: bench.Inverted, Cause: "shards get in each other's way", Next: run + "queue.raft/shards-4"},
			},
			Crowded: []Band{
				{Min: 0.9, Status: bench.Flat, Cause: "CPU saturated, which is normal on few cores", Next: run + "queue.raft --profile full"},
				{Min: 0.6, Status: bench.Notable, Cause: "one shard uses up so few cores, and four have more entries to pay for", Next: run + "queue.raft --profile full"},
				{Status: bench.Inverted, Cause: "shards get in each other's way", Next: run + "queue.raft/shards-4"},
			},
		},
		{
			Name: "4 shards ÷ 1, REST", Reference: "0.98",
			Over: Pick{"queue.smart", "shards-4", ""}, Under: Pick{"queue.smart", "shards-1", ""},
			Bands: []Band{
				{Min: 1.15, Status: bench.Healthy, Cause: "shards add up"},
				{Min: 0.9, Status: bench.Flat, Cause: "bound by the HTTP client, use streams", Next: run + "queue.raft"},
				{Status: bench.Inverted, Cause: "shards get in each other's way", Next: run + "queue.smart/shards-4"},
			},
		},
		{
			Name: "smart ÷ rotation, REST", Reference: "6.6, context: it measures how followers answered there",
			Over: Pick{"queue.smart", "shards-1", ""}, Under: Pick{"queue.smart", "rotation", ""},
			Bands: []Band{
				{Min: 1.3, Status: bench.Healthy, Cause: "clients that know the leader save requests"},
				{Min: 1, Status: bench.Notable, Cause: "following saves little", Next: run + "queue.smart"},
				{Status: bench.Suspicious, Cause: "leader hint not followed", Next: run + "queue.smart"},
			},
		},
		perOperation("requests per operation, plain client that follows", "shards-1", 1.7, 2.0),
		perOperation("requests per operation, SDK", "sdk", 1.05, 1.2),
	}, queueOneNode()...)
}

// queueOneNode are the ratios of suites that need one node.
func queueOneNode() []Ratio {
	const run = "millrace bench run "
	return []Ratio{
		{
			Name: "group commit ÷ capped, parallelism 16", Reference: "1.4 to 2.0",
			Over: Pick{"queue.coalesce", "group-16", ""}, Under: Pick{"queue.coalesce", "single-16", ""},
			Bands: []Band{
				{Min: 1.3, Status: bench.Healthy, Cause: "callers share log entries and syncs"},
				{Min: 1.1, Status: bench.Notable, Cause: "few callers meet in an entry", Next: run + "'queue.coalesce/*'"},
				{Status: bench.Suspicious, Cause: "group commit not wired", Next: run + "'queue.coalesce/*'"},
			},
		},
		{
			Name: "stream ÷ REST creates", Reference: "32 to 43",
			Over: Pick{"queue.transport", "stream", ""}, Under: Pick{"queue.transport", "rest", ""},
			Bands: []Band{
				{Min: 10, Status: bench.Healthy, Cause: "frames spare a request per task"},
				{Min: 3, UnderMin: 8_000, Status: bench.Healthy, Cause: "REST itself is fast"},
				{Min: 3, Status: bench.Notable, Cause: "REST is slow, and streams gain little on it", Next: run + "'queue.transport/*'"},
				{Status: bench.Suspicious, Cause: "the stream is no faster than a request per task", Next: run + "queue.transport/stream"},
			},
		},
		{
			Name: "batched ÷ unbatched cycle", Reference: "above 1",
			Over: Pick{"queue.cycle", "batch-32-8", ""}, Under: Pick{"queue.cycle", "unbatched", ""},
			Bands: []Band{
				{Min: 1.2, Status: bench.Healthy, Cause: "batches spare calls"},
				{Min: 1, Status: bench.Notable, Cause: "batches spare little", Next: run + "queue.cycle/batch-32-8"},
				{Status: bench.Inverted, Cause: "batches cost more than they spare", Next: run + "queue.cycle/batch-32-8"},
			},
		},
		shareOfBare("10,000 keys ÷ none", keyedLanes),
		shareOfBare("limits of 10,000 keys ÷ none", keyedLimits),
		shareOfBare("unique keys ÷ none", keyedUnique),
	}
}

// shareOfBare judges what tasks with keys keep of the rate of those without.
func shareOfBare(name, row string) Ratio {
	const suite = "queue.keyed"
	next := "millrace bench run " + suite
	return Ratio{
		Name: name, Over: Pick{suite, row, ""}, Under: Pick{suite, keyedBare, ""},
		Bands: []Band{
			{Min: 0.8, Status: bench.Healthy, Cause: "keys cost little"},
			{Min: 0.6, Status: bench.Notable, Cause: "keys cost more than a fifth", Next: next},
			{Status: bench.Suspicious, Cause: "something is done per key and not per task", Next: next},
		},
	}
}

// perOperation judges the number of requests per operation, alone: below healthy, below notable, or
// above both.
func perOperation(name, row string, healthy, notable float64) Ratio {
	// next is the command that looks further.
	const next = "millrace bench run queue.smart"
	return Ratio{
		Name: name, Over: Pick{"queue.smart", row, requests},
		Bands: []Band{
			{Max: healthy, Status: bench.Healthy, Cause: "clients find the leader"},
			{Max: notable, Status: bench.Notable, Cause: "clients ask followers often", Next: next},
			{Status: bench.Suspicious, Cause: "followers do not redirect", Next: next},
		},
	}
}

// refsRatios are the ratios between cells of transactions of refs.
func refsRatios() []Ratio {
	const run = "millrace bench run refs.gitaly"
	// batch is what a transaction of many refs gains over one of a single ref.
	batch := func(name, reference, over, under string) Ratio {
		return Ratio{
			Name: name, Reference: reference, Over: Pick{"refs.gitaly", over, ""}, Under: Pick{"refs.gitaly", under, ""},
			Bands: []Band{
				{Min: 5, Status: bench.Healthy, Cause: "a transaction syncs once"},
				{Min: 2, Status: bench.Notable, Cause: "work per ref outweighs the sync", Next: run},
				{Status: bench.Suspicious, Cause: "one sync per ref", Next: run},
			},
		}
	}
	return []Ratio{
		batch("refs update, 100 per transaction ÷ 1", "1.03", "update-100", "update-1"),
		batch("refs delete packed, 100 per transaction ÷ 1", "57", "delete-packed-100", "delete-packed-1"),
		{
			Name: "refs delete at 1, packed ÷ loose", Reference: "0.044",
			Over: Pick{"refs.gitaly", "delete-packed-1", ""}, Under: Pick{"refs.gitaly", "delete-loose-1", ""},
			Bands: []Band{
				{Min: 0.8, Status: bench.Healthy, Cause: "loose and packed are the same"},
				{Min: 0.5, Status: bench.Notable, Cause: "compacted refs cost more to delete", Next: run},
				{Status: bench.Suspicious, Cause: "deletion rewrites what is packed", Next: run},
			},
		},
	}
}

// sweep is the suite of searches by number of clients. A system that reaches tenth of its best rate
// with 10 clients already cannot grow much with 200.
const (
	sweep = "search.sweep"
	tenth = 0.9
)

// otherRatios are those of keys and of searches.
func otherRatios() []Ratio {
	return append(kvRatios(), []Ratio{
		{
			Name: "search, 200 ÷ 10 clients", Reference: "3.0",
			Over: Pick{sweep, "clients-200", ""}, Under: Pick{sweep, "clients-10", ""},
			AtBest: func(r *bench.Result, d bench.Durability, under float64) bool {
				best := under
				for i := range r.Suites {
					if s := &r.Suites[i]; s.Suite == sweep && s.Label.Durability == d {
						best = max(best, s.Summary.Median())
					}
				}
				return under >= tenth*best
			},
			Bands: []Band{
				{Min: 2, Status: bench.Healthy, Cause: "more clients find more cores"},
				{Min: 0.8, Status: bench.Notable, Cause: "a process is saturated early", Next: "millrace bench run " + sweep},
				{Status: bench.Suspicious, Cause: "collapse", Next: "millrace bench run " + sweep},
			},
		},
	}...)
}
