package core

import (
	"errors"
	"fmt"
	"math"
)

// ErrMalformed is wrapped by every error of DecodeEntry and DecodeResult: the bytes are not what AppendEntry or
// AppendResult of a known format wrote. In a log or a store that passed its checksums it means corruption, or a newer
// build's work.
var ErrMalformed = errors.New("malformed encoding")

// Encoding of an entry, format 1. All integers are minimal varints, signed ones zigzag.
//
//	entry   format, stamp, proposer, seq, number of commits, commits
//	commit  flags, partition, principal?, request id?, session and seq?, fence?, conditions?, number of ops, ops
//	op      kind, its fixed fields, a word of presence bits, the fields present
//
// Names that recur (queues, kinds, keyspaces, principals, workers) and partitions are written once per entry, where
// they first occur, and are a number from then on. A field that is zero is not written, and a written one is not
// zero, so that one value has one encoding, up to the order of names.

// Bits of a commit's flags.
const (
	// The principal's name follows the partition.
	commitPrincipal byte = 1 << iota
	// The id of the request follows: 16 bytes.
	commitRequest
	// The session's id, 16 bytes, and its sequence number follow.
	commitSession
	// The task and token of the fence follow.
	commitFence
	// The number of conditions, at least 1, and the conditions follow.
	commitConditions
	// FailOnRefusal of the commit: nothing follows.
	commitFailOnRefusal
	// All bits that have a meaning. A commit with another one is refused.
	commitFlags = commitFailOnRefusal<<1 - 1
)

// minCommitBytes is the shortest commit: flags, partition, number of ops.
const minCommitBytes = 3

// minOpBytes is the shortest op: its kind and one field or word of presence bits.
const minOpBytes = 2

// AppendEntry appends the encoding of e to dst. The ops must be of the types of this package, and none nil.
func AppendEntry(dst []byte, e *Entry) []byte {
	w := writer{b: dst}
	w.uint(uint64(e.Format))
	w.int(int64(e.Stamp))
	w.uint(e.Proposer)
	w.uint(e.Seq)
	if e.Format >= FormatQueues {
		w.uint(uint64(e.Queues))
	}
	w.uint(uint64(len(e.Commits)))
	for i := range e.Commits {
		w.commit(&e.Commits[i])
	}
	return w.b
}

// DecodeEntry reads what AppendEntry wrote. Byte slices of the entry alias b, which must not change afterwards; empty
// ones are nil. Every error wraps ErrMalformed. Whatever b holds, at most 64 times its length and 64 KiB are
// allocated: the least commit is three bytes long and its struct about 140.
func DecodeEntry(b []byte) (*Entry, error) {
	r := reader{b: b}
	e := &Entry{}
	e.Format = uint16(r.max(math.MaxUint16))
	if r.err == nil && (e.Format == 0 || e.Format > NewestFormat()) {
		r.fail("entry format %d, this build knows up to %d", e.Format, NewestFormat())
	}
	e.Stamp = ShardTime(r.int())
	e.Proposer = r.uint()
	e.Seq = r.uint()
	if e.Format >= FormatQueues {
		e.Queues = uint32(r.max(math.MaxUint32))
	}
	if n := r.count(minCommitBytes); n > 0 {
		e.Commits = make([]Commit, n)
	}
	for i := range e.Commits {
		r.commit(&e.Commits[i])
		if r.err != nil {
			break
		}
	}
	if err := r.end(); err != nil {
		return nil, err
	}
	return e, nil
}

// EntryOrigin reads who proposed the entry that b encodes, and under which number, without reading its commits.
func EntryOrigin(b []byte) (proposer, seq uint64, err error) {
	r := reader{b: b}
	r.max(math.MaxUint16)
	r.int()
	proposer, seq = r.uint(), r.uint()
	return proposer, seq, r.err
}

// AppendContent appends an encoding of what c asks for: partition, fence, conditions and ops, without who asks and
// under which request id or sequence number. Equal contents have equal encodings.
func (c *Commit) AppendContent(dst []byte) []byte {
	content := Commit{
		Partition: c.Partition, Fence: c.Fence, Conditions: c.Conditions, Ops: c.Ops, FailOnRefusal: c.FailOnRefusal,
	}
	w := writer{b: dst}
	w.commit(&content)
	return w.b
}

// commit writes c after its flags, which name the fields that are not zero. AppendContent relies on it that equal
// commits have equal bytes.
func (w *writer) commit(c *Commit) {
	var flags byte
	set := func(bit byte, on bool) {
		if on {
			flags |= bit
		}
	}
	set(commitPrincipal, c.Principal != "")
	set(commitRequest, c.RequestID != RequestID{})
	set(commitSession, c.Session != SessionID{} || c.Seq != 0)
	set(commitFence, c.Fence != nil)
	set(commitConditions, len(c.Conditions) > 0)
	set(commitFailOnRefusal, c.FailOnRefusal)
	w.byte(flags)
	w.partition(c.Partition)
	if flags&commitPrincipal != 0 {
		w.name(c.Principal)
	}
	if flags&commitRequest != 0 {
		w.b = append(w.b, c.RequestID[:]...)
	}
	if flags&commitSession != 0 {
		w.b = append(w.b, c.Session[:]...)
		w.uint(c.Seq)
	}
	if flags&commitFence != 0 {
		w.hold(TaskHold(*c.Fence))
	}
	if flags&commitConditions != 0 {
		w.uint(uint64(len(c.Conditions)))
		for _, check := range c.Conditions {
			w.kvCheck(check)
		}
	}
	w.uint(uint64(len(c.Ops)))
	for _, op := range c.Ops {
		w.op(op)
	}
}

// commit reads into c, which must be the zero value. A flag whose field is zero is an error: one commit has one
// encoding.
func (r *reader) commit(c *Commit) {
	flags := r.byte()
	if flags&^commitFlags != 0 {
		r.fail("unknown commit flags %#x", flags)
		return
	}
	c.Partition = r.partition()
	if flags&commitPrincipal != 0 {
		c.Principal = r.name()
		r.nonZero(c.Principal != "")
	}
	if flags&commitRequest != 0 {
		copy(c.RequestID[:], r.take(len(c.RequestID)))
		r.nonZero(c.RequestID != RequestID{})
	}
	if flags&commitSession != 0 {
		copy(c.Session[:], r.take(len(c.Session)))
		c.Seq = r.uint()
		r.nonZero(c.Session != SessionID{} || c.Seq != 0)
	}
	if flags&commitFence != 0 {
		f := Fence(r.hold())
		c.Fence = &f
	}
	if flags&commitConditions != 0 {
		n := r.count(minOpBytes)
		r.nonZero(n > 0)
		c.Conditions = make([]*KVCheck, n)
		for i := range c.Conditions {
			c.Conditions[i] = r.kvCheck()
		}
	}
	c.FailOnRefusal = flags&commitFailOnRefusal != 0
	n := r.count(minOpBytes)
	if n == 0 {
		return
	}
	c.Ops = r.slab.list(n, len(r.b)-r.off)
	for i := range c.Ops {
		c.Ops[i] = r.op()
		if r.err != nil {
			return
		}
	}
}

// slab makes ops of the frequent types in chunks, so that an entry of many small commits costs few allocations.
type slab struct {
	// The rest of each chunk of ops: list cuts lists of ops from its front.
	ops []Op
	// Chunks of the types that entries hold most of. A full chunk stays alive as long as one of its ops does.
	creates   []TaskCreate
	completes []TaskComplete
	grants    []Grant
	puts      []KVPut
	checks    []KVCheck
}

// maxSlab is the most elements of one chunk: enough that allocation is no longer the cost of decoding.
const maxSlab = 64

// list returns n ops; left is how many bytes of input follow.
func (s *slab) list(n, left int) []Op {
	if n > len(s.ops) {
		s.ops = make([]Op, max(n, min(maxSlab, left/minCommitBytes)))
	}
	out := s.ops[:n:n]
	s.ops = s.ops[n:]
	return out
}

// one returns a zero T of the chunk, which grows by doubling from one.
func one[T any](chunk *[]T) *T {
	if len(*chunk) == cap(*chunk) {
		*chunk = make([]T, 0, min(max(1, 2*cap(*chunk)), maxSlab))
	}
	*chunk = (*chunk)[:len(*chunk)+1]
	return &(*chunk)[len(*chunk)-1]
}

// malformed returns an error that wraps ErrMalformed and names the offset in the input, from 0.
func malformed(at int, format string, args ...any) error {
	return fmt.Errorf("%w: %s at byte %d", ErrMalformed, fmt.Sprintf(format, args...), at)
}
