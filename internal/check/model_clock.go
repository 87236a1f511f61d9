package check

import (
	"fmt"

	"github.com/millrace/millrace/internal/core"
)

// clockShift judges that the shard was told what the wall clocks show.
func (m *Model) clockShift(op *core.ClockShift, a answer) error {
	if m.rules < core.FormatQueues {
		if f, ok := a.fact.(core.Invalid); ok && f.Reason == "not_supported" {
			return nil
		}
		return fmt.Errorf("an entry of format %d set the wall clocks: answered %s", m.rules, a)
	}
	if err := m.applied(op, a); err != nil {
		return err
	}
	was := m.shift
	m.change(func() { m.shift = was })
	m.shift = op.Shift
	return nil
}

// now is what wall clocks show, with which times that callers name are compared, or shard time.
func (m *Model) now(wall bool) core.ShardTime {
	if wall {
		return m.stamp.Add(m.shift)
	}
	return m.stamp
}
