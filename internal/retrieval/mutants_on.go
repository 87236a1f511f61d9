//go:build mutants

package retrieval

import (
	"os"
	"sync"
)

// planted is the bug that this run carries, to prove that a test catches it.
var planted = sync.OnceValue(func() string { return os.Getenv("MILLRACE_MUTANT") })

func mutant(name string) bool { return planted() == name }
