package api

import (
	"context"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// EndClaim ends the wait of a claim that its caller named. A claim of one partition that this node does not know may wait at the one that
// leads the partition: the caller is sent there. One of any partition is ended at whichever leader it waits.
func (ts *TaskService) EndClaim(ctx context.Context, in *pb.EndClaimRequest) (*pb.EndClaimResponse, error) {
	id, fact := randomID("claim", in.GetClaim())
	if fact != nil {
		return nil, fact
	}
	if id == (core.RequestID{}) {
		return nil, edge.Invalid("claim", "is required")
	}
	c, err := ts.s.begin(ctx, false)
	if edge.UnknownNamespace(err) {
		return &pb.EndClaimResponse{}, nil // its claims wait for it, and hold nothing
	}
	if err != nil {
		return nil, err
	}
	if int64(in.GetPartition()) >= int64(len(c.partitions)) {
		return nil, edge.Invalid("partition", "must be a partition of the namespace")
	}
	if in.Partition == nil && c.t.several() {
		found, err := ts.tasks.EndClaim(ctx, c.partitions, id)
		if err != nil {
			return nil, err
		}
		return &pb.EndClaimResponse{Found: found}, nil
	}
	if ts.tasks.EndClaimHere(c.t.part, id) {
		return &pb.EndClaimResponse{Found: true}, nil
	}
	p := c.partitions[in.GetPartition()].Partition
	if leader, here, known := ts.s.node.places.Leader(p); known && !here && leader != "" {
		return nil, core.NotLeader{Leader: leader}
	}
	return &pb.EndClaimResponse{}, nil
}
