package api

import (
	"context"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// CreateNamespace makes the call's namespace.
// The number of partitions never changes. Errors: AlreadyExists where there is one with another
// number; Exhausted beyond the tenant's bound.
func (qs *QueueService) CreateNamespace(ctx context.Context, in *pb.CreateNamespaceRequest) (*pb.CreateNamespaceResponse, error) {
	s := qs.s
	who, name, fact := s.asks(ctx)
	if fact != nil {
		return nil, fact
	}
	if int64(in.GetPartitions()) > s.Limits.Partitions {
		return nil, edge.Beyond("partitions", "partitions", s.Limits.Partitions, "is out of range")
	}
	// Without a number it has one partition, like a namespace that is made by its first use.
	ns, replayed, err := s.node.spaces.CreateNamespace(ctx, who.Tenant, name, max(int(in.GetPartitions()), 1))
	if err != nil {
		return nil, err
	}
	return &pb.CreateNamespaceResponse{Replayed: replayed, Partitions: s.showPartitions(ns.Partitions)}, nil
}

// DeleteNamespace removes the call's namespace, if it holds nothing.
// It goes in steps that any node takes on. Errors: NotEmpty names what it holds.
func (qs *QueueService) DeleteNamespace(ctx context.Context, _ *pb.DeleteNamespaceRequest) (*pb.DeleteNamespaceResponse, error) {
	s := qs.s
	who, name, fact := s.asks(ctx)
	if fact != nil {
		return nil, fact
	}
	// It takes the configurations of all queues along.
	if fact := s.reachesQueue(ctx, ""); fact != nil {
		return nil, fact
	}
	if fact := s.removes("namespace"); fact != nil {
		return nil, fact
	}
	existed, err := s.node.spaces.RemoveNamespace(ctx, who.Tenant, name)
	if err != nil {
		return nil, err
	}
	return &pb.DeleteNamespaceResponse{Existed: existed}, nil
}

// GetNamespace reads the configuration of the call's namespace, and where its partitions lie.
// Figures of keys are there only where something bounds them.
func (qs *QueueService) GetNamespace(ctx context.Context, in *pb.GetNamespaceRequest) (*pb.GetNamespaceResponse, error) {
	c, err := qs.s.begin(ctx, false)
	if err != nil {
		return nil, err
	}
	// All of a namespace's configuration lies in its first partition.
	config, at, err := qs.spaces.NamespaceConfig(ctx, c.t.part, readOptions(0, in.GetStale()))
	if err != nil {
		return nil, err
	}
	out := &pb.GetNamespaceResponse{
		Config: showNamespaceConfig(config), At: ShowAt(at), Partitions: qs.s.showPartitions(c.partitions),
		Refusals: qs.s.showRefusals(ctx, c.t.part.Tenant, c.t.part.Namespace),
	}
	// Measured only where there is a bound.
	if config.KeyBytes > 0 {
		used, _, err := qs.spaces.KeyBytes(ctx, c.t.part, readOptions(at.Index, in.GetStale()))
		if err != nil {
			return nil, err
		}
		out.MeasuredKeyBytes, out.OverKeyBytes = used, used > uint64(config.KeyBytes)
	}
	// From this node's memory: all nodes tell each other what they let through.
	if config.KeyRate > 0 || config.KeyByteRate > 0 {
		pace := qs.spaces.KeyPace(c.t.part, false)
		out.RecentKeyWritesPerSecond, out.RecentKeyBytesPerSecond = pace.Puts, pace.Bytes
		out.OvershootKeyWrites, out.OvershootKeyBytesWritten = pace.OverPuts, pace.OverBytes
	}
	return out, nil
}

// SetNamespace replaces the configuration of the call's namespace.
// It is judged by the first partition and carried to all. Errors: RevMismatch for another version.
func (qs *QueueService) SetNamespace(ctx context.Context, in *pb.SetNamespaceRequest) (*pb.SetNamespaceResponse, error) {
	// It bounds all queues, and says whether there may be more.
	if fact := qs.s.reachesQueue(ctx, ""); fact != nil {
		return nil, fact
	}
	version, fact := ifVersion(in.IfVersion)
	if fact != nil {
		return nil, fact
	}
	t := Translator{l: &qs.s.Limits}
	config, fact := t.namespaceConfig(in.GetConfig())
	if fact != nil {
		return nil, edge.Within("config", fact)
	}
	c, err := qs.s.begin(ctx, true)
	if err != nil {
		return nil, err
	}
	r, at, err := c.set(ctx, setting{
		version: version,
		op:      func(version int64) core.Op { return &core.NamespaceSet{Config: config, IfVersion: version} },
		now: func() (found, error) {
			has, _, err := qs.spaces.NamespaceConfig(ctx, c.t.part, core.ReadOptions{})
			// The two are compared without their versions, which the server counts.
			f := found{version: has.Version}
			has.Version = config.Version
			f.same, f.op = has == config, &core.NamespaceSet{Config: has, IfVersion: -1}
			return f, err
		},
	})
	if err != nil {
		return nil, err
	}
	return &pb.SetNamespaceResponse{Version: r.Version, At: ShowAt(at)}, nil
}

// showPartitions tells where the partitions of a namespace lie, and who leads them as far as this node knows.
func (s *Server) showPartitions(partitions []core.PartitionInfo) []*pb.PartitionInfo {
	out := make([]*pb.PartitionInfo, len(partitions))
	for i, p := range partitions {
		// A leader that is not known now has no address; the client asks again.
		address, _, known := s.node.places.Leader(p.Partition)
		out[i] = &pb.PartitionInfo{Partition: uint32(i), Shard: uint32(p.Shard), Address: address, Led: known}
	}
	return out
}
