// Package frame is the codec of the streams' frames: hand-written code for the busy ones, the generated code for all else.
//
// A client that adds and completes many small tasks spends much of its time in the encoding of frames. The generated code goes field by
// field through tables and allocates each message, list and text; the code here knows the few fields that such tasks have. It counts the
// size of a frame first and writes it once, into a buffer of gRPC's, and reads lists into one array and ids into one string.
//
// What it writes means the same as what the generated code writes, and what it does not know it leaves to that: of a frame that is
// written, all of it, such as where a settle has effects; of one that is read, a task with headers or a result with an error alone.
// Tests hold both to each other over random frames and damaged bytes.
package frame

import (
	"slices"

	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec that Codec embeds
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
)

// Codec is gRPC's codec for protobuf, with hand-written code for the frames that carry a busy stream: creates and
// settles out, acks and assigned tasks in. What they hold beyond the plain is left to the generated code, item by item
// on the way out, frame by frame on the way in. Tests hold the two to each other.
type Codec struct{ encoding.CodecV2 }

// New returns the codec. It is stateless, and any number of streams may share it.
func New() Codec { return Codec{encoding.GetCodecV2("proto")} }

// Field numbers of the frames, as in the contract: of a client's frame, then of a server's.
const (
	wireCreate = 2
	wireSettle = 6
	wireAck    = 2
	wireAssign = 3
)

// wireIDBytes is the length of a task's id. One of another length is not read here.
const wireIDBytes = 26

// Marshal encodes a message.
func (c Codec) Marshal(v any) (mem.BufferSlice, error) {
	if f, ok := v.(*millracev1.ClientFrame); ok {
		switch x := f.Frame.(type) {
		case *millracev1.ClientFrame_Create:
			return marshalCreate(x.Create)
		case *millracev1.ClientFrame_Settle:
			return marshalSettle(x.Settle)
		}
	}
	return c.CodecV2.Marshal(v)
}

// Unmarshal decodes a message.
func (c Codec) Unmarshal(data mem.BufferSlice, v any) error {
	f, ok := v.(*millracev1.ServerFrame)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	// What is read from buf is copied, so that gRPC can use its memory again.
	buf := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buf.Free()
	// What is not plain is read again from its beginning by the generated code, into a frame that readServerFrame may have begun.
	if readServerFrame(f, buf.ReadOnlyData()) {
		return nil
	}
	return proto.Unmarshal(buf.ReadOnlyData(), f)
}

// marshalCreate writes a frame of creates. All sizes are counted first, so that the frame is written once into a buffer of its
// length; the generated code caches the sizes of what it writes.
func marshalCreate(f *millracev1.CreateFrame) (mem.BufferSlice, error) {
	// A field that is a flag takes two bytes: its tag and a 1.
	size := uintSize(f.Seq) + 2*flag(f.Atomic)
	// sizes holds the size of each item. One that the generated code writes has a negative one, less 1: an item may be empty.
	sizes := make([]int, len(f.Tasks))
	for i, t := range f.Tasks {
		n := 0
		if plainSpec(t) {
			n = specSize(t)
			sizes[i] = n
		} else {
			n = proto.Size(t)
			sizes[i] = -n - 1
		}
		size += 1 + protowire.SizeBytes(n)
	}
	out, b := wireBuffer(1 + protowire.SizeBytes(size))
	b = appendHead(b, wireCreate, size)
	b = appendUint(b, 1, f.Seq)
	for i, t := range f.Tasks {
		if n := sizes[i]; n >= 0 {
			b = appendSpec(appendHead(b, 2, n), t)
			continue
		}
		var err error
		if b, err = (proto.MarshalOptions{UseCachedSize: true}).MarshalAppend(appendHead(b, 2, -sizes[i]-1), t); err != nil {
			return nil, err
		}
	}
	if f.Atomic {
		b = append(b, 3<<3|byte(protowire.VarintType), 1)
	}
	return out(b), nil
}

// wireBuffer returns room for size bytes from gRPC's pool, and what makes a message of it when it is full.
func wireBuffer(size int) (func([]byte) mem.BufferSlice, []byte) {
	// gRPC gives the buffer back to the pool when it has sent the frame.
	p := mem.DefaultBufferPool().Get(size)
	return func(b []byte) mem.BufferSlice {
		*p = b
		return mem.BufferSlice{mem.NewBuffer(p, mem.DefaultBufferPool())}
	}, (*p)[:0]
}

// plainSpec reports whether appendSpec writes all that t holds: it has none of the fields that few tasks have, and its texts are surely
// UTF-8. A field that is added to the contract must be added here, or it would not be sent.
func plainSpec(t *millracev1.TaskSpec) bool {
	return len(t.Headers) == 0 && t.RunAt == nil && t.Delay == nil && t.MaxAttempts == 0 && t.MaxCrashes == 0 &&
		t.MaxDeliveries == nil && t.MaxRun == nil && t.Retry == nil && len(t.Labels) == 0 && t.ExpiresAt == nil && t.Batch == "" && len(t.Limiters) == 0 && t.Webhook == "" &&
		ascii(t.Id) && ascii(t.Queue) && ascii(t.Kind) && ascii(t.ContentType) && ascii(t.Key) && ascii(t.Tag) &&
		ascii(t.Unique.GetKey()) && !slices.ContainsFunc(t.After, func(a *millracev1.After) bool { return !ascii(a.GetId()) })
}

// ascii reports whether s surely is UTF-8, which the generated code would see to.
func ascii[T string | []byte](s T) bool {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}

// specSize is how many bytes appendSpec appends.
func specSize(t *millracev1.TaskSpec) int {
	n := textSize(t.Id) + textSize(t.Queue) + textSize(t.Kind) + textSize(t.Payload) + textSize(t.ContentType) +
		uintSize(uint64(t.Priority))
	if t.Lease != nil {
		n += 1 + protowire.SizeBytes(durationSize(t.Lease))
	}
	if t.Unique != nil {
		n += farTag + protowire.SizeBytes(uniqueSize(t.Unique))
	}
	for _, a := range t.After {
		n += farTag + protowire.SizeBytes(afterSize(a))
	}
	return n + far(textSize(t.Key)) + far(textSize(t.Tag)) + far(uintSize(uint64(t.Cost))) + far(uintSize(uint64(t.OnDepFailure)))
}

// farTag is the size of the tag of a field whose number is 16 or above.
const farTag = 2

// far is the size of a field whose number is 16 or above, given that with a smaller one.
func far(n int) int {
	if n == 0 {
		return 0
	}
	return n + farTag - 1
}

// durationSize is the size of the fields of a duration: seconds and nanoseconds. A negative number takes ten bytes, as for the
// generated code.
func durationSize(d *durationpb.Duration) int {
	return uintSize(uint64(d.Seconds)) + uintSize(uint64(d.Nanos))
}

// uniqueSize is the size of the fields of a unique key.
func uniqueSize(u *millracev1.Unique) int {
	n := textSize(u.Key) + uintSize(uint64(u.Until)) + uintSize(uint64(u.OnConflict))
	if u.Ttl != nil {
		n += 1 + protowire.SizeBytes(durationSize(u.Ttl))
	}
	return n
}

// afterSize is the size of the fields of a task that is waited for; nil has none.
func afterSize(a *millracev1.After) int {
	return textSize(a.GetId()) + uintSize(uint64(a.GetOn()))
}

// appendSpec appends a task that is plain, field by field in the order of their numbers.
func appendSpec(b []byte, t *millracev1.TaskSpec) []byte {
	b = appendText(b, 1, t.Id)
	b = appendText(b, 2, t.Queue)
	b = appendText(b, 3, t.Kind)
	b = appendText(b, 4, t.Payload)
	b = appendText(b, 5, t.ContentType)
	b = appendUint(b, 7, uint64(t.Priority))
	if t.Lease != nil {
		b = appendDuration(b, 13, t.Lease)
	}
	if u := t.Unique; u != nil {
		b = appendHead(b, 16, uniqueSize(u))
		b = appendUint(appendText(b, 1, u.Key), 2, uint64(u.Until))
		if u.Ttl != nil {
			b = appendDuration(b, 3, u.Ttl)
		}
		b = appendUint(b, 4, uint64(u.OnConflict))
	}
	b = appendText(appendText(b, 21, t.Key), 22, t.Tag)
	b = appendUint(b, 23, uint64(t.Cost))
	for _, a := range t.After {
		b = appendHead(b, 25, afterSize(a))
		b = appendUint(appendText(b, 1, a.GetId()), 2, uint64(a.GetOn()))
	}
	return appendUint(b, 35, uint64(t.OnDepFailure))
}

// appendDuration appends a field that is a duration.
func appendDuration(b []byte, num protowire.Number, d *durationpb.Duration) []byte {
	b = appendHead(b, num, durationSize(d))
	return appendUint(appendUint(b, 1, uint64(d.Seconds)), 2, uint64(d.Nanos))
}

// marshalSettle writes a frame of settles, as marshalCreate does.
func marshalSettle(f *millracev1.SettleFrame) (mem.BufferSlice, error) {
	size := uintSize(f.Seq)
	// The rule for sizes is that of marshalCreate.
	sizes := make([]int, len(f.Items))
	for i, it := range f.Items {
		n := 0
		if done := plainSettle(it); done != nil {
			n = settleSize(it, done)
			sizes[i] = n
		} else {
			n = proto.Size(it)
			sizes[i] = -n - 1
		}
		size += 1 + protowire.SizeBytes(n)
	}
	out, b := wireBuffer(1 + protowire.SizeBytes(size))
	b = appendHead(b, wireSettle, size)
	b = appendUint(b, 1, f.Seq)
	for i, it := range f.Items {
		if n := sizes[i]; n >= 0 {
			b = appendSettle(appendHead(b, 2, n), it, it.GetComplete())
			continue
		}
		var err error
		if b, err = (proto.MarshalOptions{UseCachedSize: true}).MarshalAppend(appendHead(b, 2, -sizes[i]-1), it); err != nil {
			return nil, err
		}
	}
	return out(b), nil
}

// plainSettle returns the outcome of a settle that appendSettle writes all of, or nil.
func plainSettle(it *millracev1.SettleItem) *millracev1.Complete {
	done := it.GetComplete()
	if done == nil || it.Effects != nil || !ascii(it.Id) || !ascii(done.ResultType) {
		return nil
	}
	return done
}

// settleSize is how many bytes appendSettle appends. done is the outcome of it.
func settleSize(it *millracev1.SettleItem, done *millracev1.Complete) int {
	n := textSize(done.Result) + textSize(done.ResultType)
	return textSize(it.Id) + uintSize(it.Token) + 1 + protowire.SizeBytes(n)
}

// appendSettle appends a plain settle: id, token and a completion.
func appendSettle(b []byte, it *millracev1.SettleItem, done *millracev1.Complete) []byte {
	b = appendText(b, 1, it.Id)
	b = appendUint(b, 2, it.Token)
	b = appendHead(b, 3, textSize(done.Result)+textSize(done.ResultType))
	return appendText(appendText(b, 1, done.Result), 2, done.ResultType)
}

// readServerFrame reads a plain ack or assignment. It reports false, and leaves f in any state, when b holds anything
// else.
func readServerFrame(f *millracev1.ServerFrame, b []byte) bool {
	// A frame is one field, whose number says which kind it is.
	num, typ, n := protowire.ConsumeTag(b)
	if n < 0 || typ != protowire.BytesType {
		return false
	}
	// Nothing may follow it.
	body, m := protowire.ConsumeBytes(b[n:])
	if m < 0 || n+m != len(b) {
		return false
	}
	switch num {
	case wireAck:
		a := new(millracev1.Ack)
		f.Frame = &millracev1.ServerFrame_Ack{Ack: a}
		return readAck(a, body)
	case wireAssign:
		a := new(millracev1.Assign)
		f.Frame = &millracev1.ServerFrame_Assign{Assign: a}
		return readAssign(a, body)
	}
	return false
}

// field is one field on the wire: a number, or bytes.
type field struct {
	num protowire.Number
	// n is its value where it is a number, b where it is bytes; text says which.
	n    uint64
	b    []byte
	text bool
}

// next takes a field off the front of b; false at damage, and at types that these frames do not have.
func (f *field) next(b *[]byte) bool {
	num, typ, n := protowire.ConsumeTag(*b)
	if n < 0 {
		return false
	}
	*b = (*b)[n:]
	// What does not come is zeroed, so that a field of one type is never read as one of the other.
	f.num = num
	switch typ {
	case protowire.VarintType:
		f.n, n = protowire.ConsumeVarint(*b)
		f.b, f.text = nil, false
	case protowire.BytesType:
		f.b, n = protowire.ConsumeBytes(*b)
		f.n, f.text = 0, true
	default:
		return false
	}
	if n < 0 {
		return false
	}
	*b = (*b)[n:]
	return true
}

// items are the elements of a list as they are read. They stand in one array, whose length is that of the list: so the list costs two
// allocations, however long it is.
type items[T any] struct {
	// room is the array, made with the first element.
	room []T
	// num is the number of the list's field.
	num protowire.Number
}

// next makes room for an element in list: in one array for all elements from here on, b, when it is the first. The list
// of a frame has one number, so the array is never too short.
func (s *items[T]) next(list *[]*T, b []byte) *T {
	if s.room == nil {
		n := countField(b, s.num)
		// One array of elements and one of pointers, instead of an allocation for each element.
		s.room, *list = make([]T, n), make([]*T, 0, n)
	}
	x := &s.room[len(*list)]
	*list = append(*list, x)
	return x
}

// countField returns how often a field of bytes comes. The frame is passed once more for it, which costs less than arrays that grow.
func countField(b []byte, num protowire.Number) (n int) {
	var f field
	for len(b) > 0 && f.next(&b) {
		if f.num == num && f.text {
			n++
		}
	}
	return n
}

// readOther reads an item of a list by the generated code, after the code here has found in it what it does not know.
func readOther(m proto.Message, b []byte) bool {
	proto.Reset(m)
	return proto.Unmarshal(b, m) == nil
}

// readAck reads an ack of creates or settles. It reports false for anything else, and for an error of the whole frame.
func readAck(a *millracev1.Ack, b []byte) bool {
	// An ack has results of creates or of settles; the other list stays empty and costs nothing.
	var f field
	var ids idText
	created := items[millracev1.CreateResult]{num: 3}
	settled := items[millracev1.SettleResult]{num: 4}
	for len(b) > 0 {
		rest := b
		if !f.next(&b) {
			return false
		}
		// A field that comes twice, or an error of the frame, is left to the generated code.
		ok := true
		switch {
		case f.num == 1 && !f.text:
			a.Seq = f.n
		case f.num == 2 && f.text && a.At == nil:
			a.At = new(millracev1.At)
			ok = readAt(a.At, f.b)
		case f.num == created.num && f.text:
			r := created.next(&a.Created, rest)
			ids.room(cap(a.Created))
			known := len(ids.b)
			ok = readCreated(r, &ids, f.b) || ids.readOther(r, known, f.b)
		case f.num == settled.num && f.text:
			r := settled.next(&a.Settled, rest)
			ok = readSettled(r, f.b) || readOther(r, f.b)
		default:
			return false
		}
		if !ok {
			return false
		}
	}
	// All ids are known now: the markers become parts of the one string.
	for _, r := range a.Created {
		r.Id = ids.take(r.Id)
	}
	return true
}

// readAt reads a place in the log.
func readAt(at *millracev1.At, b []byte) bool {
	var f field
	for len(b) > 0 {
		if !f.next(&b) {
			return false
		}
		switch {
		case f.num == 1 && !f.text:
			at.Partition = uint32(f.n)
		case f.num == 2 && !f.text:
			at.Index = f.n
		case f.num == 3 && !f.text:
			at.Epoch = uint32(f.n)
		// A message that comes twice would have to be merged.
		case f.num == 4 && f.text && at.Stamp == nil:
			at.Stamp = new(timestamppb.Timestamp)
			if !readStamp(at.Stamp, f.b) {
				return false
			}
		default:
			return false
		}
	}
	return true
}

// readStamp reads a timestamp.
func readStamp(t *timestamppb.Timestamp, b []byte) bool {
	var f field
	for len(b) > 0 {
		if !f.next(&b) || f.text {
			return false
		}
		switch f.num {
		case 1:
			t.Seconds = int64(f.n)
		case 2:
			t.Nanos = int32(f.n)
		default:
			return false
		}
	}
	return true
}

// idText makes the ids of a frame parts of one string, so that they cost one allocation.
type idText struct {
	// b collects the ids, all is the one string that is made of them, and next is where the next id begins in it.
	b    []byte
	all  string
	next int
}

// room makes room for n ids, the first time.
func (t *idText) room(n int) {
	if t.b == nil {
		t.b = make([]byte, 0, n*wireIDBytes)
	}
}

// add takes an id in; one of another length than ids have is not plain.
func (t *idText) add(id []byte) bool {
	// It is taken in even if it is not plain: then readOther takes it out again.
	t.b = append(t.b, id...)
	return len(id) == wireIDBytes && ascii(id)
}

// marker stands for an id that was added, until take replaces it. Ids are longer than it.
const marker = "?"

// withID is an item that has an id.
type withID interface {
	proto.Message
	GetId() string
}

// readOther reads an item by the generated code. What was added of its id since ids were known bytes long is taken out again.
func (t *idText) readOther(m withID, known int, b []byte) bool {
	t.b = t.b[:known]
	return readOther(m, b) && m.GetId() != marker // an id that says the same as the marker would be replaced
}

// take returns the next id, in the order they were added, in place of its marker.
func (t *idText) take(was string) string {
	if was != marker {
		return was
	}
	// The first id that is taken fixes the string: none is added after it.
	if t.all == "" {
		t.all = string(t.b)
	}
	id := t.all[t.next : t.next+wireIDBytes]
	t.next += wireIDBytes
	return id
}

// readCreated reads the result of a create that was not refused. Its id is a marker until all ids are known.
func readCreated(r *millracev1.CreateResult, ids *idText, b []byte) bool {
	var f field
	for len(b) > 0 {
		if !f.next(&b) {
			return false
		}
		switch {
		case f.num == 1 && f.text && r.Id == "":
			if !ids.add(f.b) {
				return false
			}
			// Any text that is not empty would do: an id that comes twice is found by it.
			r.Id = marker
		case f.num == 2 && !f.text:
			r.Replayed = f.n != 0
		case f.num == 3 && !f.text:
			r.PayloadMatches = f.n != 0
		case f.num == 5 && !f.text:
			r.Replaced = f.n != 0
		default:
			return false
		}
	}
	return true
}

// readSettled reads the result of a settle that was not refused.
func readSettled(r *millracev1.SettleResult, b []byte) bool {
	var f field
	for len(b) > 0 {
		if !f.next(&b) || f.text {
			return false
		}
		switch f.num {
		case 1:
			r.Replayed = f.n != 0
		case 2:
			r.State = millracev1.State(f.n)
		default:
			return false
		}
	}
	return true
}

// readAssign reads assigned tasks.
func readAssign(a *millracev1.Assign, b []byte) bool {
	var f field
	var ids idText
	// names are those of the task before, which most tasks of a frame share.
	var names lastNames
	tasks := items[millracev1.Assignment]{num: 2}
	for len(b) > 0 {
		rest := b
		if !f.next(&b) {
			return false
		}
		switch {
		case f.num == 1 && !f.text:
			a.Sub = uint32(f.n)
		case f.num == tasks.num && f.text:
			// Room for all ids is made with the first task, when it is known how many there are.
			t := tasks.next(&a.Tasks, rest)
			ids.room(cap(a.Tasks))
			known := len(ids.b)
			if !readAssignment(t, &ids, &names, f.b) && !ids.readOther(t, known, f.b) {
				return false
			}
		default:
			return false
		}
	}
	for _, t := range a.Tasks {
		t.Id = ids.take(t.Id)
	}
	return true
}

// lastNames are names as they came last: in one frame they mostly repeat, and then share one string.
type lastNames struct{ queue, kind, contentType, tag string }

// same sets *name to b, as the string that *last is if it says the same. It reports false for what may not be UTF-8.
func same(name, last *string, b []byte) bool {
	// The comparison does not allocate; the conversion after it does, once for each name that differs.
	if *last != string(b) {
		*last = string(b)
	}
	*name = *last
	return ascii(*last)
}

// readAssignment reads one task, without headers. Its id is a marker until all ids are known.
func readAssignment(t *millracev1.Assignment, ids *idText, names *lastNames, b []byte) bool {
	var f field
	for len(b) > 0 {
		if !f.next(&b) {
			return false
		}
		// Texts first: a number of a field that is text is left to the generated code, and so is a field that is not known.
		if f.text {
			ok := false
			switch f.num {
			case 1:
				ok = t.Id == "" && ids.add(f.b)
				t.Id = marker
			case 4:
				ok = same(&t.Queue, &names.queue, f.b)
			case 5:
				ok = same(&t.Kind, &names.kind, f.b)
			case 6:
				t.Payload = append([]byte{}, f.b...) // not part of the frame, which one task would keep from being freed
				ok = true
			case 7:
				ok = same(&t.ContentType, &names.contentType, f.b)
			case 16:
				t.Checkpoint = append([]byte{}, f.b...) // as the payload
				ok = true
			case 18:
				ok = same(&t.Tag, &names.tag, f.b)
			}
			if !ok {
				return false
			}
			continue
		}
		switch f.num {
		case 2:
			t.Token = f.n
		case 3:
			t.Attempt = uint32(f.n)
		case 9:
			t.Priority = uint32(f.n)
		case 10:
			t.LeaseMs = f.n
		case 11:
			t.LeaseLeftMs = f.n
		case 12:
			t.MaxAttempts = int32(f.n)
		case 13:
			t.Failures = uint32(f.n)
		case 14:
			t.Crashes = uint32(f.n)
		case 15:
			t.CreatedMs = int64(f.n)
		case 17:
			t.MaxRunMs = f.n
		case 19:
			t.ReadyMs = int64(f.n)
		default:
			return false
		}
	}
	return true
}

// The functions below write single fields, as protobuf does: a tag, which is the number of the field and the type of its value, then the
// value, which has its length before it where it is bytes. Fields that say their default are not written. All numbers here are below 16,
// so that a tag is one byte.

// uintSize is how many bytes appendUint appends.
func uintSize(v uint64) int {
	if v == 0 {
		return 0
	}
	return 1 + protowire.SizeVarint(v)
}

// flag is 1 for true: a field that is false takes no bytes.
func flag(b bool) int {
	if b {
		return 1
	}
	return 0
}

// textSize is how many bytes appendText appends.
func textSize[T string | []byte](s T) int {
	if len(s) == 0 {
		return 0
	}
	return 1 + protowire.SizeBytes(len(s))
}

// appendHead begins a field of size bytes, which must follow.
func appendHead(b []byte, num protowire.Number, size int) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, num, protowire.BytesType), uint64(size))
}

// appendUint appends a field that is a number.
func appendUint(b []byte, num protowire.Number, v uint64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, num, protowire.VarintType), v)
}

// appendText appends a field that is text or bytes. That text is UTF-8 its caller sees to.
func appendText[T string | []byte](b []byte, num protowire.Number, s T) []byte {
	if len(s) == 0 {
		return b
	}
	return append(appendHead(b, num, len(s)), s...)
}
