package kv

import (
	"encoding/binary"
	"math"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/keys"
)

// counts is what a partition keeps of all its keyspaces: the last incarnation given out; once it was measured, what all of the
// namespace take on disk; and, where the tenant has a bound, what all of the tenant take, and that bound.
type counts struct {
	last   uint32
	used   uint64
	tenant core.TenantUse
}

// Used is how many bytes all keyspaces of the namespace took on disk when that was measured last.
func (m *Machine) Used() uint64 { return m.used }

// Tenant is what all keyspaces of the tenant took, and might, when that was told last.
func (m *Machine) Tenant() core.TenantUse { return m.tenant }

// Used reads how many bytes all keyspaces of a partition's namespace took on disk when that was measured last.
func Used(v core.View, p core.Partition) (uint64, error) {
	c, err := readCounts(v, p)
	return c.used, err
}

// useOfTenant takes in what all keyspaces of the tenant take on disk, and may.
func (m *Machine) useOfTenant(tx core.Txn, op *core.TenantUse) {
	next := *op
	if next.Bound <= 0 {
		next = core.TenantUse{}
	}
	if next != m.tenant {
		m.tenant = next
		m.setCounts(tx)
	}
}

func (m *Machine) setCounts(tx core.Txn) {
	row := binary.BigEndian.AppendUint32(nil, m.last)
	if m.used > 0 || m.tenant.Bound > 0 {
		row = binary.AppendUvarint(row, m.used)
	}
	if m.tenant.Bound > 0 {
		row = binary.AppendUvarint(row, uint64(m.tenant.Bound))
		row = binary.AppendUvarint(row, m.tenant.Bytes)
	}
	tx.Set(keys.Keyspace(m.p, ""), row)
}

func readCounts(v core.View, p core.Partition) (counts, error) {
	row, ok, err := v.Get(keys.Keyspace(p, ""))
	if err != nil || !ok {
		return counts{}, err
	}
	c, ok := decodeCounts(row)
	if !ok {
		return counts{}, errs.Corruptf("keyspaces of %s: counts %x", p, row)
	}
	return c, nil
}

func decodeCounts(row []byte) (c counts, ok bool) {
	if len(row) < incarnationLen {
		return c, false
	}
	c.last = binary.BigEndian.Uint32(row)
	if row = row[incarnationLen:]; len(row) == 0 {
		return c, true
	}
	n := 0
	if c.used, n = binary.Uvarint(row); n <= 0 {
		return c, false
	}
	if row = row[n:]; len(row) == 0 {
		return c, c.used > 0
	}
	bound, n := binary.Uvarint(row)
	if n <= 0 || bound == 0 || bound > math.MaxInt64 {
		return c, false
	}
	row = row[n:]
	bytes, n := binary.Uvarint(row)
	c.tenant = core.TenantUse{Bytes: bytes, Bound: int64(bound)}
	return c, n > 0 && n == len(row)
}
