package api

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
)

func TestCallsAreCountedByMethodAndCode(t *testing.T) {
	r := newRig(t, Limits{MessageBytes: 64 * kib})
	r.addTask("acme", testID(1))
	tasks := pb.NewTaskServiceClient(r.conn)
	for range 3 {
		if err := createOf(func(*pb.TaskSpec) {})(r); err != nil {
			t.Fatal(err)
		}
	}
	_ = createOf(func(s *pb.TaskSpec) { s.Queue = "a b" })(r)
	_ = createOf(func(s *pb.TaskSpec) { s.Payload = make([]byte, 300*kib) })(r)
	_, _ = tasks.Get(context.Background(), &pb.GetRequest{Id: testID(1)})
	_, _ = tasks.Get(as("rival/all"), &pb.GetRequest{Id: testID(1)})
	_, _ = tasks.Get(as("acme/kv:read"), &pb.GetRequest{Id: testID(1)})
	_ = r.conn.Invoke(as("acme/all"), "/millrace.v1.TaskService/None", &pb.GetRequest{}, new(pb.GetResponse))

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
	eventually(t, "the last call is counted", func() bool { // the caller has its answer before
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

func TestEveryEndOfACallHasACode(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{nil, "OK"},
		{core.LeaseLost{}, "LEASE_LOST"},
		{refusal{&core.Refusal{Fact: core.NotFound{}}, 0}, "NOT_FOUND"},
		{context.Canceled, cancelled},
		{fmt.Errorf("wait: %w", context.Canceled), cancelled},
		{status.Error(codes.Canceled, "gone"), cancelled},
		{context.DeadlineExceeded, "DEADLINE_EXCEEDED"},
		{status.Error(codes.DeadlineExceeded, "late"), "DEADLINE_EXCEEDED"},
		{status.Error(codes.ResourceExhausted, "message larger than max"), "TOO_LARGE"},
		{status.Error(codes.Unavailable, "closing"), "UNAVAILABLE"},
		{status.Error(codes.Unimplemented, "compressor"), "INVALID_ARGUMENT"},
		{status.Error(codes.Internal, "flow control"), "INTERNAL"},
		{errs.Corruptf("x"), "DATA_LOSS"},
		{errors.New("x"), "INTERNAL"},
	} {
		var o outcomes
		o.of("m").count(c.err)
		if got := o.list(); len(got) != 1 || got[0] != (Outcome{"m", c.want, 1}) {
			t.Errorf("%v: %v, want %s", c.err, got, c.want)
		}
	}
	for _, code := range errs.Codes() {
		if int(code) >= outcomeCodes-1 {
			t.Errorf("%s has no counter", code)
		}
	}
}
