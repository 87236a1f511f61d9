package api

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/reflect/protoreflect"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api/apitest"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// Two tenants take turns on every route, with equal names of everything. Whichever tenant came first, each reaches
// only its own partitions.
func TestEveryRouteReachesItsOwnTenantAlone(t *testing.T) {
	r := newRig(t, edge.Limits{})
	turns := []string{"acme", "rival", "acme"}
	for _, tenant := range turns {
		r.addTask(tenant, apitest.ID(1))
	}
	eachMethod(t, r.s, func(full string, m protoreflect.MethodDescriptor) {
		_, absent := notBuilt[full]
		if absent || methods[full].Public || m.IsStreamingClient() || full == "/millrace.v1.ServerService/Status" ||
			full == pb.BackupService_Take_FullMethodName || full == pb.SearchService_Embed_FullMethodName || strings.HasPrefix(full, ClusterMethods) ||
			m.Parent().Name() == "TenantService" {
			return // they reach no partition, or are of all tenants
		}
		for _, tenant := range turns {
			got := r.n.ReachedBy(func() {
				expectCode(t, full, r.invoke(apitest.As(tenant+"/all"), full, m), codes.OK)
			})
			r.expectReached(full, tenant, got)
		}
	})
	for _, f := range []*pb.ClientFrame{
		createFrame(1, 1),
		settleFrame(2, doneItem(1, 3)),
		commitFrame(&pb.CommitFrame{Seq: 3, Commit: putCommit(), CommitSeq: 1}),
		{Frame: &pb.ClientFrame_Renew{Renew: &pb.RenewFrame{Seq: 4, Items: []*pb.Hold{{Id: apitest.ID(1), Token: 2}}}}},
	} {
		for _, tenant := range turns {
			got := r.n.ReachedBy(func() {
				ws, _ := r.greet(apitest.As(tenant+"/all"), 1)
				ws.send(f)
				if a := ws.ack(); a.GetError() != nil {
					t.Errorf("%v: %v", f, a.GetError())
				}
			})
			r.expectReached(f.String(), tenant, got)
		}
	}
}

// expectReached wants the one partition of a tenant's default namespace to have been reached, and no other.
func (r *rig) expectReached(what, tenant string, got []core.Partition) {
	r.t.Helper()
	r.n.Mu.Lock()
	own := r.n.Spaces[tenant+"/default"].Partitions[0].Partition
	r.n.Mu.Unlock()
	if len(got) != 1 || got[0] != own {
		r.t.Errorf("%s: %s reached %v, want %v alone", what, tenant, got, own)
	}
}
