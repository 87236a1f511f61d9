package api

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/env"
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
	clock env.Clock

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

// waiter is a search that waits for its turn, and then for its end.
type waiter struct {
	tenant string
	search func()
	// ended is closed when search has returned or panicked.
	ended chan struct{}
	// panicked is what search panicked with, and where; empty if it returned.
	panicked string
}

// run searches and wakes the caller. A panic is the caller's.
func (w *waiter) run() {
	defer close(w.ended)
	defer func() {
		if v := recover(); v != nil {
			w.panicked = fmt.Sprintf("%v\n%s", v, debug.Stack())
		}
	}()
	w.search()
}

// do runs search in its turn, and returns when it has ended, or an error if it was not run. A search that need not wait runs here.
// One that waits is run by a goroutine that goes from one to the next: its stack and what searches read stay in the caches of a
// processor, and the caller is woken once, when all is done.
func (a *admission) do(ctx context.Context, tenant string, most int64, search func()) error {
	all, each := searchesAtOnce()
	a.mu.Lock()
	// A search does not pass others of its own tenant.
	if a.running < all && a.holds[tenant] < each && len(a.queues[tenant]) == 0 {
		a.take(tenant)
		a.mu.Unlock()
		defer func() {
			if next := a.leave(tenant); next != nil {
				go a.serve(next)
			}
		}()
		search()
		return nil
	}
	if a.waiting >= most {
		a.mu.Unlock()
		return errSearchesWaiting
	}
	w := &waiter{tenant: tenant, search: search, ended: make(chan struct{})}
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
	case <-w.ended:
	case <-ctx.Done():
		a.mu.Lock()
		gone := a.drop(tenant, w)
		a.mu.Unlock()
		if gone {
			return core.DeadlineExceeded{Stage: "wait"}
		}
		<-w.ended // it has its turn: it finds out itself that its time is over
	}
	if w.panicked != "" {
		panic(w.panicked) // of the search, which goes on in its caller as if it had run here
	}
	return nil
}

// serveFor is how long searches run one after the other before other goroutines may have the processor.
const serveFor = time.Millisecond

// serve runs a search that has its turn, and then those whose turn comes by that.
func (a *admission) serve(w *waiter) {
	began := a.clock.Boot()
	for w != nil {
		w.run()
		w = a.leave(w.tenant)
		if now := a.clock.Boot(); now-began >= serveFor {
			runtime.Gosched()
			began = a.clock.Boot()
		}
	}
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
// may have, if there is one. It returns one of them, which the caller must serve; any others run by themselves.
func (a *admission) leave(tenant string) (next *waiter) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.running--
	if a.holds[tenant]--; a.holds[tenant] == 0 {
		delete(a.holds, tenant)
	}
	all, each := searchesAtOnce()
	// More than one may get a turn: this one may have been the last that held its tenant's up.
	for i := 0; i < len(a.turns) && a.running < all; {
		of := a.turns[i]
		if a.holds[of] >= each {
			i++
			continue
		}
		// The tenant goes to the end of the line if it has more that wait.
		a.turns = append(a.turns[:i:i], a.turns[i+1:]...)
		q := a.queues[of]
		if next == nil {
			next = q[0]
		} else {
			go a.serve(q[0])
		}
		a.waiting--
		a.take(of)
		if len(q) > 1 {
			a.queues[of] = q[1:]
			a.turns = append(a.turns, of)
		} else {
			delete(a.queues, of)
		}
	}
	return next
}
