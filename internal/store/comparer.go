package store

import (
	"bytes"
	"encoding/binary"

	"github.com/cockroachdb/pebble/v2"

	"github.com/millrace/millrace/internal/keys"
)

// comparerName is stored in every database; one made under another is refused. Name and order are frozen together.
const comparerName = "millrace.v1"

// newComparer returns the order of keys.Compare for the database, whose keys are a shard and a key in engine form.
//
// A key in engine form is a body, a zero that closes it, and perhaps a suffix. Whatever the
// database makes of keys to put between others must have that form too. So Separator and Successor
// work on bodies alone, and close what they find with a zero again; where a body cannot be made
// shorter, the key stays as it is.
func newComparer() *pebble.Comparer {
	base := pebble.DefaultComparer
	return &pebble.Comparer{
		Name:                 comparerName,
		Compare:              keys.Compare,
		Equal:                bytes.Equal,
		Split:                keys.Split,
		ComparePointSuffixes: bytes.Compare,
		CompareRangeSuffixes: bytes.Compare,
		AbbreviatedKey: func(key []byte) uint64 {
			return base.AbbreviatedKey(key[:keys.Split(key)])
		},
		Separator: func(dst, a, b []byte) []byte {
			body, ok := bodyOf(a)
			next, okNext := bodyOf(b)
			if !ok || !okNext || bytes.Equal(body, next) {
				return append(dst, a...)
			}
			n := len(dst)
			dst = base.Separator(dst, body, next)
			if bytes.Equal(dst[n:], body) {
				return append(dst[:n], a...) // a is as short as it gets; its suffix must stay
			}
			return append(dst, 0)
		},
		Successor: func(dst, a []byte) []byte {
			body, ok := bodyOf(a)
			if !ok {
				return append(dst, a...)
			}
			n := len(dst)
			dst = base.Successor(dst, body)
			if bytes.Equal(dst[n:], body) {
				return append(dst[:n], a...)
			}
			return append(dst, 0)
		},
		ImmediateSuccessor: func(dst, a []byte) []byte {
			return append(append(dst, a...), 0) // the body grows by the smallest byte, which the closing zero was
		},
		FormatKey: pebble.DefaultComparer.FormatKey,
	}
}

// bodyOf returns a key's bytes before its closing zero. It reports false for bytes that are not a key in engine form and
// for an empty body, which the database passes around as bounds.
func bodyOf(key []byte) ([]byte, bool) {
	n := keys.Split(key)
	if n < 2 || key[n-1] != 0 {
		return nil, false
	}
	return key[:n-1], true
}

// shardLen is the length of the shard in front of every key of the database.
const shardLen = 2

// metaLen is the length of the body of a shard's own record below the shard: longer than any partition and service, so
// that it sorts after all keys of all partitions, whose service byte is never 0xff.
const metaLen = 11

// appendShard appends what is in front of every key of a shard.
func appendShard(dst []byte, shard uint16) []byte { return binary.BigEndian.AppendUint16(dst, shard) }

// metaKey is where a shard's applied index and hash are stored, and the upper bound of its other keys.
func metaKey(shard uint16) []byte {
	key := appendShard(make([]byte, 0, shardLen+metaLen+1), shard)
	for range metaLen {
		key = append(key, 0xff)
	}
	return append(key, 0)
}

// metaVersion is the first byte of a shard's record: its form.
const metaVersion = 1

// shardMeta is what is stored of a shard in addition to its keys. index is that of the last entry
// whose changes are stored, and hash the apply hash there.
type shardMeta struct{ index, hash uint64 }

// append appends the record: version 1 | index 8 | apply hash 8, all big-endian.
func (m shardMeta) append(dst []byte) []byte {
	dst = append(dst, metaVersion)
	dst = binary.BigEndian.AppendUint64(dst, m.index)
	return binary.BigEndian.AppendUint64(dst, m.hash)
}

// decodeMeta reads a record. ok is false for any other bytes.
func decodeMeta(b []byte) (m shardMeta, ok bool) {
	if len(b) != 17 || b[0] != metaVersion {
		return m, false
	}
	return shardMeta{binary.BigEndian.Uint64(b[1:]), binary.BigEndian.Uint64(b[9:])}, true
}
