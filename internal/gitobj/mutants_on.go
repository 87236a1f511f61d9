//go:build mutants

package gitobj

import "os"

// mutant says whether a bug is planted, to prove that a test catches it.
func mutant(name string) bool { return os.Getenv("MILLRACE_MUTANT") == name }
