//go:build !invariants

package errs

// Invariants says whether this build checks invariants by panicking.
const Invariants = false

// Assertf reports a broken invariant: it panics in builds with invariants and returns a Corruption elsewhere, which
// stops the shard.
func Assertf(ok bool, format string, args ...any) error {
	if !ok {
		return Corruptf("invariant broken: "+format, args...)
	}
	return nil
}
