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
