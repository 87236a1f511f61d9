package stream

import (
	"testing"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api/apitest"
	"github.com/millrace/millrace/internal/edge"
)

// goodFrames has, for each service, frames that are accepted from a caller with every scope.
func goodFrames() map[string][]proto.Message {
	hold := []*pb.Hold{{Id: apitest.ID(1), Token: 4}}
	gets := &pb.ClientFrame{Frame: &pb.ClientFrame_Gets{Gets: &pb.GetsFrame{Seq: 1, Keyspace: "ks", Keys: [][]byte{[]byte("k")}}}}
	return map[string][]proto.Message{
		"/millrace.v1.QueueStream/Open": {
			helloOf(7), createFrame(1, 2), commitFrame(&pb.CommitFrame{Seq: 2, Commit: apitest.PutCommit()}), settleFrame(3, apitest.DoneItem(1, 4)),
			&pb.ClientFrame{Frame: &pb.ClientFrame_Renew{Renew: &pb.RenewFrame{Seq: 4, Items: hold}}}, putsFrame(5, 1, "k"), gets,
			subscribeFrame(1, 3), slotsFrame(1, 2), authFrame("acme/all"), &pb.ClientFrame{Frame: &pb.ClientFrame_Drain{Drain: &pb.Drain{}}},
		},
		"/millrace.v1.KVStream/Open": {helloOf(8), putsFrame(1, 1, "k"), gets},
	}
}

// A panic below any frame ends that stream alone: the same tenant's next one works, and nothing is lost of what streams have
// together.
func TestAPanicBelowAStreamLeavesTheNextOneWorking(t *testing.T) {
	r := newRig(t, edge.Limits{})
	r.s.Recovers = true
	r.n.AddTask(t, "acme", apitest.ID(1))
	method := pb.File_millrace_v1_stream_proto.Services().ByName("QueueStream").Methods().ByName("Open") // both have the same
	for full, frames := range goodFrames() {
		r.n.PanicEverywhere(t, full, r.free, func() (string, bool) {
			err := apitest.InvokeStream(apitest.As("acme/all"), t, r.conn, full, method, frames)
			return status.Code(err).String(), true // it may end before the panic
		})
	}
}
