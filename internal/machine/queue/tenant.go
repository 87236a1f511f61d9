package queue

import (
	"fmt"
	"math"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/keys"
)

// What a tenant may have of tasks. A partition counts what its own tasks take. It is told by ops what the bounds are, where they are
// not the defaults, and what the tenant's other partitions have, where that matters. So the quota of a tenant of one partition is
// exact, and over several it is as exact as what was told is new. It is judged by creates, redrives, edits and grants; ends of
// attempts are never refused. All this is of core.FormatShare.

// applyTenantQuota takes over what the partition is told.
func (m *Machine) applyTenantQuota(tx core.Txn, c *core.ApplyContext, op *core.TenantQuota) core.Fact {
	if c.Format < core.FormatShare {
		return core.Invalid{Field: "op", Reason: "not_supported", Message: fmt.Sprintf("tenants have quotas of tasks from format %d on", core.FormatShare)}
	}
	if b := op.Bounds; b.Tasks < 0 || b.Bytes < 0 || b.Running < 0 {
		return core.Invalid{Field: "bounds", Reason: "negative", Message: "a bound is not negative"}
	}
	if *op == m.quota {
		return nil
	}
	m.quota = *op
	if m.quota == (core.TenantQuota{}) {
		tx.Delete(keys.TenantQuota(m.p))
		return nil
	}
	tx.Set(keys.TenantQuota(m.p), core.AppendTenantQuota([]byte{formTenantQuota}, &m.quota))
	return nil
}

// openQuota reads what the partition was told.
func (m *Machine) openQuota(v core.View) error {
	value, ok, err := v.Get(keys.TenantQuota(m.p))
	if err != nil || !ok {
		return err
	}
	m.quota, err = decodeTenantQuota(value)
	return err
}

// decodeTenantQuota reads what applyTenantQuota stores.
func decodeTenantQuota(value []byte) (q core.TenantQuota, err error) {
	if len(value) == 0 || value[0] != formTenantQuota {
		return q, errs.Corruptf("quota of a tenant: %x", value)
	}
	if q, err = core.DecodeTenantQuota(value[1:]); err != nil {
		return q, errs.Corruptf("quota of a tenant: %v", err)
	}
	return q, nil
}

// Use is what the partition's tasks take of the tenant's quota, and Quota what it was told of that.
func (m *Machine) Use() core.TaskUse { return m.use }

// Quota is what the partition was told last.
func (m *Machine) Quota() core.TenantQuota { return m.quota }

// use is what the tasks of a queue take of the tenant's quota.
func (l *queueState) use() core.TaskUse {
	s := &l.states
	return core.TaskUse{
		Tasks: s[core.Blocked] + s[core.Scheduled] + s[core.Ready] + s[core.Running], Bytes: l.bytes, Running: s[core.Running],
	}
}

// count adds n, in the arithmetic of uint64, to the tasks of a state; 0 is none.
func (m *Machine) count(s core.State, n uint64) {
	if s != 0 && !s.Terminal() {
		m.use.Tasks += n
	}
	if s == core.Running {
		m.use.Running += n
	}
}

// addBytes adds n, in the arithmetic of uint64, to the bytes of a queue's tasks. The queue was touched before.
func (m *Machine) addBytes(l *queueState, n uint64) {
	l.bytes += n
	if !l.removed { // what is swept counts no more
		m.use.Bytes += n
	}
}

// roomInTenant refuses tasks and bytes beyond what the tenant may have.
func (m *Machine) roomInTenant(c *core.ApplyContext, tasks, bytes uint64) core.Fact {
	if c.Format < core.FormatShare {
		return nil
	}
	bounds, others := m.quota.Bounds.OrDefault(), &m.quota.Others
	switch {
	case tasks > 0 && beyond(m.use.Tasks, others.Tasks, tasks, bounds.Tasks):
		return core.Exhausted{Limit: "tenant_tasks", Max: bounds.Tasks}
	case bytes > 0 && beyond(m.use.Bytes, others.Bytes, bytes, bounds.Bytes):
		return core.Exhausted{Limit: "tenant_task_bytes", Max: bounds.Bytes}
	}
	return nil
}

// beyond reports whether more makes a use too large for a bound.
func beyond(own, others, more uint64, bound int64) bool {
	return left(own, others, bound) < more
}

// left is what a bound leaves to a use.
func left(own, others uint64, bound int64) uint64 {
	most := uint64(bound)
	most -= min(most, own)
	return most - min(most, others)
}

// roomToRun is how many more tasks may run now.
func (m *Machine) roomToRun(format uint16) uint64 {
	if format < core.FormatShare {
		return math.MaxUint64
	}
	return left(m.use.Running, m.quota.Others.Running, m.quota.Bounds.OrDefault().Running)
}

// MayRun reports whether one more task may run, as far as the tenant's quota is concerned.
func (m *Machine) MayRun() bool { return m.roomToRun(m.format) > 0 }

// auditQuota looks whether a stored quota can be read.
func auditQuota(value []byte) error {
	_, err := decodeTenantQuota(value)
	return err
}
