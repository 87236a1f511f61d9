package commit

import (
	"fmt"

	"github.com/millrace/millrace/internal/core"
)

// repoTwice returns the first op on a repository that an op before it is about too, or -1: a transaction of refs is
// judged as a whole, on the state before the commit.
func repoTwice(ops []core.Op) int {
	first, some := "", false
	// Names beyond the first: a commit with one repository, which is the common case, needs no map.
	var more map[string]bool
	for i, op := range ops {
		name, ok := core.RepoOf(op)
		switch {
		case !ok:
		case !some:
			first, some = name, true
		case name == first || more[name]:
			return i
		default:
			if more == nil {
				more = map[string]bool{}
			}
			more[name] = true
		}
	}
	return -1
}

// inspectRefs judges what the shape of a commit shows of its ops on refs.
func inspectRefs(c *core.Commit) *core.Refusal {
	if i := repoTwice(c.Ops); i >= 0 {
		return &core.Refusal{Op: i, Fact: core.Invalid{
			Field: fmt.Sprintf("ops[%d].repo", i), Reason: "duplicate_repo", Message: "an op before it is about the same repository",
		}}
	}
	for i, op := range c.Ops {
		if txn, ok := op.(*core.RefTxn); ok && txn.Partial && (len(c.Ops) > 1 || c.Fence != nil || len(c.Conditions) > 0) {
			return &core.Refusal{Op: i, Fact: core.Invalid{
				Field: fmt.Sprintf("ops[%d].allow_partial", i), Reason: "not_alone", Message: "it stands alone in its commit",
			}}
		}
	}
	return nil
}
