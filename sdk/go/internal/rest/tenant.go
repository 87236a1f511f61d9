package rest

import (
	"context"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
)

// The routes of tenants.

// restPace is what is let through of rates, as answers tell it.
type restPace struct {
	Writes     uint64 `json:"recent_key_writes_per_second"`
	Bytes      uint64 `json:"recent_key_bytes_per_second"`
	OverWrites uint64 `json:"overshoot_key_writes"`
	OverBytes  uint64 `json:"overshoot_key_bytes_written"`
}

func (r *Conn) getTenant(ctx context.Context, in *millracev1.GetTenantRequest, out *millracev1.GetTenantResponse) error {
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

func (r *Conn) setTenant(ctx context.Context, in *millracev1.SetTenantRequest, out *millracev1.SetTenantResponse) error {
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
