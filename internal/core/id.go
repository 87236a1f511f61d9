// Package core holds the nouns that every layer shares: identifiers, the ops of a commit, the log entry, results and
// the facts behind a refusal, and the interfaces between state machines and storage.
//
// It holds no behaviour but encoding: who decides is in internal/machine, who orders is in internal/replog. It imports
// nothing of the project and knows no clock, no disk and no network, so that all replicas read it alike.
package core

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"
)

// TenantID numbers a tenant: who pays and who is isolated. 0 is the system's own.
type TenantID uint32

// NamespaceID numbers a namespace within its tenant. 0 is the system's own.
type NamespaceID uint32

// ShardID numbers one Raft group of the cluster, from 0.
type ShardID uint16

// Partition names the unit of atomicity and order: one of the P partitions of a namespace. The zero Partition is the
// system's: on shard 0 it holds the directory, on every shard the shard's own records.
type Partition struct {
	Tenant    TenantID
	Namespace NamespaceID
	Index     uint16 // 0 to P-1
}

// String prints tenant/namespace/index in decimal, for logs and operators only.
func (p Partition) String() string { return fmt.Sprintf("%d/%d/%d", p.Tenant, p.Namespace, p.Index) }

// Token is a fencing token: strictly increasing within a partition, issued by Apply, 0 is none.
type Token uint64

// SessionID names a client's stream session, 16 random bytes; zero is none.
type SessionID [16]byte

// RequestID makes a commit repeatable, with a fence or without; zero is none.
type RequestID [16]byte

// ShardTime is the non-decreasing time that a leader stamps into entries: milliseconds since the Unix epoch.
type ShardTime int64

// Never is later than every stamp.
const Never ShardTime = math.MaxInt64

// Millis is a duration in milliseconds, the resolution of every deadline.
type Millis int64

// Add returns t + d, saturating at Never.
func (t ShardTime) Add(d Millis) ShardTime {
	if d > 0 && t > Never-ShardTime(d) {
		return Never
	}
	return t + ShardTime(d)
}

// Time converts to UTC.
func (t ShardTime) Time() time.Time { return time.UnixMilli(int64(t)).UTC() }

// ShardTimeOf converts from a time, truncating to milliseconds.
func ShardTimeOf(t time.Time) ShardTime { return ShardTime(t.UnixMilli()) }

// MillisOf rounds d up to whole milliseconds, so that a positive duration never becomes none.
func MillisOf(d time.Duration) Millis {
	if d > 0 {
		return Millis((d + time.Millisecond - 1) / time.Millisecond)
	}
	return Millis(d / time.Millisecond)
}

// Duration converts, saturating at the largest time.Duration.
func (m Millis) Duration() time.Duration {
	if m > Millis(math.MaxInt64/int64(time.Millisecond)) {
		return math.MaxInt64
	}
	return time.Duration(m) * time.Millisecond
}

// TaskID identifies a task: 48 bits of milliseconds since the Unix epoch, 12 bits of partition, 68 random bits. It
// prints as 26 characters of Crockford's base32, so that text order is byte order.
type TaskID [16]byte

// NewTaskID builds an id. ms keeps its low 48 bits, partition its low 12; of random the first 68 bits are used.
func NewTaskID(ms int64, partition uint16, random [9]byte) TaskID {
	var id TaskID
	binary.BigEndian.PutUint64(id[:8], uint64(ms)<<16|uint64(partition&0x0fff)<<4|uint64(random[8]&0x0f))
	copy(id[8:], random[:8])
	return id
}

// Millis returns the time part of the id: milliseconds since the Unix epoch.
func (id TaskID) Millis() int64 { return int64(binary.BigEndian.Uint64(id[:8]) >> 16) }

// Partition returns the partition bits of the id.
func (id TaskID) Partition() uint16 { return uint16(binary.BigEndian.Uint64(id[:8])>>4) & 0x0fff }

// IsZero reports whether id is unset.
func (id TaskID) IsZero() bool { return id == TaskID{} }

const crockford = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

// String returns the 26 characters of id.
func (id TaskID) String() string {
	var out [26]byte
	id.print(&out)
	return string(out[:])
}

// Append appends the 26 characters of id.
func (id TaskID) Append(b []byte) []byte {
	var out [26]byte
	id.print(&out)
	return append(b, out[:]...)
}

func (id TaskID) print(out *[26]byte) {
	hi, lo := binary.BigEndian.Uint64(id[:8]), binary.BigEndian.Uint64(id[8:])
	for i := 25; i >= 0; i-- {
		out[i] = crockford[lo&31]
		lo = lo>>5 | hi<<59
		hi >>= 5
	}
}

// ErrTaskID says that a text is not a task id.
var ErrTaskID = errors.New("a task id is 26 characters of base32")

// ParseTaskID reads what String prints; lower case is accepted.
func ParseTaskID(s string) (TaskID, error) { return parseTaskID(s) }

// ParseTaskIDBytes is ParseTaskID for bytes.
func ParseTaskIDBytes(b []byte) (TaskID, error) { return parseTaskID(b) }

func parseTaskID[T string | []byte](s T) (id TaskID, err error) {
	if len(s) != 26 {
		return id, ErrTaskID
	}
	var hi, lo uint64
	var all byte
	for i := range 26 {
		d := crockfordDigits[s[i]]
		all |= d
		hi = hi<<5 | lo>>59
		lo = lo<<5 | uint64(d&31)
	}
	if all&notCrockford != 0 || crockfordDigits[s[0]] > 7 {
		return TaskID{}, ErrTaskID
	}
	binary.BigEndian.PutUint64(id[:8], hi)
	binary.BigEndian.PutUint64(id[8:], lo)
	return id, nil
}

// notCrockford marks a byte that is not a digit.
const notCrockford = 0x80

// crockfordDigits holds the value of each digit, by its character.
var crockfordDigits = func() (digits [256]byte) {
	for i := range digits {
		digits[i] = notCrockford
	}
	for i, c := range []byte(crockford) {
		digits[c] = byte(i)
		if c >= 'A' {
			digits[c-'A'+'a'] = byte(i)
		}
	}
	return digits
}()
