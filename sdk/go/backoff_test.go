package millrace

import (
	"testing"
	"time"
)

// TestWaitsAreShortWhileNobodyLeads adds up the longest waits of many drawings.
func TestWaitsAreShortWhileNobodyLeads(t *testing.T) {
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
		if got := longest(c.err, 6); (got <= soonMost) != c.soon {
			t.Errorf("%s: the seventh try comes after up to %s", c.name, got)
		}
		if got := longest(c.err, soonTries+10); got < backoffMax/2 || got > backoffMax {
			t.Errorf("%s: late tries come after up to %s", c.name, got)
		}
	}
	if e := (&Error{Code: CodeUnavailable, RetryAfter: time.Minute}); e.wait(0) != time.Minute {
		t.Errorf("what the server asks for is waited for: %s", e.wait(0))
	}
}
