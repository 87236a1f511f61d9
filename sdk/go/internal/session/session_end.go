package session

import (
	"time"

	"github.com/millrace/millrace/sdk/go/internal/fault"
	"github.com/millrace/millrace/sdk/go/internal/retry"
)

// giveUp ends what waits to be sent again for longer than it may be, and what has been under way for longer than it is waited for.
func (s *session) giveUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	// What waits in the role's queues may not be sent for as long as what has left may be waited for: it must still arrive in time.
	next := s.role.expire(now.Add(-retry.ResendFor))
	if !next.IsZero() {
		next = next.Add(retry.ResendFor)
	}
	for _, out := range s.frames {
		if first := out.expire(now.Add(-retry.For)); !first.IsZero() {
			next = retry.Earlier(next, first.Add(retry.For))
		}
	}
	// Nothing is under way: the next frame begins the sweep again.
	if next.IsZero() || s.ctx.Err() != nil {
		s.sweep = nil
		return
	}
	s.sweep.Reset(time.Until(next) + time.Millisecond)
}

// unreached explains why nothing can be sent; empty while a stream is up. It needs mu.
func (s *session) unreached() string {
	if s.up {
		return ""
	}
	text := "server " + s.hub.Address + " is not reached"
	if err := s.hub.DialError(); err != nil && !s.plain {
		return text + ": " + err.Error()
	}
	if s.lastErr != nil {
		return text + ": " + fault.FromStatus(s.lastErr).Message
	}
	return text
}

// drain half-closes the stream once nothing is left, and stops the session after d at the latest.
func (s *session) drain(d time.Duration) {
	s.mu.Lock()
	s.closing = true
	// Without a stream and without work there is nothing that a server would have to end.
	nothing := !s.up && s.role.idle()
	s.mu.Unlock()
	if nothing {
		s.stop(fault.ErrClosed)
	}
	s.poke()
	late := time.AfterFunc(d, func() { s.stop(fault.ErrClosed) })
	<-s.done
	late.Stop()
	s.stop(fault.ErrClosed)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sweep != nil {
		s.sweep.Stop()
	}
}
