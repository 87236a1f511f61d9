package api

import (
	"time"

	"github.com/millrace/millrace/internal/edge"
)

// sweepsPerLimit is how often a time that may pass at most is looked at within it.
const sweepsPerLimit = 4

// sweep ends connections that are new for too long, and calls whose messages do not come, until the server stops. It counts its
// own rounds: where messages move no clock is read and no timer is set.
func (s *Server) sweep() {
	// Both times are looked at by one timer: the shorter one says how often.
	first, message := s.Limits.FirstCallMs, s.Limits.ReceiveMs
	every := max(min(first, message)/sweepsPerLimit, 1)
	rounds := func(limit int64) int32 { return int32((limit + every - 1) / every) }
	timer := s.o.Clock.NewTimer(time.Duration(every) * time.Millisecond)
	defer timer.Stop()
	for {
		select {
		case <-s.Life.Done():
			return
		case <-timer.C():
		}
		// Each of them is a refusal by that limit, though its client is told nothing.
		late := s.Conns.Overdue(rounds(first))
		for range late {
			s.Refusals.Add("first_call_ms")
		}
		edge.CloseAll(late)
		for _, g := range s.incoming.overdue(rounds(message)) {
			g.expire()
		}
		timer.Reset(time.Duration(every) * time.Millisecond)
	}
}

// StartSweep begins to sweep, once.
func (s *Server) StartSweep() {
	s.sweeping.Do(func() { s.Work.Go(s.sweep) })
}
