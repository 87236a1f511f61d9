package commit

import (
	"slices"

	"github.com/millrace/millrace/internal/core"
)

// counting counts the changes made through it: equal on all replicas, as the apply hash holds.
type counting struct {
	core.Txn
	n uint32
}

func (c *counting) Set(key, value []byte)       { c.n++; c.Txn.Set(key, value) }
func (c *counting) Insert(key, value []byte)    { c.n++; c.Txn.Insert(key, value) }
func (c *counting) Delete(key []byte)           { c.n++; c.Txn.Delete(key) }
func (c *counting) DeleteRange(from, to []byte) { c.n++; c.Txn.DeleteRange(from, to) }

// tick does at most limit steps of the timed work that is due, and reports whether some may be left.
//
// Partitions are served in their order; one that uses up the steps is the last of this tick and of the next one, so
// that a flood of due work in one of them does not hold up the others. When a machine thinks that work is due is
// derived state, and may be early: a visit that changes nothing must not count, or replicas would differ.
func (m *Machine) tick(limit uint32) (more bool, err error) {
	if limit == 0 {
		return true, nil
	}
	first, found := slices.BinarySearchFunc(m.sorted, m.clock.ticked, func(a *partition, p core.Partition) int {
		return comparePartitions(a.p, p)
	})
	if found {
		first++
	}
	left := limit
	for i := range m.sorted {
		part := m.sorted[(first+i)%len(m.sorted)]
		if due, err := m.dueOf(part); err != nil {
			return false, err
		} else if due > m.clock.stamp {
			continue
		}
		used, err := m.tickPartition(part, left)
		if err != nil {
			return false, err
		}
		if left -= used; left == 0 {
			m.clock.ticked = part.p
			return true, nil
		}
	}
	m.clock.ticked = core.Partition{}
	return false, nil
}

// tickPartition does at most limit steps in one partition, and returns how many it used: all of them when work is
// left. Half of the steps at most go to answers that are forgotten.
func (m *Machine) tickPartition(part *partition, limit uint32) (used uint32, err error) {
	m.touch(part)
	if part.due <= m.clock.stamp {
		n, err := m.forgetAnswers(part, int(min(limit/2+1, limit, 1<<30)))
		if err != nil {
			return 0, err
		}
		used = uint32(n)
	}
	if used == limit {
		return limit, nil
	}
	if part.queue.Due() <= m.clock.stamp {
		tx := &counting{Txn: m.tx}
		more, err := part.queue.Tick(tx, m.queueContext(part, ""), limit-used)
		if err != nil {
			return 0, err
		}
		if more {
			return limit, nil
		}
		used = min(limit, used+tx.n) // a step is at least one change
	}
	if used < limit && part.refs.Due() <= m.clock.stamp {
		tx := &counting{Txn: m.tx}
		more, err := part.refs.Tick(tx, m.clock.stamp, limit-used)
		if err != nil {
			return 0, err
		}
		if more {
			return limit, nil
		}
		used = min(limit, used+tx.n)
	}
	if part.due <= m.clock.stamp {
		return limit, nil
	}
	if used == limit {
		return limit, nil
	}
	forgotten, more, err := part.search.Tick(m.tx, m.clock.stamp, limit-used)
	if err != nil || more {
		return limit, err
	}
	return used + forgotten, nil
}

// forgetAnswers forgets request ids and sessions that are due, in at most limit steps, and finds what is due next.
func (m *Machine) forgetAnswers(part *partition, limit int) (used int, err error) {
	used, err = m.forgetRequests(part, limit)
	if err != nil {
		return used, err
	}
	n, err := m.forgetSessions(part, limit-used)
	if err != nil {
		return used, err
	}
	part.due, err = earliest(m.tx, part.p)
	return used + n, err
}
