package check

import (
	"fmt"
	"reflect"

	"github.com/millrace/millrace/internal/core"
)

// formatRaise judges a raise of the format that entries are written in: it never falls, and it is of the membership that
// the asking node had looked at.
func (m *Model) formatRaise(op *core.FormatRaise, a answer) error {
	old := max(m.written, 1)
	var want core.Fact
	switch {
	case op.To < old:
		want = core.Invalid{Field: "format", Reason: "falls", Message: "the format of a cluster never falls"}
	case op.To > old && op.Members != m.club.version:
		want = core.WrongMembership{Reason: "changed"}
	}
	if want != nil {
		if !reflect.DeepEqual(want, a.fact) {
			return fmt.Errorf("%T answered %s, expected to be refused with %s", op, a, named(want))
		}
		return nil
	}
	if a.fact != nil {
		return fmt.Errorf("%T was refused with %s", op, named(a.fact))
	}
	if was := m.written; op.To > old {
		m.written = op.To
		m.change(func() { m.written = was })
	}
	if !a.blind && (a.result.Replayed != (op.To == old) || a.result.Version != uint64(op.To)) {
		return fmt.Errorf("%T answered %s, expected format %d", op, a, op.To)
	}
	return nil
}
