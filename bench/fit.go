package bench

import (
	"context"
	"fmt"
	"strings"
)

// UnfitError says that the host is not fit to be measured on, before anything was measured. Checks
// holds what was looked at last.
type UnfitError struct{ Checks []HostCheck }

func (e *UnfitError) Error() string {
	var wrong []string
	for _, c := range e.Checks {
		if c.Level == Fail {
			wrong = append(wrong, c.Name+": "+c.Found+" ("+c.Fix+")")
		}
	}
	return "the host is not fit to be measured on: " + strings.Join(wrong, "; ") + "; --force measures all the same"
}

// fitLooks is how often a host is looked at that is not quiet at first: what disturbs it may be about to end.
const fitLooks = 5

// fit refuses to begin a profile with verdicts on a host that would have its runs left out: hours
// would bring no run that counts. It looks up to fitLooks times. Rows that are named without a
// profile are measured in any case; what disturbs them leaves them out by cause.
func (u *runner) fit(ctx context.Context, specs []runSpec) error {
	if u.c.Force || u.c.Profile == "" || u.host == nil || u.c.Topology == Remote {
		return nil
	}
	judged := false
	for i := range specs {
		judged = judged || specs[i].verdicts && !specs[i].suite.Local
	}
	if !judged {
		return nil
	}
	var checks []HostCheck
	for i := range fitLooks {
		checks = []HostCheck{quiet(ctx, u.host), pressure(ctx, u.host)}
		if ctx.Err() != nil {
			return nil // the measurement says that it was interrupted
		}
		if DoctorExit(checks) == ExitOK {
			return nil
		}
		u.c.say("the host is not quiet (look %d of %d): %s", i+1, fitLooks, foundOf(checks))
	}
	return &UnfitError{checks}
}

// foundOf tells all checks in one line.
func foundOf(checks []HostCheck) string {
	var out []string
	for _, c := range checks {
		out = append(out, fmt.Sprintf("%s: %s", c.Name, c.Found))
	}
	return strings.Join(out, "; ")
}
