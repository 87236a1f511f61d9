package api

import (
	"context"
	"runtime"
	"sync"

	"github.com/millrace/millrace/internal/core"
)

// searchesPerCPU is how many searches run at once on each processor: more would only take its caches from each other.
const searchesPerCPU = 4

// searchesAtOnce is how many searches run at once, and how many of them of one tenant: one less than run Go code at once, so
// that calls that cost little do not stand in a queue with searches, which cost much.
func searchesAtOnce() (all, each int) {
	n := runtime.GOMAXPROCS(0)
	return searchesPerCPU * n, max(1, n-1)
}

// admission lets a bounded number of searches run. Others wait: those of one tenant in their order, tenants in turn.
type admission struct {
	mu sync.Mutex // guards the fields below
	// running is how many searches have a turn, holds how many of them each tenant has.
	running int
	holds   map[string]int // of running ones, by tenant
	// waiting is how many wait for a turn, or aside.
	waiting int64
	// turns are the tenants with a search that waits for a turn, the next one first. Each is there
	// once.
	turns []string
	// queues are the searches that wait for a turn, by tenant, in their order.
	queues map[string][]*waiter
}

// waiter is a search that waits. turn is closed when it has one.
type waiter struct{ turn chan struct{} }

// enter waits for a turn; leave must follow.
func (a *admission) enter(ctx context.Context, tenant string, most int64) (leave func(), err error) {
	all, each := searchesAtOnce()
	leave = func() { a.leave(tenant) }
	a.mu.Lock()
	// A search does not pass others of its own tenant.
	if a.running < all && a.holds[tenant] < each && len(a.queues[tenant]) == 0 {
		a.take(tenant)
		a.mu.Unlock()
		return leave, nil
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
		return leave, nil
	case <-ctx.Done():
	}
	a.mu.Lock()
	// The end of the wait and a turn may come together: one that has a turn must give it back.
	gone := a.drop(tenant, w)
	a.mu.Unlock()
	if !gone { // its turn came at the same time
		leave()
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

// take counts one of a tenant as running.
func (a *admission) take(tenant string) {
	if a.holds == nil {
		a.holds = make(map[string]int)
	}
	a.running++
	a.holds[tenant]++
}

// leave ends one of a tenant, and lets those run that may now: of the tenant that has waited longest and has not as many as it
// may have, if there is one.
func (a *admission) leave(tenant string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.running--
	if a.holds[tenant]--; a.holds[tenant] == 0 {
		delete(a.holds, tenant)
	}
	all, each := searchesAtOnce()
	// More than one may get a turn: this one may have been the last that held its tenant's up.
	for i := 0; i < len(a.turns) && a.running < all; {
		next := a.turns[i]
		if a.holds[next] >= each {
			i++
			continue
		}
		// The tenant goes to the end of the line if it has more that wait.
		a.turns = append(a.turns[:i:i], a.turns[i+1:]...)
		q := a.queues[next]
		close(q[0].turn)
		a.waiting--
		a.take(next)
		if len(q) > 1 {
			a.queues[next] = q[1:]
			a.turns = append(a.turns, next)
		} else {
			delete(a.queues, next)
		}
	}
}
