//go:build !invariants

package store

func (t *Txn) checkAbsent([]byte) {}
