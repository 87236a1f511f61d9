package server

import (
	"context"
	"errors"

	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/core"
)

// operator answers operators who come over the API. It gives the same answers as the operator's
// socket, in the API's types.
type operator struct{ c *coordinator }

// errAlone refuses an operation on a cluster at a single-node server.
var errAlone = core.Invalid{Field: "method", Reason: "no_cluster", Message: "this server is by itself: start it with a cluster id to let it grow"}

// ClusterStatus returns the cluster as this node sees it.
func (o operator) ClusterStatus(ctx context.Context) (*pb.ClusterStatusResponse, error) {
	s := o.c.status(ctx)
	return showStatus(&s), nil
}

// ChangeMembers makes a change of membership.
func (o operator) ChangeMembers(ctx context.Context, op core.MemberChange) (*pb.ChangeMembersResponse, error) {
	m, err := o.c.Change(ctx, op)
	if err != nil {
		return nil, operatorFact(err)
	}
	out := &pb.ChangeMembersResponse{Version: m.Version, Job: showJob(m.Job), JoinToken: m.Token}
	for _, x := range m.Members {
		out.Members = append(out.Members, &pb.ClusterMember{
			Replica: x.Replica, Node: x.Node, Name: x.Name, Peer: x.Peer, Grpc: x.GRPC, Http: x.HTTP, State: x.State, Drained: x.Drained,
		})
	}
	return out, nil
}

// TransferShard has a node lead a shard.
func (o operator) TransferShard(ctx context.Context, shard core.ShardID, to uint64) error {
	return operatorFact(o.c.transfer(ctx, shard, to))
}

// BalanceShards has all shards go home.
func (o operator) BalanceShards(ctx context.Context) (*pb.ClusterStatusResponse, error) {
	before, err := o.c.balance(ctx)
	if err != nil {
		return nil, operatorFact(err)
	}
	return showStatus(&before), nil
}

// FinalizeFormat raises the format of the cluster.
func (o operator) FinalizeFormat(ctx context.Context) (*pb.FinalizeFormatResponse, error) {
	f, err := o.c.finalize(ctx)
	if err != nil {
		return nil, operatorFact(err)
	}
	return &pb.FinalizeFormatResponse{Format: uint32(f.Format), Before: uint32(f.Before)}, nil
}

// operatorFact turns an error of the coordinator into a fact. A refusal, which has only words,
// becomes an invalid argument if it can never succeed, else a failed move.
func operatorFact(err error) error {
	if u, ok := errors.AsType[core.Unavailable](err); ok && u.Reason == "no_cluster" {
		return errAlone
	}
	r, ok := errors.AsType[refusal](err)
	switch {
	case !ok:
		return err
	// The only call that can get such a refusal names a shard.
	case r.wrong:
		return core.Invalid{Field: "shard", Reason: "not_possible", Message: r.text}
	}
	return core.NotMoved{Why: r.text}
}

// showStatus, showNode and showJob convert the coordinator's types to those of the API.
func showStatus(s *ClusterStatus) *pb.ClusterStatusResponse {
	out := &pb.ClusterStatusResponse{
		ClusterId: s.Cluster, Asked: s.Asked, Format: uint32(s.Format), Job: showJob(s.Job), Warnings: s.Warnings(),
	}
	for i := range s.Nodes {
		out.Nodes = append(out.Nodes, showNode(&s.Nodes[i]))
	}
	for i := range s.Shards {
		out.Shards = append(out.Shards, showShard(&s.Shards[i]))
	}
	for i := range s.Nodes {
		for _, l := range s.Nodes[i].Links {
			out.Links = append(out.Links, &pb.ClusterLink{From: s.Nodes[i].ID, To: l.To, Connected: l.Connected, RttUs: l.RTT})
		}
	}
	for _, l := range s.IfLost {
		out.IfLost = append(out.IfLost, &pb.ClusterLoss{Node: l.Node, Shards: numbers(l.Shards)})
	}
	return out
}

// numbers converts the numbers of shards.
func numbers(shards []int) []uint32 {
	out := make([]uint32, len(shards))
	for i, n := range shards {
		out[i] = uint32(n)
	}
	return out
}

// showShard converts one shard.
func showShard(s *ShardStatus) *pb.ClusterShard {
	out := &pb.ClusterShard{Shard: uint32(s.Shard), Leader: s.Leader, Term: s.Term, Committed: s.Commit, PartitionCount: uint64(s.Count)}
	for _, p := range s.Partitions {
		out.Partitions = append(out.Partitions, &pb.ClusterPartition{Tenant: p.Tenant, Namespace: p.Namespace, Partition: uint32(p.Partition)})
	}
	if s.EntriesPerSecond != nil {
		out.Rates = &pb.ClusterRates{Entries: *s.EntriesPerSecond}
	}
	return out
}

// showFigures converts the figures of a node.
func showFigures(out *pb.ClusterNode, f *Figures) {
	out.Durability = f.Durability
	if f.Disk != nil {
		out.Disk = &pb.ClusterDisk{Size: f.Disk.Size, Free: f.Disk.Free, Reserve: f.Disk.Reserve, Full: f.Disk.Full}
	}
	if f.Syncs != nil {
		out.FsyncUs = &pb.SyncTimes{P50: f.Syncs.P50, P99: f.Syncs.P99}
	}
	if f.Memory != nil {
		out.Memory = &pb.ClusterMemory{Used: f.Memory.Used, Limit: f.Memory.Limit}
	}
	if !f.CertEnds.IsZero() {
		out.CertEndsAt = timestamppb.New(f.CertEnds)
	}
	if !f.Started.IsZero() {
		out.StartedAt = timestamppb.New(f.Started)
	}
}

// showNode converts one node.
func showNode(n *NodeStatus) *pb.ClusterNode {
	out := &pb.ClusterNode{
		Id: n.ID, Name: n.Name, Address: n.Address, Grpc: n.GRPC, Http: n.HTTP, Reachable: n.Reachable, Error: n.Error,
		Program: n.Version, KnowsFormat: uint32(n.Knows), Replica: n.Replica, State: n.State, Drained: n.Drained, Unready: n.Unready, Lag: n.Lag,
	}
	showFigures(out, &n.Figures)
	out.Leads = numbers(n.Leads)
	for _, r := range n.Replicas {
		out.Replicas = append(out.Replicas, &pb.ClusterReplica{
			Shard: uint32(r.Shard), Leader: r.Leader, Leads: r.Leads, Term: r.Term, Committed: r.Commit, Applied: r.Applied, Lag: r.Lag, Durable: r.Durable,
		})
	}
	return out
}

// showJob converts a change of membership; nil stays nil.
func showJob(j *JobStatus) *pb.MemberJob {
	if j == nil {
		return nil
	}
	return &pb.MemberJob{Id: j.ID, Kind: j.Kind, State: j.State, Node: j.Node, Ending: j.Ending, Reason: j.Reason}
}
