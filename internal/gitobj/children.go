package gitobj

import (
	"cmp"
	"context"
	"sync"

	"github.com/millrace/millrace/internal/core"
)

// ChildLimits bound the programs that run at once. Zero is the default.
type ChildLimits struct {
	Node    int // all together; default 16
	Tenant  int // of one tenant; default 4
	Waiting int // that wait for one of these; default 256
}

func (l ChildLimits) withDefaults() ChildLimits {
	l.Node = cmp.Or(l.Node, 16)
	l.Tenant = cmp.Or(l.Tenant, 4)
	l.Waiting = cmp.Or(l.Waiting, 256)
	return l
}

// children hands out leave to run a program, first come first served but for those whose tenant has its share.
type children struct {
	limits ChildLimits

	mu      sync.Mutex // guards the fields below
	running int
	tenants map[core.TenantID]int // only those with any
	queue   []*waiter
}

type waiter struct {
	tenant core.TenantID
	go_    chan struct{} // closed when it may run
}

func newChildren(l ChildLimits) *children {
	return &children{limits: l, tenants: make(map[core.TenantID]int)}
}

// enter waits until a program of the tenant may run; leave ends that. It refuses when too many wait.
func (c *children) enter(ctx context.Context, tenant core.TenantID) (leave func(), err error) {
	c.mu.Lock()
	if c.free(tenant) {
		c.take(tenant)
		c.mu.Unlock()
		return c.leaver(tenant), nil
	}
	if len(c.queue) >= c.limits.Waiting {
		c.mu.Unlock()
		return nil, core.Unavailable{Reason: "overload", Limit: "git_waiting"}
	}
	w := &waiter{tenant, make(chan struct{})}
	c.queue = append(c.queue, w)
	c.mu.Unlock()
	select {
	case <-w.go_:
		return c.leaver(tenant), nil
	case <-ctx.Done():
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, q := range c.queue {
		if q == w {
			c.queue = append(c.queue[:i], c.queue[i+1:]...)
			return nil, ctx.Err()
		}
	}
	c.give(tenant) // it was let in just now
	return nil, ctx.Err()
}

func (c *children) free(tenant core.TenantID) bool {
	return c.running < c.limits.Node && c.tenants[tenant] < c.limits.Tenant
}

func (c *children) take(tenant core.TenantID) {
	c.running++
	c.tenants[tenant]++
}

// give gives one back and lets in who may run now. The caller holds mu.
func (c *children) give(tenant core.TenantID) {
	c.running--
	if c.tenants[tenant]--; c.tenants[tenant] == 0 {
		delete(c.tenants, tenant)
	}
	kept := c.queue[:0]
	for _, w := range c.queue {
		if c.free(w.tenant) {
			c.take(w.tenant)
			close(w.go_)
		} else {
			kept = append(kept, w)
		}
	}
	clear(c.queue[len(kept):])
	c.queue = kept
}

func (c *children) leaver(tenant core.TenantID) func() {
	return sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.give(tenant)
	})
}

// counts returns how many run and how many wait.
func (c *children) counts() (running, waiting int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.running, len(c.queue)
}
