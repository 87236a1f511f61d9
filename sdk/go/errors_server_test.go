package millrace_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	millrace "github.com/millrace/millrace/sdk/go"
)

// TestErrorsAreListedInGroups: errors that are alike are one group, by whose fingerprint their tasks are found and begun again.
func TestErrorsAreListedInGroups(t *testing.T) {
	t.Parallel()
	eachTransport(t, func(t *testing.T, opts ...millrace.Option) {
		c, ctx := dial(t, opts...), bounded(t)
		of := millrace.ErrorQuery{Queue: "grouped"}
		if list, err := c.Errors(ctx, of); err != nil || len(list.Groups) != 0 || list.Partial {
			t.Fatalf("before: %+v, %v", list, err)
		}
		job := millrace.Job[int, int]("send").Queue("grouped")
		for _, f := range []millrace.Failure{
			{Message: "order 17 is unknown"}, {Message: "order 4 is unknown"}, {Code: "E_SMTP", Message: "the server is down"},
		} {
			if _, err := job.Add(ctx, c, 1); err != nil {
				t.Fatal(err)
			}
			tasks, err := c.Claim(ctx, millrace.ClaimQuery{Queues: []string{"grouped"}})
			if err != nil || len(tasks) != 1 {
				t.Fatalf("claimed %v, %v", tasks, err)
			}
			f.Fatal = true
			if _, err := c.Fail(ctx, tasks[0].ID, tasks[0].Token, f); err != nil {
				t.Fatal(err)
			}
		}
		list, err := c.Errors(ctx, millrace.ErrorQuery{Queue: "grouped", Kind: "send", Since: time.Hour})
		if err != nil || list.Partial || len(list.Groups) != 2 {
			t.Fatalf("listed: %+v, %v", list, err)
		}
		g := list.Groups[0]
		if g.Count != 2 || g.Queue != "grouped" || g.Kind != "send" || g.Code != "" || g.Message != "order 4 is unknown" || len(g.Sample) != 2 ||
			len(g.Trend) != 24 || g.Trend[22]+g.Trend[23] != 2 || g.First.IsZero() || g.Last.Before(g.First) || len(g.Fingerprint) != 16 {
			t.Errorf("the first group is %+v", g)
		}
		if one := list.Groups[1]; one.Code != "E_SMTP" || one.Count != 1 {
			t.Errorf("the second group is %+v", one)
		}
		found, next, err := c.List(ctx, millrace.ListQuery{Queue: "grouped", State: millrace.Dead, Fingerprint: g.Fingerprint})
		if err != nil || next != "" || len(found) != 2 || found[0].Fingerprint != g.Fingerprint || !slices.Contains(g.Sample, found[0].ID) {
			t.Errorf("found by the fingerprint: %v, %v", found, err)
		}
		attempts, err := c.Attempts(ctx, g.Sample[0])
		if err != nil || len(attempts) != 1 || attempts[0].Fingerprint != g.Fingerprint {
			t.Errorf("attempts: %+v, %v", attempts, err)
		}
		n, err := c.CountBulk(ctx, millrace.BulkRetry, millrace.TaskFilter{Queue: "grouped", State: millrace.Dead, Fingerprint: g.Fingerprint})
		if err != nil || n.Count != 2 {
			t.Errorf("a job would find %+v, %v", n, err)
		}
		if _, _, err := c.List(ctx, millrace.ListQuery{Fingerprint: "other"}); !errors.Is(err, millrace.ErrInvalid) {
			t.Errorf("a list by no fingerprint: %v", err)
		}
		if _, err := c.Errors(ctx, millrace.ErrorQuery{Since: -time.Second}); !errors.Is(err, millrace.ErrInvalid) {
			t.Errorf("a time that is negative: %v", err)
		}
		if _, err := c.Errors(ctx, millrace.ErrorQuery{Kind: "a b"}); !errors.Is(err, millrace.ErrInvalid) {
			t.Errorf("a kind that is none: %v", err)
		}
	})
}
