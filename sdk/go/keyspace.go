package millrace

import (
	"context"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/sdk/go/internal/wire"
)

// KeyspaceConfig rules a keyspace. A bound of 0 is none. What passes one is refused with ErrResourceExhausted or
// ErrRateLimited; deletes and reads go on.
type KeyspaceConfig struct {
	Version         uint64 // rises with each change; not looked at when it is set
	Bytes           int64  // on disk, of one replica, measured every 10 s
	WritesPerSecond int64  // of puts, of all nodes together
	BytesPerSecond  int64  // of keys and values put, of all nodes together
	// Writers keeps with each key the task that wrote it last: see Value.Writer.
	Writers bool
}

// KeyspaceInfo is a keyspace and what is in it.
type KeyspaceInfo struct {
	// Name is the keyspace's, and Config what bounds it.
	Name      string
	Config    KeyspaceConfig
	Keys      uint64 // counted up to 100,000 in each partition
	MoreKeys  bool   // there are more
	Bytes     uint64 // on disk, of one replica, about; what is deleted counts until it is compacted away
	Measured  uint64 // as of the last comparison with the bound
	OverQuota bool   // puts are refused
}

// keyspaceInfo reads what the contract says of a keyspace.
func keyspaceInfo(s *millracev1.KeyspaceStats) KeyspaceInfo {
	c := s.GetConfig()
	return KeyspaceInfo{
		Name: s.GetKeyspace(), Keys: s.GetKeys(), MoreKeys: s.GetMoreKeys(), Bytes: s.GetBytes(), Measured: s.GetMeasuredBytes(),
		OverQuota: s.GetOverQuota(),
		Config: KeyspaceConfig{
			Version: c.GetVersion(), Bytes: c.GetQuota().GetBytes(), WritesPerSecond: c.GetQuota().GetWritesPerSecond(),
			BytesPerSecond: c.GetQuota().GetBytesPerSecond(), Writers: c.GetWriters(),
		},
	}
}

// Info reads the keyspace's configuration and counts what is in it. One that does not exist is ErrNotFound.
func (k KV) Info(ctx context.Context) (KeyspaceInfo, error) {
	var resp *millracev1.GetKeyspaceResponse
	err := k.c.read(ctx, anywhere, func(ctx context.Context) (err error) {
		resp, err = k.c.spaces.Get(ctx, &millracev1.GetKeyspaceRequest{Keyspace: k.keyspace})
		return err
	})
	return keyspaceInfo(resp.GetStats()), err
}

// Configure replaces the keyspace's configuration, or makes the keyspace (needs the scope admin). It returns the version,
// which rises only when something changes.
func (k KV) Configure(ctx context.Context, config KeyspaceConfig) (version uint64, err error) {
	req := &millracev1.SetKeyspaceRequest{Keyspace: k.keyspace, Config: &millracev1.KeyspaceConfig{Writers: config.Writers, Quota: &millracev1.KeyspaceQuota{
		Bytes: config.Bytes, WritesPerSecond: config.WritesPerSecond, BytesPerSecond: config.BytesPerSecond,
	}}}
	var resp *millracev1.SetKeyspaceResponse
	err = k.c.change(ctx, 0, func(ctx context.Context) (err error) {
		resp, err = k.c.spaces.Set(ctx, req)
		return err
	})
	return resp.GetVersion(), err
}

// Drop removes the keyspace and all its keys (needs the scope admin). It says whether there was one. Its name is free at
// once.
func (k KV) Drop(ctx context.Context) (existed bool, err error) {
	var resp *millracev1.DeleteKeyspaceResponse
	err = k.c.change(ctx, 0, func(ctx context.Context) (err error) {
		resp, err = k.c.spaces.Delete(ctx, &millracev1.DeleteKeyspaceRequest{Keyspace: k.keyspace})
		return err
	})
	return resp.GetExisted(), err
}

// Keyspaces lists the keyspaces of the client's namespace by name, with their configuration; what is in them tells Info.
func (c *Client) Keyspaces(ctx context.Context) (list []KeyspaceInfo, err error) {
	req := &millracev1.ListKeyspacesRequest{Limit: wire.BatchGet}
	for {
		var resp *millracev1.ListKeyspacesResponse
		if err := c.read(ctx, anywhere, func(ctx context.Context) (err error) {
			resp, err = c.spaces.List(ctx, req)
			return err
		}); err != nil {
			return nil, err
		}
		for _, s := range resp.Keyspaces {
			list = append(list, keyspaceInfo(s))
		}
		if req.Cursor = resp.Cursor; req.Cursor == "" {
			return list, nil
		}
	}
}
