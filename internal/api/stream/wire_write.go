package stream

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/millrace/millrace/internal/api"
	"github.com/millrace/millrace/internal/core"
)

// This file writes the two frames that carry a busy stream, acks and assigned tasks, straight into bytes: those that the
// generated code would write of the messages that build makes. A test holds the two together.

// Field numbers of what a server sends, as in the contract.
const (
	frameAck    = 2 // in a ServerFrame
	frameAssign = 3 // in a ServerFrame
	ackAt       = 2 // in an Ack
	ackCreated  = 3 // in an Ack: a list, of an item for each task
	ackSettled  = 4 // in an Ack: a list, of an item for each settle
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

// wireAck writes the ack of a frame whose results are plain. Each length is computed before what it precedes, so that the bytes are
// written once, into a buffer of the right size.
func (p *pending) wireAck(d core.Proposed) *api.Encoded {
	if p.wire == framePuts {
		return p.wirePutsAck(d)
	}
	items := 0
	for i := range d.Results {
		items += 2 + p.itemSize(&d.Results[i])
	}
	at := atSize(d.At)
	size := uintSize(p.seq) + 1 + protowire.SizeBytes(at) + items
	o := api.NewEncoded(1 + protowire.SizeBytes(size))
	b := appendHead(o.B, frameAck, size)
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
		b = appendBool(b, 5, op.Existed)
	}
	o.B = b
	return o
}

// taskIDLen is the length of a task id in text.
const taskIDLen = 26

// itemSize is the length of one item of an ack, always below 128.
func (p *pending) itemSize(r *core.Result) int {
	op := &r.Ops[0]
	n := 2 * one(r.Replayed || op.Replayed)
	if p.wire == frameSettle {
		return n + uintSize(uint64(op.State))
	}
	return n + 2 + taskIDLen + 2*one(op.PayloadMatches) + 2*one(op.Existed)
}

// one is 1 for true.
func one(b bool) int {
	if b {
		return 1
	}
	return 0
}

// wireAssign writes tasks for a subscription; now tells how much of each lease is left.
func wireAssign(sub uint32, tasks []core.Assigned, now core.ShardTime) *api.Encoded {
	size := uintSize(uint64(sub))
	for i := range tasks {
		n := assignmentSize(&tasks[i], now)
		size += 1 + protowire.SizeBytes(n)
	}
	o := api.NewEncoded(1 + protowire.SizeBytes(size))
	b := appendHead(o.B, frameAssign, size)
	b = appendUint(b, 1, uint64(sub))
	for i := range tasks {
		b = appendHead(b, 2, assignmentSize(&tasks[i], now))
		b = appendAssignment(b, &tasks[i], now)
	}
	o.B = b
	return o
}

// assignmentSize is the length of what appendAssignment appends.
func assignmentSize(t *core.Assigned, now core.ShardTime) int {
	n := 2 + taskIDLen + uintSize(uint64(t.Token)) + uintSize(uint64(t.Attempt)) + textSize(t.Queue) + textSize(t.Kind) +
		textSize(t.Payload) + textSize(t.ContentType) + uintSize(uint64(t.Priority)) +
		uintSize(uint64(max(t.Lease, 0))) + uintSize(uint64(max(t.LeaseUntil-now, 0))) + intSize(int64(t.MaxAttempts)) +
		uintSize(uint64(t.Failures)) + uintSize(uint64(t.Crashes)) + intSize(int64(t.CreatedAt))
	if len(t.Checkpoint) > 0 {
		n += 2 + protowire.SizeBytes(len(t.Checkpoint))
	}
	if t.MaxRun > 0 {
		n += 2 + protowire.SizeVarint(uint64(t.MaxRun))
	}
	if t.Tag != "" {
		n += 2 + protowire.SizeBytes(len(t.Tag))
	}
	if t.ReadyAt != 0 {
		n += 2 + protowire.SizeVarint(uint64(t.ReadyAt))
	}
	for i := range t.Headers {
		h := headerSize(&t.Headers[i])
		n += 1 + protowire.SizeBytes(h)
	}
	return n
}

// headerSize is the length of a header of a task.
func headerSize(h *core.Header) int { return textSize(h.Name) + textSize(h.Value) }

// appendAssignment appends an Assignment. Of a lease it says what is left at now, because clocks of clients may be wrong.
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
	b = appendUint(b, 15, uint64(t.CreatedAt))
	if len(t.Checkpoint) > 0 {
		b = protowire.AppendBytes(protowire.AppendTag(b, 16, protowire.BytesType), t.Checkpoint)
	}
	if t.MaxRun > 0 {
		b = protowire.AppendVarint(protowire.AppendTag(b, 17, protowire.VarintType), uint64(t.MaxRun))
	}
	if t.Tag != "" {
		b = protowire.AppendString(protowire.AppendTag(b, 18, protowire.BytesType), t.Tag)
	}
	if t.ReadyAt != 0 {
		b = protowire.AppendVarint(protowire.AppendTag(b, 19, protowire.VarintType), uint64(t.ReadyAt))
	}
	return b
}

// atSize is the length of what appendAt appends.
func atSize(a core.At) int {
	n := uintSize(uint64(a.Partition)) + uintSize(a.Index) + uintSize(uint64(a.Epoch))
	if ts := api.TimeOf(a.Stamp); ts != nil {
		n += 2 + intSize(ts.Seconds) + intSize(int64(ts.Nanos))
	}
	return n
}

// appendAt appends an At: where an answer stands.
func appendAt(b []byte, a core.At) []byte {
	b = appendUint(b, 1, uint64(a.Partition))
	b = appendUint(b, 2, a.Index)
	b = appendUint(b, 3, uint64(a.Epoch))
	if ts := api.TimeOf(a.Stamp); ts != nil {
		b = appendHead(b, 4, intSize(ts.Seconds)+intSize(int64(ts.Nanos)))
		b = appendUint(appendUint(b, 1, uint64(ts.Seconds)), 2, uint64(ts.Nanos))
	}
	return b
}

// The fields of proto3 that say their default are not written. Numbers of the fields that the functions below write are below 16, so that a tag is a byte.

// uintSize is the length of a field of an unsigned number.
func uintSize(v uint64) int {
	if v == 0 {
		return 0
	}
	return 1 + protowire.SizeVarint(v)
}

// intSize is the length of a field of a signed number, whose negative values take ten bytes.
func intSize(v int64) int { return uintSize(uint64(v)) }

// textSize is the length of a field of text or bytes.
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

// appendUint appends a field of a number.
func appendUint(b []byte, num protowire.Number, v uint64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendVarint(append(b, byte(num<<3)|byte(protowire.VarintType)), v)
}

// appendBool appends a field of a bool.
func appendBool(b []byte, num protowire.Number, v bool) []byte {
	if !v {
		return b
	}
	return append(b, byte(num<<3)|byte(protowire.VarintType), 1)
}

// appendText appends a field of text or bytes.
func appendText[T string | []byte](b []byte, num protowire.Number, s T) []byte {
	if len(s) == 0 {
		return b
	}
	return append(appendHead(b, num, len(s)), s...)
}
