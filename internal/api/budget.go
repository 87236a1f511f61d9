package api

import (
	"cmp"
	"math"
	"sync"
	"sync/atomic"

	"github.com/millrace/millrace/internal/core"
)

// Memory is what the edge may hold at once of all clients, in bytes; a zero field has no bound.
type Memory struct {
	Frames   int64 // frames of streams that are proposed and not decided; beyond it no stream is read
	Requests int64 // calls and REST requests that are under way; beyond it they are refused
	Sends    int64 // frames that wait to be sent; beyond it a stream that has some gets no more tasks
}

// budget is one of those bounds, and what is held now. What comes at once when there is room all gets in, so it may be
// passed by one message of each stream.
type budget struct {
	most int64
	held atomic.Int64

	mu     sync.Mutex    // guards the channels
	freed  chan struct{} // closed when there is room again; nil: without a waiting call
	any    chan struct{} // closed when anything is given back; nil: without a waiting call
	anyone atomic.Bool   // any is not nil
}

func newBudget(most int64) *budget { return &budget{most: cmp.Or(most, math.MaxInt64)} }

func (b *budget) full() bool { return b.held.Load() >= b.most }

func (b *budget) add(n int64) { b.held.Add(n) }

// take is add, unless that is more than there may be.
func (b *budget) take(n int64) bool {
	for {
		held := b.held.Load()
		if held+n > b.most {
			return false
		}
		if b.held.CompareAndSwap(held, held+n) {
			return true
		}
	}
}

// next returns what is closed when bytes are given back the next time.
func (b *budget) next() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.any == nil {
		b.any = make(chan struct{})
		b.anyone.Store(true)
	}
	return b.any
}

func (b *budget) give(n int64) {
	now := b.held.Add(-n)
	if b.anyone.Load() {
		b.mu.Lock()
		if b.any != nil {
			close(b.any)
			b.any = nil
			b.anyone.Store(false)
		}
		b.mu.Unlock()
	}
	if now >= b.most || now+n < b.most {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.freed != nil {
		close(b.freed)
		b.freed = nil
	}
}

// room returns nil when there is room, else what is closed when there is again.
func (b *budget) room() <-chan struct{} {
	if !b.full() {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.freed == nil {
		b.freed = make(chan struct{})
	}
	if !b.full() { // who gave it back may not have seen the channel; those who have it look again at its end or at another's
		close(b.freed)
		b.freed = nil
		return nil
	}
	return b.freed
}

// errRequests says that the node holds as many bytes of requests as it may.
var errRequests = core.Unavailable{Reason: "overload", Limit: "requests"}

// Held is what the edge holds now of all clients, in bytes, by the names of Memory.
type Held struct{ Frames, Requests, Sends int64 }

// tenantShares are what each tenant has on its way of a budget.
type tenantShares struct {
	limit string
	most  int64

	mu   sync.Mutex // guards held
	held map[string]int64
}

func newShares(limit string, most int64) tenantShares {
	return tenantShares{limit: limit, most: most, held: make(map[string]int64)}
}

func (sh *tenantShares) take(tenant string, n int64) core.Fact {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.held[tenant]+n > sh.most {
		return core.Exhausted{Limit: sh.limit, Max: sh.most}
	}
	sh.held[tenant] += n
	return nil
}

func (sh *tenantShares) give(tenant string, n int64) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.held[tenant] -= n; sh.held[tenant] == 0 {
		delete(sh.held, tenant)
	}
}
