package api

import (
	"context"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/core"
)

// Operator answers who operates the whole cluster. Errors are facts.
type Operator interface {
	ClusterStatus(ctx context.Context) (*pb.ClusterStatusResponse, error)
	ChangeMembers(ctx context.Context, op core.MemberChange) (*pb.ChangeMembersResponse, error)
	TransferShard(ctx context.Context, shard core.ShardID, to uint64) error
	BalanceShards(ctx context.Context) (before *pb.ClusterStatusResponse, err error)
	FinalizeFormat(ctx context.Context) (*pb.FinalizeFormatResponse, error)
}

// clusterService is for operators.
type clusterService struct {
	pb.UnimplementedClusterServiceServer
	s *Server
}

func (cs *clusterService) operator() (Operator, error) {
	if cs.s.o.Operator == nil {
		return nil, core.Invalid{Field: "method", Reason: "not_supported", Message: "this server cannot be operated by its API"}
	}
	return cs.s.o.Operator, nil
}

// Status tells how the cluster looks from here.
func (cs *clusterService) Status(ctx context.Context, _ *pb.ClusterStatusRequest) (*pb.ClusterStatusResponse, error) {
	o, err := cs.operator()
	if err != nil {
		return nil, err
	}
	return o.ClusterStatus(ctx)
}

var memberVerbs = map[pb.MemberVerb]core.MemberVerb{
	pb.MemberVerb_MEMBER_VERB_ADD: core.MemberAdd, pb.MemberVerb_MEMBER_VERB_REMOVE: core.MemberRemove,
	pb.MemberVerb_MEMBER_VERB_REPLACE: core.MemberReplace, pb.MemberVerb_MEMBER_VERB_PROMOTE: core.MemberPromote,
	pb.MemberVerb_MEMBER_VERB_CANCEL: core.MemberCancel,
	pb.MemberVerb_MEMBER_VERB_DRAIN:  core.MemberDrain, pb.MemberVerb_MEMBER_VERB_UNDRAIN: core.MemberUndrain,
}

// ChangeMembers makes a change of membership, or begins the job that does.
func (cs *clusterService) ChangeMembers(ctx context.Context, in *pb.ChangeMembersRequest) (*pb.ChangeMembersResponse, error) {
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
		return nil, invalid("verb", "is not known")
	case op.Node == 0 && op.Do != core.MemberCancel:
		return nil, invalid("node", "is required")
	case op.With == 0 && op.Do == core.MemberReplace:
		return nil, invalid("with", "is required")
	}
	o, err := cs.operator()
	if err != nil {
		return nil, err
	}
	return o.ChangeMembers(ctx, op)
}

// TransferShard has a node lead a shard.
func (cs *clusterService) TransferShard(ctx context.Context, in *pb.TransferShardRequest) (*pb.TransferShardResponse, error) {
	switch {
	case in.GetTo() == 0:
		return nil, invalid("to", "is required")
	case in.GetShard() > maxShard:
		return nil, invalid("shard", "is not known")
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
func (cs *clusterService) BalanceShards(ctx context.Context, _ *pb.BalanceShardsRequest) (*pb.BalanceShardsResponse, error) {
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
func (cs *clusterService) FinalizeFormat(ctx context.Context, _ *pb.FinalizeFormatRequest) (*pb.FinalizeFormatResponse, error) {
	o, err := cs.operator()
	if err != nil {
		return nil, err
	}
	return o.FinalizeFormat(ctx)
}

// clusterMethods is what every method of the service begins with.
const clusterMethods = "/millrace.v1.ClusterService/"
