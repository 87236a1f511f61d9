//go:build !mutants

package sim

// seedsForBugs is how many histories are made in builds that carry planted bugs.
func seedsForBugs(n int) int { return n }
