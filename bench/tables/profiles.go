package tables

import (
	"time"

	"github.com/millrace/millrace/bench"
)

// Profiles returns the named choices of rows.
func Profiles() []bench.Profile {
	return []bench.Profile{
		{
			Name: Smoke, Title: "one row of each suite, audited, no verdict", Runs: 1, Window: smokeWindow, Warmup: 100 * time.Millisecond,
			Fsync: true, Minutes: 0.5,
		},
		{
			Name: Quick, Title: "the rows of seeds with a quarter of the window; 3 runs: a look", Runs: 3, Window: quarter, Fsync: true,
			Verdicts: true, Minutes: 23,
		},
		{
			Name: Seeds, Title: "one row per published figure, with the reference's windows", Runs: 5, Fsync: true, Verdicts: true,
			Minutes: 78,
		},
		{
			Name: Full, Title: "every row that is built, with and without fsync", Runs: 5, Fsync: true, None: true, Verdicts: true,
		},
	}
}

// smokeWindow is long enough for every driver to go through all that it does, also on a busy
// machine. No verdict rests on it.
func smokeWindow(suite string, _ time.Duration) time.Duration {
	if suite == "commit.effects" { // three ways of the same work in turn
		return 2 * time.Second
	}
	return 500 * time.Millisecond
}

// quarter is a quarter of the reference's window, at least 2 s.
func quarter(_ string, reference time.Duration) time.Duration { return max(reference/4, 2*time.Second) }
