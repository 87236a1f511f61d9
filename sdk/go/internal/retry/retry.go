// Package retry says when a call is tried again, and for how long: waits that grow, the patience with each kind of error, and
// when a node that knows of no leader is left for the next one.
package retry

import (
	"context"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/millrace/millrace/sdk/go/internal/wire"
)

// Waits between tries grow from Base to Max; each is drawn evenly from zero up, so that clients that lost one server do not
// return together.
const (
	Base = 50 * time.Millisecond
	Max  = 5 * time.Second
)

// For how long a call is repeated.
const (
	// For ends the waiting for an answer of what may have been applied. Servers remember ids and sequences for as long, after
	// they have applied something; so the last try leaves a little sooner, after ResendFor: it must arrive before that is over.
	For       = 10 * time.Minute
	ResendFor = For - 30*time.Second
	// RefusedFor ends the repeating of what a limit refuses: a caller should hear of a quota while it is of use.
	RefusedFor = 30 * time.Second
)

// Hops bounds how often in a row a call, or a stream, goes to the leader that an error names without a wait.
const Hops = 3

// Backoff returns the wait before try n, counted from 0.
func Backoff(n int) time.Duration {
	d := Max
	if n < 7 { // 50 ms * 2^7 is beyond the most
		d = min(Base<<n, Max)
	}
	return Within(d)
}

// Within draws a wait evenly from zero to d.
func Within(d time.Duration) time.Duration { return rand.N(d + 1) }

// While a cluster has no leader, or a server is away, tries go on in waits of at most soonMost: an election takes a second or
// two, and a client that waits longer after it than for it has lost that time. After soonTries the waits grow.
const (
	soonMost  = 250 * time.Millisecond
	soonTries = 24 // about three seconds
)

// Away returns the wait before try n, counted from 0, while no server or no leader is there.
func Away(n int) time.Duration {
	if n < soonTries {
		return Within(min(Base<<min(n, 3), soonMost))
	}
	return Backoff(n - soonTries + 3)
}

// Patience is how long a call is repeated after a server's error with that code and reason; 0 means not at all.
func Patience(code, reason string) time.Duration {
	switch code {
	case wire.Unavailable, wire.DeadlineExceeded, wire.NotLeader:
		if reason == wire.ReasonSessionExpired || reason == wire.ReasonExpired {
			return 0
		}
		return ResendFor
	case wire.RateLimited, wire.ResourceExhausted:
		return RefusedFor
	}
	return 0
}

// Sleep waits d and returns false when ctx ended first.
func Sleep(ctx context.Context, d time.Duration) bool { return SleepBefore(ctx, nil, d) }

// SleepBefore is Sleep that returns false when late, which may be nil, fired first.
func SleepBefore(ctx context.Context, late <-chan time.Time, d time.Duration) bool {
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
	case <-late:
		return false
	}
}

// Earlier returns the earlier of two times, of which the zero time means never.
func Earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// Permanent reports whether opening a stream again cannot help until something is changed by hand.
func Permanent(err error) bool {
	switch status.Code(err) {
	case codes.Unauthenticated, codes.PermissionDenied, codes.InvalidArgument, codes.Unimplemented, codes.NotFound,
		codes.FailedPrecondition:
		return true
	}
	return false
}
