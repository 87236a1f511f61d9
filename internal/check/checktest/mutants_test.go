//go:build mutants

package checktest

import (
	"testing"

	"github.com/millrace/millrace/internal/core"
)

// The histories prove something only if they find what is planted.
func TestTheModelCatchesPlantedBugs(t *testing.T) {
	for _, name := range []string{
		"no_fence", "effects_in_second_entry", "dedup_lost_on_restart", "idempotency_key_without_tenant",
		"fenced_request_applied_twice", "request_id_after_fence",
		"cancel_refuses_completion", "cancelled_failure_is_retried", "cancel_grace_is_cut", "deliveries_before_redrive_count",
		"forced_release_keeps_token", "limit_judged_before_entry", "paused_queue_grants", "redrive_keeps_failures", "started_task_expires",
		"quota_ignores_others", "quota_lets_all_run",
	} {
		t.Setenv("MILLRACE_MUTANT", name)
		found := false
		for seed := uint64(0); seed < 60 && !found; seed++ {
			_, err := Run(Options{Seed: seed, Entries: 500})
			if found = err != nil; found {
				t.Logf("%s: seed %d: %v", name, seed, err)
			}
		}
		if !found {
			t.Errorf("%s was not found", name)
		}
	}
}

// A tenant whose answers depend on another's is found by replaying the log without the other.
func TestANeighbourWhoIsSeenIsFound(t *testing.T) {
	request := func(tenant core.TenantID, key string) core.Commit {
		c := put(key)
		c.Partition.Tenant, c.RequestID = tenant, core.RequestID{7}
		return c
	}
	log := make([]LogEntry, 2)
	for i, c := range []core.Commit{request(1, "x"), request(2, "y")} {
		e := &core.Entry{Format: core.FormatCurrent, Stamp: core.ShardTime(i + 1), Commits: []core.Commit{c}}
		log[i] = LogEntry{Index: uint64(i + 1), Data: core.AppendEntry(nil, e)}
	}
	second := core.Partition{Tenant: 2, Namespace: 1}
	if r, err := Alone(log, second); err != nil || !r.OK() {
		t.Errorf("without a bug: %v, %s", err, r)
	}
	t.Setenv("MILLRACE_MUTANT", "idempotency_key_without_tenant")
	if r, err := Alone(log, second); err != nil || !r.Broke("answer") {
		t.Errorf("with the bug: %v, %s", err, r)
	}
}
