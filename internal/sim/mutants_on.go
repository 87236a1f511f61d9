//go:build mutants

package sim

import "os"

// The planted bugs that the simulator is there to find. They are in the packages that it runs.
const (
	_ = "vote_not_synced"
	_ = "ack_before_quorum"
	_ = "apply_above_durable"
	_ = "stale_leader_read"
	_ = "serve_before_own_term"
	_ = "wall_clock_lease"
	_ = "wall_time_in_apply"
	_ = "map_order_in_apply"
	_ = "delayed_lost_at_failover"
	_ = "double_apply_after_snapshot"
	_ = "promote_behind"
	_ = "reused_replica_id"
)

// seedsForBugs is how many histories are made to find one.
func seedsForBugs(n int) int {
	if os.Getenv("MILLRACE_MUTANT") != "" {
		return 400
	}
	return n
}
