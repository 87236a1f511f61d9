//go:build mutants

package commit_test

import (
	"testing"

	"github.com/millrace/millrace/internal/machine/commit"
)

// Each planted bug must be caught by the suite that is there to catch it: a suite that passes under its bug proves
// nothing. The bugs can also be switched on one by one by MILLRACE_MUTANT, under which ordinary tests then fail.
func TestEachPlantedBugIsCaught(t *testing.T) {
	shortSequences := func(o commit.Options) error {
		if _, err := explore(o, 3, "create t1 queue=q\ncreate t2 queue=q", "grant queue=q n=2 lease=5s session=w1"); err != nil {
			return err
		}
		return nil
	}
	for bug, suite := range map[string]func(commit.Options) error{
		"no_fence":                       shortSequences,
		"effects_in_second_entry":        shortSequences,
		"dedup_lost_on_restart":          repeatsSurviveARestart,
		"idempotency_key_without_tenant": tenantsHaveRequestIDsOfTheirOwn,
		"fenced_request_applied_twice":   fencedRequestsAreAppliedOnce,
		"request_id_after_fence":         fencedRequestsAreAppliedOnce,
	} {
		t.Setenv("MILLRACE_MUTANT", "")
		if err := suite(commit.Options{}); err != nil {
			t.Errorf("without a bug: %v", err)
		}
		t.Setenv("MILLRACE_MUTANT", bug)
		err := suite(commit.Options{})
		if err == nil {
			t.Errorf("%s is not caught", bug)
			continue
		}
		t.Logf("%s: %v", bug, err)
	}
}
