package queue

import (
	"math"

	"github.com/millrace/millrace/internal/core"
)

// turns says which queue of a grant is served next.
type turns struct {
	op *core.Grant
	// In turn: the number of the turn, and how many queues in a row had nothing.
	turn   uint64
	missed int
	// Weighted: the pass of each queue, math.MaxUint64 for one that had nothing. The machine's, reused.
	passes []uint64
}

// turnsOf returns the turns of a grant. Turns go on from grant to grant, so that the first queue of the list is not served more often
// than the last. Passes come with the grant.
func (m *Machine) turnsOf(op *core.Grant) turns {
	t := turns{op: op, turn: m.meta.grants}
	if op.Weighted {
		m.passes = m.passes[:0]
		for i := range op.Queues {
			m.passes = append(m.passes, op.Queues[i].Pass)
		}
		t.passes = m.passes
	}
	return t
}

// next returns the place in the list of the queue that is served next; negative: all had nothing.
func (t *turns) next() int {
	if !t.op.Weighted {
		if t.missed == len(t.op.Queues) {
			return -1
		}
		return int(t.turn % uint64(len(t.op.Queues)))
	}
	best := -1
	for i, pass := range t.passes {
		if pass != math.MaxUint64 && (best < 0 || pass < t.passes[best]) {
			best = i
		}
	}
	return best
}

// took takes in whether the queue at place i had a task.
func (t *turns) took(i int, some bool) {
	switch {
	case t.op.Weighted && some:
		t.passes[i] += t.op.Queues[i].Stride()
	case t.op.Weighted:
		t.passes[i] = math.MaxUint64
	case some:
		t.turn++
		t.missed = 0
	default:
		t.turn++
		t.missed++
	}
}
