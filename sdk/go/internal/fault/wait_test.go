package fault

import (
	"testing"
	"time"

	"github.com/millrace/millrace/sdk/go/internal/retry"
	"github.com/millrace/millrace/sdk/go/internal/wire"
)

// TestWaitsAreShortWhileNobodyLeads adds up the longest waits of many drawings.
func TestWaitsAreShortWhileNobodyLeads(t *testing.T) {
	const soonest = 250 * time.Millisecond // the longest wait while an election may be under way
	longest := func(e *Fault, try int) (most time.Duration) {
		for range 2000 {
			most = max(most, e.Wait(try))
		}
		return most
	}
	for _, c := range []struct {
		name string
		err  *Fault
		soon bool
	}{
		{"no node leads", &Fault{Code: wire.Unavailable, Reason: "no_leader"}, true},
		{"another leads", &Fault{Code: wire.NotLeader}, true},
		{"not reached", &Fault{Code: wire.Unavailable}, true},
		{"too much to do", &Fault{Code: wire.Unavailable, Reason: "overload", Limit: "proposals"}, false},
		{"a quota", &Fault{Code: wire.ResourceExhausted}, false},
	} {
		if got := longest(c.err, 6); (got <= soonest) != c.soon {
			t.Errorf("%s: the seventh try comes after up to %s", c.name, got)
		}
		if got := longest(c.err, 34); got < retry.Max/2 || got > retry.Max {
			t.Errorf("%s: late tries come after up to %s", c.name, got)
		}
	}
	if e := (&Fault{Code: wire.Unavailable, RetryAfter: time.Minute}); e.Wait(0) != time.Minute {
		t.Errorf("what the server asks for is waited for: %s", e.Wait(0))
	}
}
