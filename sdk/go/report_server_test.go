package millrace_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	millrace "github.com/millrace/millrace/sdk/go"
)

// TestAHandlerTellsOfItsWork: progress is of the attempt, the log of all attempts, and the checkpoint is given to the next one.
func TestAHandlerTellsOfItsWork(t *testing.T) {
	t.Parallel()
	eachTransport(t, func(t *testing.T, opts ...millrace.Option) {
		c, ctx := dial(t, opts...), bounded(t)
		job := millrace.Job[int, string]("telling").Retry(millrace.RetryPolicy{Backoff: millrace.Fixed, Base: time.Millisecond})
		running, goOn := make(chan struct{}), make(chan struct{})
		w := c.Worker(millrace.Slots(1))
		job.Handle(w, func(ctx context.Context, task *millrace.Task, _ int) (string, error) {
			if task.Attempt == 1 {
				if task.Checkpoint() != nil {
					t.Errorf("the first attempt has the checkpoint %q", task.Checkpoint())
				}
				task.Progress(30, "began\x00")
				task.Log("first line\n")
				task.Log(strings.Repeat("é", 5000))
				if err := task.SaveCheckpoint(ctx, []byte("at 3")); err != nil {
					t.Error(err)
				}
				if err := task.SaveCheckpoint(ctx, make([]byte, 64<<10+1)); !errors.Is(err, millrace.ErrTooLarge) {
					t.Errorf("a checkpoint of more than 64 KiB: %v", err)
				}
				task.Log("the refusal ends no log")
				return "", errors.New("broke")
			}
			task.Progress(200, strings.Repeat("m", 300))
			for i := range 600 {
				task.Log(fmt.Sprint("line ", i))
			}
			close(running)
			<-goOn
			task.Log("last line")
			return string(task.Checkpoint()), nil
		})
		run(t, w)
		h, err := job.Add(ctx, c, 1)
		if err != nil {
			t.Fatal(err)
		}
		<-running
		var info *millrace.TaskInfo
		for info == nil || info.Progress == nil {
			if info, err = c.Task(ctx, h.ID); err != nil {
				t.Fatal(err)
			}
		}
		if p := info.Progress; p.Percent != 100 || len(p.Message) != 256 || p.At.IsZero() {
			t.Errorf("progress %+v", p)
		}
		close(goOn)
		if got, err := h.Wait(ctx); err != nil || got != "at 3" {
			t.Errorf("completed with %q, %v", got, err)
		}
		first, err := c.Logs(ctx, h.ID, millrace.LogQuery{Attempt: 1})
		if err != nil || len(first.Lines) != 3 || first.Lines[2].Text != "the refusal ends no log" || first.Lines[0].Text != "first line" || first.Lines[1].Text != strings.Repeat("é", 2048) || first.Lines[0].Attempt != 1 {
			t.Errorf("the log of the first attempt: %+v, %v", first, err)
		}
		all, err := c.Logs(ctx, h.ID, millrace.LogQuery{Limit: 1000})
		if err != nil {
			t.Fatal(err)
		}
		// How many of the 600 are dropped depends on how many sends they are spread over; each is kept or counted.
		if n := len(all.Lines); all.More || uint64(n)+all.Dropped != 3+600+1 || n < 500 || all.Lines[n-1].Text != "last line" || all.Lines[n-1].Number != all.Last {
			t.Errorf("of the log: %d lines, dropped %d, last %d, more %v", n, all.Dropped, all.Last, all.More)
		}
		rest, err := c.Logs(ctx, h.ID, millrace.LogQuery{After: all.Last - 1, Limit: 1})
		if err != nil || len(rest.Lines) != 1 || rest.Lines[0].Text != "last line" {
			t.Errorf("the end of the log: %+v, %v", rest, err)
		}
		if _, err := c.Logs(ctx, millrace.NewID(), millrace.LogQuery{}); !errors.Is(err, millrace.ErrNotFound) {
			t.Errorf("the log of an unknown task: %v", err)
		}
	})
}

// TestAHandlerThatLostItsLeaseSavesNothing: the checkpoint of the next attempt stays as it is.
func TestAHandlerThatLostItsLeaseSavesNothing(t *testing.T) {
	t.Parallel()
	eachTransport(t, func(t *testing.T, opts ...millrace.Option) {
		c, ctx := dial(t, opts...), bounded(t)
		job := millrace.Job[int, string]("losing")
		w := c.Worker(millrace.Slots(1))
		saved := make(chan error, 1)
		job.Handle(w, func(_ context.Context, task *millrace.Task, _ int) (string, error) {
			if task.Attempt == 1 {
				if _, err := c.ForceRelease(ctx, task.ID); err != nil {
					t.Error(err)
				}
				saved <- task.SaveCheckpoint(ctx, []byte("stale"))
				return "", nil
			}
			return string(task.Checkpoint()), nil
		})
		run(t, w)
		h, err := job.Add(ctx, c, 1)
		if err != nil {
			t.Fatal(err)
		}
		if err := <-saved; !errors.Is(err, millrace.ErrLeaseLost) {
			t.Errorf("saved: %v", err)
		}
		if got, err := h.Wait(ctx); err != nil || got != "" {
			t.Errorf("completed with %q, %v", got, err)
		}
	})
}
