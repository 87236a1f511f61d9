package queue

// Totals are the counters of many queues together.
type Totals struct {
	Queues                     uint64
	States                     [8]uint64 // tasks now in each core.State, by its number
	Created, Purged            uint64
	Completed, Failed, Crashed uint64 // attempts, ever
	Bytes                      uint64 // payloads and results there are
}

// AddTotals adds the counters of at most n queues to t, those with the next numbers above the one given, and returns the
// last number that it added, and whether there are more. A caller that holds a lock goes on from there after letting
// others have it. The first call, with 0, adds the counters of the queues that are gone.
func (m *Machine) AddTotals(t *Totals, number uint32, n int) (last uint32, more bool) {
	if number == 0 {
		t.Created += m.meta.gone.created
		t.Purged += m.meta.gone.created
		t.Completed += m.meta.gone.completed
		t.Failed += m.meta.gone.failed
		t.Crashed += m.meta.gone.crashed
	}
	at, _ := m.findLine(number + 1)
	for _, l := range m.queues[at:min(at+n, len(m.queues))] {
		if !l.removed {
			t.Queues++
		}
		for i, tasks := range l.states {
			t.States[i] += tasks
		}
		t.Created += l.created
		t.Purged += l.purged
		t.Completed += l.completed
		t.Failed += l.failed
		t.Crashed += l.crashed
		t.Bytes += l.bytes
		number = l.number
	}
	return number, at+n < len(m.queues)
}

// HasTasks reports whether a queue has tasks, ended ones too. Those of a queue that was removed do not count.
func (m *Machine) HasTasks() bool {
	for _, l := range m.queues {
		if l.removed {
			continue
		}
		for _, tasks := range l.states {
			if tasks > 0 {
				return true
			}
		}
	}
	return false
}
