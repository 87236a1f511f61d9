package millrace

import (
	"time"

	"github.com/millrace/millrace/sdk/go/internal/retry"
)

// wait returns how long to wait before try n, counted from 0, after this error.
func (e *Error) wait(n int) time.Duration {
	if e.Code == CodeNotLeader || e.Code == CodeUnavailable && e.Limit == "" { // else the server is there, and has too much to do
		return max(e.RetryAfter, retry.Away(n))
	}
	return max(e.RetryAfter, retry.Backoff(n))
}
