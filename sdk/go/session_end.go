package millrace

import "time"

// giveUp ends what has been under way for longer than it may be repeated.
func (s *session) giveUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	limit := time.Now().Add(-repeatFor)
	oldest := s.role.expire(limit)
	for _, out := range s.frames {
		oldest = earlier(oldest, out.expire(limit))
	}
	if oldest.IsZero() || s.ctx.Err() != nil {
		s.sweep = nil
		return
	}
	s.sweep.Reset(time.Until(oldest.Add(repeatFor)) + time.Millisecond)
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
