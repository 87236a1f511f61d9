package core

import "github.com/millrace/millrace/internal/errs"

// KVItem is one put of a KVPuts.
type KVItem struct {
	Key      []byte // 1 B to 16 KiB
	Value    []byte // at most 1.5 MiB
	HasRev   bool   // IfRev is a condition; 0 = the key is absent
	IfRev    uint64
	IfAbsent bool
}

// KVPuts is many puts in one keyspace, in order, each judged alone as if it stood in a commit of its own: one that is
// refused is named in KVResult.Refused and the others are not touched by it. The op stands alone in its commit, which is
// refused as a whole only for what concerns the keyspace. One session row remembers them all.
type KVPuts struct {
	Keyspace string
	Items    []KVItem // 1 to MaxPutItems
}

// MaxPutItems bounds the items of a KVPuts.
const MaxPutItems = 1024

// KVAdd adds to a number that is kept as decimal text of an int64. An absent key holds 0.
type KVAdd struct {
	Keyspace   string
	Key        []byte
	Delta      int64
	HasRev     bool // as in KVPut
	IfRev      uint64
	HasFloor   bool // the sum must not be below Floor
	Floor      int64
	HasCeiling bool // nor above Ceiling
	Ceiling    int64
}

// KVDeleteRange removes the keys from From up to but not including To, where an empty To is the end of the keyspace; or those
// that begin with Prefix, which is mutually exclusive with From and To. It does not read the keys it removes, unless Count is
// set: then it tells how many there were, and is refused when these are more than MaxCountedKeys.
type KVDeleteRange struct {
	Keyspace string
	From     []byte
	To       []byte
	Prefix   []byte
	Count    bool
}

// MaxCountedKeys bounds the keys that a KVDeleteRange counts: they are read while the shard applies nothing else.
const MaxCountedKeys = 100_000

// KVResult is what a key-value op answers beyond the fields of OpResult.
type KVResult struct {
	// Refused are the items of a KVPuts that were refused, in rising order. The others have the revisions from
	// OpResult.Rev on, one after the other; without any, that is 0.
	Refused []RefusedItem
	Number  int64  // KVAdd: the sum
	Count   uint64 // KVDeleteRange with Count
}

// RefusedItem is an item of a KVPuts and why it was refused.
type RefusedItem struct {
	Item uint32
	Fact Fact
}

// NotAdded says that a number could not be added: the sum overflows, passes a bound, or the key holds no number.
type NotAdded struct {
	Reason   string // overflow, bound, not_a_number
	Rev      uint64 // of the key; 0 when it is absent
	Keyspace string
	Key      []byte
}

func (NotAdded) Code() errs.Code { return errs.PreconditionFailed }

func (e NotAdded) Error() string { return "nothing was added to the key: " + e.Reason }

// Kind returns the op's number.
func (*KVPuts) Kind() OpKind { return OpKVPuts }

func (op *KVPuts) keys() KeysWritten {
	w := KeysWritten{Keyspace: op.Keyspace, Writes: uint64(len(op.Items))}
	for i := range op.Items {
		w.Bytes += uint64(len(op.Items[i].Key) + len(op.Items[i].Value))
	}
	return w
}

// Kind returns the op's number.
func (*KVAdd) Kind() OpKind { return OpKVAdd }

func (op *KVAdd) written() (string, []byte) { return op.Keyspace, op.Key }

func (op *KVAdd) keys() KeysWritten {
	return KeysWritten{Keyspace: op.Keyspace, Writes: 1, Bytes: uint64(len(op.Key))}
}

func (op *KVAdd) place(partitions int) (uint16, bool) { return PlaceKey(op.Key, partitions), true }

// Kind returns the op's number.
func (*KVDeleteRange) Kind() OpKind { return OpKVDeleteRange }

func (op *KVDeleteRange) keys() KeysWritten {
	return KeysWritten{Keyspace: op.Keyspace, Writes: 1, Bytes: uint64(len(op.From) + len(op.To) + len(op.Prefix))}
}

func (op *KVDeleteRange) place(partitions int) (uint16, bool) {
	return PlaceRange(op.From, op.To, op.Prefix, partitions)
}

// PlaceRange returns the partition of the keys of a range: that of the closed {tag} which all of them share. It reports
// false when they may be of several partitions.
func PlaceRange(from, to, prefix []byte, partitions int) (uint16, bool) {
	if partitions <= 1 {
		return 0, true
	}
	shared := prefix
	if len(prefix) == 0 {
		n := 0
		for n < len(from) && n < len(to) && from[n] == to[n] {
			n++
		}
		shared = from[:n]
	}
	tag := tagOf(shared)
	if len(tag) == len(shared) { // a tag is shorter by its braces
		return 0, false
	}
	return PlaceText(tag, partitions), true
}
