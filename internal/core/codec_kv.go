package core

import "math"

// factNotAdded is the number of a fact in an encoded result; those of the key-value service begin at 32.
const factNotAdded byte = 32

// kvOp writes an op of the key-value service.
func (w *writer) kvOp(op Op) {
	switch op := op.(type) {
	case *KVPut:
		w.kvPut(op)
	case *KVDelete:
		w.name(op.Keyspace)
		w.bytes(op.Key)
		f := w.fields(false)
		f.has(op.HasRev)
		f.uint(op.IfRev)
	case *KVCheck:
		w.kvCheck(op)
	case *KVPuts:
		w.kvPuts(op)
	case *KVAdd:
		w.name(op.Keyspace)
		w.bytes(op.Key)
		f := w.fields(false)
		f.int(op.Delta)
		f.has(op.HasRev)
		f.uint(op.IfRev)
		f.has(op.HasFloor)
		f.int(op.Floor)
		f.has(op.HasCeiling)
		f.int(op.Ceiling)
	case *KVDeleteRange:
		w.name(op.Keyspace)
		f := w.fields(false)
		f.bytes(op.From)
		f.bytes(op.To)
		f.bytes(op.Prefix)
		f.has(op.Count)
	default:
		w.keyspaceOp(op)
	}
}

// kvOp reads an op of the key-value service. Kinds that it does not know are keyspaceOp's.
func (r *reader) kvOp(kind OpKind) Op {
	switch kind {
	case OpKVPut:
		return r.kvPut()
	case OpKVDelete:
		op := &KVDelete{Keyspace: r.name(), Key: r.bytes()}
		f := r.fields(false)
		op.HasRev, op.IfRev = f.has(), f.uint(math.MaxUint64)
		f.end()
		return op
	case OpKVCheck:
		return r.kvCheck()
	case OpKVPuts:
		return r.kvPuts()
	case OpKVAdd:
		op := &KVAdd{Keyspace: r.name(), Key: r.bytes()}
		f := r.fields(false)
		op.Delta = f.int()
		op.HasRev, op.IfRev = f.has(), f.uint(math.MaxUint64)
		op.HasFloor, op.Floor = f.has(), f.int()
		op.HasCeiling, op.Ceiling = f.has(), f.int()
		f.end()
		return op
	case OpKVDeleteRange:
		op := &KVDeleteRange{Keyspace: r.name()}
		f := r.fields(false)
		op.From, op.To, op.Prefix, op.Count = f.bytes(), f.bytes(), f.bytes(), f.has()
		f.end()
		return op
	}
	return r.keyspaceOp(kind)
}

// Bits of an item's flags.
const (
	// IfRev is a condition, also when it is 0: the key must be absent.
	itemHasRev byte = 1 << iota
	itemRev         // IfRev is not 0, and follows the value
	// The key must be absent.
	itemAbsent
	// All bits that have a meaning. An item with another one is refused.
	itemFlags = itemAbsent<<1 - 1
)

// kvPuts writes each item as a byte of flags, the key, the value, and IfRev where that is not 0.
func (w *writer) kvPuts(op *KVPuts) {
	w.name(op.Keyspace)
	w.uint(uint64(len(op.Items)))
	for i := range op.Items {
		it := &op.Items[i]
		var flags byte
		if it.HasRev {
			flags |= itemHasRev
		}
		if it.IfRev != 0 {
			flags |= itemRev
		}
		if it.IfAbsent {
			flags |= itemAbsent
		}
		w.byte(flags)
		w.bytes(it.Key)
		w.bytes(it.Value)
		if it.IfRev != 0 {
			w.uint(it.IfRev)
		}
	}
}

// minItemBytes is the shortest item: flags and two lengths.
const minItemBytes = 3

// kvPuts reads what the writer's kvPuts wrote. Keys and values alias the input.
func (r *reader) kvPuts() *KVPuts {
	op := &KVPuts{Keyspace: r.name()}
	if n := r.count(minItemBytes); n > 0 {
		op.Items = make([]KVItem, n)
	}
	for i := range op.Items {
		it := &op.Items[i]
		flags := r.byte()
		if flags&^itemFlags != 0 {
			r.fail("unknown flags %#x of an item", flags)
		}
		it.HasRev, it.IfAbsent = flags&itemHasRev != 0, flags&itemAbsent != 0
		it.Key, it.Value = r.bytes(), r.bytes()
		if flags&itemRev != 0 {
			it.IfRev = r.uint()
			r.nonZero(it.IfRev != 0)
		}
		if r.err != nil {
			break
		}
	}
	return op
}

// kvOpSize is opSize of the key-value ops; 0 for an op that is not one.
func kvOpSize(op Op) int {
	switch op := op.(type) {
	case *KVPut:
		return opHeader + len(op.Keyspace) + 2*nameBytes + len(op.Key) + len(op.Value) + varintBytes
	case *KVDelete:
		return opHeader + len(op.Keyspace) + nameBytes + len(op.Key) + varintBytes
	case *KVCheck:
		return opHeader + len(op.Keyspace) + 2*nameBytes + len(op.Key) + len(op.Value) + varintBytes + 4
	case *KVPuts:
		n := opHeader + len(op.Keyspace) + nameBytes
		for i := range op.Items {
			it := &op.Items[i]
			n += 1 + 2*nameBytes + len(it.Key) + len(it.Value)
			if it.IfRev != 0 {
				n += varintBytes
			}
		}
		return n
	case *KVAdd:
		return opHeader + len(op.Keyspace) + nameBytes + len(op.Key) + 4*varintBytes
	case *KVDeleteRange:
		return opHeader + len(op.Keyspace) + 3*nameBytes + len(op.From) + len(op.To) + len(op.Prefix)
	}
	return keyspaceOpSize(op)
}

// kvResult writes what a key-value op answers beyond OpResult. It is stored with the result and takes part in the
// apply hash.
func (w *writer) kvResult(k *KVResult) {
	f := w.fields(false)
	f.int(k.Number)
	f.uint(k.Count)
	if f.has(len(k.Refused) > 0) {
		w.uint(uint64(len(k.Refused)))
		for _, item := range k.Refused {
			w.uint(uint64(item.Item))
			w.fact(item.Fact)
		}
	}
}

// kvResult reads what the writer's kvResult wrote.
func (r *reader) kvResult() *KVResult {
	k := &KVResult{}
	f := r.fields(false)
	k.Number = f.int()
	k.Count = f.uint(math.MaxUint64)
	if f.has() {
		n := r.count(2)
		r.nonZero(n > 0)
		k.Refused = make([]RefusedItem, n)
		for i := range k.Refused {
			k.Refused[i] = RefusedItem{Item: uint32(r.max(math.MaxUint32)), Fact: r.fact()}
			if r.err != nil {
				break
			}
		}
	}
	f.end()
	return k
}
