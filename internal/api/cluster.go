package api

import (
	"context"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// Operator answers who operates the whole cluster. Errors are facts.
type Operator interface {
	// ClusterStatus tells how the cluster looks from this node, which asks the others.
	ClusterStatus(ctx context.Context) (*pb.ClusterStatusResponse, error)
	// ChangeMembers makes a change of membership, or begins the job that does.
	ChangeMembers(ctx context.Context, op core.MemberChange) (*pb.ChangeMembersResponse, error)
	// TransferShard has the node with the number to lead a shard, and keep it.
	TransferShard(ctx context.Context, shard core.ShardID, to uint64) error
	// BalanceShards has each shard led by the node that it is at home with. before is how the cluster
	// looked.
	BalanceShards(ctx context.Context) (before *pb.ClusterStatusResponse, err error)
	// FinalizeFormat raises the format of entries to the newest that the programs of all members know.
	FinalizeFormat(ctx context.Context) (*pb.FinalizeFormatResponse, error)
}

// ClusterService is for operators.
type ClusterService struct {
	pb.UnimplementedClusterServiceServer
	s *Server
}

// operator returns who answers. Without one the calls of the service are refused.
func (cs *ClusterService) operator() (Operator, error) {
	if cs.s.o.Operator == nil {
		return nil, core.Invalid{Field: "method", Reason: "not_supported", Message: "this server cannot be operated by its API"}
	}
	return cs.s.o.Operator, nil
}

// Status tells how the cluster looks from here.
func (cs *ClusterService) Status(ctx context.Context, _ *pb.ClusterStatusRequest) (*pb.ClusterStatusResponse, error) {
	o, err := cs.operator()
	if err != nil {
		return nil, err
	}
	return o.ClusterStatus(ctx)
}

// memberVerbs maps the verbs of the contract to those of the log. SET is not among them: it is refused
// with what to do instead.
var memberVerbs = map[pb.MemberVerb]core.MemberVerb{
	pb.MemberVerb_MEMBER_VERB_ADD: core.MemberAdd, pb.MemberVerb_MEMBER_VERB_REMOVE: core.MemberRemove,
	pb.MemberVerb_MEMBER_VERB_REPLACE: core.MemberReplace, pb.MemberVerb_MEMBER_VERB_PROMOTE: core.MemberPromote,
	pb.MemberVerb_MEMBER_VERB_CANCEL: core.MemberCancel,
	pb.MemberVerb_MEMBER_VERB_DRAIN:  core.MemberDrain, pb.MemberVerb_MEMBER_VERB_UNDRAIN: core.MemberUndrain,
}

// ChangeMembers makes a change of membership, or begins the job that does.
func (cs *ClusterService) ChangeMembers(ctx context.Context, in *pb.ChangeMembersRequest) (*pb.ChangeMembersResponse, error) {
	op := core.MemberChange{
		Do: memberVerbs[in.GetVerb()], Node: in.GetNode(), With: in.GetWith(), Learner: in.GetLearner(),
		Name: in.GetName(),
	}
	switch {
	case in.GetVerb() == pb.MemberVerb_MEMBER_VERB_SET:
		return nil, core.Invalid{
			Field: "verb", Reason: "not_supported",
			Message: "a node announces its own addresses: set advertise_peer, advertise_grpc or advertise_http in its settings, and start it again",
		}
	case op.Do == 0:
		return nil, edge.Invalid("verb", "is not known")
	// There is one job at most, so a cancel names no node.
	case op.Node == 0 && op.Do != core.MemberCancel:
		return nil, edge.Invalid("node", "is required")
	case op.With == 0 && op.Do == core.MemberReplace:
		return nil, edge.Invalid("with", "is required")
	}
	o, err := cs.operator()
	if err != nil {
		return nil, err
	}
	return o.ChangeMembers(ctx, op)
}

// TransferShard has a node lead a shard.
func (cs *ClusterService) TransferShard(ctx context.Context, in *pb.TransferShardRequest) (*pb.TransferShardResponse, error) {
	switch {
	case in.GetTo() == 0:
		return nil, edge.Invalid("to", "is required")
	case in.GetShard() > MaxShard:
		return nil, edge.Invalid("shard", "is not known")
	}
	o, err := cs.operator()
	if err != nil {
		return nil, err
	}
	if err := o.TransferShard(ctx, core.ShardID(in.GetShard()), in.GetTo()); err != nil {
		return nil, err
	}
	return &pb.TransferShardResponse{Shard: in.GetShard(), Leader: in.GetTo()}, nil
}

// BalanceShards has all shards go home.
func (cs *ClusterService) BalanceShards(ctx context.Context, _ *pb.BalanceShardsRequest) (*pb.BalanceShardsResponse, error) {
	o, err := cs.operator()
	if err != nil {
		return nil, err
	}
	before, err := o.BalanceShards(ctx)
	if err != nil {
		return nil, err
	}
	return &pb.BalanceShardsResponse{Before: before}, nil
}

// FinalizeFormat raises the format of the cluster.
func (cs *ClusterService) FinalizeFormat(ctx context.Context, _ *pb.FinalizeFormatRequest) (*pb.FinalizeFormatResponse, error) {
	o, err := cs.operator()
	if err != nil {
		return nil, err
	}
	return o.FinalizeFormat(ctx)
}

// ClusterMethods is what every method of the service begins with.
const ClusterMethods = "/millrace.v1.ClusterService/"
