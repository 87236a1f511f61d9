package edge

import (
	"sync"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/core"
)

// Gauge counts what is in use, by tenant and in all, within limits.
type Gauge struct {
	// The names of the limits in errors, and how many there may be.
	nodeLimit, tenantLimit string
	nodeMax, tenantMax     int64

	mu      sync.Mutex // guards the fields below
	node    int64
	tenants map[string]int64 // of those above 0
}

// newGauge makes a gauge of two limits, each with its name.
func newGauge(nodeLimit string, nodeMax int64, tenantLimit string, tenantMax int64) Gauge {
	return Gauge{
		nodeLimit: nodeLimit, tenantLimit: tenantLimit, nodeMax: nodeMax, tenantMax: tenantMax,
		tenants: make(map[string]int64),
	}
}

// Enter counts one in, or refuses it: for the node's own limit the node is overloaded, for the tenant's it is the
// tenant's quota.
func (g *Gauge) Enter(tenant string) core.Fact {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.tenants[tenant] >= g.tenantMax:
		return core.Exhausted{Limit: g.tenantLimit, Max: g.tenantMax}
	case g.node >= g.nodeMax:
		return core.Unavailable{Reason: "overload", Limit: g.nodeLimit}
	}
	g.node++
	g.tenants[tenant]++
	return nil
}

// Leave counts one out.
func (g *Gauge) Leave(tenant string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.node--
	if g.tenants[tenant]--; g.tenants[tenant] == 0 {
		delete(g.tenants, tenant)
	}
}

// Value is how many are in.
func (g *Gauge) Value() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.node
}

// refusals counts answers that named a limit. Its keys are the product's own names, so it is bounded.
type refusals struct {
	mu sync.Mutex // guards n
	n  map[string]uint64
}

// count counts an answer if it names a limit.
func (r *refusals) count(e *pb.Error) {
	if e.GetLimit() != "" {
		r.Add(e.GetLimit())
	}
}

// Add counts an answer that named a limit.
func (r *refusals) Add(limit string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.n == nil {
		r.n = make(map[string]uint64)
	}
	r.n[limit]++
}

// Copy returns the counts, by limit.
func (r *refusals) Copy() map[string]uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make(map[string]uint64, len(r.n))
	for limit, n := range r.n {
		out[limit] = n
	}
	return out
}
