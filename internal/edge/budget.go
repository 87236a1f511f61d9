package edge

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

// Budget is one of those bounds, and what is held now. What comes at once when there is room all gets in, so it may be
// passed by one message of each stream.
type Budget struct {
	Most int64
	Held atomic.Int64

	Mu     sync.Mutex    // guards the channels
	Freed  chan struct{} // closed when there is room again; nil: without a waiting call
	any    chan struct{} // closed when anything is given back; nil: without a waiting call
	anyone atomic.Bool   // any is not nil
}

// NewBudget makes a budget of that many bytes; 0: it has no bound.
func NewBudget(most int64) *Budget { return &Budget{Most: cmp.Or(most, math.MaxInt64)} }

// Full reports whether there is no room.
func (b *Budget) Full() bool { return b.Held.Load() >= b.Most }

// Add counts n bytes in, even beyond the bound.
func (b *Budget) Add(n int64) { b.Held.Add(n) }

// Take is add, unless that is more than there may be.
func (b *Budget) Take(n int64) bool {
	// Others may take at the same time: the bytes are counted only if the number has not changed since it was read.
	for {
		held := b.Held.Load()
		if held+n > b.Most {
			return false
		}
		if b.Held.CompareAndSwap(held, held+n) {
			return true
		}
	}
}

// Next returns what is closed when bytes are given back the next time.
func (b *Budget) Next() <-chan struct{} {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	if b.any == nil {
		b.any = make(chan struct{})
		b.anyone.Store(true)
	}
	return b.any
}

// Give counts n bytes out.
func (b *Budget) Give(n int64) {
	now := b.Held.Add(-n)
	if b.anyone.Load() {
		b.Mu.Lock()
		if b.any != nil {
			close(b.any)
			b.any = nil
			b.anyone.Store(false)
		}
		b.Mu.Unlock()
	}
	// Those that wait for room are woken once, by the call that brings the number below the bound.
	if now >= b.Most || now+n < b.Most {
		return
	}
	b.Mu.Lock()
	defer b.Mu.Unlock()
	if b.Freed != nil {
		close(b.Freed)
		b.Freed = nil
	}
}

// Room returns nil when there is room, else what is closed when there is again.
func (b *Budget) Room() <-chan struct{} {
	if !b.Full() {
		return nil
	}
	b.Mu.Lock()
	defer b.Mu.Unlock()
	if b.Freed == nil {
		b.Freed = make(chan struct{})
	}
	if !b.Full() { // who gave it back may not have seen the channel; those who have it look again at its end or at another's
		close(b.Freed)
		b.Freed = nil
		return nil
	}
	return b.Freed
}

// ErrRequests says that the node holds as many bytes of requests as it may.
var ErrRequests = core.Unavailable{Reason: "overload", Limit: "requests"}

// Held is what the edge holds now of all clients, in bytes, by the names of Memory.
type Held struct{ Frames, Requests, Sends int64 }

// tenantShares are what each tenant has on its way of a budget.
type tenantShares struct {
	// limit is the name in errors, and Most what one tenant may have, in bytes.
	limit string
	Most  int64

	mu sync.Mutex // guards held
	// held has a row for each tenant that has something on its way, and no others, so calls under way
	// bound it.
	held map[string]int64
}

// newShares makes the shares of a budget. most is that of one tenant, in bytes; limit is the name in
// errors.
func newShares(limit string, most int64) tenantShares {
	return tenantShares{limit: limit, Most: most, held: make(map[string]int64)}
}

// Take counts n bytes of a tenant in, or refuses them.
func (sh *tenantShares) Take(tenant string, n int64) core.Fact {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.held[tenant]+n > sh.Most {
		return core.Exhausted{Limit: sh.limit, Max: sh.Most}
	}
	sh.held[tenant] += n
	return nil
}

// Give counts n bytes of a tenant out.
func (sh *tenantShares) Give(tenant string, n int64) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.held[tenant] -= n; sh.held[tenant] == 0 {
		delete(sh.held, tenant)
	}
}
