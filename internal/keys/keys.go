// Package keys encodes every key that the store holds, and their order.
//
// A stored key is [shard][partition][service][...] so that a partition is one contiguous range. State machines work
// below the shard: their keys start at the partition, and package store puts the shard in front. All numbers are
// big-endian, so that byte order is number order.
//
// Engine form: a key is a body, a zero byte, and a suffix that may be empty. A suffix is eight bytes of inverted
// revision and a byte 9, its own length; without one the zero byte is the last, and reads as length 0. So newer
// revisions of a body sort before older ones, and the body alone before all of them. Every form is held by golden
// bytes: the comparer's name and order are frozen, because a store refuses to open under another.
package keys

import (
	"bytes"
	"encoding/binary"

	"github.com/millrace/millrace/internal/core"
)

// Service is the byte after the partition. Numbers are stored and never reused.
type Service byte

// The services.
const (
	ServiceMeta   Service = 1 // of the partition itself: commit counter, configuration, request ids, sessions
	ServiceQueue  Service = 2
	ServiceKV     Service = 3
	ServiceRefs   Service = 4
	ServiceSearch Service = 5
	ServiceSystem Service = 6 // the directory; only in the system partition
	ServiceShard  Service = 7 // the shard's own records; only in the system partition
)

// PartitionLen is the length of an encoded partition in bytes: tenant, namespace, index.
const PartitionLen = 4 + 4 + 2

// suffixLen is the length of a revision suffix: inverted revision and the length byte.
const suffixLen = 8 + 1

// AppendPartition appends the ten bytes of p.
func AppendPartition(dst []byte, p core.Partition) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(p.Tenant))
	dst = binary.BigEndian.AppendUint32(dst, uint32(p.Namespace))
	return binary.BigEndian.AppendUint16(dst, p.Index)
}

// Begin starts the body of a key of service s in partition p, with room for more bytes to come.
func Begin(p core.Partition, s Service, more int) []byte {
	dst := make([]byte, 0, PartitionLen+1+more+1)
	return append(AppendPartition(dst, p), byte(s))
}

// PartitionOf reads the partition and service that a key below the shard starts with.
func PartitionOf(key []byte) (p core.Partition, s Service, ok bool) {
	if len(key) < PartitionLen+1 {
		return p, 0, false
	}
	p.Tenant = core.TenantID(binary.BigEndian.Uint32(key))
	p.Namespace = core.NamespaceID(binary.BigEndian.Uint32(key[4:]))
	p.Index = binary.BigEndian.Uint16(key[8:])
	return p, Service(key[PartitionLen]), true
}

// End closes a body into a key without a suffix.
func End(body []byte) []byte { return append(body, 0) }

// EndRev closes a body into a key of one revision.
func EndRev(body []byte, rev uint64) []byte {
	body = append(body, 0)
	body = binary.BigEndian.AppendUint64(body, ^rev)
	return append(body, suffixLen)
}

// Range returns the bounds [from, to) of all keys whose body starts with prefix. to is nil when nothing sorts after.
func Range(prefix []byte) (from, to []byte) {
	from = End(bytes.Clone(prefix))
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] != 0xff {
			to = End(append(bytes.Clone(prefix[:i]), prefix[i]+1))
			break
		}
	}
	return from, to
}

// PartitionRange returns the bounds of all keys of p, below the shard.
func PartitionRange(p core.Partition) (from, to []byte) { return Range(AppendPartition(nil, p)) }

// Body returns a key's body: what was given to End or EndRev.
func Body(key []byte) []byte {
	n := Split(key)
	if n == 0 {
		return nil
	}
	return key[:n-1]
}

// Split returns the length of key without its suffix; the zero byte stays. A malformed key is all prefix.
func Split(key []byte) int {
	n := len(key)
	if n == 0 {
		return 0
	}
	if key[n-1] == suffixLen && n > suffixLen && key[n-1-suffixLen] == 0 {
		return n - suffixLen
	}
	return n
}

// Compare orders keys: by body, then without a suffix first, then newer revisions first.
func Compare(a, b []byte) int {
	as, bs := Split(a), Split(b)
	if c := bytes.Compare(a[:as], b[:bs]); c != 0 {
		return c
	}
	return bytes.Compare(a[as:], b[bs:])
}
