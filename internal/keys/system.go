package keys

import (
	"encoding/binary"

	"github.com/millrace/millrace/internal/core"
)

// metaRecord is the byte after the service in a key of the partition's own records. Numbers are stored and never
// reused.
type metaRecord byte

const (
	metaState         metaRecord = 1 // commit counter, live request ids and sessions
	metaConfig        metaRecord = 2 // the namespace's configuration
	metaRequest       metaRecord = 3 // by request id: what was asked and answered
	metaRequestDue    metaRecord = 4 // by time: request ids to forget
	metaSession       metaRecord = 5 // by session: last sequence number
	metaSessionAnswer metaRecord = 6 // by session and slot: the answer of one sequence number
	metaSessionDue    metaRecord = 7 // by time: sessions to look at
)

// systemRecord is the byte after the service in a key of the directory. Numbers are stored and never reused.
type systemRecord byte

const (
	systemCounter   systemRecord = 1 // last tenant
	systemTenant    systemRecord = 2 // by name
	systemNamespace systemRecord = 3 // by tenant and name
	systemMembers   systemRecord = 4 // the cluster's members and the last change of them
	systemFormat    systemRecord = 5 // the format that entries are written in
	systemBounds    systemRecord = 6 // by tenant's name: what bounds it
	systemRemoval   systemRecord = 7 // by tenant and namespace: the mark of a removal that is under way
	systemRemovals  systemRecord = 8 // the last number given to a removal
	systemSessions  systemRecord = 9 // the keys that seal sessions of browsers
)

// shardRecord is the byte after the service in a key of the shard's own records. Numbers are stored and never reused.
type shardRecord byte

const (
	shardTime  shardRecord = 1 // last stamp, the term and its first stamp
	shardFloor shardRecord = 2 // what the shard's counters were raised to when its history was broken off
	shardConf  shardRecord = 3 // which replicas vote and learn, and the index that said so
	shardGone  shardRecord = 4 // by partition: the last removal of its namespace, and whether it is open, closed or cleared
)

const idLen = 16

func beginMeta(p core.Partition, r metaRecord, more int) []byte {
	return append(Begin(p, ServiceMeta, 1+more), byte(r))
}

func beginSystem(r systemRecord, more int) []byte {
	return append(Begin(core.Partition{}, ServiceSystem, 1+more), byte(r))
}

// PartitionState is the key of the partition's counters.
func PartitionState(p core.Partition) []byte { return End(beginMeta(p, metaState, 0)) }

// NamespaceConfig is the key of the namespace's configuration in one of its partitions.
func NamespaceConfig(p core.Partition) []byte { return End(beginMeta(p, metaConfig, 0)) }

// Request is the key of a remembered request id.
func Request(p core.Partition, id core.RequestID) []byte {
	return End(append(beginMeta(p, metaRequest, idLen), id[:]...))
}

// RequestDue is the key of the time index of request ids.
func RequestDue(p core.Partition, due core.ShardTime, id core.RequestID) []byte {
	return due16(p, metaRequestDue, due, id)
}

// RequestsDue returns the bounds of the rows of the time index that are due at or before until, and of all with
// core.Never.
func RequestsDue(p core.Partition, until core.ShardTime) (from, to []byte) {
	return dueRange(p, metaRequestDue, until)
}

// Session is the key of a session's row.
func Session(p core.Partition, s core.SessionID) []byte {
	return End(append(beginMeta(p, metaSession, idLen), s[:]...))
}

// SessionAnswer is the key of a kept answer of a session; slots are used again.
func SessionAnswer(p core.Partition, s core.SessionID, slot byte) []byte {
	return End(append(append(beginMeta(p, metaSessionAnswer, idLen+1), s[:]...), slot))
}

// SessionAnswers returns the bounds of all kept answers of a session.
func SessionAnswers(p core.Partition, s core.SessionID) (from, to []byte) {
	return Range(append(beginMeta(p, metaSessionAnswer, idLen), s[:]...))
}

// SessionDue is the key of the time index of sessions.
func SessionDue(p core.Partition, due core.ShardTime, s core.SessionID) []byte {
	return due16(p, metaSessionDue, due, s)
}

// SessionsDue returns the bounds of the rows of the time index that are due at or before until, and of all with
// core.Never.
func SessionsDue(p core.Partition, until core.ShardTime) (from, to []byte) {
	return dueRange(p, metaSessionDue, until)
}

// DueOf reads the time and the id of a key of either time index.
func DueOf(key []byte) (due core.ShardTime, id [idLen]byte, ok bool) {
	body := Body(key)
	const head = PartitionLen + 1 + 1
	if len(body) != head+8+idLen {
		return 0, id, false
	}
	copy(id[:], body[head+8:])
	return decodeTime(body[head:]), id, true
}

func due16(p core.Partition, r metaRecord, due core.ShardTime, id [idLen]byte) []byte {
	return End(append(appendTime(beginMeta(p, r, 8+idLen), due), id[:]...))
}

func dueRange(p core.Partition, r metaRecord, until core.ShardTime) (from, to []byte) {
	from, to = Range(beginMeta(p, r, 0))
	if until < core.Never {
		to = End(appendTime(beginMeta(p, r, 8), until+1))
	}
	return from, to
}

// DirectoryCounter is the key of the last tenant's number.
func DirectoryCounter() []byte { return End(beginSystem(systemCounter, 0)) }

// SessionKeys is the key of the keys that seal sessions of browsers.
func SessionKeys() []byte { return End(beginSystem(systemSessions, 0)) }

// Tenant is the key of a tenant's row in the directory.
func Tenant(name string) []byte { return End(append(beginSystem(systemTenant, len(name)), name...)) }

// Tenants returns the bounds of all rows of tenants.
func Tenants() (from, to []byte) { return Range(beginSystem(systemTenant, 0)) }

// TenantOf returns the name in a key of Tenant or TenantConfig.
func TenantOf(key []byte) string { return nameAfter(key, PartitionLen+1+1) }

// TenantConfig is the key of the configuration of a tenant, by name.
// An empty name holds the highest version of one that was removed.
func TenantConfig(name string) []byte {
	return End(append(beginSystem(systemBounds, len(name)), name...))
}

// TenantConfigs returns the bounds of all configurations of tenants. TenantOf tells whose one is.
func TenantConfigs() (from, to []byte) { return Range(beginSystem(systemBounds, 0)) }

// Namespace is the key of a namespace's row in the directory.
func Namespace(t core.TenantID, name string) []byte {
	return End(append(binary.BigEndian.AppendUint32(beginSystem(systemNamespace, 4+len(name)), uint32(t)), name...))
}

// Namespaces returns the bounds of all rows of a tenant's namespaces.
func Namespaces(t core.TenantID) (from, to []byte) {
	return Range(binary.BigEndian.AppendUint32(beginSystem(systemNamespace, 4), uint32(t)))
}

// NamespaceOf returns the name in a key of Namespace.
func NamespaceOf(key []byte) string { return nameAfter(key, PartitionLen+1+1+4) }

func nameAfter(key []byte, head int) string {
	body := Body(key)
	if len(body) < head {
		return ""
	}
	return string(body[head:])
}

// ShardFloor is the key of what the shard's counters were raised to.
func ShardFloor() []byte {
	return End(append(Begin(core.Partition{}, ServiceShard, 1), byte(shardFloor)))
}

// ShardTime is the key of the shard's time.
func ShardTime() []byte {
	return End(append(Begin(core.Partition{}, ServiceShard, 1), byte(shardTime)))
}

// ShardConf is the key of the configuration of the shard's log: which replicas there are.
func ShardConf() []byte {
	return End(append(Begin(core.Partition{}, ServiceShard, 1), byte(shardConf)))
}

// PartitionRemoval is the key of what a partition knows of the removal of its namespace. It lies outside of the partition,
// whose rows go with the removal.
func PartitionRemoval(p core.Partition) []byte {
	return End(AppendPartition(append(Begin(core.Partition{}, ServiceShard, 1+PartitionLen), byte(shardGone)), p))
}

// Removal is the key of the mark of the removal of a namespace.
func Removal(t core.TenantID, ns core.NamespaceID) []byte {
	dst := binary.BigEndian.AppendUint32(beginSystem(systemRemoval, 8), uint32(t))
	return End(binary.BigEndian.AppendUint32(dst, uint32(ns)))
}

// RemovalOf returns the tenant in what Removal made.
func RemovalOf(key []byte) (t core.TenantID, ok bool) {
	body, ok := bodyAfter(key, PartitionLen+1+1)
	if !ok || len(body) != 4+4 {
		return 0, false
	}
	return core.TenantID(binary.BigEndian.Uint32(body)), true
}

// RemovalsUnderWay returns the bounds of all marks of removals.
func RemovalsUnderWay() (from, to []byte) { return Range(beginSystem(systemRemoval, 0)) }

// RemovalCounter is the key of the last number given to a removal.
func RemovalCounter() []byte { return End(beginSystem(systemRemovals, 0)) }

// Members is the key of the directory of the cluster's members.
func Members() []byte { return End(beginSystem(systemMembers, 0)) }

// Format is the key of the format that the cluster writes entries in.
func Format() []byte { return End(beginSystem(systemFormat, 0)) }

// DecodePartition reads the ten bytes of AppendPartition, and nothing else.
func DecodePartition(b []byte) (p core.Partition, ok bool) {
	if len(b) != PartitionLen {
		return p, false
	}
	p, _, ok = PartitionOf(append(b[:PartitionLen:PartitionLen], 0))
	return p, ok
}
