package api

import "github.com/millrace/millrace/internal/edge"

// Stats is what the edge does now and has refused.
type Stats struct {
	Calls       int64             // calls in flight: unary ones and REST's
	Streams     int64             // open
	Connections int64             // open
	Refusals    map[string]uint64 // by the name of the limit, since the start
	Held        edge.Held         // of all clients
	Outcomes    []edge.Outcome    // how calls ended since the start
	Keyspaces   []KeyspaceCount   // what was done in them, the most used first
}

// SearchStats returns the counters of searches.
func (s *Server) SearchStats() SearchStats {
	out := s.searched.stats(&s.searches)
	out.Embedding, out.EmbeddingTenants = s.embedding.held()
	return out
}

// Stats returns the edge's counters.
func (s *Server) Stats() Stats {
	return Stats{
		Calls: s.Calls.Value(), Streams: s.Streams.Value(), Connections: s.Conns.Open(), Refusals: s.Refusals.Copy(),
		Held:     edge.Held{Frames: s.Frames.Held.Load(), Requests: s.Requests.Held.Load(), Sends: s.Sends.Held.Load()},
		Outcomes: s.Outcomes.List(), Keyspaces: s.keys.list(),
	}
}
