package check

import (
	"cmp"
	"fmt"

	"github.com/millrace/millrace/internal/core"
)

// What a tenant may have of tasks when its configuration says nothing.
var usualBounds = core.TaskBounds{Tasks: 20_000_000, Bytes: 64 << 30, Running: 100_000}

// tenantQuota judges what a partition is told of its tenant's tasks.
func (m *Model) tenantQuota(p *part, op *core.TenantQuota, a answer) error {
	if a.fact != nil {
		return fmt.Errorf("a quota of tasks was refused with %w", a.fact)
	}
	old := p.quota
	m.change(func() { p.quota = old })
	p.quota = *op
	return nil
}

func misfitsOfQuota(op *core.TenantQuota) []misfit {
	if op.Bounds.Tasks < 0 || op.Bounds.Bytes < 0 || op.Bounds.Running < 0 {
		return []misfit{{field: "bounds"}}
	}
	return nil
}

// quota is what may be left to a partition: at least and at most.
type quota struct {
	bounds      core.TaskBounds
	least, most core.TaskBounds
}

// quotaOf returns what is left; ok is false where nothing was told, as the usual bounds are far beyond what is judged here.
func (m *Model) quotaOf(p *part) (q quota, ok bool) {
	if m.rules < core.FormatShare || p.quota == (core.TenantQuota{}) {
		return q, false
	}
	b := p.quota.Bounds
	q.bounds = core.TaskBounds{
		Tasks: cmp.Or(b.Tasks, usualBounds.Tasks), Bytes: cmp.Or(b.Bytes, usualBounds.Bytes), Running: cmp.Or(b.Running, usualBounds.Running),
	}
	others := p.quota.Others
	q.most = core.TaskBounds{
		Tasks: q.bounds.Tasks - int64(others.Tasks), Bytes: q.bounds.Bytes - int64(others.Bytes), Running: q.bounds.Running - int64(others.Running),
	}
	q.least = q.most
	there := func(s *standing) bool { return !s.gone }
	waits := func(s *standing) bool { return !s.gone && !s.state.Terminal() }
	runs := func(s *standing) bool { return !s.gone && s.state == core.Running }
	for _, t := range p.tasks {
		if t.sure(waits) {
			q.most.Tasks--
		}
		if t.might(waits) {
			q.least.Tasks--
		}
		if t.sure(runs) {
			q.most.Running--
		}
		if t.might(runs) {
			q.least.Running--
		}
		if t.sure(there) {
			q.most.Bytes -= int64(len(t.now.payload))
		}
		if t.might(there) {
			q.least.Bytes -= int64(len(t.now.payload)) + t.result + t.told.most
		}
	}
	return q, true
}

// roomInTenant judges that tasks and bytes which were added are within the quota of the tenant.
func (m *Model) roomInTenant(p *part, tasks, bytes int64) error {
	q, ok := m.quotaOf(p)
	switch {
	case !ok:
	case tasks > 0 && tasks > q.most.Tasks:
		return fmt.Errorf("%d tasks more were taken, and the tenant's quota has room for %d", tasks, q.most.Tasks)
	case bytes > 0 && bytes > q.most.Bytes:
		return fmt.Errorf("%d bytes more were taken, and the tenant's quota has room for %d", bytes, q.most.Bytes)
	}
	return nil
}

// tenantFullOfTasks judges a refusal of tasks and bytes by the quota of the tenant.
func (m *Model) tenantFullOfTasks(p *part, tasks, bytes int64, f core.Exhausted) bool {
	q, ok := m.quotaOf(p)
	switch {
	case !ok:
	case f.Limit == "tenant_tasks":
		return tasks > 0 && f.Max == q.bounds.Tasks && tasks > q.least.Tasks
	case f.Limit == "tenant_task_bytes":
		return bytes > 0 && f.Max == q.bounds.Bytes && bytes > q.least.Bytes
	}
	return false
}

// mayRun bounds how many tasks more the quota of the tenant lets run, if that is fewer than the slots.
func (m *Model) mayRun(p *part, least, most uint32) (uint32, uint32) {
	q, ok := m.quotaOf(p)
	if !ok {
		return least, most
	}
	fit := func(n uint32, room int64) uint32 { return uint32(min(int64(n), max(room, 0))) }
	return fit(least, q.least.Running), fit(most, q.most.Running)
}
