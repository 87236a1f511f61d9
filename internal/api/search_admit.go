package api

import (
	"context"
	"runtime"
	"sync"

	"github.com/millrace/millrace/internal/core"
)

// searchesPerCPU is how many searches run at once on each processor: more would only take its caches from each other.
const searchesPerCPU = 4

// admission lets a bounded number of searches run. Others wait: those of one tenant in their order, tenants in turn.
type admission struct {
	mu      sync.Mutex // guards the fields below
	running int
	waiting int64    // for a turn, or aside
	turns   []string // tenants that have a search waiting for a turn, the next one first
	queues  map[string][]*waiter
}

type waiter struct{ turn chan struct{} }

// enter waits for a turn; leave must follow.
func (a *admission) enter(ctx context.Context, tenant string, most int64) (leave func(), err error) {
	limit := searchesPerCPU * runtime.GOMAXPROCS(0)
	a.mu.Lock()
	if a.running < limit && len(a.turns) == 0 {
		a.running++
		a.mu.Unlock()
		return a.leave, nil
	}
	if a.waiting >= most {
		a.mu.Unlock()
		return nil, errSearchesWaiting
	}
	w := &waiter{make(chan struct{})}
	if a.queues == nil {
		a.queues = make(map[string][]*waiter)
	}
	if len(a.queues[tenant]) == 0 {
		a.turns = append(a.turns, tenant)
	}
	a.queues[tenant] = append(a.queues[tenant], w)
	a.waiting++
	a.mu.Unlock()
	select {
	case <-w.turn:
		return a.leave, nil
	case <-ctx.Done():
	}
	a.mu.Lock()
	gone := a.drop(tenant, w)
	a.mu.Unlock()
	if !gone { // its turn came at the same time
		a.leave()
	}
	return nil, core.DeadlineExceeded{Stage: "wait"}
}

// errSearchesWaiting says that no more searches may wait.
var errSearchesWaiting = core.Unavailable{Reason: "overloaded", Limit: "searches_waiting"}

// aside lets a search wait for something other than its turn, as one of those that may wait; back must follow.
func (a *admission) aside(most int64) (back func(), err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.waiting >= most {
		return nil, errSearchesWaiting
	}
	a.waiting++
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.waiting--
	}, nil
}

// drop takes a search out that waits no more. It reports whether it was still waiting.
func (a *admission) drop(tenant string, w *waiter) bool {
	q := a.queues[tenant]
	for i := range q {
		if q[i] != w {
			continue
		}
		a.queues[tenant] = append(q[:i:i], q[i+1:]...)
		a.waiting--
		if len(a.queues[tenant]) == 0 {
			delete(a.queues, tenant)
			for j, name := range a.turns {
				if name == tenant {
					a.turns = append(a.turns[:j:j], a.turns[j+1:]...)
					break
				}
			}
		}
		return true
	}
	return false
}

// leave gives the turn to the next search that waits.
func (a *admission) leave() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.turns) == 0 {
		a.running--
		return
	}
	tenant := a.turns[0]
	a.turns = a.turns[1:]
	q := a.queues[tenant]
	close(q[0].turn)
	a.waiting--
	if len(q) > 1 {
		a.queues[tenant] = q[1:]
		a.turns = append(a.turns, tenant)
	} else {
		delete(a.queues, tenant)
	}
}
