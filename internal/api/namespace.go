package api

import (
	"context"
	"slices"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// CreateNamespace makes the call's namespace.
func (qs *QueueService) CreateNamespace(ctx context.Context, in *pb.CreateNamespaceRequest) (*pb.CreateNamespaceResponse, error) {
	s := qs.s
	who, name, fact := s.asks(ctx)
	if fact != nil {
		return nil, fact
	}
	if int64(in.GetPartitions()) > s.Limits.Partitions {
		return nil, edge.Beyond("partitions", "partitions", s.Limits.Partitions, "is out of range")
	}
	ns, replayed, err := s.o.Backend.CreateNamespace(ctx, who.Tenant, name, max(int(in.GetPartitions()), 1))
	if err != nil {
		return nil, err
	}
	return &pb.CreateNamespaceResponse{Replayed: replayed, Partitions: s.showPartitions(ns.Partitions)}, nil
}

// DeleteNamespace removes the call's namespace, if it holds nothing.
func (qs *QueueService) DeleteNamespace(ctx context.Context, _ *pb.DeleteNamespaceRequest) (*pb.DeleteNamespaceResponse, error) {
	s := qs.s
	who, name, fact := s.asks(ctx)
	if fact != nil {
		return nil, fact
	}
	if fact := s.removes("namespace"); fact != nil {
		return nil, fact
	}
	existed, err := s.o.Backend.RemoveNamespace(ctx, who.Tenant, name)
	if err != nil {
		return nil, err
	}
	return &pb.DeleteNamespaceResponse{Existed: existed}, nil
}

// GetNamespace reads the configuration of the call's namespace, and where its partitions lie.
func (qs *QueueService) GetNamespace(ctx context.Context, _ *pb.GetNamespaceRequest) (*pb.GetNamespaceResponse, error) {
	c, err := qs.s.begin(ctx, false)
	if err != nil {
		return nil, err
	}
	config, at, err := qs.s.o.Backend.NamespaceConfig(ctx, c.t.part, core.ReadOptions{})
	if err != nil {
		return nil, err
	}
	out := &pb.GetNamespaceResponse{
		Config: showNamespaceConfig(config), At: ShowAt(at), Partitions: qs.s.showPartitions(c.partitions),
	}
	if config.KeyBytes > 0 {
		used, _, err := qs.s.o.Backend.KeyBytes(ctx, c.t.part, core.ReadOptions{MinIndex: at.Index})
		if err != nil {
			return nil, err
		}
		out.MeasuredKeyBytes, out.OverKeyBytes = used, used > uint64(config.KeyBytes)
	}
	if config.KeyRate > 0 || config.KeyByteRate > 0 {
		pace := qs.s.o.Backend.KeyPace(c.t.part, false)
		out.RecentKeyWritesPerSecond, out.RecentKeyBytesPerSecond = pace.Puts, pace.Bytes
		out.OvershootKeyWrites, out.OvershootKeyBytesWritten = pace.OverPuts, pace.OverBytes
	}
	return out, nil
}

// SetNamespace replaces the configuration of the call's namespace.
func (qs *QueueService) SetNamespace(ctx context.Context, in *pb.SetNamespaceRequest) (*pb.SetNamespaceResponse, error) {
	version, fact := ifVersion(in.IfVersion)
	if fact != nil {
		return nil, fact
	}
	t := translator{l: &qs.s.Limits}
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
			has, _, err := qs.s.o.Backend.NamespaceConfig(ctx, c.t.part, core.ReadOptions{})
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
		address, _, known := s.o.Backend.Leader(p.Partition)
		out[i] = &pb.PartitionInfo{Partition: uint32(i), Shard: uint32(p.Shard), Address: address, Led: known}
	}
	return out
}

// directory lists the partitions of a namespace whose leaders this node knows.
func (s *Server) directory(partitions []core.PartitionInfo) []*pb.PartitionAddress {
	out := make([]*pb.PartitionAddress, 0, len(partitions))
	for i, p := range partitions {
		if address, _, known := s.o.Backend.Leader(p.Partition); known {
			out = append(out, &pb.PartitionAddress{Partition: uint32(i), Address: address})
		}
	}
	return out
}

// tellLeaders queues a Directory, unless the client knows all that it says, or one is queued. What it says is read when it
// is sent, so that one frame is enough however often leaders change meanwhile.
func (st *stream) tellLeaders() {
	now := st.s.placesOf(st.partitions)
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.closed || st.telling || samePlaces(now, st.told) {
		return
	}
	st.telling = true
	o := outgoing{leaders: true, bytes: frameBytes * int64(1+len(now.Partitions)+len(now.Nodes))}
	st.out = append(st.out, o)
	st.weigh(o.bytes)
	wake(st.kick)
}

// placesOf is what a client is told of the partitions of its namespace when that changes, and of the members. Where there is
// one partition it follows the leader by the refusals of the others.
func (s *Server) placesOf(partitions []core.PartitionInfo) *pb.Directory {
	d := &pb.Directory{Nodes: s.o.Backend.Nodes()}
	if len(partitions) > 1 {
		d.Partitions = s.directory(partitions)
	}
	return d
}

func samePlaces(a, b *pb.Directory) bool {
	return slices.Equal(a.Nodes, b.Nodes) && slices.EqualFunc(a.Partitions, b.Partitions, func(a, b *pb.PartitionAddress) bool {
		return a.GetPartition() == b.GetPartition() && a.GetAddress() == b.GetAddress()
	})
}

// directoryFrame is the Directory that tellLeaders queued.
func (st *stream) directoryFrame() *pb.ServerFrame {
	now := st.s.placesOf(st.partitions)
	st.mu.Lock()
	st.told, st.telling = now, false
	st.mu.Unlock()
	st.tellLeaders() // what changed meanwhile
	return &pb.ServerFrame{Frame: &pb.ServerFrame_Directory{Directory: now}}
}
