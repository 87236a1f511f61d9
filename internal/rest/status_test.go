package rest

import (
	"strings"
	"testing"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api/apitest"
	"github.com/millrace/millrace/internal/edge"
)

func TestStatusKeepsCountersOfAllTenantsForOperators(t *testing.T) {
	r := newRESTRig(t, edge.Limits{})
	client := pb.NewServerServiceClient(r.conn)
	for token, want := range map[string]uint64{
		"acme/task:read": 0, "acme/admin": 0, "acme/admin,search:admin,ref:admin": 0, "ops/backup": 0, "ops/cluster": 9, "ops/tenant:admin": 9,
	} {
		web := r.send(r.request("GET", "/v1/status", token, "")).expect(t, token, 200)
		if shown := strings.Contains(web.body, "fsyncs"); shown != (want > 0) || shown != strings.Contains(web.body, "log_bytes") || shown != strings.Contains(web.body, "applied_index") {
			t.Errorf("%s over REST: %s", token, web.body)
		}
		st, err := client.Status(apitest.As(token), &pb.StatusRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if st.GetFsyncs() != want || st.GetDurability() != "fsync" || st.GetVersion() != "v1" {
			t.Errorf("%s: %v", token, st)
		}
	}
}
