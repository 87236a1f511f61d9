package commit

import (
	"encoding/binary"
	"fmt"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/keys"
)

// What bounds a tenant lies in the directory, by its name: its number, then the configuration. Partitions, which are of other
// shards, are told by ops of their own.
//
// From core.FormatQueues on, a configuration without any bound is removed, so that its place is free; the version of a tenant
// without one is 0. Versions that were removed do not come again, so that a condition on one cannot hold for what is set
// later. One counter for all tenants says which, under the empty name: it is bounded, and one for each tenant that ever was
// configured would not be.

// maxTenantConfigs bounds the tenants that are configured: every node reads all their rows each second.
const maxTenantConfigs = 10_000

// tenantID is the length of a tenant's number in its row.
const tenantID = 4

// setTenant replaces the configuration of a tenant, and enters one that is new.
func (m *Machine) setTenant(op *core.TenantSet) (core.OpResult, core.Fact, error) {
	if fact := validateTenant(op); fact != nil {
		return core.OpResult{}, fact, nil
	}
	if op.Config.Shares() && m.clock.format < core.FormatShare {
		return core.OpResult{}, core.Invalid{
			Field: "config", Reason: "not_supported", Message: fmt.Sprintf("tenants have weights, and bounds on tasks, from format %d on", core.FormatShare),
		}, nil
	}
	id, now, configured, err := tenantConfig(m.tx, op.Tenant)
	if err != nil {
		return core.OpResult{}, nil, err
	}
	// A tenant without a configuration has version 0, which is reported as missing.
	if op.IfVersion >= 0 && uint64(op.IfVersion) != now.Version {
		return core.OpResult{}, core.RevMismatch{Rev: now.Version, Missing: now.Version == 0}, nil
	}
	next := op.Config
	if next.Version = 0; next == (core.TenantConfig{}) && configured && m.clock.format >= core.FormatQueues {
		return core.OpResult{Tenant: id}, nil, m.dropTenantConfig(op.Tenant, now.Version)
	}
	// Whether something changed is judged with the old version in place.
	next.Version = now.Version
	if next == now {
		return core.OpResult{Version: now.Version}, nil, nil
	}
	if !configured {
		// The versions of a new configuration go on above all that were removed.
		if next.Version, err = removedVersion(m.tx); err != nil {
			return core.OpResult{}, nil, err
		}
		n, err := countTenantConfigs(m.tx)
		if err != nil {
			return core.OpResult{}, nil, err
		}
		if n >= maxTenantConfigs {
			return core.OpResult{}, core.Exhausted{Limit: "tenants", Max: maxTenantConfigs}, nil
		}
	}
	t, known, err := readTenant(m.tx, op.Tenant)
	if err != nil {
		return core.OpResult{}, nil, err
	}
	if !known {
		if t.id, err = m.newTenant(); err != nil {
			return core.OpResult{}, nil, err
		}
		m.tx.Set(keys.Tenant(op.Tenant), t.append(nil))
	}
	next.Version++
	row := binary.BigEndian.AppendUint32(nil, uint32(t.id))
	m.tx.Set(keys.TenantConfig(op.Tenant), core.AppendTenantConfig(row, &next))
	return core.OpResult{Version: next.Version, Tenant: t.id}, nil, nil
}

// dropTenantConfig removes the configuration of a tenant, and a tenant that never had anything else.
func (m *Machine) dropTenantConfig(tenant string, version uint64) error {
	last, err := removedVersion(m.tx)
	if err != nil {
		return err
	}
	m.tx.Delete(keys.TenantConfig(tenant))
	// One counter for all tenants: it only rises.
	if version > last {
		m.tx.Set(keys.TenantConfig(""), binary.BigEndian.AppendUint64(nil, version))
	}
	t, known, err := readTenant(m.tx, tenant)
	if known && t.last == 0 { // it never had a namespace, so nothing is stored under its number
		m.tx.Delete(keys.Tenant(tenant))
	}
	return err
}

// removedVersion reads the highest version of a configuration that was removed; 0: none was.
func removedVersion(v core.View) (uint64, error) {
	row, ok, err := v.Get(keys.TenantConfig(""))
	if err != nil || !ok {
		return 0, err
	}
	if len(row) != 8 {
		return 0, errs.Corruptf("highest removed version of a tenant's configuration: %x", row)
	}
	return binary.BigEndian.Uint64(row), nil
}

// validateTenant refuses a name that no tenant may have, and negative bounds.
func validateTenant(op *core.TenantSet) core.Fact {
	if !core.ValidName(op.Tenant) {
		return core.Invalid{Field: "tenant", Reason: "bad_name", Message: "not a name of a tenant"}
	}
	for _, bound := range []struct {
		field string
		n     int64
	}{
		{"key_bytes", op.Config.KeyBytes},
		{"key_writes_per_second", op.Config.KeyRate},
		{"key_bytes_per_second", op.Config.KeyByteRate},
		{"task_creates_per_second", op.Config.CreateRate},
		{"streams", op.Config.Streams},
		{"tasks", op.Config.Tasks.Tasks},
		{"task_bytes", op.Config.Tasks.Bytes},
		{"running_tasks", op.Config.Tasks.Running},
	} {
		if bound.n < 0 {
			return core.Invalid{Field: "config." + bound.field, Reason: "negative", Message: "a bound is not negative"}
		}
	}
	if w := op.Config.Weight; w < 0 || w > core.MaxTenantWeight {
		return core.Invalid{Field: "config.weight", Reason: "out_of_range", Message: fmt.Sprintf("a weight is 1 to %d", core.MaxTenantWeight)}
	}
	return nil
}

// decodeTenantConfig reads a row: the tenant's number, and its configuration.
func decodeTenantConfig(name string, row []byte) (id core.TenantID, c core.TenantConfig, err error) {
	if len(row) < tenantID {
		return 0, c, errs.Corruptf("configuration of tenant %q: %x", name, row)
	}
	c, err = core.DecodeTenantConfig(row[tenantID:])
	if err != nil {
		return 0, c, errs.Corruptf("configuration of tenant %q: %v", name, err)
	}
	return core.TenantID(binary.BigEndian.Uint32(row)), c, nil
}

// tenantConfig reads the configuration of a tenant by name. ok is false for one that has none.
func tenantConfig(v core.View, name string) (id core.TenantID, c core.TenantConfig, ok bool, err error) {
	row, ok, err := v.Get(keys.TenantConfig(name))
	if err != nil || !ok {
		return 0, c, false, err
	}
	id, c, err = decodeTenantConfig(name, row)
	return id, c, true, err
}

// countTenantConfigs counts the tenants that are configured. It stops at maxTenantConfigs: more than that need not be
// told apart.
func countTenantConfigs(v core.View) (n int, err error) {
	from, to := keys.TenantConfigs()
	err = core.ScanRows(v, from, to, func(key, _ []byte) (bool, error) {
		if keys.TenantOf(key) != "" {
			n++
		}
		return n < maxTenantConfigs, nil
	})
	return n, err
}

// TenantConfigs calls fn for each tenant that was configured, by name, from a View of shard 0.
func TenantConfigs(v core.View, fn func(id core.TenantID, c core.TenantConfig)) error {
	from, to := keys.TenantConfigs()
	return core.ScanRows(v, from, to, func(key, row []byte) (bool, error) {
		if keys.TenantOf(key) == "" {
			return true, nil // the highest version that was removed
		}
		id, c, err := decodeTenantConfig(keys.TenantOf(key), row)
		if err == nil {
			fn(id, c)
		}
		return true, err
	})
}

// FindTenant reads what the directory has of a tenant, from a View of shard 0; one without a number is unknown.
func FindTenant(v core.View, name string) (core.TenantInfo, error) {
	t, ok, err := readTenant(v, name)
	if err != nil || !ok {
		return core.TenantInfo{Name: name}, err
	}
	_, c, _, err := tenantConfig(v, name)
	return core.TenantInfo{ID: t.id, Name: name, Namespaces: t.count, Config: c}, err
}
