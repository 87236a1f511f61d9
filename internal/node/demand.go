package node

import (
	"slices"

	"github.com/millrace/millrace/internal/machine/queue"
)

// demand is one queue that somebody waits for.
type demand struct {
	// Its key in dispatcher.demands.
	key queueKey
	// Who waits, in the order in which they came; next goes round over it.
	subs []*sub
	// Position in subs of the one whose turn it is; it may be behind the end.
	next int
	// Tasks that could be given out when the last entry that touched the queue was applied.
	ready int
	// Limits hold up all that is ready, so that what is created is not counted on.
	held bool
	// Tasks of the queue are blocked: ends of others may let them go.
	blocked bool
	// The workers that may have tasks, sorted; nil: any may.
	workers []string
	// Ready tasks that entries in the log may add.
	creating int
	// Tasks that grants in the log are expected to take.
	granting int
	// How many of subs are claims that do not wait.
	once int
	// How many of subs are idle.
	idle int
	// It is in dispatcher.hot, once.
	isHot bool
}

// available is how many tasks a grant that is built now can expect. It may be negative, or too high: Apply decides.
func (q *demand) available() int {
	if q.held {
		return q.ready - q.granting
	}
	return q.ready + q.creating - q.granting
}

// supply takes in what the machine can give out of the queue.
func (q *demand) supply(s queue.Supply) {
	q.ready, q.held, q.workers, q.blocked = int(min(s.Tasks, 1<<30)), s.Held, s.Workers, s.Blocked
}

// admits reports whether a worker may have a task of the queue, as far as is known: Apply decides.
func (q *demand) admits(worker string) bool {
	if q.workers == nil {
		return true
	}
	_, ok := slices.BinarySearch(q.workers, worker)
	return ok
}
