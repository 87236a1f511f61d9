package api

// Stats is what the edge does now and has refused.
type Stats struct {
	Calls       int64             // calls in flight: unary ones and REST's
	Streams     int64             // open
	Connections int64             // open
	Refusals    map[string]uint64 // by the name of the limit, since the start
	Held        Held              // of all clients
	Outcomes    []Outcome         // how calls ended since the start
	Keyspaces   []KeyspaceCount   // what was done in them, the most used first
}

// SearchStats returns the counters of searches.
func (s *Server) SearchStats() SearchStats { return s.searched.stats(&s.searches) }

// Stats returns the edge's counters.
func (s *Server) Stats() Stats {
	return Stats{
		Calls: s.calls.value(), Streams: s.streams.value(), Connections: s.conns.open(), Refusals: s.refusals.copy(),
		Held:     Held{s.frames.held.Load(), s.requests.held.Load(), s.sends.held.Load()},
		Outcomes: s.outcomes.list(), Keyspaces: s.keys.list(),
	}
}
