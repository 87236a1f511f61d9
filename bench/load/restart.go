package load

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/bench"
	millrace "github.com/millrace/millrace/sdk/go"
)

// A quarter of the prefilled tasks are delayed, a quarter are leased, and the rest are ready.
const (
	// restartPart divides the tasks: one in 4 is delayed, and one in 4 is leased.
	restartPart = 4
	// restartDelay is longer than a run.
	restartDelay = time.Hour
	// claimMost is the most tasks of one claim.
	claimMost = 128
	// firstWait bounds the time from the restart to the first task or answer.
	firstWait = 10 * time.Second
)

// Restart kills a server that holds ready, delayed and leased tasks, starts it on its directory, and times how long after
// that a task is given to a worker.
func Restart(ctx context.Context, rig *bench.Rig) error {
	n := rig.Shape.Prefill / restartPart
	if err := restartFill(ctx, rig, n); err != nil {
		return err
	}
	return afterKill(ctx, rig, func() error { return firstGrant(ctx, rig, n) })
}

// afterKill kills the server, opens the window, and lets first start the server again and wait for
// it. The window stays open for its time.
func afterKill(ctx context.Context, rig *bench.Rig, first func() error) error {
	if err := rig.Kill(); err != nil {
		return err
	}
	measured := make(chan error, 1)
	go func() { measured <- rig.Measure(ctx) }()
	select {
	case <-rig.Began():
	case err := <-measured:
		return err
	}
	err := first()
	return errors.Join(err, <-measured)
}

// restartFill makes n delayed tasks, leases n, and leaves the rest ready. The callers share the n
// leases among them.
func restartFill(ctx context.Context, rig *bench.Rig, n int) error {
	c, err := rig.Dial(ctx, 0)
	if err != nil {
		return err
	}
	defer c.Close() //nolint:errcheck // every call was answered, or an error tells
	// As many are leased as the tenant may have running, or more. Programs before that quota know no such field.
	var refused *millrace.Error
	if err := setOwn(ctx, c, func(t *millrace.TenantConfig) { t.RunningTasks = int64(rig.Shape.Prefill) }); errors.As(err, &refused) && refused.Code != "INVALID_ARGUMENT" {
		return fmt.Errorf("bound running tasks: %w", err)
	}
	if err := fill(ctx, rig, c, rig.Shape.Prefill-n); err != nil {
		return err
	}
	if err := fill(ctx, rig, c, n, millrace.In(restartDelay)); err != nil {
		return err
	}
	return atOnce(ctx, fillCallers, func(ctx context.Context, i int) error {
		// The callers' shares add up to n, also where that is not a multiple of their number.
		for left := (n + i) / fillCallers; left > 0; {
			got, err := c.Claim(ctx, millrace.ClaimQuery{Queues: []string{rig.Queue}, Max: min(left, claimMost), Lease: rig.Shape.Lease})
			if err != nil {
				return fmt.Errorf("lease tasks: %w", err)
			}
			if len(got) == 0 {
				return errors.New("lease tasks: the queue gave none, though tasks are ready")
			}
			left -= len(got)
		}
		return nil
	})
}

// firstGrant starts the server and waits for a task, which is timed from before the start. Then all
// tasks must be in the states that they were left in, except the one that it was given.
func firstGrant(ctx context.Context, rig *bench.Rig, n int) error {
	began := time.Now()
	if err := rig.Restart(ctx); err != nil {
		return err
	}
	serving := time.Since(began)
	c, err := rig.Dial(ctx, 0)
	if err != nil {
		return err
	}
	defer c.Close() //nolint:errcheck // every call was answered, or an error tells
	got, err := c.Claim(ctx, millrace.ClaimQuery{Queues: []string{rig.Queue}, Wait: firstWait, Lease: rig.Shape.Lease})
	granted := time.Since(began)
	if err != nil {
		return fmt.Errorf("claim after the restart: %w", err)
	}
	if len(got) != 1 {
		return fmt.Errorf("no task was given within %s of the restart, though tasks are ready", firstWait)
	}
	rig.Metric("first_grant_s", granted.Seconds(), "s")
	rig.Metric("serving_s", serving.Seconds(), "s")
	rig.Metric("tasks", float64(rig.Shape.Prefill), "tasks")
	s, err := c.Queue(rig.Queue).Stats(ctx)
	if err != nil {
		return err
	}
	// One task more is leased: the one that the claim was given.
	delayed, leased := uint64(n), uint64(n+1)
	ready := uint64(rig.Shape.Prefill) - delayed - leased
	if s.Scheduled != delayed || s.Running != leased || s.Ready != ready {
		return fmt.Errorf("after the restart %d tasks are delayed, %d leased and %d ready; acknowledged were %d, %d and %d",
			s.Scheduled, s.Running, s.Ready, delayed, leased, ready)
	}
	return nil
}
