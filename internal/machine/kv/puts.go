package kv

import (
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/keys"
)

// puts applies the items of op in order, each as a put of its own with the next revision. An item
// that is refused does not keep the others from being applied. A Fact refuses all of them, and
// nothing was changed. An item without a condition is one blind write. The commit is told how many
// revisions were used.
func (m *Machine) puts(tx core.Txn, c *core.ApplyContext, op *core.KVPuts, r *core.OpResult) (core.Fact, error) {
	if fact := validatePuts(op); fact != nil {
		return fact, nil
	}
	ks, known := m.names[op.Keyspace]
	if fact := m.mayPut(c, op.Keyspace, ks, known); fact != nil {
		return fact, nil
	}
	written, writer := uint64(0), ks.writerOf(c)
	for i := range op.Items {
		it := &op.Items[i]
		refused, err := m.judgeItem(tx, ks.incarnation, it)
		if err != nil {
			return nil, err
		}
		// A refused item writes nothing: the others go on.
		if refused != nil {
			if r.KV == nil {
				r.KV = &core.KVResult{}
			}
			r.KV.Refused = append(r.KV.Refused, core.RefusedItem{Item: uint32(i), Fact: refused})
			continue
		}
		// A keyspace comes into being with its first key.
		if ks.incarnation == 0 {
			ks = m.make(tx, op.Keyspace)
		}
		key, row := m.pair(ks.incarnation, it, c.Rev+written, writer)
		tx.Set(key, row)
		m.bytes += uint64(len(it.Key) + len(it.Value))
		written++
	}
	// Without any write the answer has revision 0.
	if written > 0 {
		r.Rev = c.Rev
	}
	c.Revs = written
	return nil, nil
}

// validatePuts judges what concerns all items.
func validatePuts(op *core.KVPuts) core.Fact {
	switch {
	case !core.ValidName(op.Keyspace):
		return core.Invalid{Field: "keyspace", Reason: "bad_name", Message: "not a name of a keyspace"}
	case len(op.Items) == 0:
		return core.Invalid{Field: "items", Reason: "empty", Message: "there are none"}
	case len(op.Items) > core.MaxPutItems:
		return core.TooLarge{Field: "items", Limit: "frame_items", Max: core.MaxPutItems}
	}
	return nil
}

// judgeItem returns why an item is refused; nil: it is not. The value that a failed condition found
// is left out, since answers with many items are kept for replays.
func (m *Machine) judgeItem(v core.View, incarnation uint32, it *core.KVItem) (core.Fact, error) {
	if fact := validateItem(it.Key, it.Value, it.IfAbsent, it.HasRev, it.IfRev); fact != nil {
		return fact, nil
	}
	if !it.HasRev && !it.IfAbsent {
		return nil, nil
	}
	var f found
	if incarnation != 0 {
		var err error
		if f, err = find(v, m.p, incarnation, it.Key); err != nil {
			return nil, err
		}
	}
	if it.IfAbsent && f.ok || it.HasRev && it.IfRev != f.rev {
		return core.RevMismatch{Rev: f.rev, Missing: !f.ok}, nil
	}
	return nil, nil
}

// validateItem judges the shape of a put, except its keyspace.
func validateItem(key, value []byte, ifAbsent, hasRev bool, ifRev uint64) core.Fact {
	switch {
	case len(key) == 0:
		return core.Invalid{Field: "key", Reason: "empty", Message: "a key has at least one byte"}
	case len(key) > MaxKey:
		return core.TooLarge{Field: "key", Limit: "key_bytes", Max: MaxKey}
	case len(value) > MaxValue:
		return core.TooLarge{Field: "value", Limit: "value_bytes", Max: MaxValue}
	case ifAbsent && hasRev && ifRev != 0:
		return core.Invalid{Field: "if_absent", Reason: "contradiction", Message: "if_rev names a revision"}
	}
	return nil
}

// pair makes the stored key and the row of an item in one piece of memory, one allocation for both.
// Neither slice has room to grow into the other.
func (m *Machine) pair(incarnation uint32, it *core.KVItem, rev uint64, writer core.TaskHold) (key, row []byte) {
	b := make([]byte, 0, keys.KVBytes+len(it.Key)+rowLen(writer, it.Value))
	b = keys.AppendKV(b, m.p, incarnation, it.Key)
	n := len(b)
	b = appendRow(b, rev, writer, it.Value)
	return b[:n:n], b[n:len(b):len(b)]
}
