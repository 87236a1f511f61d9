package api

import (
	"sync"

	"github.com/millrace/millrace/internal/core"
)

// unknownDim is what a vector counts for while its length is not known.
const unknownDim = 1536

// embedBudget counts the numbers of the vectors that calls for vectors alone ask for: a few bytes of text become thousands of times
// as many of an answer. A call that is the only one may ask for any number.
type embedBudget struct {
	mu sync.Mutex // guards the fields below
	// all is how many numbers all calls together are being made or written.
	all  int64
	each map[string]int64 // by tenant
}

// take counts the vectors of a call, or refuses it; give must follow when its answer is written.
func (b *embedBudget) take(tenant string, texts, dim int, most int64) (give func(), fact core.Fact) {
	if dim == 0 {
		dim = unknownDim
	}
	n := int64(texts) * int64(dim)
	b.mu.Lock()
	defer b.mu.Unlock()
	// A first call is let in however large it is: else one that asks for more than the bound could
	// never be answered.
	if own := b.each[tenant]; b.all > 0 && b.all+n > most || own > 0 && own+n > most/2 {
		return nil, core.Unavailable{Reason: "overloaded", Limit: "embed_numbers"}
	}
	if b.each == nil {
		b.each = make(map[string]int64)
	}
	b.all += n
	b.each[tenant] += n
	return func() { b.give(tenant, n) }, nil
}

// give counts the numbers of a call out.
func (b *embedBudget) give(tenant string, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all -= n
	if b.each[tenant] -= n; b.each[tenant] == 0 {
		delete(b.each, tenant)
	}
}

// held is how many numbers are taken, by how many tenants.
func (b *embedBudget) held() (numbers int64, tenants int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all, len(b.each)
}
