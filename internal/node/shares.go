package node

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/millrace/millrace/internal/core"
)

// shares says how the slots of one subscription, or the tasks of one claim, are shared among its queues: by stride scheduling, as keys
// share a queue. Apply decides by the passes that stand in each grant; these are soft state, and expect what grants in the log will
// give. The dispatcher's mutex guards it.
type shares struct {
	// By the subscription's queues, in its order: weight, and pass. In strict order all weights are 0, and no pass moves.
	queues []core.GrantQueue
	// The pass of the queue that was served last. One that had nothing is brought up to it, so that it saves nothing up.
	now uint64
}

// sharesOf returns the shares of a subscription; nil: its queues are served in turn.
func sharesOf(queues []core.GrantQueue, strict bool) *shares {
	if !strict && !slices.ContainsFunc(queues, func(q core.GrantQueue) bool { return q.Weight > 1 }) {
		return nil
	}
	s := &shares{queues: slices.Clone(queues)}
	for i := range s.queues {
		q := &s.queues[i]
		if q.Pass = 0; strict {
			q.Weight = 0
		}
	}
	return s
}

// draw gives a claim the passes that it begins with, as it has no grants before: the chance that a queue is the first one is its share
// of the weights. seed tells one claim from another.
func (s *shares) draw(seed uint64) {
	r := rand.New(rand.NewPCG(seed, 0))
	for i := range s.queues {
		q := &s.queues[i]
		// Of several exponential variables the smallest is one with the probability of its rate's share of all.
		q.Pass = uint64(r.ExpFloat64() * float64(q.Stride()))
	}
}

// expect expects up to n tasks of the grant's queues, as Apply will serve them, and returns how many. It writes the passes and weights
// of the grant.
func (s *shares) expect(g *grant, n int) (total int) {
	least := uint64(math.MaxUint64)
	for _, at := range g.places {
		q := &s.queues[at]
		q.Pass = max(q.Pass, s.now)
		least = min(least, q.Pass)
	}
	g.op.Weighted = true
	for i, at := range g.places {
		q := &s.queues[at]
		g.op.Queues[i].Weight, g.op.Queues[i].Pass = q.Weight, q.Pass-least
	}
	for total < n {
		best := -1
		for i, dm := range g.demands {
			if dm.available() > 0 && (best < 0 || s.queues[g.places[i]].Pass < s.queues[g.places[best]].Pass) {
				best = i
			}
		}
		if best < 0 {
			break
		}
		q := &s.queues[g.places[best]]
		s.now = max(s.now, q.Pass)
		q.Pass += q.Stride()
		g.demands[best].granting++
		g.counts[best]++
		total++
	}
	return total
}

// gave takes in what a grant gave in the place of what was expected of it.
func (s *shares) gave(g *grant, tasks []core.Assigned) {
	for i, at := range g.places {
		q := &s.queues[at]
		q.Pass -= uint64(g.counts[i]) * q.Stride()
		for j := range tasks {
			if tasks[j].Queue == q.Name {
				q.Pass += q.Stride()
			}
		}
	}
}
