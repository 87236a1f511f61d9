package kv

import (
	"bytes"
	"math"
	"strconv"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/keys"
)

// add adds to a number, which is stored as decimal text. An absent key holds 0. It must read the
// key, unlike a put, and refuses a value that is not a number, an overflow, and a sum outside of
// the op's bounds.
func (m *Machine) add(tx core.Txn, c *core.ApplyContext, op *core.KVAdd, r *core.OpResult) (core.Fact, error) {
	if fact := validate(op.Keyspace, op.Key); fact != nil {
		return fact, nil
	}
	ks, known := m.names[op.Keyspace]
	if fact := m.mayPut(c, op.Keyspace, ks, known); fact != nil {
		return fact, nil
	}
	f, err := m.find(tx, op.Keyspace, op.Key)
	if err != nil {
		return nil, err
	}
	if op.HasRev && op.IfRev != f.rev {
		return f.mismatch(op.Keyspace, op.Key), nil
	}
	sum, reason := sumOf(f, op)
	if reason != "" {
		return core.NotAdded{Reason: reason, Rev: f.rev, Keyspace: op.Keyspace, Key: bytes.Clone(op.Key)}, nil
	}
	if !known {
		ks = m.make(tx, op.Keyspace)
	}
	tx.Set(keys.KV(m.p, ks.incarnation, op.Key), appendRow(c.Rev, strconv.AppendInt(nil, sum, 10)))
	m.bytes += uint64(len(op.Key))
	r.Rev, r.KV = c.Rev, &core.KVResult{Number: sum}
	return nil, nil
}

// sumOf adds to what the key holds. reason says why that cannot be; empty: it can.
func sumOf(f found, op *core.KVAdd) (sum int64, reason string) {
	var n int64
	if f.ok {
		var err error
		if n, err = strconv.ParseInt(string(f.value), 10, 64); err != nil {
			return 0, "not_a_number"
		}
	}
	switch {
	case op.Delta > 0 && n > math.MaxInt64-op.Delta, op.Delta < 0 && n < math.MinInt64-op.Delta:
		return 0, "overflow"
	case op.HasFloor && n+op.Delta < op.Floor, op.HasCeiling && n+op.Delta > op.Ceiling:
		return 0, "bound"
	}
	return n + op.Delta, ""
}
