package api

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/reflect/protoreflect"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api/apitest"
	"github.com/millrace/millrace/internal/edge"
)

// Two tenants take turns on every route, with equal names of everything. Whichever tenant came first, each reaches
// only its own partitions.
func TestEveryRouteReachesItsOwnTenantAlone(t *testing.T) {
	r := newRig(t, edge.Limits{})
	turns := []string{"acme", "rival", "acme"}
	for _, tenant := range turns {
		r.n.AddTask(r.t, tenant, apitest.ID(1))
	}
	eachMethod(t, r.s, func(full string, m protoreflect.MethodDescriptor) {
		_, absent := apitest.NotBuilt[full]
		if absent || methods[full].Public || m.IsStreamingClient() || full == "/millrace.v1.ServerService/Status" ||
			full == pb.BackupService_Take_FullMethodName || full == pb.SearchService_Embed_FullMethodName || strings.HasPrefix(full, ClusterMethods) ||
			m.Parent().Name() == "TenantService" || full == pb.TaskService_EndClaim_FullMethodName || full == pb.CronService_Preview_FullMethodName {
			return // they reach no partition, or are of all tenants
		}
		for _, tenant := range turns {
			got := r.n.ReachedBy(func() {
				apitest.ExpectCode(t, full, r.invoke(apitest.As(tenant+"/all"), full, m), codes.OK)
			})
			r.n.ExpectReached(r.t, full, tenant, got)
		}
	})
}
