package millrace_test

import (
	"context"
	"errors"
	"testing"
	"time"

	millrace "github.com/millrace/millrace/sdk/go"
)

func TestCronsByEachTransport(t *testing.T) {
	eachTransport(t, func(t *testing.T, opts ...millrace.Option) {
		c, ctx := dial(t, opts...), bounded(t)
		report := millrace.Job[string, string]("report").Attempts(2)
		set := func(opts ...millrace.CronOption) (*millrace.Cron, error) {
			return report.Cron(ctx, c, "nightly", "0 2 * * *", "yesterday", append(opts, millrace.CronZone("Europe/Berlin"), millrace.CronOverlaps(millrace.CronQueueOne),
				millrace.CronTask(millrace.Key("ann"), millrace.Cost(3), millrace.Priority(4), millrace.Labels(map[string]string{"team": "red"})))...)
		}
		got, err := set(millrace.CronIfVersion(0))
		if err != nil {
			t.Fatal(err)
		}
		if got.Version != 1 || got.Zone != "Europe/Berlin" || got.Words != "at 02:00 every day" || got.Overlap != millrace.CronQueueOne || got.Next.IsZero() ||
			got.Queue != "report" || got.Kind != "report" || got.Key != "ann" || got.Cost != 3 || got.Priority != 4 || got.Labels["team"] != "red" || got.LastRun != nil {
			t.Errorf("set: %+v", got)
		}
		if got, err := set(); err != nil || got.Version != 1 {
			t.Errorf("set again: %+v, %v", got, err)
		}
		if _, err := set(millrace.CronIfVersion(0)); !errors.Is(err, millrace.ErrPrecondition) {
			t.Errorf("one that is there already: %v, want ErrPrecondition", err)
		}
		run, err := c.TriggerCron(ctx, "nightly")
		if err != nil || run.Outcome != "started" || !run.ByHand || run.State != millrace.Ready {
			t.Fatalf("run by hand: %+v, %v", run, err)
		}
		task, err := c.Task(ctx, run.Task)
		if err != nil || task.Key != "ann" || task.Cost != 3 || task.Headers["millrace-cron"] != "nightly" || task.Labels["team"] != "red" {
			t.Errorf("its task: %+v, %v", task, err)
		}
		if second, err := c.TriggerCron(ctx, "nightly"); err != nil || second.Outcome != "waiting" {
			t.Errorf("a second run: %+v, %v", second, err)
		}
		if runs, err := c.CronRuns(ctx, "nightly"); err != nil || len(runs) != 2 || runs[1].Task != run.Task {
			t.Errorf("runs: %+v, %v", runs, err)
		}
		if err := c.DeleteCron(ctx, "nightly"); err != nil {
			t.Error(err)
		}
		if _, err := c.Cron(ctx, "nightly"); !errors.Is(err, millrace.ErrNotFound) {
			t.Errorf("a cron that was removed: %v, want ErrNotFound", err)
		}
	})
}

func TestATemplateRefusesWhatOneTaskAloneHas(t *testing.T) {
	c, ctx := dial(t), bounded(t)
	for field, opt := range map[string]millrace.AddOption{
		"template.id": millrace.ID(millrace.NewID()), "template.delay": millrace.In(time.Second), "template.run_at": millrace.At(time.Now()),
		"template.unique": millrace.UniqueKey("k", 0), "template.expires_at": millrace.ExpiresIn(time.Hour), "template.after": millrace.After(millrace.NewID()),
	} {
		_, err := millrace.Job[int, int]("n").Cron(ctx, c, "n", "@daily", 1, millrace.CronTask(opt))
		if e, ok := errors.AsType[*millrace.Error](err); !ok || e.Code != millrace.CodeInvalidArgument || e.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	if _, err := millrace.Job[int, int]("n").Cron(ctx, c, "n", "@daily", 1, millrace.CronTask(millrace.Key("\xff"))); !errors.Is(err, millrace.ErrInvalid) {
		t.Errorf("a key that is not UTF-8: %v, want ErrInvalid", err)
	}
}

func TestAnUpdateOfAQueueKeepsWhatItDoesNotName(t *testing.T) {
	eachTransport(t, func(t *testing.T, opts ...millrace.Option) {
		c, ctx := dial(t, opts...), bounded(t)
		q := c.Queue("updated")
		// One that is not there is made.
		if v, err := q.Update(ctx, func(cfg *millrace.QueueConfig) { cfg.Concurrency, cfg.Lease = 3, 5*time.Second }); err != nil || v != 1 {
			t.Fatalf("version %d, %v", v, err)
		}
		tries := 0
		v, err := q.Update(ctx, func(cfg *millrace.QueueConfig) {
			if tries++; tries == 1 { // somebody else is faster
				if _, err := c.Queue("updated").Set(context.WithoutCancel(ctx), millrace.QueueConfig{Concurrency: 3, MaxWorkers: 7}); err != nil {
					t.Error(err)
				}
			}
			cfg.Concurrency = 4
		})
		if err != nil || v != 3 || tries != 2 {
			t.Errorf("version %d after %d tries, %v", v, tries, err)
		}
		if got, err := q.Get(ctx); err != nil || got.Concurrency != 4 || got.MaxWorkers != 7 || got.Lease != 0 {
			t.Errorf("got %+v, %v", got, err)
		}
		if _, err := q.Update(ctx, func(cfg *millrace.QueueConfig) { cfg.Concurrency = -1 }); !errors.Is(err, millrace.ErrInvalid) {
			t.Errorf("a limit below 0: %v, want ErrInvalid", err)
		}
	})
}
