// Package kv is the state machine of plain keyspaces: named sets of keys of which the newest value is kept.
//
// A keyspace comes into being with its first write and is numbered by an incarnation, so that its keys are one
// contiguous range and a later keyspace of the same name could never show an earlier one's keys. Each key's row holds
// its value and its revision: the partition's commit counter at its last write, which package commit hands in. The
// table of names and incarnations is kept in memory too, so a put without a condition is one blind write: Apply reads
// nothing.
//
// Promised: a refused op changes nothing; equal ops on equal state give equal results. Elsewhere: the order of fence,
// conditions and ops, and undoing a commit (package commit, which calls Mark, Undo and Keep in step with the Txn's).
package kv

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/keys"
)

// Limits that Apply judges: the most that an edge may be configured to let through, equal on all replicas.
const (
	// MaxKey is in bytes: a key is kept in index blocks and caches.
	MaxKey = 64 << 10
	// MaxValue is in bytes: what fits into a commit together with its key.
	MaxValue = core.MaxCommitBytes - 128<<10
	// MaxKeyspaces is per partition: their table is kept in memory.
	MaxKeyspaces = 1000
)

// Machine is the key-value service of one partition. One goroutine at a time calls its methods.
// Keys are only in the store; the table of keyspaces is in memory too.
type Machine struct {
	p core.Partition
	// names maps each keyspace to its row. It is derived from the store and bounded by
	// MaxKeyspaces. A row is never changed in place, so that Undo can put the old one back.
	names map[string]space
	// last is the incarnation that was given out last.
	last uint32
	// used is the bytes on disk of all keyspaces of the namespace, as measured last.
	used uint64
	// tenant is what all keyspaces of the tenant take and may take, as told last.
	tenant core.TenantUse
	// bounded is the number of keyspaces that have a bound.
	bounded int
	// bytes is the length of keys and values that were put since Open, also by commits that were
	// taken back. It decides nothing, so replicas may differ in it.
	bytes uint64

	// The fields below hold what Undo needs: last, used and tenant when the mark was set.
	marked   bool
	lastMark uint32
	usedMark uint64
	//
	wasUsed core.TenantUse
	// changed are the names that changed since Mark, in order, with what they stood for.
	changed []changedSpace
}

// New returns the machine of p, empty until Open.
func New(p core.Partition) *Machine { return &Machine{p: p} }

// Open rebuilds the table of keyspaces from v, with one scan. An incarnation above the last one
// means that the store is damaged.
func (m *Machine) Open(v core.View) error {
	m.names, m.bounded, m.marked, m.changed = nil, 0, false, nil
	rows, err := spacesOf(v, m.p)
	if err != nil {
		return err
	}
	// Also where no keyspace is left: a number is given out once.
	c, err := readCounts(v, m.p)
	if err != nil {
		return err
	}
	m.last, m.used, m.tenant = c.last, c.used, c.tenant
	if len(rows) == 0 {
		return nil
	}
	m.names = make(map[string]space, len(rows))
	for _, k := range rows {
		if k.incarnation == 0 || k.incarnation > m.last {
			return errs.Corruptf("keyspace %q of %s: incarnation %d, last is %d", k.name, m.p, k.incarnation, m.last)
		}
		m.names[k.name] = k.space
		m.count(k.space, 1)
	}
	return nil
}

// Mark starts remembering changes of derived state, so that Undo can take them back. Marks do not nest.
func (m *Machine) Mark() {
	m.marked, m.lastMark, m.usedMark, m.wasUsed, m.changed = true, m.last, m.used, m.tenant, m.changed[:0]
}

// Undo takes back every change since Mark, and ends the mark.
func (m *Machine) Undo() {
	for _, c := range slices.Backward(m.changed) {
		m.count(m.names[c.name], -1)
		if c.there {
			m.count(c.old, 1)
			m.names[c.name] = c.old
		} else {
			delete(m.names, c.name)
		}
	}
	m.last, m.used, m.tenant = m.lastMark, m.usedMark, m.wasUsed
	m.Keep()
}

// Keep keeps every change since Mark, and ends the mark.
func (m *Machine) Keep() { m.marked, m.changed = false, m.changed[:0] }

// Put is how many bytes of keys and values were put since the machine was opened.
func (m *Machine) Put() uint64 { return m.bytes }

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
		fact = m.setKeyspace(tx, op, &r)
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

// Due returns core.Never: the service has no timed work.
func (m *Machine) Due() core.ShardTime { return core.Never }

// Tick has nothing to do.
func (m *Machine) Tick(core.Txn, *core.ApplyContext, uint32) (used uint32, more bool, err error) {
	return 0, false, nil
}

// End has nothing to write: each op wrote what it changed.
func (m *Machine) End(core.Txn, *core.ApplyContext) error { return nil }

// Events has nothing to tell.
func (m *Machine) Events(*core.EventList) {}

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
	tx.Set(keys.KV(m.p, ks.incarnation, op.Key), appendRow(c.Rev, op.Value))
	m.bytes += uint64(len(op.Key) + len(op.Value))
	r.Rev = c.Rev
	return nil, nil
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

// found is a key's row. Without ok the key is absent, and has revision 0.
type found struct {
	rev uint64
	// value is as the View gave it: it is good only until the next write, so an answer copies it.
	value []byte
	ok    bool
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
	rev, value, err := decodeRow(row)
	if err != nil {
		return found{}, errs.Corruptf("key %q of keyspace %d of %s: %v", key, incarnation, p, err)
	}
	return found{rev, value, true}, nil
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

// A key's row is its revision as a varint, then the value. It is a new slice, which the transaction may keep.

func appendRow(rev uint64, value []byte) []byte {
	row := make([]byte, 0, binary.MaxVarintLen64+len(value))
	return append(binary.AppendUvarint(row, rev), value...)
}

// errRow says that a row has no revision.
var errRow = errors.New("no revision")

func decodeRow(row []byte) (rev uint64, value []byte, err error) {
	rev, n := binary.Uvarint(row)
	if n <= 0 {
		return 0, nil, errRow
	}
	return rev, row[n:], nil
}
