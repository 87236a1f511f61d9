package core

import "math"

// KeyspaceConfig rules a keyspace in each partition of its namespace. A bound of 0 is none.
type KeyspaceConfig struct {
	Version   uint64 // rises with each change
	Bytes     int64  // on disk, in all partitions together
	WriteRate int64  // puts per second, of all nodes together
	ByteRate  int64  // bytes of keys and values put per second, judged likewise
	// Writers keeps with each value the lease under which it was put: see ApplyContext.Holder. From FormatShare on.
	Writers bool
}

// KeyRate is what may be put in a second; 0 = no bound.
type KeyRate struct {
	Puts  int64
	Bytes int64 // of keys and values
}

// KeyPace is what all nodes let through of a rate.
type KeyPace struct {
	Puts, Bytes         uint64 // in a second, lately
	OverPuts, OverBytes uint64 // passed beyond the rate, and is not made good yet
}

// KeyspaceSet replaces the configuration of a keyspace, and makes one that is missing. It changes Version only when
// something changed.
type KeyspaceSet struct {
	Keyspace  string
	Config    KeyspaceConfig
	IfVersion int64 // -1 = any
}

// KeyspaceDelete removes a keyspace and all its keys in the partition as one mutation. Its name is free at once.
type KeyspaceDelete struct{ Keyspace string }

// KeyspaceUse tells how much the keyspaces with a bound take on disk, as the leader measured it: those that are over their
// bound take no more puts from here on, the others do again.
type KeyspaceUse struct{ Items []SpaceUse }

// SpaceUse is what one keyspace takes, in all partitions of its namespace. One that is not there any more is passed over.
type SpaceUse struct {
	Incarnation uint32 // in the commit's partition; AllKeyspaces does not belong to one keyspace
	Bytes       uint64
}

// AllKeyspaces stands for all keyspaces of a namespace together.
const AllKeyspaces uint32 = 0

// KeyspaceInfo is what is known of a keyspace in one partition.
type KeyspaceInfo struct {
	// Name of the keyspace, as clients know it.
	Name string
	// Number of this keyspace in its partition: one of the same name that is made later has another.
	Incarnation uint32
	Config      KeyspaceConfig
	Measured    uint64 // bytes on disk when they were compared with the bound last
	Over        bool   // puts are refused

	Keys     uint64 // counted up to MaxCountedKeys
	MoreKeys bool   // there are more
	Bytes    uint64 // on disk now, in this partition, about
}

// Kind returns the op's number.
func (*KeyspaceSet) Kind() OpKind { return OpKeyspaceSet }

// Kind returns the op's number.
func (*KeyspaceDelete) Kind() OpKind { return OpKeyspaceDelete }

// Kind returns the op's number.
func (*KeyspaceUse) Kind() OpKind { return OpKeyspaceUse }

// keyspaceConfig writes the settings of a keyspace, in entries and in the store alike.
func (w *writer) keyspaceConfig(c *KeyspaceConfig) {
	f := w.fields(false)
	f.uint(c.Version)
	f.int(c.Bytes)
	f.int(c.WriteRate)
	f.int(c.ByteRate)
	f.has(c.Writers) // without it the bytes are those of before FormatShare
}

// keyspaceConfig reads into c, which must be the zero value.
func (r *reader) keyspaceConfig(c *KeyspaceConfig) {
	f := r.fields(false)
	c.Version = f.uint(math.MaxUint64)
	c.Bytes, c.WriteRate, c.ByteRate = f.int(), f.int(), f.int()
	c.Writers = f.has()
	f.end()
}

// keyspaceOp writes an op that configures keyspaces.
func (w *writer) keyspaceOp(op Op) {
	switch op := op.(type) {
	case *KeyspaceSet:
		w.name(op.Keyspace)
		w.int(op.IfVersion)
		w.keyspaceConfig(&op.Config)
	case *KeyspaceDelete:
		w.name(op.Keyspace)
	case *KeyspaceUse:
		w.uint(uint64(len(op.Items)))
		for _, it := range op.Items {
			w.uint(uint64(it.Incarnation))
			w.uint(it.Bytes)
		}
	}
}

// keyspaceOp reads an op that configures keyspaces. It is the last of the key-value readers, and fails for another
// kind.
func (r *reader) keyspaceOp(kind OpKind) Op {
	switch kind {
	case OpKeyspaceSet:
		op := &KeyspaceSet{Keyspace: r.name(), IfVersion: r.int()}
		r.keyspaceConfig(&op.Config)
		return op
	case OpKeyspaceDelete:
		return &KeyspaceDelete{Keyspace: r.name()}
	case OpKeyspaceUse:
		op := &KeyspaceUse{}
		if n := r.count(2); n > 0 {
			op.Items = make([]SpaceUse, n)
		}
		for i := range op.Items {
			op.Items[i] = SpaceUse{Incarnation: uint32(r.max(math.MaxUint32)), Bytes: r.uint()}
		}
		return op
	}
	r.fail("unknown op kind %d", kind)
	return nil
}

// keyspaceOpSize is opSize of these ops; 0 for another one.
func keyspaceOpSize(op Op) int {
	switch op := op.(type) {
	case *KeyspaceSet:
		return opHeader + len(op.Keyspace) + 5*varintBytes
	case *KeyspaceDelete:
		return opHeader + len(op.Keyspace)
	case *KeyspaceUse:
		return opHeader + nameBytes + len(op.Items)*2*varintBytes
	}
	return 0
}

// AppendKeyspaceConfig appends the encoding of c, as entries and the store hold it.
func AppendKeyspaceConfig(dst []byte, c *KeyspaceConfig) []byte {
	w := writer{b: dst}
	w.keyspaceConfig(c)
	return w.b
}

// DecodeKeyspaceConfig reads what AppendKeyspaceConfig wrote. Its error wraps ErrMalformed.
func DecodeKeyspaceConfig(b []byte) (c KeyspaceConfig, err error) {
	r := reader{b: b}
	r.keyspaceConfig(&c)
	return c, r.end()
}
