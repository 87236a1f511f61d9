package commit

import (
	"slices"

	"github.com/millrace/millrace/internal/core"
)

// tick does at most limit steps of the timed work that is due, and reports whether some may be left.
//
// Partitions are served in their order; one that uses up the steps is the last of this tick and of the next one, so
// that a flood of due work in one of them does not hold up the others. When a machine thinks that work is due is
// derived state, and may be early: a visit that changes nothing must not count, or replicas would differ.
func (m *Machine) tick(limit uint32) (more bool, err error) {
	if limit == 0 {
		return true, nil
	}
	// The tick begins behind the partition that the last one ended with, and goes round once.
	first, found := slices.BinarySearchFunc(m.sorted, m.clock.ticked, func(a *partition, p core.Partition) int {
		return comparePartitions(a.p, p)
	})
	if found {
		first++
	}
	// After an entry that moved what all due times depend on, the kept ones are not asked.
	left, moved := limit, m.movesDue()
	for i := range m.sorted {
		part := m.sorted[(first+i)%len(m.sorted)]
		due := part.nextDue
		if part.touched || moved {
			due = m.dueOf(part)
		}
		if due > m.clock.stamp {
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
	// Everything that is due was done: the next tick begins with the first partition.
	m.clock.ticked = core.Partition{}
	return false, nil
}

// tickPartition does at most limit steps in one partition, and returns how many it used: all of them when work is
// left. Half of the steps at most go to answers that are forgotten.
func (m *Machine) tickPartition(part *partition, limit uint32) (used uint32, err error) {
	m.touch(part)
	if part.due <= m.clock.stamp {
		// At least one step goes to answers, however few there are.
		n, err := m.forgetAnswers(part, int(min(limit/2+1, limit, 1<<30)))
		if err != nil {
			return 0, err
		}
		used = uint32(n)
	}
	if used == limit {
		return limit, nil
	}
	for _, s := range part.services {
		switch {
		case used == limit:
			return limit, nil
		case s == service(part.search) && part.due <= m.clock.stamp: // answers that are left go before recordings
			return limit, nil
		case s.Due() > m.clock.stamp:
			continue
		}
		n, more, err := s.Tick(m.tx, m.context(part, nil), limit-used)
		if err != nil {
			return 0, err
		}
		if more {
			return limit, nil
		}
		used = min(limit, used+n)
	}
	return used, nil
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
