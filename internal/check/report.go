package check

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// maxViolations bounds how many violations a report spells out; all are counted.
const maxViolations = 100

// Violation is one broken promise.
type Violation struct {
	Rule string // snake_case, such as lost or delivered_after_completion
	What string // which ids, tokens and indexes, in one line
}

// String returns rule and what.
func (v Violation) String() string { return v.Rule + ": " + v.What }

// Report is what one checker found.
type Report struct {
	Checker    string         // snake_case
	Checked    int            // calls or facts that were judged
	Counts     map[string]int // what a reader wants to know besides violations, such as recovered
	Violations []Violation    // the first 100
	Total      int            // of violations
	Invalid    string         // why the run proves nothing; empty: it does
}

// NewReport begins the report of a checker.
func NewReport(checker string) *Report { return &Report{Checker: checker, Counts: map[string]int{}} }

// Violate notes a broken promise.
func (r *Report) Violate(rule, format string, args ...any) {
	r.Total++
	if len(r.Violations) < maxViolations {
		r.Violations = append(r.Violations, Violation{Rule: rule, What: fmt.Sprintf(format, args...)})
	}
}

// Done ends a report: one that judged nothing is invalid.
func (r *Report) Done() *Report {
	if r.Checked == 0 && r.Invalid == "" {
		r.Invalid = "nothing to judge"
	}
	return r
}

// OK reports whether the run is valid and broke nothing.
func (r *Report) OK() bool { return r.Total == 0 && r.Invalid == "" }

// Broke reports whether a violation of the rule is among those spelled out.
func (r *Report) Broke(rule string) bool {
	return slices.ContainsFunc(r.Violations, func(v Violation) bool { return v.Rule == rule })
}

// String returns one line for a good report, and one more for each violation spelled out.
func (r *Report) String() string {
	var b strings.Builder
	switch {
	case r.Total > 0:
		fmt.Fprintf(&b, "%s: FAIL, %d violations", r.Checker, r.Total)
	case r.Invalid != "":
		fmt.Fprintf(&b, "%s: INVALID, %s", r.Checker, r.Invalid)
	default:
		fmt.Fprintf(&b, "%s: ok", r.Checker)
	}
	fmt.Fprintf(&b, ", %d checked", r.Checked)
	for _, name := range slices.Sorted(maps.Keys(r.Counts)) {
		fmt.Fprintf(&b, ", %s %d", name, r.Counts[name])
	}
	for _, v := range r.Violations {
		fmt.Fprintf(&b, "\n  %s", v)
	}
	return b.String()
}
