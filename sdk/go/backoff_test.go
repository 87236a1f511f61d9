package millrace

import (
	"testing"
	"time"

	"github.com/millrace/millrace/sdk/go/internal/retry"
)

// TestWaitsAreShortWhileNobodyLeads adds up the longest waits of many drawings.
func TestWaitsAreShortWhileNobodyLeads(t *testing.T) {
	const soonest = 250 * time.Millisecond // the longest wait while an election may be under way
	longest := func(e *Error, try int) (most time.Duration) {
		for range 2000 {
			most = max(most, e.wait(try))
		}
		return most
	}
	for _, c := range []struct {
		name string
		err  *Error
		soon bool
	}{
		{"no node leads", &Error{Code: CodeUnavailable, Reason: "no_leader"}, true},
		{"another leads", &Error{Code: CodeNotLeader}, true},
		{"not reached", &Error{Code: CodeUnavailable}, true},
		{"too much to do", &Error{Code: CodeUnavailable, Reason: "overload", Limit: "proposals"}, false},
		{"a quota", &Error{Code: CodeResourceExhausted}, false},
	} {
		if got := longest(c.err, 6); (got <= soonest) != c.soon {
			t.Errorf("%s: the seventh try comes after up to %s", c.name, got)
		}
		if got := longest(c.err, 34); got < retry.Max/2 || got > retry.Max {
			t.Errorf("%s: late tries come after up to %s", c.name, got)
		}
	}
	if e := (&Error{Code: CodeUnavailable, RetryAfter: time.Minute}); e.wait(0) != time.Minute {
		t.Errorf("what the server asks for is waited for: %s", e.wait(0))
	}
}
