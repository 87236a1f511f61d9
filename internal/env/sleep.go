package env

import (
	"context"
	"time"
)

// Sleep waits for a span of a clock. An error is that of ctx, which ended first.
func Sleep(ctx context.Context, clock Clock, d time.Duration) error {
	timer := clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
