package queue

import (
	"slices"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/keys"
)

// A queue that a create made goes by itself, at the end of the entry after which nothing refers to
// it: it has no configuration, no task, no id that is known by a record of its number, and no
// unique key stored by its number. Its number is not given again. What outlives it, tombstones and
// windows of unique keys, does not name its number.
// vacant orders queues by number in the Machine's heap of those that may go.

type vacant struct{ *queueState }

func (v vacant) place() *int32        { return &v.byVacant }
func (v vacant) before(o vacant) bool { return v.number < o.number }

// maxDropped bounds how many queues go in one entry. What is left goes at the end of the next entry
// of the partition, wherever that comes from.
const maxDropped = 1024

// noteVacant takes a queue into the heap of those that may go, or out of it. It must follow any
// change of a queue, which End sees to for all that were touched.
func (m *Machine) noteVacant(v core.View, l *queueState) error {
	if l.gone {
		return nil
	}
	free := l.isVacant()
	if free && m.numbered {
		from, to := keys.UniqueRange(m.p, l.number)
		some, err := core.SomeRow(v, from, to)
		if err != nil {
			return err
		}
		free = !some
	}
	m.vacant.keep(vacant{l}, free)
	return nil
}

// isVacant reports whether a queue may go, apart from unique keys: it was not removed, has no
// configuration of its own, and is empty.
func (l *queueState) isVacant() bool {
	return !l.removed && !l.isPaused() && l.config.Version == 0 && l.share == nil && l.isEmpty()
}

// isEmpty reports whether a queue has neither tasks nor removed tasks whose ids are known by its number.
func (l *queueState) isEmpty() bool {
	for _, tasks := range l.states {
		if tasks > 0 {
			return false
		}
	}
	for i := range l.past {
		if l.past[i].known != core.Never {
			return false
		}
	}
	return true
}

// dropVacant lets the queues go that may, lowest number first, at most maxDropped of them.
func (m *Machine) dropVacant(tx core.Txn) {
	for range maxDropped {
		v, ok := m.vacant.top()
		if !ok {
			return
		}
		m.drop(tx, v.queueState)
	}
}

// drop deletes what is stored of a queue to which nothing refers, and adds its counters to those of
// the queues that are gone.
func (m *Machine) drop(tx core.Txn, l *queueState) {
	m.vacant.keep(vacant{l}, false)
	m.setPaused(l, core.QueuePaused{})
	m.dropErrors(tx, l)
	l.gone = true
	if !l.removed {
		delete(m.names, l.name)
		m.key = keys.AppendQueueConfig(m.key[:0], m.p, l.name)
		tx.Delete(m.mem.own(m.key))
	}
	m.key = keys.AppendQueueCounters(m.key[:0], m.p, l.number)
	tx.Delete(m.mem.own(m.key))
	g := &m.meta.gone
	g.created += l.created
	g.completed += l.completed
	g.failed += l.failed
	g.crashed += l.crashed
	if i, ok := m.findLine(l.number); ok {
		m.queues = slices.Delete(m.queues, i, i+1)
	}
}
