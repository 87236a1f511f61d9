package millrace

import (
	"context"
	"fmt"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/sdk/go/internal/fault"
	"github.com/millrace/millrace/sdk/go/internal/ledger"
	"github.com/millrace/millrace/sdk/go/internal/place"
	"github.com/millrace/millrace/sdk/go/internal/session"
)

// Tx collects changes that are applied together, in one log entry, or not at all: the effects of a task, or a commit.
// Its conditions are judged first, then its ops in order, later ones seeing earlier ones. It is for one goroutine.
//
// In a namespace of several partitions all of it is of one: that of the handler's task, of the fence, or of the first op. A
// task's tag or unique key says where it is, and a key's text between its first braces, or else all of it. What belongs
// elsewhere is ErrPartition before anything is sent.
type Tx struct {
	client *Client         // nil in tests of handlers
	ctx    context.Context // of the commit; nil for effects
	task   string          // whose effects these are, or empty
	// codec encodes values and arguments.
	codec Codec
	fence *millracev1.Fence
	// conds, ops and handles are what was asked for, in its order.
	conds   []*millracev1.KVCheck
	ops     []*millracev1.Op
	handles []txHandle
	err     error // of the first change that could not be encoded
}

// newTx makes a Tx of a commit.
func (c *Client) newTx() *Tx { return &Tx{client: c, codec: c.opts.codec} }

// partitions is how many there are to choose from.
func (tx *Tx) partitions() int {
	if tx.client == nil {
		return 1
	}
	return tx.client.hub.Partitions()
}

// space places what tx has in that many partitions.
func (tx *Tx) space(partitions int) place.Space {
	if tx.client == nil {
		return place.Space{Partitions: partitions}
	}
	return tx.client.hub.Space()
}

// home is the partition of the tx as far as it goes; below 0 when nothing says one.
func (tx *Tx) home(partitions int) int {
	switch {
	case tx.fence != nil:
		return place.Of(tx.fence.Task, partitions)
	case tx.task != "":
		return place.Of(tx.task, partitions)
	}
	return -1
}

// here is what places the parts of tx, and the partition that what is added next goes to when it says none itself; below 0 when nothing says
// one.
func (tx *Tx) here() (s place.Space, home int, err error) {
	n := tx.partitions()
	if n == 0 && tx.ctx != nil {
		var f *fault.Fault
		if n, f = tx.client.calls.Learn(tx.ctx); f != nil {
			return s, 0, errorOf(f)
		}
	}
	home, s = tx.home(n), tx.space(n)
	if home < 0 && len(tx.ops) > 0 {
		home = s.Op(tx.ops[0])
	} else if home < 0 && len(tx.conds) > 0 {
		home = place.Key(tx.conds[0].Key, n)
	}
	return s, home, nil
}

// learnPinned reports whether a queue is pinned. Where that can decide where tx goes, it asks the server if the client does not know.
func (tx *Tx) learnPinned(s place.Space, queue string) bool {
	if s.Partitions > 1 && tx.ctx != nil && tx.home(s.Partitions) < 0 {
		tx.client.learnPinned(tx.ctx, queue)
	}
	return s.Pins(queue)
}

// place gives a task that is to be created its id, which others may use from here on.
func (tx *Tx) place(spec *millracev1.TaskSpec) error {
	s, home, err := tx.here()
	if err != nil {
		return err
	}
	if spec.Tag == "" {
		tx.learnPinned(s, spec.Queue)
	}
	if _, f := s.Task(spec, home); f != nil {
		f.Op = len(tx.ops)
		return errorOf(f)
	}
	return nil
}

// txHandle is a task that op creates; the answer may name another one that holds the unique key.
type txHandle struct {
	// op is its place among the ops, and id where the handle has its ID.
	op int
	id *string
}

// Limits of one commit.
const (
	maxCommitOps   = 1024                    // conditions and ops together
	maxCommitBytes = session.FrameBytes - 64 // encoded, with room for the frame around it
)

// Fence makes the commit apply only while t's lease is held.
func (tx *Tx) Fence(t *Task) { tx.fence = &millracev1.Fence{Task: t.ID, Token: t.Token()} }

// Reset drops all conditions and ops, so that they can be built again.
func (tx *Tx) Reset() { tx.conds, tx.ops, tx.handles, tx.err = nil, nil, nil, nil }

// Len returns how many conditions and ops there are.
func (tx *Tx) Len() int { return len(tx.conds) + len(tx.ops) }

// KV names a keyspace to change.
func (tx *Tx) KV(keyspace string) TxKV {
	if !utf8.ValidString(keyspace) {
		tx.fail(badText("keyspace"))
	}
	return TxKV{tx, keyspace}
}

// TxKV changes a keyspace within a Tx.
type TxKV struct {
	tx       *Tx
	keyspace string
}

// Put stores value under key: bytes, text and json.RawMessage as they are, anything else by the codec.
func (k TxKV) Put(key string, value any, opts ...PutOption) {
	b, _, err := encode(k.tx.codec, value)
	if err != nil {
		k.tx.fail(fmt.Errorf("put %s/%s: %w", k.keyspace, key, err))
		return
	}
	op := &millracev1.KVPut{Keyspace: k.keyspace, Key: []byte(key), Value: b}
	for _, o := range opts {
		o.put(op)
	}
	k.tx.ops = append(k.tx.ops, &millracev1.Op{Op: &millracev1.Op_KvPut{KvPut: op}})
}

// Delete removes key. An absent key is not an error.
func (k TxKV) Delete(key string, opts ...DeleteOption) {
	op := &millracev1.KVDelete{Keyspace: k.keyspace, Key: []byte(key)}
	for _, o := range opts {
		o.delete(op)
	}
	k.tx.ops = append(k.tx.ops, &millracev1.Op{Op: &millracev1.Op_KvDelete{KvDelete: op}})
}

// Check makes the whole Tx depend on key, as it is before the ops.
func (k TxKV) Check(key string, cond Condition) {
	check := cond.check()
	check.Keyspace, check.Key = k.keyspace, []byte(key)
	k.tx.conds = append(k.tx.conds, check)
}

// Err says why no server would take tx, as far as that can be known here; nil when tx is empty or well.
func (tx *Tx) Err() error {
	if tx.Len() == 0 {
		return tx.err
	}
	return tx.check()
}

// maxOps is how many conditions and ops there may be: with effects the completion itself is one more op of the commit.
func (tx *Tx) maxOps() int {
	if tx.task != "" {
		return maxCommitOps - 1
	}
	return maxCommitOps
}

// fail notes an error of a change; the first is the one that the Tx ends with.
func (tx *Tx) fail(err error) {
	if tx.err == nil {
		tx.err = err
	}
}

// check refuses what no server would take, so that it costs no round trip and no sequence number.
func (tx *Tx) check() error {
	switch n := tx.Len(); {
	case tx.err != nil:
		return tx.err
	case n == 0:
		return &Error{Code: CodeInvalidArgument, Field: "ops", Message: "a commit needs an op or a condition", Op: OpNone, Outcome: Refused}
	case n > tx.maxOps():
		return tooLarge("ops", "commit_ops", int64(tx.maxOps()))
	}
	if n := tx.partitions(); n > 1 {
		if _, f := tx.space(n).All(tx.conds, tx.ops, tx.home(n)); f != nil {
			return errorOf(f)
		}
	}
	return nil
}

// request encodes tx; size is that of the message.
func (tx *Tx) request() (req *millracev1.CommitRequest, size int, err error) {
	if err := tx.check(); err != nil {
		return nil, 0, err
	}
	req = &millracev1.CommitRequest{Fence: tx.fence, Conditions: tx.conds, Ops: tx.ops}
	size = proto.Size(req)
	if size > maxCommitBytes {
		return nil, 0, tooLarge("", "commit_bytes", maxCommitBytes)
	}
	return req, size, nil
}

// Committed is the answer to a commit.
type Committed struct {
	Revs     []uint64 // one per op: the key's new revision after a put or an addition, else 0
	Existed  []bool   // one per op: a delete, or a put with WantPrev, found the key
	Prev     [][]byte // one per op: the value before a put with WantPrev; nil when absent
	Sums     []int64  // one per op: what an addition made
	Counts   []uint64 // one per op: how many keys a DeleteRange with CountKeys removed
	Replayed bool     // it had been applied before, and nothing was done again
	// At is where the commit stands in the log.
	At Place
}

// Place is a point in the log of a partition. A read that asks for at least this sees what was acknowledged with it.
type Place struct {
	// Partition is a number in the namespace; Index rises with each entry of that partition's log.
	Partition uint32
	Index     uint64
}

// placeOf reads a place of the contract.
func placeOf(a *millracev1.At) Place { return Place{Partition: a.GetPartition(), Index: a.GetIndex()} }

// Commit applies what build adds, all or nothing. A refusal is an *Error that names the op or condition in Op.
func (c *Client) Commit(ctx context.Context, build func(tx *Tx)) error {
	_, err := c.CommitResult(ctx, build)
	return err
}

// CommitResult is Commit, with the answer.
func (c *Client) CommitResult(ctx context.Context, build func(tx *Tx)) (*Committed, error) {
	tx := c.newTx()
	tx.ctx = ctx
	build(tx)
	return c.commit(ctx, tx, ledger.Line{Op: "commit"})
}

// commit carries a Tx out. line is the ledger's, which it ends.
func (c *Client) commit(ctx context.Context, tx *Tx, line ledger.Line) (*Committed, error) {
	req, size, err := tx.request()
	if err != nil {
		return nil, err
	}
	line.Invoke = c.hub.Ledger.Now()
	if tx.fence != nil {
		line.ID, line.Token = tx.fence.Task, ledger.Token(tx.fence.Token)
	}
	k := c.calls.New()
	k.Commit, k.Bytes = req, size
	gone, f := true, c.calls.Place(k)
	if f == nil {
		gone, f = c.calls.Do(ctx, k)
	}
	if f != nil {
		if gone {
			c.calls.Free(k)
		}
		e := errorOf(f)
		c.record(line, nil, e)
		return nil, e
	}
	resp, at := k.Committed, k.At
	c.calls.Free(k)
	line.Replayed = resp.Replayed
	c.record(line, at, nil)
	return tx.committed(resp, at), nil
}

// committed reads the answer to a commit, and gives handles the ids of tasks that held their unique keys.
func (tx *Tx) committed(resp *millracev1.CommitResponse, at *millracev1.At) *Committed {
	n := len(resp.Results)
	out := &Committed{
		Revs: make([]uint64, n), Existed: make([]bool, n), Prev: make([][]byte, n), Sums: make([]int64, n), Counts: make([]uint64, n),
		Replayed: resp.Replayed, At: placeOf(at),
	}
	for i, r := range resp.Results {
		out.Revs[i], out.Existed[i], out.Prev[i] = r.Rev, r.Existed, r.Prev
		out.Sums[i], out.Counts[i] = r.Sum, r.Count
	}
	for _, h := range tx.handles {
		if h.op < n && resp.Results[h.op].Task != "" {
			*h.id = resp.Results[h.op].Task
		}
	}
	return out
}
