package server

import (
	"github.com/millrace/millrace/internal/api"
	"github.com/millrace/millrace/internal/embed"
	"github.com/millrace/millrace/internal/node"
	"github.com/millrace/millrace/internal/obs"
)

// embedderSeries bounds the series by embedder; the operator chooses their names.
const embedderSeries = 32

// searchView is what the metrics of search are read from.
type searchView struct {
	edge  api.SearchStats
	index node.SearchTotals
	cache embed.CacheStats
	// Of the embedders that ask a provider, by name.
	providers map[string]embed.Stats
}

// viewSearch reads all of it; false before the node runs.
func (a *admin) viewSearch() (v searchView, ok bool) {
	p := a.parts.Load()
	if p == nil || p.embed == nil {
		return v, false
	}
	v = searchView{edge: p.api.SearchStats(), index: p.node.SearchTotals(), cache: p.embed.cache.Stats(), providers: make(map[string]embed.Stats)}
	for name, e := range p.embed.byName {
		if e.Asks() {
			v.providers[name] = e.Stats()
		}
	}
	return v, true
}

// searchMetrics are those of searches, their indexes, and embedders.
func searchMetrics() []obs.Metric[searchView] {
	type v = searchView
	provider := func(name, help string, read func(embed.Stats) float64) obs.Metric[v] {
		return obs.Metric[v]{
			Name: name, Help: help, Labels: []string{"embedder"}, Bound: embedderSeries,
			Values: func(x v, put func(float64, ...string)) {
				for name, s := range x.providers {
					put(read(s), name)
				}
			},
		}
	}
	return []obs.Metric[v]{
		{
			Name: "millrace_api_searches_total", Help: "Searches that were answered, by how rows were found", Labels: []string{"plan"}, Bound: 8,
			Values: func(x v, put func(float64, ...string)) {
				for plan, n := range x.edge.Plans {
					put(float64(n), plan)
				}
			},
		},
		{
			Name: "millrace_api_search_stage_seconds_total", Help: "How long they took, by part", Labels: []string{"stage"}, Bound: 8,
			Values: func(x v, put func(float64, ...string)) {
				for stage, s := range x.edge.Seconds {
					put(s, stage)
				}
			},
		},
		figure("millrace_api_search_passed_rows_total", "Rows that passed their gates", func(x v) uint64 { return x.edge.Passed }),
		figure("millrace_api_search_judged_rows_total", "Rows that they judged", func(x v) uint64 { return x.edge.Judged }),
		figure("millrace_api_search_running_calls", "Searches and counts that have their turn", func(x v) int { return x.edge.Running }),
		figure("millrace_api_search_waiting_calls", "Searches and counts that wait for their turn", func(x v) int64 { return x.edge.Waiting }),
		figure("millrace_node_search_collections", "Collections that this node has an index of", func(x v) int { return x.index.Collections }),
		figure("millrace_node_search_loading_collections", "Collections whose index is still read from the store: searches of them wait", func(x v) int { return x.index.Loading }),
		figure("millrace_node_search_points", "Points in those indexes", func(x v) int { return x.index.Points }),
		figure("millrace_node_search_rows", "Rows of those indexes, with those of points that changed or went", func(x v) int { return x.index.Rows }),
		figure("millrace_node_search_tail_rows", "Rows of large collections that their graphs do not cover yet: each search scans them", func(x v) int { return x.index.Tail }),
		figure("millrace_node_search_bytes", "About what the indexes take in memory", func(x v) int64 { return x.index.Bytes }),
		figure("millrace_node_search_limit_bytes", "Beyond this no points are taken; 0 without a bound", func(x v) int64 { return x.index.Most }),
		figure("millrace_embed_cache_hits_total", "Texts whose vector was kept", func(x v) uint64 { return x.cache.Hits }),
		figure("millrace_embed_cache_misses_total", "Texts whose vector was made, or waited for", func(x v) uint64 { return x.cache.Misses }),
		figure("millrace_embed_cache_entries", "Vectors that are kept", func(x v) int64 { return x.cache.Entries }),
		figure("millrace_embed_cache_bytes", "About what they take", func(x v) int64 { return x.cache.Bytes }),
		provider("millrace_embed_requests_total", "Requests to the provider of an embedder", func(s embed.Stats) float64 { return float64(s.Calls) }),
		provider("millrace_embed_failures_total", "Those that failed for good", func(s embed.Stats) float64 { return float64(s.Failures) }),
		provider("millrace_embed_retries_total", "Times that one was made again", func(s embed.Stats) float64 { return float64(s.Retries) }),
		provider("millrace_embed_breaker_opened_total", "Times that the provider was left alone because it failed", func(s embed.Stats) float64 { return float64(s.Opened) }),
		provider("millrace_embed_breaker_state", "1 while the provider is left alone", func(s embed.Stats) float64 { return float64(bit(s.Open)) }),
		provider("millrace_embed_running_calls", "Requests to the provider in flight", func(s embed.Stats) float64 { return float64(s.InFlight) }),
		provider("millrace_embed_waiting_calls", "Callers that wait for the provider", func(s embed.Stats) float64 { return float64(s.Waiting) }),
	}
}
