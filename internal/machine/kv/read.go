package kv

import (
	"bytes"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/keys"
)

// Keyspace is one entry of the table of keyspaces.
type Keyspace struct {
	// Name is what clients know it by.
	Name string
	// Incarnation numbers it in keys: one of the same name that is made later has another.
	Incarnation uint32
}

// Pair is a key as Scan finds it.
type Pair struct {
	// Key is the key without the prefix of its keyspace.
	Key []byte
	// Value is never nil: a key may have an empty value.
	Value []byte
	// Rev is the revision of the last write of the key.
	Rev uint64
	// Writer is the lease under which the key was written last; nil: none was kept.
	Writer *core.TaskHold
}

// Get reads one key from the View alone, without its writer. ok is false, and rev 0, when the key or its keyspace is absent.
// value is a copy.
func Get(v core.View, p core.Partition, keyspace string, key []byte) (value []byte, rev uint64, ok bool, err error) {
	read, err := Read(v, p, keyspace, key)
	return read.Value, read.Rev, read.Rev != 0, err
}

// Read reads one key from the View alone; without it, or without its keyspace, the revision is 0. The value is a copy.
func Read(v core.View, p core.Partition, keyspace string, key []byte) (core.KeyRead, error) {
	incarnation, ok, err := incarnationOf(v, p, keyspace)
	if err != nil || !ok || len(key) == 0 {
		return core.KeyRead{}, err
	}
	f, err := find(v, p, incarnation, key)
	return f.read(), err
}

// Keyspaces lists the keyspaces of a partition by name: at most MaxKeyspaces.
func Keyspaces(v core.View, p core.Partition) ([]Keyspace, error) {
	rows, err := spacesOf(v, p)
	if err != nil {
		return nil, err
	}
	var out []Keyspace
	for _, row := range rows {
		out = append(out, Keyspace{row.name, row.incarnation})
	}
	return out, nil
}

// Scan lists at most limit keys of a keyspace that start with prefix, in key order, as copies. An unknown keyspace
// has none.
func Scan(v core.View, p core.Partition, keyspace string, prefix []byte, limit int) ([]Pair, error) {
	incarnation, ok, err := incarnationOf(v, p, keyspace)
	if err != nil || !ok || limit <= 0 {
		return nil, err
	}
	var out []Pair
	from, to := keys.KVRange(p, incarnation, prefix)
	err = core.ScanRows(v, from, to, func(k, row []byte) (bool, error) {
		key, ok := keys.KVKeyOf(k)
		rev, writer, value, rowErr := decodeRow(row)
		if !ok || rowErr != nil {
			return false, errs.Corruptf("key %x of keyspace %q of %s: row of %d bytes", k, keyspace, p, len(row))
		}
		out = append(out, Pair{Key: bytes.Clone(key), Value: append([]byte{}, value...), Rev: rev, Writer: holdOf(writer)})
		return len(out) < limit, nil
	})
	return out, err
}

// RangeOf returns the incarnation of a keyspace, and the bounds in the store of a range of its keys. Without the keyspace
// the incarnation is 0.
func RangeOf(v core.View, p core.Partition, r core.KeyRange) (incarnation uint32, from, to []byte, err error) {
	incarnation, ok, err := incarnationOf(v, p, r.Keyspace)
	if err != nil || !ok {
		return 0, nil, nil, err
	}
	from, to = spanOf(p, incarnation, r.From, r.To, r.Prefix)
	return incarnation, from, to, nil
}

// PairOf reads a stored key and its row as RangeOf's bounds hold them, without copying key and value.
func PairOf(key, row []byte) (core.KeyPair, error) {
	user, ok := keys.KVKeyOf(key)
	rev, writer, value, err := decodeRow(row)
	if !ok || err != nil {
		return core.KeyPair{}, errs.Corruptf("key %x: row of %d bytes", key, len(row))
	}
	return core.KeyPair{Key: user, Value: value, Rev: rev, Writer: holdOf(writer)}, nil
}

// Spaces lists the keyspaces of a partition by name, after one of them, as they were configured and measured.
func Spaces(v core.View, p core.Partition, after string, limit int) ([]core.KeyspaceInfo, error) {
	rows, err := spacesOf(v, p)
	if err != nil {
		return nil, err
	}
	var out []core.KeyspaceInfo
	for i := range rows {
		if rows[i].name > after && len(out) < limit {
			out = append(out, rows[i].info())
		}
	}
	return out, nil
}

// Space reads one keyspace.
func Space(v core.View, p core.Partition, name string) (core.KeyspaceInfo, bool, error) {
	if name == "" {
		return core.KeyspaceInfo{}, false, nil
	}
	row, ok, err := v.Get(keys.Keyspace(p, name))
	if err != nil || !ok {
		return core.KeyspaceInfo{}, false, err
	}
	ks, ok := decodeSpace(row)
	if !ok {
		return core.KeyspaceInfo{}, false, errs.Corruptf("keyspace %q of %s: row %x", name, p, row)
	}
	one := namedSpace{ks, name}
	return one.info(), true, nil
}

// info is what callers see of a keyspace.
func (n *namedSpace) info() core.KeyspaceInfo {
	return core.KeyspaceInfo{Name: n.name, Incarnation: n.incarnation, Config: n.config, Measured: n.used, Over: n.over}
}

// CountKeys counts the keys between the bounds that RangeOf gave, up to most.
func CountKeys(v core.View, from, to []byte, most uint64) (n uint64, more bool, err error) {
	err = v.Scan(from, to, func(_, _ []byte) bool {
		n++
		return n <= most
	})
	if n > most {
		return most, true, err
	}
	return n, false, err
}

// incarnationOf reads the number of a keyspace from the store, for reads without a Machine.
func incarnationOf(v core.View, p core.Partition, keyspace string) (uint32, bool, error) {
	if keyspace == "" {
		return 0, false, nil
	}
	row, ok, err := v.Get(keys.Keyspace(p, keyspace))
	if err != nil || !ok {
		return 0, false, err
	}
	ks, ok := decodeSpace(row)
	if !ok {
		return 0, false, errs.Corruptf("keyspace %q of %s: row %x", keyspace, p, row)
	}
	return ks.incarnation, true, nil
}

// GetEach reads keys from the View alone. It stops before the values take more than bytes, but reads at least one key. Values
// are copies.
func GetEach(v core.View, p core.Partition, keyspace string, keys [][]byte, bytes int) ([]core.KeyRead, error) {
	incarnation, known, err := incarnationOf(v, p, keyspace)
	if err != nil {
		return nil, err
	}
	out := make([]core.KeyRead, 0, len(keys))
	for _, key := range keys {
		var f found
		if known && len(key) > 0 {
			if f, err = find(v, p, incarnation, key); err != nil {
				return nil, err
			}
		}
		if bytes -= len(f.value); bytes < 0 && len(out) > 0 {
			break
		}
		out = append(out, f.read())
	}
	return out, nil
}

// HasKeys reports whether a keyspace has a key. v is of the state that the machine is of.
func (m *Machine) HasKeys(v core.View) (bool, error) {
	from, _ := keys.KVRange(m.p, 1, nil) // behind the table of keyspaces
	_, to := keys.KVs(m.p)
	return core.SomeRow(v, from, to)
}
