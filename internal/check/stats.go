package check

import "github.com/millrace/millrace/internal/core"

// QueueCount are a queue's counters as they are read back.
type QueueCount struct {
	Queue   string
	States  map[string]uint64 // tasks now in each state, by its name
	Created uint64
	Purged  uint64
}

// StatsRecount judges a queue's counters against a recount of its tasks. Rules: state (a counter differs from the
// number of tasks in that state), created (created is not the sum of the states and purged).
func StatsRecount(stats []QueueCount, final []TaskState) *Report {
	r := NewReport("stats_recount")
	count := map[string]map[core.State]uint64{}
	for _, t := range final {
		if count[t.Queue] == nil {
			count[t.Queue] = map[core.State]uint64{}
		}
		count[t.Queue][t.State]++
	}
	for _, s := range stats {
		r.Checked++
		sum := s.Purged
		for _, state := range core.States() {
			sum += s.States[state.String()]
			if got, want := s.States[state.String()], count[s.Queue][state]; got != want {
				r.Violate("state", "queue %s counts %d tasks as %s, there are %d", s.Queue, got, state, want)
			}
		}
		if s.Created != sum {
			r.Violate("created", "queue %s: created %d, states and purged make %d", s.Queue, s.Created, sum)
		}
	}
	return r.Done()
}
