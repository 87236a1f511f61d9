package queue

import (
	"encoding/hex"
	"testing"

	"github.com/millrace/millrace/internal/core"
)

// What a partition was told of its tenant is stored in a form of its own, which stays.
func TestTheStoredQuotaOfATenantStaysAsItIs(t *testing.T) {
	q := core.TenantQuota{Bounds: core.TaskBounds{Tasks: 300, Running: 2}, Others: core.TaskUse{Bytes: 1 << 20}}
	stored := core.AppendTenantQuota([]byte{formTenantQuota}, &q)
	if got := hex.EncodeToString(stored); got != "3215d80404808040" {
		t.Errorf("stored as %s", got)
	}
	if got, err := decodeTenantQuota(stored); err != nil || got != q {
		t.Errorf("read back as %+v, %v", got, err)
	}
	for _, bad := range [][]byte{nil, {formMeta}, stored[:len(stored)-1], append(stored[:len(stored):len(stored)], 0)} {
		if got, err := decodeTenantQuota(bad); err == nil {
			t.Errorf("%x reads as %+v", bad, got)
		}
	}
}

// Where no tenant is told anything, the usual bounds hold in each partition.
func TestAPartitionThatWasToldNothingHasTheUsualQuota(t *testing.T) {
	w := newWorld(t, Options{})
	c := &core.ApplyContext{Format: core.FormatShare}
	w.m.use = core.TaskUse{Tasks: core.DefaultTenantTasks - 1, Bytes: core.DefaultTenantBytes - 5, Running: core.DefaultTenantRunning - 1}
	if fact := w.m.roomInTenant(c, 1, 5); fact != nil || w.m.roomToRun(c.Format) != 1 {
		t.Errorf("the last one: %v, and %d may run", fact, w.m.roomToRun(c.Format))
	}
	for limit, more := range map[string]core.TaskUse{"tenant_tasks": {Tasks: 2}, "tenant_task_bytes": {Bytes: 6}} {
		if f, ok := w.m.roomInTenant(c, more.Tasks, more.Bytes).(core.Exhausted); !ok || f.Limit != limit {
			t.Errorf("%s: %v", limit, w.m.roomInTenant(c, more.Tasks, more.Bytes))
		}
	}
	if c.Format--; w.m.roomInTenant(c, 2, 6) != nil || w.m.roomToRun(c.Format) < 1<<32 {
		t.Error("entries of the format before are bounded")
	}
}
