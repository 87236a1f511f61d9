package api

import (
	"context"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/auth"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// TenantService bounds tenants.
type TenantService struct {
	pb.UnimplementedTenantServiceServer
	s       *Server // what all services share
	tenants TenantBackend
}

// Get reads the limits of a tenant, and its measured usage. A caller that may not read another tenant is refused for want of
// the scope, so that the answer does not tell which names exist.
func (ts *TenantService) Get(ctx context.Context, in *pb.GetTenantRequest) (*pb.GetTenantResponse, error) {
	who, _, fact := ts.s.asks(ctx)
	if fact != nil {
		return nil, fact
	}
	// Without a name it is the caller's own.
	own := who.Tenant
	name := in.GetTenant()
	if name == "" {
		name = own
	}
	if fact := edge.SpaceName("tenant", name); fact != nil {
		return nil, fact
	}
	// Before the tenant is looked up, so that the answer does not tell whether it exists.
	if name != own && !who.Scopes.Has(auth.TenantAdmin) {
		return nil, core.Denied{Scope: auth.TenantAdmin.String()}
	}
	t, err := ts.tenants.Tenant(ctx, name)
	if err != nil {
		return nil, err
	}
	// The caller's own is there, even if nothing of it was stored yet.
	if t.ID == 0 && name != own {
		return nil, core.NotFound{Kind: "tenant", ID: name}
	}
	return &pb.GetTenantResponse{
		Tenant: name, Namespaces: t.Namespaces, MeasuredKeyBytes: t.Measured, OverKeyBytes: t.Over,
		RecentKeyWritesPerSecond: t.Pace.Puts, RecentKeyBytesPerSecond: t.Pace.Bytes,
		OvershootKeyWrites: t.Pace.OverPuts, OvershootKeyBytesWritten: t.Pace.OverBytes,
		Config: &pb.TenantConfig{
			Version: t.Config.Version, KeyBytes: t.Config.KeyBytes, KeyWritesPerSecond: t.Config.KeyRate, KeyBytesPerSecond: t.Config.KeyByteRate,
		},
	}, nil
}

// Set replaces the configuration of a tenant.
// It makes a tenant that was not used yet. Errors: Invalid, RevMismatch for another version.
func (ts *TenantService) Set(ctx context.Context, in *pb.SetTenantRequest) (*pb.SetTenantResponse, error) {
	if _, _, fact := ts.s.asks(ctx); fact != nil {
		return nil, fact
	}
	if fact := edge.SpaceName("tenant", in.GetTenant()); fact != nil {
		return nil, fact
	}
	version, fact := ifVersion(in.IfVersion)
	if fact != nil {
		return nil, fact
	}
	c := in.GetConfig()
	// 0 stands for unbounded.
	for _, bound := range []struct {
		field string
		n     int64
	}{{"key_bytes", c.GetKeyBytes()}, {"key_writes_per_second", c.GetKeyWritesPerSecond()}, {"key_bytes_per_second", c.GetKeyBytesPerSecond()}} {
		if bound.n < 0 {
			return nil, edge.Invalid("config."+bound.field, "must not be negative")
		}
	}
	config := core.TenantConfig{KeyBytes: c.GetKeyBytes(), KeyRate: c.GetKeyWritesPerSecond(), KeyByteRate: c.GetKeyBytesPerSecond()}
	next, err := ts.tenants.SetTenant(ctx, in.GetTenant(), config, version)
	if err != nil {
		return nil, err
	}
	return &pb.SetTenantResponse{Version: next}, nil
}
