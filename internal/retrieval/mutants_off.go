//go:build !mutants

package retrieval

// mutant says whether a planted bug is on: never, without the build tag mutants.
func mutant(string) bool { return false }
