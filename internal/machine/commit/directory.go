package commit

import (
	"encoding/binary"
	"fmt"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/keys"
)

// The directory lies in the system partition of shard 0. A tenant's row, by name, holds its number, the last number
// given to a namespace of it, and how many there are; a namespace's row, by tenant and name, its number and the shard
// of each partition.

// maxPartitions is what fits the partition bits of a task's id.
const maxPartitions = 1 << 12

// tenant is a tenant's row of the directory.
type tenant struct {
	// Number of the tenant, from 1; 0 is the system's.
	id core.TenantID
	// The last number that was given to a namespace. It only rises: numbers of removed namespaces do not come again.
	last core.NamespaceID
	// Namespaces that there are.
	count uint32
}

// createNamespace enters a namespace, and its tenant when it is new. One that exists with as many partitions is a
// replay.
func (m *Machine) createNamespace(op *core.NamespaceCreate) (core.OpResult, core.Fact, error) {
	if fact := validateNamespace(op); fact != nil {
		return core.OpResult{}, fact, nil
	}
	t, known, err := readTenant(m.tx, op.Tenant)
	if err != nil {
		return core.OpResult{}, nil, err
	}
	if known {
		ns, exists, err := readNamespace(m.tx, t.id, op.Name)
		if err != nil {
			return core.OpResult{}, nil, err
		}
		if exists {
			if len(ns.shards) != int(op.Partitions) {
				return core.OpResult{}, core.AlreadyExists{Kind: "namespace", ID: op.Name}, nil
			}
			return core.OpResult{Replayed: true, Tenant: t.id, Namespace: ns.id}, nil, nil
		}
	}
	// The bound comes with the op: all replicas must judge by the same one.
	limit := op.Max
	if limit == 0 {
		limit = core.DefaultNamespaces
	}
	if int64(t.count) >= int64(limit) {
		return core.OpResult{}, core.Exhausted{Limit: "namespaces", Max: int64(limit)}, nil
	}
	if !known {
		if t.id, err = m.newTenant(); err != nil {
			return core.OpResult{}, nil, err
		}
	}
	// The number only rises; a namespace that is removed lowers the count alone.
	t.last++
	t.count++
	m.tx.Set(keys.Tenant(op.Tenant), t.append(nil))
	ns := namespace{id: t.last, shards: dealOut(t.id, t.last, op)}
	m.tx.Set(keys.Namespace(t.id, op.Name), ns.append(nil))
	return core.OpResult{Tenant: t.id, Namespace: ns.id}, nil, nil
}

// dealOut gives each partition of a new namespace a shard, in turn. Namespaces begin at different ones, so that those
// with one partition are spread too.
func dealOut(t core.TenantID, ns core.NamespaceID, op *core.NamespaceCreate) []core.ShardID {
	shards := make([]core.ShardID, op.Partitions)
	first := uint64(t) + uint64(ns) - 2
	for i := range shards {
		shards[i] = core.ShardID((first + uint64(i)) % uint64(max(op.Shards, 1)))
	}
	return shards
}

// validateNamespace refuses names and numbers that no namespace may have, before anything is read.
func validateNamespace(op *core.NamespaceCreate) core.Fact {
	switch {
	case !core.ValidName(op.Tenant):
		return core.Invalid{Field: "tenant", Reason: "bad_name", Message: "not a name of a tenant"}
	case !core.ValidName(op.Name):
		return core.Invalid{Field: "name", Reason: "bad_name", Message: "not a name of a namespace"}
	case op.Partitions < 1 || op.Partitions > maxPartitions:
		return core.Invalid{Field: "partitions", Reason: "out_of_range", Message: "a namespace has 1 to 4096 partitions"}
	case op.Max < 0:
		return core.Invalid{Field: "max", Reason: "negative", Message: "a bound is not negative"}
	}
	return nil
}

// newTenant takes the next number of a tenant. 0 is the system's.
func (m *Machine) newTenant() (core.TenantID, error) {
	row, ok, err := m.tx.Get(keys.DirectoryCounter())
	if err != nil {
		return 0, err
	}
	var last uint32
	if ok {
		if len(row) != 4 {
			return 0, errs.Corruptf("directory counter %x", row)
		}
		last = binary.BigEndian.Uint32(row)
	}
	last++
	m.tx.Set(keys.DirectoryCounter(), binary.BigEndian.AppendUint32(nil, last))
	return core.TenantID(last), nil
}

// append writes the row: number, last number and count, of 4 bytes each, big-endian.
func (t tenant) append(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(t.id))
	dst = binary.BigEndian.AppendUint32(dst, uint32(t.last))
	return binary.BigEndian.AppendUint32(dst, t.count)
}

// decodeTenant reads what append wrote. Its callers say whose row it is.
func decodeTenant(row []byte) (tenant, error) {
	if len(row) != 12 {
		return tenant{}, fmt.Errorf("tenant row %x", row)
	}
	return tenant{
		id:    core.TenantID(binary.BigEndian.Uint32(row)),
		last:  core.NamespaceID(binary.BigEndian.Uint32(row[4:])),
		count: binary.BigEndian.Uint32(row[8:]),
	}, nil
}

// readTenant reads the row of a tenant by name. ok is false for one that is not in the directory.
func readTenant(v core.View, name string) (t tenant, ok bool, err error) {
	row, ok, err := v.Get(keys.Tenant(name))
	if err != nil || !ok {
		return t, false, err
	}
	if t, err = decodeTenant(row); err != nil {
		return t, false, errs.Corruptf("tenant %q: %v", name, err)
	}
	return t, true, nil
}

// namespace is a namespace's row of the directory.
type namespace struct {
	// Its number, unique within the tenant.
	id core.NamespaceID
	// The shard of each partition, by the partition's index; at least one. It does not change while the namespace is
	// there.
	shards []core.ShardID
}

// append writes the row: the number in 4 bytes, and 2 bytes for each partition's shard, big-endian.
func (ns namespace) append(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(ns.id))
	for _, s := range ns.shards {
		dst = binary.BigEndian.AppendUint16(dst, uint16(s))
	}
	return dst
}

// decodeNamespace reads what append wrote. How many partitions there are follows from the length.
func decodeNamespace(row []byte) (ns namespace, err error) {
	if len(row) < 6 || len(row)%2 != 0 {
		return ns, fmt.Errorf("namespace row %x", row)
	}
	ns.id = core.NamespaceID(binary.BigEndian.Uint32(row))
	for rest := row[4:]; len(rest) > 0; rest = rest[2:] {
		ns.shards = append(ns.shards, core.ShardID(binary.BigEndian.Uint16(rest)))
	}
	return ns, nil
}

// readNamespace reads the row of a namespace by its name.
func readNamespace(v core.View, t core.TenantID, name string) (ns namespace, ok bool, err error) {
	row, ok, err := v.Get(keys.Namespace(t, name))
	if err != nil || !ok {
		return ns, false, err
	}
	if ns, err = decodeNamespace(row); err != nil {
		return ns, false, errs.Corruptf("namespace %q of tenant %d: %v", name, t, err)
	}
	return ns, true, nil
}

// info returns what the rest of the program knows a namespace by: its partitions with their shards.
func (ns namespace) info(t core.TenantID, tenantName, name string) core.NamespaceInfo {
	info := core.NamespaceInfo{Tenant: t, Namespace: ns.id, TenantName: tenantName, Name: name}
	for i, shard := range ns.shards {
		p := core.Partition{Tenant: t, Namespace: ns.id, Index: uint16(i)}
		info.Partitions = append(info.Partitions, core.PartitionInfo{Partition: p, Shard: shard})
	}
	return info
}

// Namespace finds a namespace in the directory: a View of shard 0.
func Namespace(v core.View, tenantName, name string) (core.NamespaceInfo, bool, error) {
	t, ok, err := readTenant(v, tenantName)
	if err != nil || !ok {
		return core.NamespaceInfo{}, false, err
	}
	ns, ok, err := readNamespace(v, t.id, name)
	if err != nil || !ok {
		return core.NamespaceInfo{}, false, err
	}
	return ns.info(t.id, tenantName, name), true, nil
}

// Tenant is a tenant's row of the directory.
type Tenant struct {
	// Its number.
	ID core.TenantID
	// Its name, by which its row is found.
	Name string
	// How many namespaces it has.
	Namespaces uint32
}

// Tenants lists at most limit tenants by name, after the name given, from a View of shard 0.
func Tenants(v core.View, after string, limit int) ([]Tenant, error) {
	var out []Tenant
	from, to := keys.Tenants()
	err := list(v, from, to, after, limit, keys.TenantOf, func(name string, row []byte) error {
		t, err := decodeTenant(row)
		out = append(out, Tenant{t.id, name, t.count})
		return err
	})
	return out, err
}

// Namespaces lists at most limit namespaces of a tenant by name, after the name given, from a View of shard 0.
func Namespaces(v core.View, tenantName, after string, limit int) ([]core.NamespaceInfo, error) {
	t, ok, err := readTenant(v, tenantName)
	if err != nil || !ok {
		return nil, err
	}
	var out []core.NamespaceInfo
	from, to := keys.Namespaces(t.id)
	err = list(v, from, to, after, limit, keys.NamespaceOf, func(name string, row []byte) error {
		ns, err := decodeNamespace(row)
		out = append(out, ns.info(t.id, tenantName, name))
		return err
	})
	return out, err
}

// list calls fn for at most limit rows in [from, to) whose name sorts after the one given.
func list(v core.View, from, to []byte, after string, limit int, name func(key []byte) string, fn func(string, []byte) error) error {
	if limit <= 0 {
		return nil
	}
	if after != "" { // a key is a prefix, the name and a zero byte: the first one past it ends in one more
		from = append(append(from[:len(from)-1:len(from)-1], after...), 0, 0)
	}
	n := 0
	return core.ScanRows(v, from, to, func(key, row []byte) (bool, error) {
		n++
		if err := fn(name(key), row); err != nil {
			return false, errs.Corruptf("directory: %v", err)
		}
		return n < limit, nil
	})
}
