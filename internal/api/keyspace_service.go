package api

import (
	"context"
	"sync"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// KeyspaceService configures keyspaces and counts what is in them. A keyspace lies in all partitions of its namespace, and
// all have its configuration.
type KeyspaceService struct {
	pb.UnimplementedKeyspaceServiceServer
	s    *Server // what all services share
	keys KeyBackend
}

// Set replaces a keyspace's configuration, or makes the keyspace.
// The version rises only when something changes. Errors: RevMismatch for another version; Unavailable,
// outcome unknown, where a partition did not take it: a repetition does the rest.
func (ks *KeyspaceService) Set(ctx context.Context, in *pb.SetKeyspaceRequest) (*pb.SetKeyspaceResponse, error) {
	if fact := edge.SpaceName("keyspace", in.GetKeyspace()); fact != nil {
		return nil, fact
	}
	version, fact := ifVersion(in.IfVersion)
	if fact != nil {
		return nil, fact
	}
	config, fact := keyspaceConfig(in.GetConfig())
	if fact == nil && config.Writers {
		fact = ks.s.shared("writers")
	}
	if fact != nil {
		return nil, edge.Within("config", fact)
	}
	c, err := ks.s.begin(ctx, true)
	if err != nil {
		return nil, err
	}
	r, at, err := c.set(ctx, setting{
		version: version,
		op: func(version int64) core.Op {
			return &core.KeyspaceSet{Keyspace: in.GetKeyspace(), Config: config, IfVersion: version}
		},
		now: func() (found, error) {
			k, _, err := ks.keys.Keyspace(ctx, c.t.part, in.GetKeyspace(), 0, core.ReadOptions{})
			f := found{version: k.Config.Version}
			k.Config.Version = config.Version
			f.same, f.op = k.Config == config, &core.KeyspaceSet{Keyspace: in.GetKeyspace(), Config: k.Config, IfVersion: -1}
			return f, ignoreNotFound(err)
		},
	})
	if err != nil {
		return nil, err
	}
	return &pb.SetKeyspaceResponse{Version: r.Version, At: ShowAt(at)}, nil
}

// keyspaceConfig reads a configuration. Its version is read-only, and not looked at.
// A nil one is the default: no bounds.
func keyspaceConfig(in *pb.KeyspaceConfig) (c core.KeyspaceConfig, fact core.Fact) {
	switch {
	// What is reserved for other kinds of keyspaces.
	case in.GetKind() != pb.KeyspaceConfig_PLAIN:
		return c, edge.NotSupported("kind")
	case in.GetTag() != "":
		return c, edge.NotSupported("tag")
	case in.GetRetention() != nil:
		return c, edge.NotSupported("retention")
	}
	// A missing quota reads as zeros: unbounded.
	q := in.GetQuota()
	// 0 stands for unbounded.
	for _, bound := range []struct {
		field string
		n     int64
	}{{"bytes", q.GetBytes()}, {"writes_per_second", q.GetWritesPerSecond()}, {"bytes_per_second", q.GetBytesPerSecond()}} {
		if bound.n < 0 {
			return c, edge.Invalid("quota."+bound.field, "must not be negative")
		}
	}
	return core.KeyspaceConfig{
		Bytes: q.GetBytes(), WriteRate: q.GetWritesPerSecond(), ByteRate: q.GetBytesPerSecond(), Writers: in.GetWriters(),
	}, nil
}

// showKeyspaceConfig shows a keyspace's configuration.
func showKeyspaceConfig(c core.KeyspaceConfig) *pb.KeyspaceConfig {
	out := &pb.KeyspaceConfig{Version: c.Version, Writers: c.Writers}
	// A quota without bounds is not shown.
	if c.Bytes != 0 || c.WriteRate != 0 || c.ByteRate != 0 {
		out.Quota = &pb.KeyspaceQuota{Bytes: c.Bytes, WritesPerSecond: c.WriteRate, BytesPerSecond: c.ByteRate}
	}
	return out
}

// Get reads a keyspace's configuration, and counts what is in it, in all partitions.
// Keys are counted up to a bound in each partition; MoreKeys says that there are more. Errors:
// NotFound.
func (ks *KeyspaceService) Get(ctx context.Context, in *pb.GetKeyspaceRequest) (*pb.GetKeyspaceResponse, error) {
	name := in.GetKeyspace()
	if fact := edge.SpaceName("keyspace", name); fact != nil {
		return nil, fact
	}
	c, err := ks.s.begin(ctx, false)
	if edge.UnknownNamespace(err) {
		return nil, core.NotFound{Kind: "keyspace", ID: name}
	}
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex // guards the variables below
	var at core.At
	out := &pb.KeyspaceStats{Keyspace: name}
	// The lowest partition that has the keyspace: its configuration is shown.
	first := c.t.parts
	err = c.each(0, func(p core.Partition) error {
		if !c.t.several() {
			p = c.t.part
		}
		k, oneAt, err := ks.keys.Keyspace(ctx, p, name, core.MaxCountedKeys, readOptions(0, in.GetStale()))
		// A keyspace comes to be in a partition with its first key there.
		if edge.Is[core.NotFound](err) {
			return nil
		}
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		if !c.t.several() {
			at = oneAt
		} else {
			merge(&at, oneAt)
		}
		// Counts are added up; each partition has other keys.
		out.Keys += k.Keys
		out.Bytes += k.Bytes
		// Measured in all partitions together, and told by each as far as it knows.
		out.MeasuredBytes = max(out.MeasuredBytes, k.Measured)
		out.MoreKeys, out.OverQuota = out.MoreKeys || k.MoreKeys, out.OverQuota || k.Over
		if int(p.Index) < first || !c.t.several() {
			first, out.Config = int(p.Index), showKeyspaceConfig(k.Config)
		}
		return nil
	})
	// No partition has it.
	if err == nil && out.Config == nil {
		err = core.NotFound{Kind: "keyspace", ID: name}
	}
	if err != nil {
		return nil, err
	}
	return &pb.GetKeyspaceResponse{Stats: out, At: ShowAt(at)}, nil
}

// listCounts is how many keys one list of keyspaces with stats counts, about, and leastCount how many of a keyspace it counts at least in
// each partition.
const (
	listCounts = 100_000
	leastCount = 16
)

// count fills in how many keys each keyspace of a page has. The keys of all of them are counted up to listCounts, as many of each.
func (ks *KeyspaceService) count(ctx context.Context, c *call, page []*pb.KeyspaceStats) error {
	most := uint64(max(listCounts/max(len(page)*c.t.parts, 1), leastCount))
	var mu sync.Mutex // guards the page
	add := func(out *pb.KeyspaceStats, k *core.KeyspaceInfo) {
		mu.Lock()
		defer mu.Unlock()
		out.Keys += k.Keys
		out.Bytes += k.Bytes
		out.MoreKeys = out.MoreKeys || k.MoreKeys
	}
	return c.each(0, func(p core.Partition) error {
		if !c.t.several() {
			p = c.t.part
		}
		for _, out := range page {
			k, _, err := ks.keys.Keyspace(ctx, p, out.GetKeyspace(), most, asLive) // which List has just read
			switch {
			case edge.Is[core.NotFound](err):
				continue
			case err != nil:
				return err
			}
			add(out, &k)
		}
		return nil
	})
}

// List reads a page of keyspaces by name, with their configuration.
// Nothing is counted unless that is asked for: a page must not cost more than its length.
func (ks *KeyspaceService) List(ctx context.Context, in *pb.ListKeyspacesRequest) (*pb.ListKeyspacesResponse, error) {
	limit, fact := ks.s.page(in.GetLimit())
	if fact != nil {
		return nil, fact
	}
	// The name that the page before ended with, whether it is still there or not.
	after, fact := readNameCursor(in.GetCursor(), false)
	if fact != nil {
		return nil, fact
	}
	c, err := ks.s.begin(ctx, false)
	if edge.UnknownNamespace(err) {
		return &pb.ListKeyspacesResponse{At: ShowAt(core.At{})}, nil
	}
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex // guards the variables below
	var at core.At
	var page []core.KeyspaceInfo
	err = c.each(0, func(p core.Partition) error {
		if !c.t.several() {
			p = c.t.part
		}
		one, oneAt, err := ks.keys.Keyspaces(ctx, p, after, limit, readOptions(0, in.GetStale()))
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		if !c.t.several() {
			at = oneAt
		} else {
			merge(&at, oneAt)
		}
		page = mergeKeyspaces(page, one, limit)
		return nil
	})
	if err != nil {
		return nil, err
	}
	out := &pb.ListKeyspacesResponse{Keyspaces: make([]*pb.KeyspaceStats, len(page)), At: ShowAt(at)}
	for i := range page {
		k := &page[i]
		out.Keyspaces[i] = &pb.KeyspaceStats{
			Keyspace: k.Name, Config: showKeyspaceConfig(k.Config), MeasuredBytes: k.Measured, OverQuota: k.Over,
		}
	}
	if len(page) == limit {
		out.Cursor = showCursor([]byte(page[limit-1].Name))
	}
	if in.GetStats() {
		err = ks.count(ctx, c, out.Keyspaces)
	}
	return out, err
}

// mergeKeyspaces adds a partition's page to what is merged so far, both by name. What lies beyond the limit is dropped.
// A keyspace that both have is there once.
func mergeKeyspaces(all, one []core.KeyspaceInfo, limit int) []core.KeyspaceInfo {
	out := make([]core.KeyspaceInfo, 0, min(len(all)+len(one), limit))
	// Both are sorted by name.
	for len(out) < limit && len(all)+len(one) > 0 {
		switch {
		case len(one) == 0 || len(all) > 0 && all[0].Name < one[0].Name:
			out, all = append(out, all[0]), all[1:]
		case len(all) == 0 || one[0].Name < all[0].Name:
			out, one = append(out, one[0]), one[1:]
		default:
			k := all[0]
			// A change is carried from the first partition to the others: the newest one counts.
			if one[0].Config.Version > k.Config.Version {
				k.Config = one[0].Config
			}
			k.Measured, k.Over = max(k.Measured, one[0].Measured), k.Over || one[0].Over
			out, all, one = append(out, k), all[1:], one[1:]
		}
	}
	return out
}

// Delete removes a keyspace and all its keys, in each partition at once. Where one fails the outcome is unknown until the
// call is repeated.
// The name is free at once, and a keyspace that is made under it has another incarnation. One that is
// not there counts as removed.
func (ks *KeyspaceService) Delete(ctx context.Context, in *pb.DeleteKeyspaceRequest) (*pb.DeleteKeyspaceResponse, error) {
	name := in.GetKeyspace()
	if fact := edge.SpaceName("keyspace", name); fact != nil {
		return nil, fact
	}
	c, err := ks.s.begin(ctx, false)
	if edge.UnknownNamespace(err) {
		// Nothing was there to remove.
		return &pb.DeleteKeyspaceResponse{At: ShowAt(core.At{})}, nil
	}
	if err != nil {
		return nil, err
	}
	op := &core.KeyspaceDelete{Keyspace: name}
	// The first partition, and then the others.
	r, at, err := c.proposeOp(ctx, op)
	if err != nil || !c.t.several() {
		return &pb.DeleteKeyspaceResponse{Existed: r.Existed, At: ShowAt(at)}, err
	}
	// A keyspace may exist in any of them.
	existed, err := c.elsewhere(ctx, op)
	if err != nil {
		return nil, err
	}
	return &pb.DeleteKeyspaceResponse{Existed: existed || r.Existed, At: ShowAt(at)}, nil
}
