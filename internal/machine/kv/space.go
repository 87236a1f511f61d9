package kv

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/keys"
)

// space is the row of a keyspace. It is a value: a change makes a new one.
type space struct {
	// incarnation numbers the keyspace in its keys. A later keyspace of the same name has another one.
	incarnation uint32
	// config has the bounds; zeros bound nothing.
	config core.KeyspaceConfig
	// used is its bytes on disk, as measured last.
	used uint64
	// over says that it takes more than the configuration allows: puts are refused.
	over bool
}

// namedSpace is a row of the table of keyspaces with its name.
type namedSpace struct {
	space
	// name is that of the row's key.
	name string
}

// changedSpace is what a name stood for before a change. there is false when it stood for nothing.
type changedSpace struct {
	// name is the one that was changed.
	name string
	// old is its row before; zero where there was none.
	old   space
	there bool
}

// set makes a name stand for ks, in memory and in the store, and keeps the number of bounded
// keyspaces right.
func (m *Machine) set(tx core.Txn, name string, ks space) {
	m.note(name)
	m.count(m.names[name], -1)
	m.count(ks, 1)
	if m.names == nil {
		m.names = map[string]space{}
	}
	m.names[name] = ks
	tx.Set(keys.Keyspace(m.p, name), ks.append(nil))
}

// count adds a keyspace that has a bound to those that do, or takes it off with -1. One without a
// bound changes nothing.
func (m *Machine) count(ks space, n int) {
	if c := ks.config; c.Bytes != 0 || c.WriteRate != 0 || c.ByteRate != 0 {
		m.bounded += n
	}
}

// Bounded lists the keyspaces that have a bound, by name.
func (m *Machine) Bounded() []core.KeyspaceInfo {
	if m.bounded == 0 {
		return nil
	}
	var out []core.KeyspaceInfo
	for _, name := range slices.Sorted(maps.Keys(m.names)) {
		ks := namedSpace{m.names[name], name}
		if c := ks.config; c.Bytes != 0 || c.WriteRate != 0 || c.ByteRate != 0 {
			out = append(out, ks.info())
		}
	}
	return out
}

// note remembers what a name stands for, so that Undo can take a change back. It comes before the change.
func (m *Machine) note(name string) {
	if m.marked {
		old, there := m.names[name]
		m.changed = append(m.changed, changedSpace{name, old, there})
	}
}

// make enters a keyspace in the table under the next incarnation. The caller has checked that it may be made.
func (m *Machine) make(tx core.Txn, name string) space {
	// A number is given out once, also when its keyspace is removed.
	m.last++
	m.setCounts(tx)
	ks := space{incarnation: m.last}
	m.set(tx, name, ks)
	return ks
}

// mayPut judges a put in a keyspace that may be unknown: the bounds of the keyspace, of the
// namespace and of the tenant, and whether a keyspace may be made.
func (m *Machine) mayPut(c *core.ApplyContext, name string, ks space, known bool) core.Fact {
	switch {
	// What was measured last decides, so that all replicas agree.
	case ks.over:
		return core.Exhausted{Limit: "keyspace_bytes", Max: ks.config.Bytes}
	case c.Namespace.KeyBytes > 0 && m.used > uint64(c.Namespace.KeyBytes):
		return core.Exhausted{Limit: "namespace_key_bytes", Max: c.Namespace.KeyBytes}
	case m.tenant.Bound > 0 && m.tenant.Bytes > uint64(m.tenant.Bound):
		return core.Exhausted{Limit: "tenant_key_bytes", Max: m.tenant.Bound}
	case known:
		return nil
	// From here on the keyspace is to be made.
	case c.Namespace.NoAutoCreate:
		return core.NotFound{Kind: "keyspace", ID: name}
	case len(m.names) >= MaxKeyspaces:
		return core.Exhausted{Limit: "keyspaces", Max: MaxKeyspaces}
	}
	return nil
}

// setKeyspace replaces a keyspace's configuration, and makes one that is missing. The version rises
// only when something changed. A bound on bytes that is raised or taken away lets puts in at once,
// if what was measured last is below it.
func (m *Machine) setKeyspace(tx core.Txn, c *core.ApplyContext, op *core.KeyspaceSet, r *core.OpResult) core.Fact {
	ks, known := m.names[op.Keyspace]
	switch {
	case !core.ValidName(op.Keyspace):
		return core.Invalid{Field: "keyspace", Reason: "bad_name", Message: "not a name of a keyspace"}
	case op.Config.Bytes < 0:
		return core.Invalid{Field: "config.quota.bytes", Reason: "negative", Message: "a bound is not negative"}
	case op.Config.WriteRate < 0:
		return core.Invalid{Field: "config.quota.writes_per_second", Reason: "negative", Message: "a bound is not negative"}
	case op.Config.ByteRate < 0:
		return core.Invalid{Field: "config.quota.bytes_per_second", Reason: "negative", Message: "a bound is not negative"}
	case op.Config.Writers && c.Format < core.FormatShare:
		return core.Invalid{
			Field: "config.writers", Reason: "not_supported", Message: fmt.Sprintf("keyspaces keep who writes their keys from format %d on", core.FormatShare),
		}
	case op.IfVersion >= 0 && uint64(op.IfVersion) != ks.config.Version:
		return core.RevMismatch{Rev: ks.config.Version, Missing: ks.config.Version == 0}
	case !known && len(m.names) >= MaxKeyspaces:
		return core.Exhausted{Limit: "keyspaces", Max: MaxKeyspaces}
	}
	if !known {
		ks = m.make(tx, op.Keyspace)
	}
	next := op.Config
	next.Version = ks.config.Version
	if next != ks.config {
		next.Version++
		ks.config = next
		ks.judge()
		m.set(tx, op.Keyspace, ks)
	}
	r.Version = next.Version
	return nil
}

// deleteKeyspace removes a keyspace and its keys, as one range. A later one of the same name has
// another incarnation.
func (m *Machine) deleteKeyspace(tx core.Txn, op *core.KeyspaceDelete, r *core.OpResult) core.Fact {
	if !core.ValidName(op.Keyspace) {
		return core.Invalid{Field: "keyspace", Reason: "bad_name", Message: "not a name of a keyspace"}
	}
	ks, known := m.names[op.Keyspace]
	if !known {
		return nil
	}
	m.note(op.Keyspace)
	m.count(ks, -1)
	delete(m.names, op.Keyspace)
	tx.Delete(keys.Keyspace(m.p, op.Keyspace))
	tx.DeleteRange(keys.KVRange(m.p, ks.incarnation, nil))
	r.Existed = true
	return nil
}

// use takes over what keyspaces take on disk, by incarnation, since a name may stand for another
// keyspace by now. Numbers that are not known any more are passed over.
func (m *Machine) use(tx core.Txn, op *core.KeyspaceUse) {
	if len(op.Items) == 0 {
		return
	}
	byNumber := make(map[uint32]string, len(m.names))
	for _, name := range slices.Sorted(maps.Keys(m.names)) {
		byNumber[m.names[name].incarnation] = name
	}
	for _, it := range op.Items {
		if it.Incarnation == core.AllKeyspaces {
			if m.used != it.Bytes {
				m.used = it.Bytes
				m.setCounts(tx)
			}
			continue
		}
		name, ok := byNumber[it.Incarnation]
		if !ok {
			continue
		}
		ks := m.names[name]
		ks.used = it.Bytes
		ks.judge()
		if ks != m.names[name] {
			m.set(tx, name, ks)
		}
	}
}

// judge says whether a keyspace is over its bound, by what was measured last.
func (ks *space) judge() { ks.over = ks.config.Bytes > 0 && ks.used > uint64(ks.config.Bytes) }

// A keyspace's row is its incarnation and its kind. Where it was configured or measured, there
// follow whether it is over its bound, what it takes on disk, and the configuration.

const (
	// incarnationLen is the length of an incarnation in a row, and kindPlain the only kind there is.
	incarnationLen = 4
	kindPlain      = 1
)

// append writes the row, in the short form as long as that is enough.
func (ks space) append(dst []byte) []byte {
	dst = append(binary.BigEndian.AppendUint32(dst, ks.incarnation), kindPlain)
	if ks.config == (core.KeyspaceConfig{}) && ks.used == 0 {
		return dst
	}
	over := byte(0)
	if ks.over {
		over = 1
	}
	dst = binary.AppendUvarint(append(dst, over), ks.used)
	return core.AppendKeyspaceConfig(dst, &ks.config)
}

// decodeSpace reads a row in either form. ok is false for another kind, or for a row that append
// does not write.
func decodeSpace(row []byte) (ks space, ok bool) {
	if len(row) <= incarnationLen || row[incarnationLen] != kindPlain {
		return space{}, false
	}
	ks.incarnation = binary.BigEndian.Uint32(row)
	if row = row[incarnationLen+1:]; len(row) == 0 {
		return ks, ks.incarnation != 0
	}
	used, n := binary.Uvarint(row[1:])
	if row[0] > 1 || n <= 0 {
		return space{}, false
	}
	ks.over, ks.used = row[0] == 1, used
	var err error
	ks.config, err = core.DecodeKeyspaceConfig(row[1+n:])
	return ks, err == nil && ks.incarnation != 0
}

// spacesOf lists the keyspaces of a partition by name: at most MaxKeyspaces.
func spacesOf(v core.View, p core.Partition) ([]namedSpace, error) {
	var out []namedSpace
	from, to := keys.Keyspaces(p)
	err := core.ScanRows(v, from, to, func(k, row []byte) (bool, error) {
		name, ok := keys.KVKeyOf(k)
		if ok && len(name) == 0 {
			return true, nil
		}
		ks, isRow := decodeSpace(row)
		if !ok || !isRow {
			return false, errs.Corruptf("keyspace %q of %s: row %x", name, p, row)
		}
		out = append(out, namedSpace{ks, string(name)})
		return true, nil
	})
	return out, err
}
