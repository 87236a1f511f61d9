package check

import (
	"slices"

	"github.com/millrace/millrace/internal/core"
)

// sessionLost judges that a session is gone: each of its leases that stands as it was seen ends as a crash, all others stay. The
// answer says nothing of them.
func (m *Model) sessionLost(p *part, op *core.SessionLost, a answer) error {
	if err := m.applied(op, a); err != nil {
		return err
	}
	for _, l := range op.Leases {
		t := p.tasks[l.Task]
		if t == nil {
			continue
		}
		var next []standing
		for _, s := range t.may {
			after := []step{{next: s}}
			if s.live(l.Token) && s.session == op.Session && s.until == l.Until {
				after = m.cancelled(p, t, s, m.expired(p, t, s))
			}
			for _, st := range after {
				if !slices.Contains(next, st.next) {
					next = append(next, st.next)
				}
			}
		}
		m.stand(p, t, next)
	}
	return nil
}
