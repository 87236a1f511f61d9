package node

import (
	"context"
	"slices"
	"sync"

	"github.com/millrace/millrace/internal/core"
)

// claimKey names a claim under way: its caller's own name, within a namespace.
type claimKey struct {
	tenant    core.TenantID
	namespace core.NamespaceID
	claim     core.RequestID
}

// namedClaim is a claim under way that EndClaim can end.
type namedClaim struct{ end context.CancelCauseFunc }

// namedClaims are the claims under way at this node that have a name.
type namedClaims struct {
	// Guards the field below.
	mu sync.Mutex
	// The newest of each name: a caller that lost the answer may send its claim again.
	of map[claimKey]*namedClaim
}

// add notes a claim, which end ends, until done is called.
func (c *namedClaims) add(k claimKey, end context.CancelCauseFunc) (done func()) {
	n := &namedClaim{end: end}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of == nil {
		c.of = make(map[claimKey]*namedClaim)
	}
	c.of[k] = n
	return func() {
		end(nil)
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.of[k] == n {
			delete(c.of, k)
		}
	}
}

// end ends the claim of a name, and reports whether there is one.
func (c *namedClaims) end(k claimKey) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.of[k]
	if n != nil {
		n.end(core.ErrClaimEnded)
	}
	return n != nil
}

// NameClaim notes that a claim of p's namespace is under way at this node, under its caller's name, until done is called. end ends it.
func (n *Node) NameClaim(p core.Partition, claim core.RequestID, end context.CancelCauseFunc) (done func()) {
	return n.claims.add(claimKey{p.Tenant, p.Namespace, claim}, end)
}

// EndClaimHere ends a claim of p's namespace that waits at this node, and reports whether one does.
func (n *Node) EndClaimHere(p core.Partition, claim core.RequestID) bool {
	return n.claims.end(claimKey{p.Tenant, p.Namespace, claim})
}

// EndClaim ends a claim of a namespace, at this node or at the leader of any of its partitions: one of several partitions may wait at any
// of them. It reports whether one did. Unless all of these leaders have answered, or one has ended it, that is not known, and the call may be
// repeated.
func (n *Node) EndClaim(ctx context.Context, parts []core.PartitionInfo, claim core.RequestID) (found bool, err error) {
	p := parts[0].Partition
	if n.EndClaimHere(p, claim) {
		return true, nil
	}
	leaders, missing := n.leadersOf(parts)
	leaders = slices.DeleteFunc(leaders, func(r uint64) bool { return r == n.o.Replica })
	answers, answered := n.askWorkers(ctx, leaders, workersAsk{Tenant: p.Tenant, Namespace: p.Namespace, End: claim[:]})
	switch {
	case slices.ContainsFunc(answers, func(a workersAnswer) bool { return a.Ended }):
		return true, nil
	case missing:
		return false, core.Unavailable{Reason: "no_leader"}
	case answered < len(leaders):
		return false, core.Unavailable{Reason: "leader_unreached", Unknown: true}
	}
	return false, nil
}
