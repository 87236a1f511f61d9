package api

import "github.com/millrace/millrace/internal/edge"

// Stats is what the edge does now and has refused.
type Stats struct {
	// Calls are in flight: unary ones and REST's. Streams and Connections are open.
	Calls       int64
	Streams     int64 // open
	Connections int64 // open
	// Refusals are answers that named a limit since the start, by its name.
	Refusals map[string]uint64
	// Held is what the edge holds of all clients, in bytes.
	Held edge.Held
	// Outcomes tell how calls ended since the start, by method and code.
	Outcomes []edge.Outcome
	// Keyspaces tell what was done in each, the most used first.
	Keyspaces []KeyspaceCount
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
