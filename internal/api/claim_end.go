package api

import (
	"context"
	"sync"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// claimKey names a claim under way: its caller's own name, within a namespace.
type claimKey struct {
	tenant    core.TenantID
	namespace core.NamespaceID
	claim     core.RequestID
}

// namedClaim is a claim under way that EndClaim can end.
type namedClaim struct{ end context.CancelCauseFunc }

// namedClaims are the claims under way that have a name.
type namedClaims struct {
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

// find returns the claim of a name, or nil.
func (c *namedClaims) find(k claimKey) *namedClaim {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.of[k]
}

// claimKey names a claim of the call's namespace.
func (c *call) claimKey(id core.RequestID) claimKey {
	return claimKey{tenant: c.t.part.Tenant, namespace: c.t.part.Namespace, claim: id}
}

// EndClaim ends the wait of a claim that its caller named. A claim that this node does not know may wait at the one that leads the
// partition: the caller is sent there.
func (ts *TaskService) EndClaim(ctx context.Context, in *pb.EndClaimRequest) (*pb.EndClaimResponse, error) {
	id, fact := randomID("claim", in.GetClaim())
	if fact != nil {
		return nil, fact
	}
	if id == (core.RequestID{}) {
		return nil, edge.Invalid("claim", "is required")
	}
	c, err := ts.s.begin(ctx, false)
	if edge.UnknownNamespace(err) {
		return &pb.EndClaimResponse{}, nil // its claims wait for it, and hold nothing
	}
	if err != nil {
		return nil, err
	}
	if int64(in.GetPartition()) >= int64(len(c.partitions)) {
		return nil, edge.Invalid("partition", "must be a partition of the namespace")
	}
	if n := ts.s.claims.find(c.claimKey(id)); n != nil {
		n.end(core.ErrClaimEnded)
		return &pb.EndClaimResponse{Found: true}, nil
	}
	p := c.partitions[in.GetPartition()].Partition
	if leader, here, known := ts.s.node.places.Leader(p); known && !here && leader != "" {
		return nil, core.NotLeader{Leader: leader}
	}
	return &pb.EndClaimResponse{}, nil
}
