package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"google.golang.org/grpc"
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
	hold := []*pb.Hold{{Id: apitest.ID(1), Token: 4}}
	change := []*pb.RefChange{{Kind: pb.RefChange_CREATE, Name: "refs/heads/a", New: apitest.OID}}
	gets := &pb.ClientFrame{Frame: &pb.ClientFrame_Gets{Gets: &pb.GetsFrame{Seq: 1, Keyspace: "ks", Keys: [][]byte{[]byte("k")}}}}
	return map[string][]proto.Message{
		"/millrace.v1.QueueStream/Open": {
			helloOf(7), createFrame(1, 2), commitFrame(&pb.CommitFrame{Seq: 2, Commit: putCommit()}), settleFrame(3, doneItem(1, 4)),
			&pb.ClientFrame{Frame: &pb.ClientFrame_Renew{Renew: &pb.RenewFrame{Seq: 4, Items: hold}}}, putsFrame(5, 1, "k"), gets,
			subscribeFrame(1, 3), slotsFrame(1, 2), authFrame("acme/all"), &pb.ClientFrame{Frame: &pb.ClientFrame_Drain{Drain: &pb.Drain{}}},
		},
		"/millrace.v1.KVStream/Open": {helloOf(8), putsFrame(1, 1, "k"), gets},
		"/millrace.v1.RefService/Session": {
			&pb.RefSessionRequest{Frame: &pb.RefSessionRequest_Open{Open: &pb.RefSessionOpen{Repo: "app", Session: make16(2)}}},
			&pb.RefSessionRequest{Frame: &pb.RefSessionRequest_Start{Start: &pb.RefSessionStart{}}},
			&pb.RefSessionRequest{Frame: &pb.RefSessionRequest_Ops{Ops: &pb.RefSessionOps{Changes: change}}},
			&pb.RefSessionRequest{Frame: &pb.RefSessionRequest_Commit{Commit: &pb.RefSessionCommit{Number: 1}}},
		},
		"/millrace.v1.RefService/LoadRefs": {&pb.LoadRefsRequest{Repo: "app", Session: make16(1), Number: 1, Changes: change}},
	}
}

// invokeWhole calls any method with what it accepts, and reads its answer to the end.
func (r *rig) invokeWhole(ctx context.Context, full string, m protoreflect.MethodDescriptor) error {
	if !m.IsStreamingClient() && !m.IsStreamingServer() {
		return r.invoke(ctx, full, m)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	in := goodFrames()[full]
	if !m.IsStreamingClient() {
		one, ok := goodRequests()[full]
		if !ok {
			one = newMessage(r.t, m.Input())
		}
		in = []proto.Message{one}
	}
	if len(in) == 0 {
		return fmt.Errorf("%s has no frames in goodFrames", full)
	}
	ss, err := r.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, full)
	for _, f := range in {
		if err == nil {
			err = ss.SendMsg(f)
		}
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if err := ss.CloseSend(); err != nil {
		return err
	}
	for {
		if err := ss.RecvMsg(newMessage(r.t, m.Output())); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
	}
}

// idle waits until the edge holds nothing of any caller.
func (r *rig) idle(what string) {
	r.t.Helper()
	apitest.Eventually(r.t, what+": all is given back", func() bool {
		st, searches := r.s.Stats(), r.s.SearchStats()
		r.s.mu.Lock()
		sessions := len(r.s.sessions)
		r.s.mu.Unlock()
		return st.Calls == 0 && st.Streams == 0 && st.Held == edge.Held{} && searches.Running == 0 && searches.Waiting == 0 && sessions == 0
	})
	r.n.Mu.Lock()
	defer r.n.Mu.Unlock()
	for _, s := range r.n.Sessions {
		if _, _, closed := s.State(); !closed {
			r.t.Errorf("%s: a session of the node stays open", what)
		}
	}
	r.n.Sessions = nil
	for len(r.n.Opened) > 0 {
		<-r.n.Opened
	}
}

// panicEverywhere makes a call with a panic at its first step below the edge, its second and so on, until it has fewer. After
// each, nothing is held and the call works as it did before.
func (r *rig) panicEverywhere(what string, call func() (outcome string, failed bool)) {
	r.t.Helper()
	want, _ := call()
	r.idle(what)
	for at := int64(1); ; at++ {
		r.n.PanicIn.Store(at)
		_, failed := call()
		r.idle(fmt.Sprintf("%s, a panic at step %d", what, at))
		if r.n.PanicIn.Swap(0) > 0 {
			if at == 1 {
				r.t.Errorf("%s reaches nothing that could panic", what)
			}
			return
		}
		if !failed {
			r.t.Errorf("%s, a panic at step %d, succeeds", what, at)
		}
		if got, _ := call(); got != want {
			r.t.Errorf("%s, after a panic at step %d: %s, before %s", what, at, got, want)
		}
		r.idle(what)
	}
}

// A panic below any method of the contract ends that call alone: the same tenant's next one works, and nothing is lost of what
// calls, streams and searches have together.
func TestAPanicBelowAnyMethodLeavesTheNextCallWorking(t *testing.T) {
	r := newRig(t, edge.Limits{})
	r.s.Recovers = true
	r.addTask("acme", apitest.ID(1))
	eachMethod(t, r.s, func(full string, m protoreflect.MethodDescriptor) {
		if _, ok := notBuilt[full]; ok || methods[full].Public {
			return
		}
		r.panicEverywhere(full, func() (string, bool) {
			err := r.invokeWhole(apitest.As("acme/all"), full, m)
			return status.Code(err).String(), status.Code(err) != codes.OK || m.IsStreamingClient() // it may end before the panic
		})
	})
}
