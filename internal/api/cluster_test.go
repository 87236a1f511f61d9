package api

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"google.golang.org/grpc/codes"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/core"
)

// fakeOperator answers with what it was asked for.
type fakeOperator struct{ *planter }

func (o fakeOperator) ClusterStatus(context.Context) (*pb.ClusterStatusResponse, error) {
	o.step()
	return &pb.ClusterStatusResponse{
		ClusterId: "0a", Asked: 2, Format: 1, Warnings: []string{"w"},
		Nodes:  []*pb.ClusterNode{{Id: 2, Grpc: "h:1", Leads: []uint32{0, 3}, Replicas: []*pb.ClusterReplica{{Shard: 3, Leads: true}}}},
		Shards: []*pb.ClusterShard{{Shard: 3, Leader: 2}},
	}, nil
}

func (o fakeOperator) ChangeMembers(_ context.Context, op core.MemberChange) (*pb.ChangeMembersResponse, error) {
	o.step()
	if op.Do == core.MemberPromote {
		return nil, core.WrongMembership{Reason: "learner_behind", Node: op.Node, Lag: 9}
	}
	return &pb.ChangeMembersResponse{
		Version: 1 << 60, Members: []*pb.ClusterMember{{Node: op.Node, Peer: op.Peer, Grpc: op.API, Http: op.HTTP, State: "joining"}}, Job: &pb.MemberJob{Id: 1, Node: op.Node},
	}, nil
}

func (o fakeOperator) TransferShard(context.Context, core.ShardID, uint64) error {
	o.step()
	return nil
}

func (o fakeOperator) BalanceShards(ctx context.Context) (*pb.ClusterStatusResponse, error) {
	return o.ClusterStatus(ctx)
}

func (o fakeOperator) FinalizeFormat(context.Context) (*pb.FinalizeFormatResponse, error) {
	o.step()
	return &pb.FinalizeFormatResponse{Format: 2, Before: 1}, nil
}

func TestOperatorsAreRefusedByNameWhatMakesNoSense(t *testing.T) {
	r := newRESTRig(t, Limits{})
	for body, field := range map[string]string{
		`{}`: "verb", `{"verb":"remove"}`: "node", `{"verb":"replace","node":1}`: "with", `{"verb":"set","node":1}`: "verb",
		`{"verb":"set","node":1,"http":"stranger.example:80"}`: "verb", `{"verb":"set","node":1,"grpc":"stranger.example:80","peer":"stranger.example:81"}`: "verb",
	} {
		a := r.send(r.request("POST", "/v1/cluster/members", "acme/cluster", body)).expect(t, body, http.StatusBadRequest)
		if e := failed(t, a); e.Field != field {
			t.Errorf("%s: field %q, want %q", body, e.Field, field)
		}
	}
	a := r.send(r.request("POST", "/v1/cluster/members", "acme/cluster", `{"verb":"promote","node":4}`)).expect(t, "promote", http.StatusConflict)
	if e := failed(t, a); e.Reason != "learner_behind" || e.Details["lag"] != "9" {
		t.Errorf("refused as %+v", e)
	}
	r.send(r.request("POST", "/v1/cluster/transfer", "acme/cluster", `{"shard":70000,"to":1}`)).expect(t, "transfer", http.StatusBadRequest)
	if _, err := pb.NewClusterServiceClient(r.conn).Status(as("acme/admin"), &pb.ClusterStatusRequest{}); err == nil {
		t.Error("the admin of a tenant sees the cluster")
	} else {
		expectCode(t, "status for an admin of a tenant", err, codes.PermissionDenied)
	}
}

// TestNoRequestNamesTheAddressesOfANode: clients and their tokens are sent there.
func TestNoRequestNamesTheAddressesOfANode(t *testing.T) {
	r := newRESTRig(t, Limits{})
	for verb := range pb.MemberVerb_name {
		in := &pb.ChangeMembersRequest{
			Verb: pb.MemberVerb(verb), Node: 1, With: 2, Name: "n1", Peer: "stranger.example:1", Grpc: "stranger.example:2", Http: "stranger.example:3",
		}
		out, err := pb.NewClusterServiceClient(r.conn).ChangeMembers(as("acme/cluster"), in)
		for _, m := range out.GetMembers() { // the rig shows what the operator was asked for
			if m.GetPeer() != "" || m.GetGrpc() != "" || m.GetHttp() != "" {
				t.Errorf("%s: %v, %v", in.GetVerb(), m, err)
			}
		}
		if in.GetVerb() == pb.MemberVerb_MEMBER_VERB_SET && errorOf(t, err).GetReason() != "not_supported" {
			t.Errorf("set: %v", err)
		}
	}
}

func TestAServerWithoutAnOperatorSaysSo(t *testing.T) {
	_, err := (&clusterService{s: &Server{}}).Status(t.Context(), nil)
	if f, ok := errors.AsType[core.Invalid](err); !ok || f.Reason != "not_supported" {
		t.Errorf("got %v", err)
	}
}
