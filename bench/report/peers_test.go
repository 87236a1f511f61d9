package report

import (
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/bench"
)

// besidePeer is a row that alternated with a peer which is synced, or is not.
func besidePeer(t *testing.T, class bench.Durability, name string) bench.Row {
	t.Helper()
	row := bench.Row{
		Suite: "queue.peers.asynq", Row: "clients-16", Durability: label1(class, bench.Valid).Class(), Label: label1(class, bench.Valid),
		Headline: "ratio_to_peer", Bench: "BenchmarkQueuePeers", Summary: fig(t, class, bench.Valid, "×", 4),
		Figures: map[string]bench.Figure{
			"ours_per_s": fig(t, class, bench.Valid, "cycles/s", 8_000), "peer_per_s": fig(t, class, bench.Valid, "cycles/s", 2_000),
			"create_p50_us": fig(t, class, bench.Valid, "µs", 1_500), "peer_create_p99_us": fig(t, class, bench.Valid, "µs", 9_250),
			"ours_fsyncs_per_cycle": fig(t, class, bench.Valid, "fsyncs", 0.125),
		},
	}
	row.Runs = []bench.Run{{Number: 1, Metrics: map[string]bench.Metric{"ratio_to_peer": {Value: 4, Unit: "×"}}, Peer: &bench.PeerReport{
		Name: "asynq", Server: name, Client: "client 1.2", Class: "F", Durable: "all", Settings: []bench.Param{{Name: "appendfsync", Value: "always"}},
	}}}
	return row
}

func TestPeersStandSideBySideInOneTablePerClass(t *testing.T) {
	r := sample(t)
	r.Suites = append(r.Suites, besidePeer(t, bench.Fsync, "Redis <7>"), besidePeer(t, bench.None, "Redis unsynced"))
	for _, c := range []struct{ format, title, peer, ours string }{
		{
			"md", "## Side by side with peers, ", "| Redis <7>, client 1.2 | 2,000 cycles/s · fsync×1 | –, 9.25 | –, – | – | – | – |",
			"| Millrace | 8,000 cycles/s · fsync×1 | 1.50, – | –, – | – | – | 0.12 |",
		},
		{"html", "<h2>Side by side with peers, ", "<td>Redis &lt;7&gt;, client 1.2</td><td>2,000 cycles/s · fsync×1</td>", "<td>Millrace</td><td>8,000 cycles/s · fsync×1</td>"},
	} {
		out := render(t, c.format, r)
		if n := strings.Count(out, c.title); n != 2 {
			t.Errorf("%s: %d tables, want one per class", c.format, n)
		}
		for _, want := range []string{c.peer, c.ours, "appendfsync=always"} {
			if !strings.Contains(out, want) {
				t.Errorf("%s lacks %q", c.format, want)
			}
		}
		synced := out[strings.Index(out, c.title+"fsync×1"):strings.Index(out, c.title+"none×1")]
		if strings.Contains(synced, "unsynced") {
			t.Errorf("%s: the table of synced systems has one that is not", c.format)
		}
	}
	if out := render(t, "md", sample(t)); strings.Contains(out, "Side by side") {
		t.Error("a result without peers has a table of them")
	}
}

func TestSearchesStandSideBySideWithTheirRecall(t *testing.T) {
	r := sample(t)
	r.Suites = append(r.Suites, besidePeer(t, bench.Fsync, "Redis"), bench.Row{
		Suite: "search.peers.pgvector", Row: "clients-2-ef-80", Durability: label1(bench.Fsync, bench.Valid).Class(), Label: label1(bench.Fsync, bench.Valid),
		Headline: "ratio_to_peer", Bench: "BenchmarkVectorPeers", Summary: fig(t, bench.Fsync, bench.Valid, "×", 4),
		Figures: map[string]bench.Figure{
			"ours_per_s": fig(t, bench.Fsync, bench.Valid, "searches/s", 4_000), "peer_per_s": fig(t, bench.Fsync, bench.Valid, "searches/s", 1_000),
			"ours_recall_at_10": fig(t, bench.Fsync, bench.Valid, "share", 0.995), "peer_recall_at_10": fig(t, bench.Fsync, bench.Valid, "share", 0.985),
			"search_p50_us": fig(t, bench.Fsync, bench.Valid, "µs", 500), "peer_search_p99_us": fig(t, bench.Fsync, bench.Valid, "µs", 9_250),
		},
		Runs: []bench.Run{{Number: 1, Peer: &bench.PeerReport{Name: "pgvector", Server: "PostgreSQL 18", Client: "pgx", Class: "F", Durable: "write"}}},
	})
	for _, c := range []struct{ format, title, ours, peer string }{
		{"md", "## Searches side by side with peers, fsync×1", "| Millrace | 4,000 searches/s · fsync×1 | 0.995 | 0.50, – |", "| PostgreSQL 18, pgx | 1,000 searches/s · fsync×1 | 0.985 | –, 9.25 |"},
		{"html", "<h2>Searches side by side with peers, fsync×1", "<td>4,000 searches/s · fsync×1</td>", "<td>PostgreSQL 18, pgx</td>"},
	} {
		out := render(t, c.format, r)
		_, of, _ := strings.Cut(out, c.title)
		if !strings.Contains(of, c.ours) || !strings.Contains(of, c.peer) {
			t.Errorf("%s lacks %q or %q: %s", c.format, c.ours, c.peer, of[:min(len(of), 1500)])
		}
		if strings.Count(out, "queue.peers.asynq/clients-16") != strings.Count(render(t, c.format, without(r, "search.peers.pgvector")), "queue.peers.asynq/clients-16") {
			t.Errorf("%s: the table of searches has a queue", c.format)
		}
	}
}

// without is a result less a suite.
func without(r *bench.Result, suite string) *bench.Result {
	out := *r
	out.Suites = slices.DeleteFunc(slices.Clone(r.Suites), func(row bench.Row) bool { return row.Suite == suite })
	return &out
}
