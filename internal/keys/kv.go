package keys

import (
	"encoding/binary"

	"github.com/millrace/millrace/internal/core"
)

// Keys of the key-value service: [partition][kv][incarnation of the keyspace][key]. A keyspace is one contiguous
// range. Incarnation 0 holds the table of keyspaces by name; under the empty name, which no keyspace has, it holds
// the last incarnation given out.

const incarnationLen = 4

func beginKV(p core.Partition, incarnation uint32, more int) []byte {
	return binary.BigEndian.AppendUint32(Begin(p, ServiceKV, incarnationLen+more), incarnation)
}

// KV is the key of a user's key in a keyspace.
func KV(p core.Partition, incarnation uint32, key []byte) []byte {
	return End(append(beginKV(p, incarnation, len(key)), key...))
}

// KVBytes is how much longer than the user's key a stored key is.
const KVBytes = PartitionLen + 1 + incarnationLen + 1

// AppendKV appends what KV returns.
func AppendKV(dst []byte, p core.Partition, incarnation uint32, key []byte) []byte {
	dst = append(AppendPartition(dst, p), byte(ServiceKV))
	return End(append(binary.BigEndian.AppendUint32(dst, incarnation), key...))
}

// KVRange returns the bounds of all keys of a keyspace that start with prefix.
func KVRange(p core.Partition, incarnation uint32, prefix []byte) (from, to []byte) {
	return Range(append(beginKV(p, incarnation, len(prefix)), prefix...))
}

// KVs returns the bounds of all keys of all keyspaces of a partition; the table of keyspaces is among them.
func KVs(p core.Partition) (from, to []byte) { return Range(Begin(p, ServiceKV, 0)) }

// KVKeyOf returns the user's key in what KV made, aliasing it.
func KVKeyOf(key []byte) (user []byte, ok bool) {
	body := Body(key)
	if len(body) < PartitionLen+1+incarnationLen {
		return nil, false
	}
	return body[PartitionLen+1+incarnationLen:], true
}

// Keyspace is the key of a keyspace's row in the table; of an empty name, that of the last incarnation given out.
func Keyspace(p core.Partition, name string) []byte { return KV(p, 0, []byte(name)) }

// Keyspaces returns the bounds of the table of keyspaces, its counter included.
func Keyspaces(p core.Partition) (from, to []byte) { return KVRange(p, 0, nil) }
