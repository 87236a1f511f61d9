package kv

import (
	"bytes"
	"math"
	"strconv"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/keys"
)

// Apply applies an op of the service. A Fact is a refusal, and nothing was changed; an error is corruption.
// The slices of op that are written belong to tx afterwards.
func (m *Machine) Apply(tx core.Txn, c *core.ApplyContext, op core.Op) (core.OpResult, core.Fact, error) {
	r := core.OpResult{Kind: op.Kind()}
	var fact core.Fact
	var err error
	switch op := op.(type) {
	case *core.KVPut:
		fact, err = m.put(tx, c, op, &r)
	case *core.KVPuts:
		fact, err = m.puts(tx, c, op, &r)
	case *core.KVDelete:
		fact, err = m.delete(tx, c, op, &r)
	case *core.KVCheck:
		fact, err = m.Check(tx, op)
	case *core.KVAdd:
		fact, err = m.add(tx, c, op, &r)
	case *core.KVDeleteRange:
		fact, err = m.deleteRange(tx, c, op, &r)
	case *core.KeyspaceSet:
		fact = m.setKeyspace(tx, c, op, &r)
	case *core.KeyspaceDelete:
		fact = m.deleteKeyspace(tx, op, &r)
	case *core.KeyspaceUse:
		m.use(tx, op)
	case *core.TenantUse:
		m.useOfTenant(tx, op)
	default:
		err = errs.Corruptf("op %d does not belong to the key-value service", op.Kind())
	}
	if fact != nil || err != nil {
		return core.OpResult{}, fact, err
	}
	return r, nil, nil
}

// Check judges a condition: nil when it holds, RevMismatch with what was found when it does not. A
// keyspace that does not exist has no keys.
func (m *Machine) Check(v core.View, op *core.KVCheck) (core.Fact, error) {
	if fact := validate(op.Keyspace, op.Key); fact != nil {
		return fact, nil
	}
	if fact := validateCheck(op); fact != nil {
		return fact, nil
	}
	f, err := m.find(v, op.Keyspace, op.Key)
	if err != nil || f.holds(op) {
		return nil, err
	}
	return f.mismatch(op.Keyspace, op.Key), nil
}

// put writes one key. Without a condition, and when the old value is not wanted, it reads nothing.
func (m *Machine) put(tx core.Txn, c *core.ApplyContext, op *core.KVPut, r *core.OpResult) (core.Fact, error) {
	if fact := validate(op.Keyspace, op.Key); fact != nil {
		return fact, nil
	}
	if fact := validateItem(op.Key, op.Value, op.IfAbsent, op.HasRev, op.IfRev); fact != nil {
		return fact, nil
	}
	ks, known := m.names[op.Keyspace]
	if fact := m.mayPut(c, op.Keyspace, ks, known); fact != nil {
		return fact, nil
	}
	if op.HasRev || op.IfAbsent || op.WantPrev {
		f, err := m.find(tx, op.Keyspace, op.Key)
		if err != nil {
			return nil, err
		}
		if op.IfAbsent && f.ok || op.HasRev && op.IfRev != f.rev {
			return f.mismatch(op.Keyspace, op.Key), nil
		}
		if op.WantPrev {
			r.Existed = f.ok
			r.Prev = f.clone()
		}
	}
	if !known {
		ks = m.make(tx, op.Keyspace)
	}
	m.write(tx, c, &ks, op.Key, op.Value)
	m.bytes += uint64(len(op.Key) + len(op.Value))
	r.Rev = c.Rev
	return nil, nil
}

// write stores a value of a key at the revision of the commit, and who puts it where that is kept.
func (m *Machine) write(tx core.Txn, c *core.ApplyContext, ks *space, key, value []byte) {
	writer := ks.writerOf(c)
	tx.Set(keys.KV(m.p, ks.incarnation, key), appendRow(make([]byte, 0, rowLen(writer, value)), c.Rev, writer, value))
}

// delete removes one key. A key that is not there is a success that says so; with a revision to
// compare it counts as revision 0.
func (m *Machine) delete(tx core.Txn, c *core.ApplyContext, op *core.KVDelete, r *core.OpResult) (core.Fact, error) {
	if fact := validate(op.Keyspace, op.Key); fact != nil {
		return fact, nil
	}
	ks, known := m.names[op.Keyspace]
	if !known && c.Namespace.NoAutoCreate {
		return core.NotFound{Kind: "keyspace", ID: op.Keyspace}, nil
	}
	f, err := m.find(tx, op.Keyspace, op.Key)
	if err != nil {
		return nil, err
	}
	if op.HasRev && op.IfRev != f.rev {
		return f.mismatch(op.Keyspace, op.Key), nil
	}
	if f.ok {
		tx.Delete(keys.KV(m.p, ks.incarnation, op.Key))
	}
	r.Existed = f.ok
	return nil, nil
}

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
	m.write(tx, c, &ks, op.Key, strconv.AppendInt(nil, sum, 10))
	m.bytes += uint64(len(op.Key))
	r.Rev, r.KV = c.Rev, &core.KVResult{Number: sum}
	return nil, nil
}

// sumOf adds to what the key holds. reason says why that cannot be; empty: it can.
func sumOf(f found, op *core.KVAdd) (sum int64, reason string) {
	// An absent key holds 0.
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

// found is a key's row. Without ok the key is absent, and has revision 0.
type found struct {
	// rev is the revision of the last write.
	rev uint64
	// value is as the View gave it: it is good only until the next write, so an answer copies it.
	value []byte
	// writer is the lease under which it was put, as the row has it, and as long good; nil: none was kept.
	writer []byte
	// ok says that the key is there.
	ok bool
}

// find reads a key of a keyspace by name; an unknown keyspace has no keys.
func (m *Machine) find(v core.View, keyspace string, key []byte) (found, error) {
	ks, ok := m.names[keyspace]
	if !ok {
		return found{}, nil
	}
	return find(v, m.p, ks.incarnation, key)
}

// find reads a key by the number of its keyspace.
func find(v core.View, p core.Partition, incarnation uint32, key []byte) (found, error) {
	row, ok, err := v.Get(keys.KV(p, incarnation, key))
	if err != nil || !ok {
		return found{}, err
	}
	rev, writer, value, err := decodeRow(row)
	if err != nil {
		return found{}, errs.Corruptf("key %q of keyspace %d of %s: %v", key, incarnation, p, err)
	}
	return found{rev, value, writer, true}, nil
}

// holds judges a comparison. An absent key has revision 0 and no value: it is unequal to every
// value, and neither less nor greater than one.
func (f found) holds(op *core.KVCheck) bool {
	switch op.Compare {
	case core.CompareExists:
		return f.ok
	case core.CompareAbsent:
		return !f.ok
	}
	// As of bytes.Compare: what was found against what the op names.
	var order int
	if op.Target == core.TargetRev {
		switch {
		case f.rev < op.Rev:
			order = -1
		case f.rev > op.Rev:
			order = 1
		}
	} else {
		if !f.ok {
			return op.Compare == core.CompareNotEqual
		}
		order = bytes.Compare(f.value, op.Value)
	}
	switch op.Compare {
	case core.CompareEqual:
		return order == 0
	case core.CompareNotEqual:
		return order != 0
	case core.CompareLess:
		return order < 0
	default:
		return order > 0
	}
}

// clone returns the value, never nil when the key is there.
func (f found) clone() []byte {
	if !f.ok {
		return nil
	}
	return append([]byte{}, f.value...)
}

// read is what a read shows: copies, and the zero KeyRead where the key is absent.
func (f found) read() core.KeyRead {
	return core.KeyRead{Value: f.clone(), Rev: f.rev, Writer: holdOf(f.writer)}
}

// mismatch is the refusal of a condition, with the revision and value that were found.
func (f found) mismatch(keyspace string, key []byte) core.Fact {
	return core.RevMismatch{Rev: f.rev, Value: f.clone(), Missing: !f.ok, Keyspace: keyspace, Key: bytes.Clone(key)}
}

// validate judges the name of a keyspace and the length of a key.
func validate(keyspace string, key []byte) core.Fact {
	switch {
	case !core.ValidName(keyspace):
		return core.Invalid{Field: "keyspace", Reason: "bad_name", Message: "not a name of a keyspace"}
	case len(key) == 0:
		return core.Invalid{Field: "key", Reason: "empty", Message: "a key has at least one byte"}
	case len(key) > MaxKey:
		return core.TooLarge{Field: "key", Limit: "key_bytes", Max: MaxKey}
	}
	return nil
}

// validateCheck judges whether a comparison is one that is known.
func validateCheck(op *core.KVCheck) core.Fact {
	switch op.Compare {
	case core.CompareExists, core.CompareAbsent:
		return nil
	case core.CompareEqual, core.CompareNotEqual, core.CompareLess, core.CompareGreater:
		if op.Target == core.TargetRev || op.Target == core.TargetValue {
			return nil
		}
		return core.Invalid{Field: "target", Reason: "unknown", Message: "not a target of a comparison"}
	}
	return core.Invalid{Field: "compare", Reason: "unknown", Message: "not a comparison"}
}
