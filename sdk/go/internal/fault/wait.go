package fault

import (
	"time"

	"github.com/millrace/millrace/sdk/go/internal/retry"
	"github.com/millrace/millrace/sdk/go/internal/wire"
)

// Wait returns how long to wait before try n, counted from 0, after this fault. Without a limit in it UNAVAILABLE means that the
// server is away, and the waits are those for an election; with one the server is there, and has too much to do.
func (f *Fault) Wait(n int) time.Duration {
	if f.Code == wire.NotLeader || f.Code == wire.Unavailable && f.Limit == "" {
		return max(f.RetryAfter, retry.Away(n))
	}
	return max(f.RetryAfter, retry.Backoff(n))
}
