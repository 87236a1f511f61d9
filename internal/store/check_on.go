//go:build invariants

package store

import "github.com/millrace/millrace/internal/errs"

// checkAbsent holds the caller of Insert to its promise.
func (t *Txn) checkAbsent(key []byte) {
	_, ok, err := t.Get(key)
	_ = errs.Assertf(err != nil || !ok, "insert of a key that is stored: %x", key)
}
