package queue

import "github.com/millrace/millrace/internal/core"

// Holder is who holds leases: a session of a worker, or a caller of claims, which has none.
type Holder struct {
	Session core.SessionID
	Worker  string
}

// Holding is what a holder holds.
type Holding struct {
	Tasks  int
	Oldest core.ShardTime // when the oldest of its attempts began
}

// Holders tells who holds the running tasks. It looks at each of them.
func (m *Machine) Holders() map[Holder]Holding {
	out := make(map[Holder]Holding)
	for _, r := range m.leases.items { // each running task has a lease
		if r.queue.removed {
			continue
		}
		k := Holder{Session: r.rec.session, Worker: r.rec.worker}
		h, ok := out[k]
		if h.Tasks++; !ok || r.rec.startedAt < h.Oldest {
			h.Oldest = r.rec.startedAt
		}
		out[k] = h
	}
	return out
}
