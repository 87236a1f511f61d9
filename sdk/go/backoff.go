package millrace

import (
	"context"
	"math/rand/v2"
	"time"
)

// Waits between tries grow from backoffBase to backoffMax; each is drawn evenly from zero up, so that clients that lost
// one server do not return together.
const (
	backoffBase = 50 * time.Millisecond
	backoffMax  = 5 * time.Second
)

// backoff returns the wait before try n, counted from 0.
func backoff(n int) time.Duration {
	d := backoffMax
	if n < 7 { // 50 ms * 2^7 is beyond the most
		d = min(backoffBase<<n, backoffMax)
	}
	return rand.N(d + 1)
}

// While a cluster has no leader, or a server is away, tries go on in waits of at most soonMost, each drawn evenly from zero up:
// an election takes a second or two, and who waits longer after it than for it has lost that time. After soonTries they grow.
const (
	soonMost  = 250 * time.Millisecond
	soonTries = 24 // about three seconds
)

// wait returns how long to wait before try n, counted from 0, after this error.
func (e *Error) wait(n int) time.Duration {
	away := e.Code == CodeNotLeader || e.Code == CodeUnavailable && e.Limit == "" // else the server is there, and has too much to do
	switch {
	case !away:
		return max(e.RetryAfter, backoff(n))
	case n < soonTries:
		return max(e.RetryAfter, backoffWithin(min(backoffBase<<min(n, 3), soonMost)))
	}
	return max(e.RetryAfter, backoff(n-soonTries+3))
}

// backoffWithin draws from zero to d.
func backoffWithin(d time.Duration) time.Duration { return rand.N(d + 1) }

// sleep waits d and reports false when ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
