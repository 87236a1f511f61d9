package api

import (
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/millrace/millrace/internal/core"
)

// This file writes the two frames that carry a busy stream, acks and assigned tasks, straight into bytes: those that the
// generated code would write of the messages that build makes. A test holds the two together.

// wireOut is a frame that is encoded already, in a buffer of gRPC's pool.
type wireOut struct{ b []byte }

func newWireOut(size int) *wireOut {
	return &wireOut{(*mem.DefaultBufferPool().Get(size))[:0]}
}

// Field numbers of what a server sends, as in the contract.
const (
	frameAck    = 2
	frameAssign = 3
	ackAt       = 2
	ackCreated  = 3
	ackSettled  = 4
)

// plain reports whether the ack of a frame can be written the short way: everything was applied.
func (p *pending) plain(d core.Proposed) bool {
	if p.wire == 0 || d.Err != nil || len(d.Results) != p.commits {
		return false
	}
	for i := range d.Results {
		r := &d.Results[i]
		if r.Refusal != nil || r.FailedInstead || len(r.Ops) != 1 || r.Ops[0].KV != nil {
			return false
		}
	}
	return true
}

func (p *pending) wireAck(d core.Proposed) *wireOut {
	if p.wire == framePuts {
		return p.wirePutsAck(d)
	}
	items := 0
	for i := range d.Results {
		items += 2 + p.itemSize(&d.Results[i])
	}
	at := atSize(d.At)
	size := uintSize(p.seq) + 1 + protowire.SizeBytes(at) + items
	o := newWireOut(1 + protowire.SizeBytes(size))
	b := appendHead(o.b, frameAck, size)
	b = appendUint(b, 1, p.seq)
	b = appendAt(appendHead(b, ackAt, at), d.At)
	list := protowire.Number(ackCreated)
	if p.wire == frameSettle {
		list = ackSettled
	}
	for i := range d.Results {
		r := &d.Results[i]
		op := &r.Ops[0]
		b = appendHead(b, list, p.itemSize(r))
		if p.wire == frameSettle {
			b = appendBool(b, 1, r.Replayed || op.Replayed)
			b = appendUint(b, 2, uint64(op.State))
			continue
		}
		b = op.Task.Append(append(b, 1<<3|byte(protowire.BytesType), taskIDLen))
		b = appendBool(b, 2, r.Replayed || op.Replayed)
		b = appendBool(b, 3, op.PayloadMatches)
	}
	o.b = b
	return o
}

const taskIDLen = 26

// itemSize is the length of one item of an ack, always below 128.
func (p *pending) itemSize(r *core.Result) int {
	op := &r.Ops[0]
	n := 2 * one(r.Replayed || op.Replayed)
	if p.wire == frameSettle {
		return n + uintSize(uint64(op.State))
	}
	return n + 2 + taskIDLen + 2*one(op.PayloadMatches)
}

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}

// wireAssign writes tasks for a subscription; now tells how much of each lease is left.
func wireAssign(sub uint32, tasks []core.Assigned, now core.ShardTime) *wireOut {
	size := uintSize(uint64(sub))
	for i := range tasks {
		n := assignmentSize(&tasks[i], now)
		size += 1 + protowire.SizeBytes(n)
	}
	o := newWireOut(1 + protowire.SizeBytes(size))
	b := appendHead(o.b, frameAssign, size)
	b = appendUint(b, 1, uint64(sub))
	for i := range tasks {
		b = appendHead(b, 2, assignmentSize(&tasks[i], now))
		b = appendAssignment(b, &tasks[i], now)
	}
	o.b = b
	return o
}

func assignmentSize(t *core.Assigned, now core.ShardTime) int {
	n := 2 + taskIDLen + uintSize(uint64(t.Token)) + uintSize(uint64(t.Attempt)) + textSize(t.Queue) + textSize(t.Kind) +
		textSize(t.Payload) + textSize(t.ContentType) + uintSize(uint64(t.Priority)) +
		uintSize(uint64(max(t.Lease, 0))) + uintSize(uint64(max(t.LeaseUntil-now, 0))) + intSize(int64(t.MaxAttempts)) +
		uintSize(uint64(t.Failures)) + uintSize(uint64(t.Crashes)) + intSize(int64(t.CreatedAt))
	for i := range t.Headers {
		h := headerSize(&t.Headers[i])
		n += 1 + protowire.SizeBytes(h)
	}
	return n
}

func headerSize(h *core.Header) int { return textSize(h.Name) + textSize(h.Value) }

func appendAssignment(b []byte, t *core.Assigned, now core.ShardTime) []byte {
	b = t.Task.Append(append(b, 1<<3|byte(protowire.BytesType), taskIDLen))
	b = appendUint(b, 2, uint64(t.Token))
	b = appendUint(b, 3, uint64(t.Attempt))
	b = appendText(b, 4, t.Queue)
	b = appendText(b, 5, t.Kind)
	b = appendText(b, 6, t.Payload)
	b = appendText(b, 7, t.ContentType)
	for i := range t.Headers {
		h := &t.Headers[i]
		b = appendText(appendText(appendHead(b, 8, headerSize(h)), 1, h.Name), 2, h.Value)
	}
	b = appendUint(b, 9, uint64(t.Priority))
	b = appendUint(b, 10, uint64(max(t.Lease, 0)))
	b = appendUint(b, 11, uint64(max(t.LeaseUntil-now, 0)))
	b = appendUint(b, 12, uint64(int64(t.MaxAttempts)))
	b = appendUint(b, 13, uint64(t.Failures))
	b = appendUint(b, 14, uint64(t.Crashes))
	return appendUint(b, 15, uint64(t.CreatedAt))
}

func atSize(a core.At) int {
	n := uintSize(uint64(a.Partition)) + uintSize(a.Index) + uintSize(uint64(a.Epoch))
	if ts := timeOf(a.Stamp); ts != nil {
		n += 2 + intSize(ts.Seconds) + intSize(int64(ts.Nanos))
	}
	return n
}

func appendAt(b []byte, a core.At) []byte {
	b = appendUint(b, 1, uint64(a.Partition))
	b = appendUint(b, 2, a.Index)
	b = appendUint(b, 3, uint64(a.Epoch))
	if ts := timeOf(a.Stamp); ts != nil {
		b = appendHead(b, 4, intSize(ts.Seconds)+intSize(int64(ts.Nanos)))
		b = appendUint(appendUint(b, 1, uint64(ts.Seconds)), 2, uint64(ts.Nanos))
	}
	return b
}

// The fields of proto3 that say their default are not written. All numbers here are below 16, so that a tag is a byte.

func uintSize(v uint64) int {
	if v == 0 {
		return 0
	}
	return 1 + protowire.SizeVarint(v)
}

func intSize(v int64) int { return uintSize(uint64(v)) }

func textSize[T string | []byte](s T) int {
	if len(s) == 0 {
		return 0
	}
	return 1 + protowire.SizeBytes(len(s))
}

// appendHead begins a field that holds size bytes.
func appendHead(b []byte, num protowire.Number, size int) []byte {
	return protowire.AppendVarint(append(b, byte(num<<3)|byte(protowire.BytesType)), uint64(size))
}

func appendUint(b []byte, num protowire.Number, v uint64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendVarint(append(b, byte(num<<3)|byte(protowire.VarintType)), v)
}

func appendBool(b []byte, num protowire.Number, v bool) []byte {
	if !v {
		return b
	}
	return append(b, byte(num<<3)|byte(protowire.VarintType), 1)
}

func appendText[T string | []byte](b []byte, num protowire.Number, s T) []byte {
	if len(s) == 0 {
		return b
	}
	return append(appendHead(b, num, len(s)), s...)
}
