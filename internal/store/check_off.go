//go:build !invariants

package store

// checkAbsent does nothing: only builds with invariants pay for the look-up.
func (t *Txn) checkAbsent([]byte) {}
