package rest

import (
	"errors"
	"net/http"
	"testing"

	"google.golang.org/grpc/codes"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api"
	"github.com/millrace/millrace/internal/api/apitest"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

func TestOperatorsAreRefusedByNameWhatMakesNoSense(t *testing.T) {
	r := newRESTRig(t, edge.Limits{})
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
	if _, err := pb.NewClusterServiceClient(r.conn).Status(apitest.As("acme/admin"), &pb.ClusterStatusRequest{}); err == nil {
		t.Error("the admin of a tenant sees the cluster")
	} else {
		apitest.ExpectCode(t, "status for an admin of a tenant", err, codes.PermissionDenied)
	}
}

// TestNoRequestNamesTheAddressesOfANode: clients and their tokens are sent there.
func TestNoRequestNamesTheAddressesOfANode(t *testing.T) {
	r := newRESTRig(t, edge.Limits{})
	for verb := range pb.MemberVerb_name {
		in := &pb.ChangeMembersRequest{
			Verb: pb.MemberVerb(verb), Node: 1, With: 2, Name: "n1", Peer: "stranger.example:1", Grpc: "stranger.example:2", Http: "stranger.example:3",
		}
		out, err := pb.NewClusterServiceClient(r.conn).ChangeMembers(apitest.As("acme/cluster"), in)
		for _, m := range out.GetMembers() { // the rig shows what the operator was asked for
			if m.GetPeer() != "" || m.GetGrpc() != "" || m.GetHttp() != "" {
				t.Errorf("%s: %v, %v", in.GetVerb(), m, err)
			}
		}
		if in.GetVerb() == pb.MemberVerb_MEMBER_VERB_SET && apitest.ErrorOf(t, err).GetReason() != "not_supported" {
			t.Errorf("set: %v", err)
		}
	}
}

func TestAServerWithoutAnOperatorSaysSo(t *testing.T) {
	_, err := new(api.Server).Cluster().Status(t.Context(), nil)
	if f, ok := errors.AsType[core.Invalid](err); !ok || f.Reason != "not_supported" {
		t.Errorf("got %v", err)
	}
}
