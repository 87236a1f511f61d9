package millrace

import (
	"context"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
)

// NamespaceInfo is the client's namespace.
type NamespaceInfo struct {
	// Config is what rules the namespace.
	Config     NamespaceConfig
	Partitions []PartitionInfo // by number

	MeasuredKeyBytes uint64 // what all keyspaces took at the last comparison with the bound
	OverKeyBytes     bool   // puts are refused

	// What all nodes let through of the rates lately, where there are any, and what passed beyond them and is not made good yet.
	RecentKeyWritesPerSecond uint64
	RecentKeyBytesPerSecond  uint64
	OvershootKeyWrites       uint64
	OvershootKeyBytesWritten uint64

	Refusals Refusals // of these bounds, and of other limits of what is in the namespace
}

// NamespaceConfig rules a namespace.
type NamespaceConfig struct {
	Version     uint64 // rises with each change
	AutoCreate  bool   // queues and keyspaces by their first use
	RetainBytes int64  // of ended tasks, oldest removed first

	CreateOnPush bool // the first push to a repository makes it, by who may make one

	// Bounds of all keyspaces together; 0 is none.
	KeyBytes           int64 // on disk, of one replica
	KeyWritesPerSecond int64 // puts, of all nodes together
	KeyBytesPerSecond  int64 // of keys and values put, of all nodes together
}

// PartitionInfo says where a partition lies.
type PartitionInfo struct {
	// Partition is its number in the namespace, and Shard that of the log that holds it.
	Partition int
	Shard     int
	Address   string // of the node that leads it; empty: the one that answered, if Led
	Led       bool   // somebody is known to lead it
}

// partitionInfos reads the list of the contract.
func partitionInfos(list []*millracev1.PartitionInfo) []PartitionInfo {
	out := make([]PartitionInfo, len(list))
	for i, p := range list {
		out[i] = PartitionInfo{int(p.GetPartition()), int(p.GetShard()), p.GetAddress(), p.GetLed()}
	}
	return out
}

// CreateNamespace makes the client's namespace (needs the scope admin), with 1 to 4,096 partitions: the parts of it that
// change atomically, each led by some node, so that a cluster's nodes share its work. Their number is for good, and a
// namespace that is used before it was made has one. existed says that it was there, with as many; with another number it
// is ErrAlreadyExists.
func (c *Client) CreateNamespace(ctx context.Context, partitions int) (existed bool, err error) {
	var resp *millracev1.CreateNamespaceResponse
	err = c.change(ctx, anywhere, func(ctx context.Context) (err error) {
		resp, err = c.queues.CreateNamespace(ctx, &millracev1.CreateNamespaceRequest{Partitions: uint32(max(partitions, 0))})
		return err
	})
	if err != nil {
		return false, err
	}
	c.hub.Learned(len(resp.Partitions))
	return resp.Replayed, nil
}

// DeleteNamespace removes the client's namespace (needs the scope admin), with its configuration, its queues and its keyspaces,
// and says whether there was one. Its name is free at once: the next write makes another namespace of that name. It is
// ErrWrongState, and changes nothing, while the namespace has tasks, keys, repositories, also deleted ones that can be brought
// back, collections or rulesets; the error's details name them. Workers of the namespace end with ErrNotFound. A client counts on
// as many partitions as it has seen: where the next namespace of the name has fewer, make another client.
func (c *Client) DeleteNamespace(ctx context.Context) (existed bool, err error) {
	var resp *millracev1.DeleteNamespaceResponse
	err = c.change(ctx, anywhere, func(ctx context.Context) (err error) {
		resp, err = c.queues.DeleteNamespace(ctx, new(millracev1.DeleteNamespaceRequest))
		return err
	})
	return resp.GetExisted(), err
}

// Namespace reads the client's namespace. One that does not exist yet is ErrNotFound.
func (c *Client) Namespace(ctx context.Context) (*NamespaceInfo, error) {
	var resp *millracev1.GetNamespaceResponse
	err := c.read(ctx, anywhere, func(ctx context.Context) (err error) {
		resp, err = c.queues.GetNamespace(ctx, &millracev1.GetNamespaceRequest{})
		return err
	})
	if err != nil {
		return nil, err
	}
	c.hub.Learned(len(resp.Partitions))
	return &NamespaceInfo{
		Config: NamespaceConfig{
			Version: resp.Config.GetVersion(), AutoCreate: resp.Config == nil || resp.Config.AutoCreate == nil || *resp.Config.AutoCreate,
			RetainBytes: resp.Config.GetRetainBytes(), CreateOnPush: resp.Config.GetCreateOnPush(),
			KeyBytes:           resp.Config.GetKeyBytes(),
			KeyWritesPerSecond: resp.Config.GetKeyWritesPerSecond(), KeyBytesPerSecond: resp.Config.GetKeyBytesPerSecond(),
		},
		MeasuredKeyBytes: resp.MeasuredKeyBytes, OverKeyBytes: resp.OverKeyBytes,
		RecentKeyWritesPerSecond: resp.RecentKeyWritesPerSecond, RecentKeyBytesPerSecond: resp.RecentKeyBytesPerSecond,
		OvershootKeyWrites: resp.OvershootKeyWrites, OvershootKeyBytesWritten: resp.OvershootKeyBytesWritten,
		Partitions: partitionInfos(resp.Partitions), Refusals: refusalsOf(resp.Refusals),
	}, nil
}

// SetNamespace replaces the configuration of the client's namespace (needs the scope admin), whose Version must be 0 or the one
// in force, and returns the new version. Read it with Namespace, change it, and set it.
func (c *Client) SetNamespace(ctx context.Context, config NamespaceConfig) (version uint64, err error) {
	req := &millracev1.SetNamespaceRequest{Config: &millracev1.NamespaceConfig{
		AutoCreate: &config.AutoCreate, RetainBytes: config.RetainBytes, CreateOnPush: config.CreateOnPush,
		KeyBytes: config.KeyBytes, KeyWritesPerSecond: config.KeyWritesPerSecond, KeyBytesPerSecond: config.KeyBytesPerSecond,
	}}
	if config.Version != 0 {
		req.IfVersion = &config.Version
	}
	var resp *millracev1.SetNamespaceResponse
	err = c.change(ctx, anywhere, func(ctx context.Context) (err error) {
		resp, err = c.queues.SetNamespace(ctx, req)
		return err
	})
	return resp.GetVersion(), err
}
