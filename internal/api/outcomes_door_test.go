package api

import (
	"context"
	"fmt"
	"testing"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api/apitest"
	"github.com/millrace/millrace/internal/edge"
)

func TestCallsAreCountedByMethodAndCode(t *testing.T) {
	r := newRig(t, edge.Limits{MessageBytes: 64 * kib})
	r.n.AddTask(r.t, "acme", apitest.ID(1))
	tasks := pb.NewTaskServiceClient(r.conn)
	for range 3 {
		if err := createOf(func(*pb.TaskSpec) {})(r); err != nil {
			t.Fatal(err)
		}
	}
	_ = createOf(func(s *pb.TaskSpec) { s.Queue = "a b" })(r)
	_ = createOf(func(s *pb.TaskSpec) { s.Payload = make([]byte, 300*kib) })(r)
	_, _ = tasks.Get(context.Background(), &pb.GetRequest{Id: apitest.ID(1)})
	_, _ = tasks.Get(apitest.As("rival/all"), &pb.GetRequest{Id: apitest.ID(1)})
	_, _ = tasks.Get(apitest.As("acme/kv:read"), &pb.GetRequest{Id: apitest.ID(1)})
	_ = r.conn.Invoke(apitest.As("acme/all"), "/millrace.v1.TaskService/None", &pb.GetRequest{}, new(pb.GetResponse))

	want := map[string]uint64{
		"/millrace.v1.TaskService/Create OK":               3,
		"/millrace.v1.TaskService/Create INVALID_ARGUMENT": 1,
		"/millrace.v1.TaskService/Create TOO_LARGE":        1,
		"/millrace.v1.TaskService/Get UNAUTHENTICATED":     1,
		"/millrace.v1.TaskService/Get NOT_FOUND":           1,
		"/millrace.v1.TaskService/Get PERMISSION_DENIED":   1,
	}
	var st Stats
	var got map[string]uint64
	apitest.Eventually(t, "the last call is counted", func() bool { // the caller has its answer before
		st, got = r.s.Stats(), make(map[string]uint64)
		calls := uint64(0)
		for _, o := range st.Outcomes {
			got[o.Method+" "+o.Code] = o.Calls
			calls += o.Calls
		}
		return calls >= 8
	})
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("counted %v, want %v", got, want)
	}
	if st.Refusals["grpc_message"] != 1 {
		t.Errorf("refusals %v", st.Refusals)
	}
}
