package api

import (
	"time"

	"github.com/millrace/millrace/internal/core"
)

// Rates of keyspaces, and of all keyspaces of a namespace and of a tenant together, and of the tasks that a tenant creates, are held by
// the node. What comes too fast is refused here, or waits.

// Rated refuses a commit whose puts or creates come too fast, and takes from the rates what it lets through. A carried commit goes on to the
// node that leads its partition, whose edge does not see it.
func (s *Server) Rated(c *core.Commit, carried bool) core.Fact {
	return s.rated(s.node.keys.TakeRate(c.Partition, c.Ops, carried))
}

// RatedCreates is Rated for commits of one namespace that do nothing but create that many tasks.
func (s *Server) RatedCreates(p core.Partition, tasks int, carried bool) core.Fact {
	return s.rated(s.node.keys.TakeCreates(p, tasks, carried))
}

// rated refuses what must wait for a rate, and counts that.
func (s *Server) rated(wait time.Duration, by core.RateHeld) core.Fact {
	if wait <= 0 {
		return nil
	}
	s.node.history.CountRefusal(by.Bound)
	return core.RateLimited{Limit: by.Limit, RetryAfter: core.MillisOf(wait)}
}
