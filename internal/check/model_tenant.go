package check

import (
	"fmt"

	"github.com/millrace/millrace/internal/core"
)

// tenantFull reports whether puts in all keyspaces of the partition's tenant must be refused.
func (p *part) tenantFull() bool {
	return p.tenant.Bound > 0 && p.tenant.Bytes > uint64(p.tenant.Bound)
}

// tenantUse judges a measurement of a whole tenant, which comes with the bound.
func (m *Model) tenantUse(p *part, op *core.TenantUse, a answer) error {
	if a.fact != nil {
		return fmt.Errorf("a measurement was refused with %w", a.fact)
	}
	old := p.tenant
	m.change(func() { p.tenant = old })
	p.tenant = *op
	return nil
}

// tenantSet judges a change of a tenant's configuration.
func (m *Model) tenantSet(op *core.TenantSet, a answer) error {
	if m.rules < core.FormatShare && op.Config.Shares() && (a.fact == nil || tooEarly(a)) {
		return m.judgeTooEarly(op, a)
	}
	now, known := m.tenants[op.Tenant]
	next := op.Config
	next.Version = 0
	if next == (core.TenantConfig{}) && m.rules >= core.FormatQueues {
		if err := m.judgeVersion(op.IfVersion, now.Version, 0, a); err != nil || a.fact != nil {
			return err
		}
		last := m.unbound
		m.change(func() { m.unbound = last })
		m.unbound = max(last, now.Version)
		drop(m, m.tenants, op.Tenant)
		return nil
	}
	next.Version = now.Version
	if next != now {
		if next.Version++; !known {
			next.Version = m.unbound + 1
		}
	}
	if err := m.judgeVersion(op.IfVersion, now.Version, next.Version, a); err != nil || a.fact != nil {
		return err
	}
	set(m, m.tenants, op.Tenant, next)
	return nil
}

func misfitsOfTenant(op *core.TenantSet) []misfit {
	out := misfitsOfName("tenant", op.Tenant)
	if op.Config.KeyBytes < 0 {
		out = append(out, misfit{field: "config.key_bytes"})
	}
	if op.Config.KeyRate < 0 {
		out = append(out, misfit{field: "config.key_writes_per_second"})
	}
	if op.Config.KeyByteRate < 0 {
		out = append(out, misfit{field: "config.key_bytes_per_second"})
	}
	for _, b := range []struct {
		field string
		bad   bool
	}{
		{"weight", op.Config.Weight < 0 || op.Config.Weight > 1000},
		{"task_creates_per_second", op.Config.CreateRate < 0},
		{"streams", op.Config.Streams < 0},
		{"tasks", op.Config.Tasks.Tasks < 0},
		{"task_bytes", op.Config.Tasks.Bytes < 0},
		{"running_tasks", op.Config.Tasks.Running < 0},
	} {
		if b.bad {
			out = append(out, misfit{field: "config." + b.field})
		}
	}
	return out
}
