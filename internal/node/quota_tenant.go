package node

import (
	"context"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/machine/commit"
	"github.com/millrace/millrace/internal/rate"
)

// Tenants with bounds. The bound stands in the directory, which only shard 0 has; partitions are told when their tenant passes
// it, and when it does not any more, so that a tenant of many partitions costs them nothing in between.

// tenantConfigs reads which tenants are bounded, from this node's copy of the directory.
func (n *Node) tenantConfigs() (map[core.TenantID]core.TenantConfig, error) {
	var out map[core.TenantID]core.TenantConfig
	err := n.shards[0].store.View(func(v core.View) error {
		return commit.TenantConfigs(v, func(id core.TenantID, c core.TenantConfig) {
			if out == nil {
				out = make(map[core.TenantID]core.TenantConfig)
			}
			out[id] = c
		})
	})
	return out, err
}

// noteTenants keeps what was measured, for those who ask.
func (n *Node) noteTenants(tenants map[core.TenantID]core.TenantConfig, sums map[rate.Key]uint64) {
	used := make(map[core.TenantID]uint64)
	for id, c := range tenants {
		if c.KeyBytes > 0 {
			used[id] = sums[rate.Key{Tenant: id}]
		}
	}
	n.tenants.Store(&used)
}

// newsOfTenant is what the partition does not know yet of its tenant; nil: nothing that matters.
func (b *boundedPart) newsOfTenant(sums map[rate.Key]uint64) core.Op {
	now := core.TenantUse{Bytes: sums[rate.Key{Tenant: b.p.Tenant}], Bound: b.tenant.KeyBytes}
	if now.Bound == 0 || now.Bytes <= uint64(now.Bound) {
		now = core.TenantUse{}
	}
	if now.Bound == b.told.Bound {
		return nil
	}
	return &now
}

// SetTenant replaces the configuration of a tenant; ifVersion is -1 for any. It returns the version.
func (n *Node) SetTenant(ctx context.Context, tenant string, c core.TenantConfig, ifVersion int64) (version uint64, err error) {
	op := &core.TenantSet{Tenant: tenant, Config: c, IfVersion: ifVersion}
	r, err := n.changeDirectory(ctx, op)
	return r.Version, err
}

// Tenant reads what the directory has of a tenant, and what this node measured last of its keys.
func (n *Node) Tenant(ctx context.Context, name string, o core.ReadOptions) (t core.TenantInfo, err error) {
	if err := n.shards[0].barrier(ctx, o); err != nil {
		return t, err
	}
	err = n.shards[0].store.View(func(v core.View) error {
		t, err = commit.FindTenant(v, name)
		return err
	})
	if used := n.tenants.Load(); err == nil && used != nil && t.Config.KeyBytes > 0 {
		t.Measured = (*used)[t.ID]
		t.Over = t.Measured > uint64(t.Config.KeyBytes)
	}
	if err == nil && t.ID != 0 {
		t.Pace, t.Creates = n.KeyPace(core.Partition{Tenant: t.ID}, true), n.CreatePace(t.ID)
		if use := n.taskUse.Load(); use != nil {
			t.Use = (*use)[t.ID]
		}
		t.Streams = n.openStreams(t.ID)
	}
	return t, err
}
