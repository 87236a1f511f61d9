//go:build !mutants

package store

// mutant says whether a planted bug is on: never, without the build tag mutants.
func mutant(string) bool { return false }

// plantedBug is mutant for the bugs that the tests of other packages find.
func plantedBug(string) bool { return false }
