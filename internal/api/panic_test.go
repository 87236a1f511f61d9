package api

import (
	"context"
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api/apitest"
	"github.com/millrace/millrace/internal/edge"
)

// goodFrames has, for each method to which clients stream, frames that are accepted from a caller with every scope.
func goodFrames() map[string][]proto.Message {
	change := []*pb.RefChange{{Kind: pb.RefChange_CREATE, Name: "refs/heads/a", New: apitest.OID}}
	return map[string][]proto.Message{
		"/millrace.v1.RefService/Session": {
			&pb.RefSessionRequest{Frame: &pb.RefSessionRequest_Open{Open: &pb.RefSessionOpen{Repo: "app", Session: apitest.Repeat(16, byte(2))}}},
			&pb.RefSessionRequest{Frame: &pb.RefSessionRequest_Start{Start: &pb.RefSessionStart{}}},
			&pb.RefSessionRequest{Frame: &pb.RefSessionRequest_Ops{Ops: &pb.RefSessionOps{Changes: change}}},
			&pb.RefSessionRequest{Frame: &pb.RefSessionRequest_Commit{Commit: &pb.RefSessionCommit{Number: 1}}},
		},
		"/millrace.v1.RefService/LoadRefs": {&pb.LoadRefsRequest{Repo: "app", Session: apitest.Repeat(16, byte(1)), Number: 1, Changes: change}},
	}
}

// invokeWhole calls any method with what it accepts, and reads its answer to the end.
func (r *rig) invokeWhole(ctx context.Context, full string, m protoreflect.MethodDescriptor) error {
	if !m.IsStreamingClient() && !m.IsStreamingServer() {
		return r.invoke(ctx, full, m)
	}
	in := goodFrames()[full]
	if !m.IsStreamingClient() {
		one, ok := goodRequests()[full]
		if !ok {
			one = apitest.NewMessage(r.t, m.Input())
		}
		in = []proto.Message{one}
	}
	if len(in) == 0 {
		return fmt.Errorf("%s has no frames in goodFrames", full)
	}
	return apitest.InvokeStream(ctx, r.t, r.conn, full, m, in)
}

// free reports whether the edge holds nothing of any caller.
func (r *rig) free() bool {
	st, searches := r.s.Stats(), r.s.SearchStats()
	return st.Calls == 0 && st.Streams == 0 && st.Held == edge.Held{} && searches.Running == 0 && searches.Waiting == 0
}

// A panic below any method of the contract ends that call alone: the same tenant's next one works, and nothing is lost of what
// calls, streams and searches have together.
func TestAPanicBelowAnyMethodLeavesTheNextCallWorking(t *testing.T) {
	r := newRig(t, edge.Limits{})
	r.s.Recovers = true
	r.n.AddTask(r.t, "acme", apitest.ID(1))
	eachMethod(t, r.s, func(full string, m protoreflect.MethodDescriptor) {
		if _, ok := apitest.NotBuilt[full]; ok || methods[full].Public {
			return
		}
		r.n.PanicEverywhere(t, full, r.free, func() (string, bool) {
			err := r.invokeWhole(apitest.As("acme/all"), full, m)
			return status.Code(err).String(), status.Code(err) != codes.OK || m.IsStreamingClient() // it may end before the panic
		})
	})
}
