package millrace

import "time"

// giveUp ends what waits to be sent again for longer than it may be, and what has been under way for longer than it is waited for.
func (s *session) giveUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	next := s.role.expire(now.Add(-resendFor))
	if !next.IsZero() {
		next = next.Add(resendFor)
	}
	for _, out := range s.frames {
		if first := out.expire(now.Add(-repeatFor)); !first.IsZero() {
			next = earlier(next, first.Add(repeatFor))
		}
	}
	if next.IsZero() || s.ctx.Err() != nil {
		s.sweep = nil
		return
	}
	s.sweep.Reset(time.Until(next) + time.Millisecond)
}

// earlier returns the earlier of two times, of which zero is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// unreached explains why nothing can be sent; empty while a stream is up. It needs mu.
func (s *session) unreached() string {
	if s.up {
		return ""
	}
	text := "server " + s.c.opts.address + " is not reached"
	if err := s.c.dialErr.Load(); err != nil && !s.plain {
		return text + ": " + (*err).Error()
	}
	if s.lastErr != nil {
		return text + ": " + fromStatus(s.lastErr).Message
	}
	return text
}

// drain half-closes the stream once nothing is left, and stops the session after d at the latest.
func (s *session) drain(d time.Duration) {
	s.mu.Lock()
	s.closing = true
	nothing := !s.up && s.role.idle()
	s.mu.Unlock()
	if nothing {
		s.stop(ErrClosed)
	}
	s.poke()
	late := time.AfterFunc(d, func() { s.stop(ErrClosed) })
	<-s.done
	late.Stop()
	s.stop(ErrClosed)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sweep != nil {
		s.sweep.Stop()
	}
}
