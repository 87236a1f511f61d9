package api

import (
	"context"
	"fmt"

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
	t, err := ts.tenants.Tenant(ctx, name, readOptions(0, in.GetStale()))
	if err != nil {
		return nil, err
	}
	// The caller's own is there, even if nothing of it was stored yet.
	if t.ID == 0 && name != own {
		return nil, core.NotFound{Kind: "tenant", ID: name}
	}
	most := t.Config.Tasks.OrDefault()
	over := t.Use.Less(core.TaskUse{Tasks: uint64(most.Tasks), Bytes: uint64(most.Bytes), Running: uint64(most.Running)})
	// One that nothing was stored of was refused nothing.
	var refusals *pb.Refusals
	if t.ID != 0 {
		refusals = ts.s.showRefusals(ctx, t.ID, 0)
	}
	return &pb.GetTenantResponse{
		Refusals:     refusals,
		CurrentTasks: t.Use.Tasks, CurrentTaskBytes: t.Use.Bytes, CurrentRunningTasks: t.Use.Running, CurrentStreams: uint64(max(t.Streams, 0)),
		OvershootTasks: over.Tasks, OvershootTaskBytes: over.Bytes, OvershootRunningTasks: over.Running,
		RecentTaskCreatesPerSecond: t.Creates.Puts, OvershootTaskCreates: t.Creates.OverPuts,
		Tenant: name, Namespaces: t.Namespaces, MeasuredKeyBytes: t.Measured, OverKeyBytes: t.Over,
		RecentKeyWritesPerSecond: t.Pace.Puts, RecentKeyBytesPerSecond: t.Pace.Bytes,
		OvershootKeyWrites: t.Pace.OverPuts, OvershootKeyBytesWritten: t.Pace.OverBytes,
		Config: &pb.TenantConfig{
			Version: t.Config.Version, KeyBytes: t.Config.KeyBytes, KeyWritesPerSecond: t.Config.KeyRate, KeyBytesPerSecond: t.Config.KeyByteRate,
			Weight: uint32(t.Config.Weight), TaskCreatesPerSecond: t.Config.CreateRate, Streams: t.Config.Streams,
			Tasks: t.Config.Tasks.Tasks, TaskBytes: t.Config.Tasks.Bytes, RunningTasks: t.Config.Tasks.Running,
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
	}{
		{"key_bytes", c.GetKeyBytes()},
		{"key_writes_per_second", c.GetKeyWritesPerSecond()},
		{"key_bytes_per_second", c.GetKeyBytesPerSecond()},
		{"task_creates_per_second", c.GetTaskCreatesPerSecond()},
		{"streams", c.GetStreams()},
		{"tasks", c.GetTasks()},
		{"task_bytes", c.GetTaskBytes()},
		{"running_tasks", c.GetRunningTasks()},
	} {
		if bound.n < 0 {
			return nil, edge.Invalid("config."+bound.field, "must not be negative")
		}
	}
	if c.GetWeight() > core.MaxTenantWeight {
		return nil, edge.Invalid("config.weight", fmt.Sprintf("must be at most %d", core.MaxTenantWeight))
	}
	config := core.TenantConfig{
		KeyBytes: c.GetKeyBytes(), KeyRate: c.GetKeyWritesPerSecond(), KeyByteRate: c.GetKeyBytesPerSecond(),
		Weight: int64(c.GetWeight()), CreateRate: c.GetTaskCreatesPerSecond(), Streams: c.GetStreams(),
		Tasks: core.TaskBounds{Tasks: c.GetTasks(), Bytes: c.GetTaskBytes(), Running: c.GetRunningTasks()},
	}
	if config.Shares() { // older programs cannot read it in the log
		fact := ts.s.fromFormat(core.FormatShare, "config", fmt.Sprintf(
			"weights of tenants and bounds on their tasks need format %d of the cluster, which has %d", core.FormatShare, ts.s.node.self.Format()))
		if fact != nil {
			return nil, fact
		}
	}
	next, err := ts.tenants.SetTenant(ctx, in.GetTenant(), config, version)
	if err != nil {
		return nil, err
	}
	return &pb.SetTenantResponse{Version: next}, nil
}
