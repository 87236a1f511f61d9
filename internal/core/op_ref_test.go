package core

import "testing"

func TestATransactionOfRefsGrowsUnlessItOnlyDeletesAndCompares(t *testing.T) {
	id := ObjectID{1}
	for _, c := range []struct {
		name string
		txn  RefTxn
		want bool
	}{
		{"nothing", RefTxn{}, false},
		{"deletions", RefTxn{Changes: []RefChange{{Kind: OpRefDelete}, {Kind: OpSymrefDelete}, {Kind: OpRefUpdate}}}, false},
		{"comparisons", RefTxn{Changes: []RefChange{{Kind: OpRefVerify}, {Kind: OpSymrefVerify}}}, false},
		{"a new ref", RefTxn{Changes: []RefChange{{Kind: OpRefDelete}, {Kind: OpRefCreate, New: id}}}, true},
		{"a move", RefTxn{Changes: []RefChange{{Kind: OpRefUpdate, New: id}}}, true},
		{"a symbolic ref", RefTxn{Changes: []RefChange{{Kind: OpSymrefUpdate, Target: "refs/heads/a"}}}, true},
		{"a pack", RefTxn{Packs: make([]Pack, 1)}, true},
	} {
		if got := c.txn.Grows(); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}
