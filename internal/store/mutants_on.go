//go:build mutants

package store

import (
	"os"
	"sync"
)

// planted is the bug that this run carries, to prove that a test catches it.
var planted = sync.OnceValue(func() string { return os.Getenv("MILLRACE_MUTANT") })

func mutant(name string) bool { return planted() == name }

// plantedBug is mutant for the bugs that the tests of other packages find.
func plantedBug(name string) bool { return mutant(name) }
