package queue

// Totals are the counters of many queues together.
type Totals struct {
	Queues                     uint64
	States                     [8]uint64 // tasks now in each core.State, by its number
	Created, Purged            uint64
	Completed, Failed, Crashed uint64 // attempts, ever
	Bytes                      uint64 // payloads and results there are
}

// AddTotals adds the counters of at most n queues to t, from the one that was made after number queues, and returns how
// many it has passed in all. A caller that holds a lock goes on from there after letting others have it; at the end the
// count stays what it was.
func (m *Machine) AddTotals(t *Totals, number, n int) (next int) {
	end := min(number+n, len(m.lines))
	if end <= number {
		return number
	}
	for _, l := range m.lines[number:end] {
		t.Queues++
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
	return end
}
