package node

import (
	"slices"
	"testing"

	"github.com/millrace/millrace/internal/core"
)

func TestASessionHasNoLeaseOfAQueueThatItsHolderDoesNotReach(t *testing.T) {
	id := func(n byte) core.TaskID { return core.TaskID{15: n} }
	leased := []core.Assigned{{Task: id(1), Queue: "mail"}, {Task: id(2), Queue: "web"}, {Task: id(3), Queue: "mail"}}
	wanted := []core.CancelWanted{{Task: id(2)}, {Task: id(3)}}
	spec := core.SessionSpec{}
	if l, w := ofReached(&spec, slices.Clone(leased), slices.Clone(wanted)); len(l) != 3 || len(w) != 2 {
		t.Errorf("of all queues: %v, %v", l, w)
	}
	spec.Reaches = func(queue string) bool { return queue == "mail" }
	l, w := ofReached(&spec, leased, wanted)
	if len(l) != 2 || l[0].Task != id(1) || l[1].Task != id(3) || len(w) != 1 || w[0].Task != id(3) {
		t.Errorf("of mail: %v, %v", l, w)
	}
}
