package kv

import (
	"bytes"
	"encoding/binary"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/keys"
)

// Keyspace is a row of the table of keyspaces.
type Keyspace struct {
	Name        string
	Incarnation uint32
}

// Pair is a key as Scan finds it.
type Pair struct {
	Key   []byte
	Value []byte
	Rev   uint64
}

// Get reads one key from the View alone. ok is false, and rev 0, when the key or its keyspace is absent. value is a
// copy.
func Get(v core.View, p core.Partition, keyspace string, key []byte) (value []byte, rev uint64, ok bool, err error) {
	incarnation, ok, err := incarnationOf(v, p, keyspace)
	if err != nil || !ok || len(key) == 0 {
		return nil, 0, false, err
	}
	f, err := find(v, p, incarnation, key)
	return f.clone(), f.rev, f.ok, err
}

// Keyspaces lists the keyspaces of a partition by name: at most MaxKeyspaces.
func Keyspaces(v core.View, p core.Partition) ([]Keyspace, error) {
	var out []Keyspace
	from, to := keys.Keyspaces(p)
	err := core.ScanRows(v, from, to, func(k, row []byte) (bool, error) {
		name, ok := keys.KVKeyOf(k)
		if ok && len(name) == 0 {
			return true, nil
		}
		incarnation, isRow := decodeKeyspace(row)
		if !ok || !isRow {
			return false, errs.Corruptf("keyspace %q of %s: row %x", name, p, row)
		}
		out = append(out, Keyspace{string(name), incarnation})
		return true, nil
	})
	return out, err
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
		rev, value, rowErr := decodeRow(row)
		if !ok || rowErr != nil {
			return false, errs.Corruptf("key %x of keyspace %q of %s: row of %d bytes", k, keyspace, p, len(row))
		}
		out = append(out, Pair{Key: bytes.Clone(key), Value: append([]byte{}, value...), Rev: rev})
		return len(out) < limit, nil
	})
	return out, err
}

func incarnationOf(v core.View, p core.Partition, keyspace string) (uint32, bool, error) {
	if keyspace == "" {
		return 0, false, nil
	}
	row, ok, err := v.Get(keys.Keyspace(p, keyspace))
	if err != nil || !ok {
		return 0, false, err
	}
	incarnation, ok := decodeKeyspace(row)
	if !ok {
		return 0, false, errs.Corruptf("keyspace %q of %s: row %x", keyspace, p, row)
	}
	return incarnation, true, nil
}

func decodeKeyspace(row []byte) (incarnation uint32, ok bool) {
	if len(row) != incarnationLen+1 || row[incarnationLen] != kindPlain {
		return 0, false
	}
	incarnation = binary.BigEndian.Uint32(row)
	return incarnation, incarnation != 0
}

// GetEach reads keys from the View alone: the first of them, fewer than there are when the values pass so many bytes, but
// one at least. Values are copies.
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
		out = append(out, core.KeyRead{Value: f.clone(), Rev: f.rev})
	}
	return out, nil
}
