package node

import (
	"slices"

	"github.com/millrace/millrace/internal/core"
)

// ofReached leaves out the leases of a session, and those of its cancels that are wanted, whose queues the session's holder does not
// reach: the session may have been another holder's, or its token may have reached more. They are neither kept nor given again, and
// end by themselves.
func ofReached(spec *core.SessionSpec, leased []core.Assigned, wanted []core.CancelWanted) ([]core.Assigned, []core.CancelWanted) {
	if spec.Reaches == nil {
		return leased, wanted
	}
	leased = slices.DeleteFunc(leased, func(t core.Assigned) bool { return !spec.Reaches(t.Queue) })
	return leased, slices.DeleteFunc(wanted, func(w core.CancelWanted) bool {
		return !slices.ContainsFunc(leased, func(t core.Assigned) bool { return t.Task == w.Task })
	})
}
