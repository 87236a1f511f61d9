package queue

// Totals are the counters of many queues together. Each field is the sum of the queue counter of that name.
type Totals struct {
	// How many queues were counted.
	Queues uint64
	// States has the tasks now in each core.State, by its number.
	States          [8]uint64
	Created, Purged uint64
	// Completed, Failed and Crashed count attempts, ever.
	Completed, Failed, Crashed uint64
	// Bytes is the length of the payloads and results there are.
	Bytes uint64
}

// AddTotals adds the counters of at most n queues to t, those with the next numbers above the given
// one. It returns the last number that it added, and whether there are more. A caller that holds a
// lock can let others have it and go on from that number. The first call, with 0, adds the counters
// of the queues that are gone.
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
		t.add(l)
		number = l.number
	}
	return number, at+n < len(m.queues)
}

// add adds the counters of a queue.
func (t *Totals) add(l *queueState) {
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
}

// EachTotals is AddTotals for each queue alone: it calls fn with its name and its counters. What was removed has no name; it may come
// several times.
func (m *Machine) EachTotals(number uint32, n int, fn func(name string, t *Totals)) (last uint32, more bool) {
	if number == 0 {
		var gone Totals
		m.AddTotals(&gone, 0, 0)
		fn("", &gone)
	}
	at, _ := m.findLine(number + 1)
	for _, l := range m.queues[at:min(at+n, len(m.queues))] {
		var t Totals
		t.add(l)
		name := l.name
		if l.removed {
			name = ""
		}
		fn(name, &t)
		number = l.number
	}
	return number, at+n < len(m.queues)
}

// HasCrons reports whether there are crons.
func (m *Machine) HasCrons() bool { return len(m.cronNames) > 0 }

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
