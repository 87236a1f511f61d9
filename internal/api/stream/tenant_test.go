package stream

import (
	"testing"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api/apitest"
	"github.com/millrace/millrace/internal/edge"
)

// Two tenants take turns with each frame, with equal names of everything. Whichever came first, each reaches only its own partitions.
func TestEveryFrameReachesItsOwnTenantAlone(t *testing.T) {
	r := newRig(t, edge.Limits{})
	turns := []string{"acme", "rival", "acme"}
	for _, tenant := range turns {
		r.n.AddTask(t, tenant, apitest.ID(1))
	}
	for _, f := range []*pb.ClientFrame{
		createFrame(1, 1),
		settleFrame(2, apitest.DoneItem(1, 3)),
		commitFrame(&pb.CommitFrame{Seq: 3, Commit: apitest.PutCommit(), CommitSeq: 1}),
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
			r.n.ExpectReached(r.t, f.String(), tenant, got)
		}
	}
}
