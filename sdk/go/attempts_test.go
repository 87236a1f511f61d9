package millrace_test

import (
	"maps"
	"testing"
	"time"

	millrace "github.com/millrace/millrace/sdk/go"
)

// The last 20 attempts are listed with the times around them, and of those before them it is told how they ended.
func TestOlderAttemptsAreCountedByEachTransport(t *testing.T) {
	eachTransport(t, func(t *testing.T, opts ...millrace.Option) {
		c := dial(t, opts...)
		ctx := bounded(t)
		zero := time.Duration(0)
		h, err := millrace.Job[string, string]("tries").Attempts(1000).Add(ctx, c, "a")
		if err != nil {
			t.Fatal(err)
		}
		for range 23 {
			got, err := c.Claim(ctx, millrace.ClaimQuery{Queues: []string{"tries"}, Max: 1, Wait: time.Minute, Worker: "one", Lease: time.Minute})
			if err != nil || len(got) != 1 {
				t.Fatal(got, err)
			}
			if _, err := c.Fail(ctx, got[0].ID, got[0].Token, millrace.Failure{Code: "e", RetryAfter: &zero}); err != nil {
				t.Fatal(err)
			}
		}
		list, err := c.Attempts(ctx, h.ID)
		if err != nil || len(list) != 20 || list[0].Number != 4 {
			t.Fatalf("%d attempts, %v", len(list), err)
		}
		for _, a := range list {
			if a.Ready.IsZero() || a.Start.Before(a.Ready) || a.LeaseUntil.Sub(a.Start) != time.Minute || !a.Retry.IsZero() {
				t.Errorf("attempt %+v", a)
			}
		}
		older, err := c.OlderAttempts(ctx, h.ID)
		if err != nil || !maps.Equal(older, map[string]uint64{"failed": 3}) {
			t.Errorf("older %v, %v", older, err)
		}
	})
}
