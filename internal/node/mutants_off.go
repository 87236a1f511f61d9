//go:build !mutants

package node

// plantedBug says whether a machine carries a planted bug: never, without the build tag mutants.
func plantedBug(string) bool { return false }
