package kv

import (
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/keys"
)

// deleteRange removes a range of keys as one mutation, whatever is in it. A keyspace that does not
// exist has no keys. With Count it first counts the keys, up to a limit beyond which it refuses.
func (m *Machine) deleteRange(tx core.Txn, c *core.ApplyContext, op *core.KVDeleteRange, r *core.OpResult) (core.Fact, error) {
	if fact := validateRange(op); fact != nil {
		return fact, nil
	}
	ks, known := m.names[op.Keyspace]
	if !known {
		if c.Namespace.NoAutoCreate {
			return core.NotFound{Kind: "keyspace", ID: op.Keyspace}, nil
		}
		return nil, nil
	}
	from, to := spanOf(m.p, ks.incarnation, op.From, op.To, op.Prefix)
	if op.Count {
		count := uint64(0)
		err := tx.Scan(from, to, func(_, _ []byte) bool {
			count++
			return count <= core.MaxCountedKeys
		})
		if err != nil {
			return nil, err
		}
		if count > core.MaxCountedKeys {
			return core.TooLarge{Field: "count", Limit: "counted_keys", Max: core.MaxCountedKeys}, nil
		}
		r.KV = &core.KVResult{Count: count}
	}
	tx.DeleteRange(from, to)
	return nil, nil
}

// spanOf returns the bounds in the store of a range of keys: of a prefix, or of from to below to,
// either of which may be empty.
func spanOf(p core.Partition, incarnation uint32, from, to, prefix []byte) (lo, hi []byte) {
	lo, hi = keys.KVRange(p, incarnation, prefix)
	if len(prefix) > 0 {
		return lo, hi
	}
	if len(from) > 0 {
		lo = keys.KV(p, incarnation, from)
	}
	if len(to) > 0 {
		hi = keys.KV(p, incarnation, to)
	}
	return lo, hi
}

// validateRange judges the shape of a range: a prefix and bounds are mutually exclusive.
func validateRange(op *core.KVDeleteRange) core.Fact {
	switch {
	case !core.ValidName(op.Keyspace):
		return core.Invalid{Field: "keyspace", Reason: "bad_name", Message: "not a name of a keyspace"}
	case len(op.Prefix) > 0 && (len(op.From) > 0 || len(op.To) > 0):
		return core.Invalid{Field: "prefix", Reason: "contradiction", Message: "from or to is given too"}
	case len(op.From) > MaxKey:
		return core.TooLarge{Field: "from", Limit: "key_bytes", Max: MaxKey}
	case len(op.To) > MaxKey:
		return core.TooLarge{Field: "to", Limit: "key_bytes", Max: MaxKey}
	case len(op.Prefix) > MaxKey:
		return core.TooLarge{Field: "prefix", Limit: "key_bytes", Max: MaxKey}
	}
	return nil
}
