package api

import (
	"testing"

	"github.com/millrace/millrace/internal/core"
)

func TestAJobTellsWhenItWillBeDone(t *testing.T) {
	const began, now = 1_000_000, 1_010_000 // it has run for 10 s
	job := func(matched, done, refused uint64, rate uint32) core.BulkJob {
		j := core.BulkJob{State: core.BulkRunning, Started: began, Done: done, Refused: []core.BulkRefused{{Code: "X", Count: refused}}}
		j.Matched, j.Exact, j.Rate = matched, true, rate
		return j
	}
	ended, open := job(100, 50, 0, 10), job(100, 50, 0, 10)
	ended.State, open.Exact = core.BulkDone, false
	for what, c := range map[string]struct {
		job  core.BulkJob
		want core.ShardTime
	}{
		"at the pace so far":             {job(100, 40, 10, 1000), now + 10_000},
		"no faster than its rate":        {job(100, 40, 10, 2), now + 25_000},
		"none handled yet: by the rate":  {job(100, 0, 0, 10), now + 10_000},
		"more met than were counted":     {job(100, 120, 0, 10), now},
		"no end in sight, within a year": {job(1<<60, 1, 0, 10), now + maxETA},
		"done":                           {ended, 0},
		"not all were counted":           {open, 0},
	} {
		jobs := []core.BulkJob{c.job}
		if estimate(jobs, now); jobs[0].ETA != c.want {
			t.Errorf("%s: done at %d, want %d", what, jobs[0].ETA, c.want)
		}
	}
	// The parts of a job in two partitions: the last one counts, and nothing is told where that is not known.
	parts := []core.BulkJob{job(100, 50, 0, 10), job(100, 10, 0, 10)}
	estimate(parts, now)
	all := addJob(addJob(nil, &parts[0]), &parts[1])
	if got := showJob(&all[0]).GetEta(); got == nil || !got.AsTime().Equal(TimeOf(now+90_000).AsTime()) {
		t.Errorf("of two parts: %v", got)
	}
	estimate(parts, now)
	parts[1].Exact = false
	if all = addJob(addJob(nil, &parts[0]), &parts[1]); showJob(&all[0]).GetEta() != nil {
		t.Errorf("of two parts, of which one did not count all: %v", all)
	}
}
