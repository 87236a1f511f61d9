package check

import (
	"fmt"

	"github.com/millrace/millrace/internal/core"
)

// sealKeys is what is known of the keys that seal sessions: how many were added, and when the last one was.
type sealKeys struct {
	version uint64
	last    core.ShardTime
}

// sessionKeyAdd judges a key. One that follows another within a day changes nothing, unless it ends all sessions.
func (m *Model) sessionKeyAdd(op *core.SessionKeyAdd, a answer) error {
	if m.rules < core.FormatOperate {
		if f, ok := a.fact.(core.Invalid); ok && f.Reason == "not_supported" {
			return nil
		}
		return fmt.Errorf("an entry of format %d added a key of sessions: answered %s", m.rules, a)
	}
	was, next := m.seals, m.seals
	wall := m.now(true)
	if age := wall - was.last; op.End || was.version == 0 || age < 0 || age >= 24*60*60*1000 {
		next = sealKeys{was.version + 1, wall}
	}
	if err := m.judgeVersion(-1, was.version, next.version, a); err != nil || a.fact != nil {
		return err
	}
	m.change(func() { m.seals = was })
	m.seals = next
	return nil
}
