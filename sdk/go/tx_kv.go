package millrace

import (
	"google.golang.org/protobuf/proto"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
)

// AddNumberOption changes an addition to a number; IfRev is one too.
type AddNumberOption interface{ add(op *millracev1.KVAdd) }

// sumFunc is an AddNumberOption that fills in the message of an addition.
type sumFunc func(op *millracev1.KVAdd)

func (f sumFunc) add(op *millracev1.KVAdd) { f(op) }

func (r ifRev) add(op *millracev1.KVAdd) { op.IfRev = proto.Uint64(uint64(r)) }

// Floor refuses an addition with ErrPrecondition, reason bound, when the sum would be below n.
func Floor(n int64) AddNumberOption { return sumFunc(func(op *millracev1.KVAdd) { op.Floor = &n }) }

// Ceiling refuses an addition with ErrPrecondition, reason bound, when the sum would be above n.
func Ceiling(n int64) AddNumberOption { return sumFunc(func(op *millracev1.KVAdd) { op.Ceiling = &n }) }

// Add adds n to the number under key, which is kept as decimal text; an absent key holds 0. The sum is in Committed.Sums.
func (k TxKV) Add(key string, n int64, opts ...AddNumberOption) {
	op := &millracev1.KVAdd{Keyspace: k.keyspace, Key: []byte(key), Delta: n}
	for _, o := range opts {
		o.add(op)
	}
	k.tx.ops = append(k.tx.ops, &millracev1.Op{Op: &millracev1.Op_KvAdd{KvAdd: op}})
}

// KeyRange is a set of keys: see Prefix and Between.
type KeyRange struct{ from, to, prefix string }

// Prefix is all keys that begin with p; an empty p is all keys.
func Prefix(p string) KeyRange { return KeyRange{prefix: p} }

// Between is the keys from from up to, without it, to, in byte order. An empty to has no end.
func Between(from, to string) KeyRange { return KeyRange{from: from, to: to} }

// RangeDeleteOption changes how the keys of a range are removed.
type RangeDeleteOption interface {
	deleteRange(op *millracev1.KVDeleteRange)
}

// rangeDeleteFunc is a RangeDeleteOption that fills in the message.
type rangeDeleteFunc func(op *millracev1.KVDeleteRange)

func (f rangeDeleteFunc) deleteRange(op *millracev1.KVDeleteRange) { f(op) }

// CountKeys makes the deletion of a range return how many keys there were: as the result of KV.DeleteRange, and in
// Committed.Counts in a Tx. More than 100,000 keys in a partition are then refused.
func CountKeys() RangeDeleteOption {
	return rangeDeleteFunc(func(op *millracev1.KVDeleteRange) { op.Count = true })
}

// DeleteRange removes the keys of r as one change. In a namespace of several partitions the bounds of r must share a {tag}.
func (k TxKV) DeleteRange(r KeyRange, opts ...RangeDeleteOption) {
	op := r.op(k.keyspace, opts)
	k.tx.ops = append(k.tx.ops, &millracev1.Op{Op: &millracev1.Op_KvDeleteRange{KvDeleteRange: op}})
}

// op is the removal of the range in the contract.
func (r KeyRange) op(keyspace string, opts []RangeDeleteOption) *millracev1.KVDeleteRange {
	op := &millracev1.KVDeleteRange{Keyspace: keyspace, From: []byte(r.from), To: []byte(r.to), Prefix: []byte(r.prefix)}
	for _, o := range opts {
		o.deleteRange(op)
	}
	return op
}
