package millrace

import (
	"context"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
)

// TenantConfig bounds all keyspaces of all namespaces of a tenant together. A bound of 0 is none. What passes one is refused
// with ErrExhausted, or with CodeRateLimited; deletes and reads go on.
type TenantConfig struct {
	Version            uint64 // rises with each change
	KeyBytes           int64  // on disk, of one replica, measured every 10 s
	KeyWritesPerSecond int64  // puts, of all nodes together
	KeyBytesPerSecond  int64  // of keys and values put, of all nodes together
}

// TenantInfo is a tenant, what bounds it, and what it takes.
type TenantInfo struct {
	Name       string
	Config     TenantConfig
	Namespaces int // how many there are

	MeasuredKeyBytes uint64 // what all keyspaces took on the disk of the node that answered, at the last comparison with the bound
	OverKeyBytes     bool   // puts are refused

	// What all nodes let through of the rates lately, where there are any, and what passed beyond them and is not made good yet.
	RecentKeyWritesPerSecond uint64
	RecentKeyBytesPerSecond  uint64
	OvershootKeyWrites       uint64
	OvershootKeyBytesWritten uint64
}

// Tenant reads a tenant; an empty name is the client's own (needs the scope admin), any other one needs the scope tenant:admin.
// One that was never used, nor configured, is ErrNotFound.
func (c *Client) Tenant(ctx context.Context, name string) (TenantInfo, error) {
	var resp *millracev1.GetTenantResponse
	err := c.read(ctx, anywhere, func(ctx context.Context) (err error) {
		resp, err = c.tenants.Get(ctx, &millracev1.GetTenantRequest{Tenant: name})
		return err
	})
	if err != nil {
		return TenantInfo{}, err
	}
	t := resp.GetConfig()
	return TenantInfo{
		Name: resp.GetTenant(), Namespaces: int(resp.GetNamespaces()), MeasuredKeyBytes: resp.GetMeasuredKeyBytes(), OverKeyBytes: resp.GetOverKeyBytes(),
		RecentKeyWritesPerSecond: resp.GetRecentKeyWritesPerSecond(), RecentKeyBytesPerSecond: resp.GetRecentKeyBytesPerSecond(),
		OvershootKeyWrites: resp.GetOvershootKeyWrites(), OvershootKeyBytesWritten: resp.GetOvershootKeyBytesWritten(),
		Config: TenantConfig{
			Version: t.GetVersion(), KeyBytes: t.GetKeyBytes(), KeyWritesPerSecond: t.GetKeyWritesPerSecond(), KeyBytesPerSecond: t.GetKeyBytesPerSecond(),
		},
	}, nil
}

// SetTenant replaces what bounds a tenant (needs the scope tenant:admin), whose Version must be 0 or the one in force, and
// returns the new version. The tenant need not have been used yet. One without bounds is not configured any more: its version
// is 0, and versions that were in force do not come again.
func (c *Client) SetTenant(ctx context.Context, name string, config TenantConfig) (version uint64, err error) {
	req := &millracev1.SetTenantRequest{Tenant: name, Config: &millracev1.TenantConfig{
		KeyBytes: config.KeyBytes, KeyWritesPerSecond: config.KeyWritesPerSecond, KeyBytesPerSecond: config.KeyBytesPerSecond,
	}}
	if config.Version != 0 {
		req.IfVersion = &config.Version
	}
	var resp *millracev1.SetTenantResponse
	err = c.change(ctx, anywhere, func(ctx context.Context) (err error) {
		resp, err = c.tenants.Set(ctx, req)
		return err
	})
	return resp.GetVersion(), err
}

// The routes of tenants.

// restPace is what is let through of rates, as answers tell it.
type restPace struct {
	Writes     uint64 `json:"recent_key_writes_per_second"`
	Bytes      uint64 `json:"recent_key_bytes_per_second"`
	OverWrites uint64 `json:"overshoot_key_writes"`
	OverBytes  uint64 `json:"overshoot_key_bytes_written"`
}

func (r *restConn) getTenant(ctx context.Context, in *millracev1.GetTenantRequest, out *millracev1.GetTenantResponse) error {
	path := "/v1/tenant"
	if in.GetTenant() != "" {
		path = "/v1/tenants/" + restSegment(in.GetTenant())
	}
	var body struct {
		Tenant             string `json:"tenant"`
		Version            uint64 `json:"version,string"`
		KeyBytes           int64  `json:"key_bytes"`
		KeyWritesPerSecond int64  `json:"key_writes_per_second"`
		KeyBytesPerSecond  int64  `json:"key_bytes_per_second"`
		Namespaces         uint32 `json:"namespaces"`
		MeasuredKeyBytes   uint64 `json:"measured_key_bytes"`
		OverKeyBytes       bool   `json:"over_key_bytes"`
		restPace
	}
	if _, err := r.call(ctx, get(path, nil), &body); err != nil {
		return err
	}
	out.Tenant, out.Namespaces, out.MeasuredKeyBytes, out.OverKeyBytes = body.Tenant, body.Namespaces, body.MeasuredKeyBytes, body.OverKeyBytes
	out.RecentKeyWritesPerSecond, out.RecentKeyBytesPerSecond = body.Writes, body.Bytes
	out.OvershootKeyWrites, out.OvershootKeyBytesWritten = body.OverWrites, body.OverBytes
	out.Config = &millracev1.TenantConfig{
		Version: body.Version, KeyBytes: body.KeyBytes, KeyWritesPerSecond: body.KeyWritesPerSecond, KeyBytesPerSecond: body.KeyBytesPerSecond,
	}
	return nil
}

func (r *restConn) setTenant(ctx context.Context, in *millracev1.SetTenantRequest, out *millracev1.SetTenantResponse) error {
	if in.GetTenant() == "" {
		return refusedHere("tenant", "must not be empty")
	}
	q := put("/v1/tenants/"+restSegment(in.GetTenant()), in.IfVersion, func(w *restBody) {
		w.int("key_bytes", in.GetConfig().GetKeyBytes())
		w.int("key_writes_per_second", in.GetConfig().GetKeyWritesPerSecond())
		w.int("key_bytes_per_second", in.GetConfig().GetKeyBytesPerSecond())
	})
	var answer configured
	if _, err := r.call(ctx, q, &answer); err != nil {
		return enclosed(err, "config")
	}
	out.Version = answer.Version
	return nil
}
