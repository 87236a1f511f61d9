//go:build invariants

package errs

import "fmt"

// Invariants says whether this build checks invariants by panicking.
const Invariants = true

// Assertf reports a broken invariant: it panics in builds with invariants and returns a Corruption elsewhere, which
// stops the shard.
func Assertf(ok bool, format string, args ...any) error {
	if !ok {
		panic(fmt.Sprintf("invariant broken: "+format, args...))
	}
	return nil
}
