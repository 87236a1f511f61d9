package millrace_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	millrace "github.com/millrace/millrace/sdk/go"
)

// TestALimiterBoundsTheTasksOfTwoJobs: set, named by a job and by an option, obeyed, read and removed, over both transports.
func TestALimiterBoundsTheTasksOfTwoJobs(t *testing.T) {
	t.Parallel()
	eachTransport(t, func(t *testing.T, opts ...millrace.Option) {
		c, ctx := dial(t, opts...), bounded(t)
		want := millrace.LimiterConfig{Concurrency: 1, Rate: millrace.Rate{Limit: 1000, Per: time.Second, Burst: 10}}
		set, err := c.SetLimiter(ctx, "api", want, millrace.LimiterIfVersion(0))
		if err != nil || set.LimiterConfig != want || set.Version != 1 {
			t.Fatalf("set: %+v, %v", set, err)
		}
		if _, err := c.SetLimiter(ctx, "api", want, millrace.LimiterIfVersion(0)); !errors.Is(err, millrace.ErrPrecondition) {
			t.Errorf("set again as a new one: %v", err)
		}
		mail, push := millrace.Job[string, string]("limited.mail").Limiters("api"), millrace.Job[string, string]("limited.push")
		if _, err := mail.Add(ctx, c, "a"); err != nil {
			t.Fatal(err)
		}
		second, err := push.Add(ctx, c, "b", millrace.Limiters("api"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := push.Add(ctx, c, "c", millrace.Limiters("nope")); !errors.Is(err, millrace.ErrNotFound) {
			t.Errorf("a limiter that is not there: %v", err)
		}
		task, err := c.Task(ctx, second.ID)
		if err != nil || !slices.Equal(task.Limiters, []string{"api"}) {
			t.Errorf("the task names %q, %v", task.Limiters, err)
		}
		first, err := c.Claim(ctx, millrace.ClaimQuery{Queues: []string{"limited.mail"}})
		if err != nil || len(first) != 1 {
			t.Fatalf("%d claimed, %v", len(first), err)
		}
		if none, err := c.Claim(ctx, millrace.ClaimQuery{Queues: []string{"limited.push"}}); err != nil || len(none) != 0 {
			t.Errorf("%d claimed under a full limiter, %v", len(none), err)
		}
		if _, err := c.Queue("limited.web").Set(ctx, millrace.QueueConfig{Limiters: []string{"api"}}); err != nil {
			t.Fatal(err)
		}
		got, err := c.Limiter(ctx, "api")
		if err != nil || got.Used != 1 || got.Tasks != 2 || len(got.HeldBy) != 1 || got.HeldBy[0].Queue != "limited.mail" || !slices.Equal(got.Queues, []string{"limited.web"}) {
			t.Errorf("the limiter: %+v, %v", got, err)
		}
		if err := c.DeleteLimiter(ctx, "api"); !errors.Is(err, millrace.ErrWrongState) {
			t.Errorf("removed while it is named: %v", err)
		}
		if _, err := c.SetLimiter(ctx, "free", millrace.LimiterConfig{}); err != nil {
			t.Fatal(err)
		}
		list, next, err := c.Limiters(ctx, 1, "")
		if err != nil || len(list) != 1 || list[0].Name != "api" || next == "" {
			t.Errorf("the first page: %+v, %q, %v", list, next, err)
		}
		if list, _, err = c.Limiters(ctx, 0, next); err != nil || len(list) != 1 || list[0].Name != "free" {
			t.Errorf("the second page: %+v, %v", list, err)
		}
		if err := c.DeleteLimiter(ctx, "free"); err != nil {
			t.Error(err)
		}
		if _, err := c.Limiter(ctx, "free"); !errors.Is(err, millrace.ErrNotFound) {
			t.Errorf("read after its removal: %v", err)
		}
	})
}
