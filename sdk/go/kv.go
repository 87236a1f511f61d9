package millrace

import (
	"context"
	"strconv"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/sdk/go/internal/ledger"
	"github.com/millrace/millrace/sdk/go/internal/place"
)

// KV is a keyspace: keys and values are any bytes.
type KV struct {
	c        *Client
	keyspace string
}

// KV names a keyspace. The first write makes one that does not exist.
func (c *Client) KV(keyspace string) KV { return KV{c, keyspace} }

// Value is what a key holds.
type Value struct {
	// Bytes is the value; nil where a key is absent.
	Bytes []byte
	Rev   uint64 // rises with each write of the key; fit for IfRev, and no count of versions
	At    Place  // where the read stands in the log
	// Writer is the task that wrote the key last. It is nil for a write from outside of any task, and for one from before the
	// keyspace kept writers (KeyspaceConfig.Writers).
	Writer *KeyWriter

	// codec decodes the value: the client's.
	codec Codec
}

// KeyWriter is the task that wrote a key: by the effects of an attempt, or in a commit under its lease.
type KeyWriter struct {
	Task  string // its id
	Token uint64 // of the attempt
}

// writerOf reads what the contract says of who wrote a key.
func writerOf(w *millracev1.KeyWriter) *KeyWriter {
	if w == nil {
		return nil
	}
	return &KeyWriter{Task: w.GetTask(), Token: w.GetToken()}
}

// String returns the bytes as text.
func (v Value) String() string { return string(v.Bytes) }

// Decode decodes the value into a pointer, as Put encoded it: bytes, text and json.RawMessage as they are, others by the client's
// codec.
func (v Value) Decode(into any) error { return decode(v.codec, v.Bytes, "", into) }

// Get reads key. It sees every write that was acknowledged before. An absent key is ErrNotFound.
func (k KV) Get(ctx context.Context, key string, opts ...ReadOption) (Value, error) {
	line := ledger.Line{Op: "kv_get", Key: k.name(key), Invoke: k.c.hub.Ledger.Now()}
	o := readOptionsOf(opts)
	req := &millracev1.KVGetRequest{
		Keyspace: k.keyspace, Key: []byte(key), MinIndex: o.minIndex, Stale: o.stale, MaxStaleness: o.staleness(),
	}
	var resp *millracev1.KVGetResponse
	err := k.c.read(ctx, place.Key(key, k.c.hub.Partitions()), func(ctx context.Context) (err error) {
		resp, err = k.c.kv.Get(ctx, req)
		return err
	})
	if err == nil && !resp.Found {
		k.c.record(line, resp.At, nil) // that a key is absent is an answer
		return Value{}, &Error{Code: CodeNotFound, Message: "key " + quoted(key) + " not found", Op: OpNone, Outcome: Refused}
	}
	if err != nil {
		k.c.record(line, nil, err)
		return Value{}, err
	}
	if k.c.hub.Ledger != nil {
		line.Value = string(resp.Value)
		k.c.record(line, resp.At, nil)
	}
	return Value{Bytes: resp.Value, Rev: resp.Rev, At: placeOf(resp.At), Writer: writerOf(resp.Writer), codec: k.c.opts.codec}, nil
}

// Put stores value as TxKV.Put does and returns the key's new revision. Errors: ErrPrecondition if an option does not hold;
// ErrTooLarge; ErrExhausted for a quota.
func (k KV) Put(ctx context.Context, key string, value any, opts ...PutOption) (rev uint64, err error) {
	tx := k.c.newTx()
	tx.KV(k.keyspace).Put(key, value, opts...)
	line := ledger.Line{Op: "kv_put", Key: k.name(key)}
	if k.c.hub.Ledger != nil && tx.err == nil {
		line.Value = string(tx.ops[0].GetKvPut().Value)
	}
	out, err := k.c.commit(ctx, tx, line)
	if err != nil {
		return 0, err
	}
	return out.Revs[0], nil
}

// Delete removes key and reports whether it was there. With IfRev it is ErrPrecondition unless the key is at that revision.
func (k KV) Delete(ctx context.Context, key string, opts ...DeleteOption) (existed bool, err error) {
	tx := k.c.newTx()
	tx.KV(k.keyspace).Delete(key, opts...)
	out, err := k.c.commit(ctx, tx, ledger.Line{Op: "kv_delete", Key: k.name(key)})
	if err != nil {
		return false, err
	}
	return out.Existed[0], nil
}

// Add adds n to the number under key, which is kept as decimal text, and returns the sum. An absent key holds 0. A sum that
// overflows or passes a bound, and a value that is not a number, are ErrPrecondition with the reason overflow, bound or
// not_a_number.
func (k KV) Add(ctx context.Context, key string, n int64, opts ...AddNumberOption) (sum int64, err error) {
	tx := k.c.newTx()
	tx.KV(k.keyspace).Add(key, n, opts...)
	out, err := k.c.commit(ctx, tx, ledger.Line{Op: "kv_add", Key: k.name(key), Value: strconv.FormatInt(n, 10)})
	if err != nil {
		return 0, err
	}
	return out.Sums[0], nil
}

// name is a key as the ledger writes it.
func (k KV) name(key string) string { return k.keyspace + "/" + key }

// quoted shows a key in an error, if it is short text.
func quoted(key string) string {
	if utf8.ValidString(key) && len(key) <= 128 {
		return `"` + key + `"`
	}
	return "that was asked for"
}

// PutOption changes a put.
type PutOption interface{ put(op *millracev1.KVPut) }

// DeleteOption changes a delete.
type DeleteOption interface{ delete(op *millracev1.KVDelete) }

// KeyOption is for puts, deletes and additions.
type KeyOption interface {
	PutOption
	DeleteOption
	AddNumberOption
}

// ifRev is what IfRev returns; it is an option of three kinds of calls.
type ifRev uint64

func (r ifRev) put(op *millracev1.KVPut)       { op.IfRev = proto.Uint64(uint64(r)) }
func (r ifRev) delete(op *millracev1.KVDelete) { op.IfRev = proto.Uint64(uint64(r)) }

// IfRev refuses a put, delete or addition with ErrPrecondition unless the key is at rev; 0 means that it is absent.
func IfRev(rev uint64) KeyOption { return ifRev(rev) }

// putFunc is a PutOption that fills in the message of a put.
type putFunc func(op *millracev1.KVPut)

func (f putFunc) put(op *millracev1.KVPut) { f(op) }

// IfAbsent refuses a put with ErrPrecondition when the key exists.
func IfAbsent() PutOption { return putFunc(func(op *millracev1.KVPut) { op.IfAbsent = true }) }

// WantPrev makes a commit return the value before a put, in Committed.Prev.
func WantPrev() PutOption { return putFunc(func(op *millracev1.KVPut) { op.WantPrev = true }) }

// Condition is what Check asks of a key.
type Condition struct{ c *millracev1.KVCheck }

// check returns a message of its own for each use.
func (c Condition) check() *millracev1.KVCheck {
	return &millracev1.KVCheck{Compare: c.c.GetCompare(), Operand: c.c.GetOperand()}
}

// Exists holds when the key is there.
func Exists() Condition { return condition(millracev1.KVCheck_EXISTS) }

// Absent holds when the key is not there.
func Absent() Condition { return condition(millracev1.KVCheck_ABSENT) }

// RevEqual holds when the key is at rev.
func RevEqual(rev uint64) Condition { return revCondition(millracev1.KVCheck_EQUAL, rev) }

// RevNotEqual holds when the key is not at rev.
func RevNotEqual(rev uint64) Condition { return revCondition(millracev1.KVCheck_NOT_EQUAL, rev) }

// RevLess holds when the key's revision is below rev.
func RevLess(rev uint64) Condition { return revCondition(millracev1.KVCheck_LESS, rev) }

// RevGreater holds when the key's revision is above rev.
func RevGreater(rev uint64) Condition { return revCondition(millracev1.KVCheck_GREATER, rev) }

// ValueEqual holds when the key holds v, byte for byte.
func ValueEqual[V ~string | ~[]byte](v V) Condition {
	return valueCondition(millracev1.KVCheck_EQUAL, v)
}

// ValueNotEqual holds when the key does not hold v.
func ValueNotEqual[V ~string | ~[]byte](v V) Condition {
	return valueCondition(millracev1.KVCheck_NOT_EQUAL, v)
}

// ValueLess holds when the key's value sorts before v.
func ValueLess[V ~string | ~[]byte](v V) Condition { return valueCondition(millracev1.KVCheck_LESS, v) }

// ValueGreater holds when the key's value sorts after v.
func ValueGreater[V ~string | ~[]byte](v V) Condition {
	return valueCondition(millracev1.KVCheck_GREATER, v)
}

// condition makes a condition without an operand, on whether a key is there.
func condition(cmp millracev1.KVCheck_Compare) Condition {
	return Condition{&millracev1.KVCheck{Compare: cmp}}
}

// revCondition makes a condition on a key's revision.
func revCondition(cmp millracev1.KVCheck_Compare, rev uint64) Condition {
	return Condition{&millracev1.KVCheck{Compare: cmp, Operand: &millracev1.KVCheck_Rev{Rev: rev}}}
}

// valueCondition makes a condition on a key's value.
func valueCondition[V ~string | ~[]byte](cmp millracev1.KVCheck_Compare, v V) Condition {
	return Condition{&millracev1.KVCheck{Compare: cmp, Operand: &millracev1.KVCheck_Value{Value: []byte(v)}}}
}
