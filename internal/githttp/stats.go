package githttp

import (
	"net/http"
	"slices"
	"sync/atomic"

	"github.com/millrace/millrace/internal/core"
)

// counters count what the edge does.
type counters struct {
	// Requests that were answered, by kind; commits of pushes by outcome; and requests that were
	// refused, by reason.
	advertised, lists, fetches, pushes           atomic.Uint64
	landed, rejected, unknown                    atomic.Uint64
	denied, missing, limited, unavailable, other atomic.Uint64
	// phases are the counts and the microseconds of each phase.
	phases [5]struct{ count, micros atomic.Uint64 }
}

// Phases of a push that are timed.
const (
	// phaseReceive is until the pack has come and git has checked it.
	phaseReceive = iota
	// phaseConnect is the questions about the new objects.
	phaseConnect
	// phaseKeep is making the pack durable on this node.
	phaseKeep
	// phaseStage is making it durable on enough other nodes.
	phaseStage
	// phaseCommit is all commits, from the first proposal to the last answer.
	phaseCommit
)

// Phases names the phases in the order of Stats.
var phases = [...]string{"receive", "connect", "keep", "stage", "commit"}

// refused counts a request that ended with a status of an error.
func (c *counters) refused(status int) {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		c.denied.Add(1)
	case http.StatusNotFound:
		c.missing.Add(1)
	case http.StatusServiceUnavailable:
		c.unavailable.Add(1)
	case http.StatusTooManyRequests, http.StatusRequestEntityTooLarge, http.StatusInsufficientStorage:
		c.limited.Add(1)
	// A wrong method, media type or request, and what this server has to answer for.
	default:
		c.other.Add(1)
	}
}

// outcome counts what became of a commit: one that was let in and changed nothing is rejected too.
func (c *counters) outcome(p core.Proposed) {
	switch {
	case p.Err != nil && core.OutcomeUnknown(p.Err):
		c.unknown.Add(1)
	case p.Err != nil || len(p.Results) == 0 || p.Results[0].Refusal != nil || allFailed(&p.Results[0]):
		c.rejected.Add(1)
	default:
		c.landed.Add(1)
	}
}

// allFailed reports whether none of the changes that could stand alone did.
func allFailed(r *core.Result) bool {
	return len(r.Ops) > 0 && r.Ops[0].Refs != nil && !slices.ContainsFunc(r.Ops[0].Refs.Changes, func(c core.RefResult) bool { return c.Failure == nil })
}

// PhaseStats is how long one phase of pushes took.
type PhaseStats struct {
	Name   string
	Count  uint64
	Micros uint64 // all together
}

// Stats are the counters of the edge.
type Stats struct {
	Advertised, Lists, Fetches, Pushes uint64 // requests that were answered
	Landed, Rejected, Unknown          uint64 // commits of pushes, by outcome
	Denied, Missing, Limited           uint64 // requests refused: no token or scope, no repository, a limit
	Unavailable, Other                 uint64
	Phases                             []PhaseStats
}

// Stats returns what the edge has done.
func (s *Server) Stats() Stats {
	c := &s.stats
	out := Stats{
		Advertised: c.advertised.Load(), Lists: c.lists.Load(), Fetches: c.fetches.Load(), Pushes: c.pushes.Load(),
		Landed: c.landed.Load(), Rejected: c.rejected.Load(), Unknown: c.unknown.Load(), Denied: c.denied.Load(),
		Missing: c.missing.Load(), Limited: c.limited.Load(), Unavailable: c.unavailable.Load(), Other: c.other.Load(),
	}
	for i, name := range phases {
		out.Phases = append(out.Phases, PhaseStats{name, c.phases[i].count.Load(), c.phases[i].micros.Load()})
	}
	return out
}

// time measures one phase of a push.
func (s *Server) time(phase int) (end func()) {
	from := s.o.Clock.Boot()
	return func() {
		s.stats.phases[phase].count.Add(1)
		s.stats.phases[phase].micros.Add(uint64((s.o.Clock.Boot() - from).Microseconds()))
	}
}
