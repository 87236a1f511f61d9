package kv

import (
	"encoding/binary"
	"math"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/keys"
)

// counts is what a partition keeps of all its keyspaces, in one row.
type counts struct {
	// last is the incarnation that was given out last. It is stored even when no keyspace is left:
	// no number is given again.
	last uint32
	// used is the bytes on disk of all keyspaces of the namespace, once that was measured.
	used uint64
	// tenant is what all keyspaces of the tenant take, and their bound, where the tenant has one.
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

// useOfTenant takes over what all keyspaces of the tenant take on disk, and their bound. The node
// measures it; here it only decides whether puts are refused.
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

// setCounts stores the row. What is 0 at its end is left out, so that a partition without
// measurements has the row of older programs.
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

// readCounts reads the row; a partition without keyspaces has none.
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

// decodeCounts reads the row in any of its lengths. ok is false for a row that setCounts does not write.
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
