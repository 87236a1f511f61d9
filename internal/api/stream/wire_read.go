package stream

import (
	"bytes"
	"math"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// This file reads the frames that carry a busy stream, creates and settles (wire_puts.go: and puts), from their bytes straight into
// commits. Decision 0006 has the figures. It takes only what needs no thought: every field known, of its type and within its limits, each at most once. Whatever
// else comes is left to the generated code and the translator, which find the words for what is wrong. So the two can
// only differ in speed, and a test holds them to it.

// Field numbers of the frames, as in the contract.
const (
	frameCreate = 2
	frameSettle = 6
)

// wireFrame is a frame that was read the short way.
type wireFrame struct {
	kind protowire.Number // frameCreate, frameSettle or framePuts; 0: it must be read the long way
	seq  uint64           // by which the frame is acknowledged

	commitSeq uint64          // of puts: the number of the commit in its session
	commits   []core.Commit   // one per item, or one of all puts; they alias the frame's bytes
	holds     []core.TaskHold // of a settle, one per commit
}

// wireReader reads frames of one stream. Names recur from task to task, so the last ones are kept instead of allocated again.
type wireReader struct {
	l         *edge.Limits // a frame beyond one of them is not plain
	shares    func() bool  // whether tasks may have what they have from core.FormatShare on
	home      home         // where all that is read must be
	principal string       // name of the caller, which commits carry; the stream's token may be replaced between frames

	// The last name of each kind.
	queue, task, contentType string
	lane                     string
	resultType, tag          string
	keyspace                 string
}

// kept returns b as a string, the last one if it says the same: then nothing is allocated.
func kept(last *string, b []byte) string {
	if *last != string(b) {
		*last = string(b)
	}
	return *last
}

// reaches reports whether a caller's token surely reaches all queues that the frame is about. Of a settle that is told only by the tasks,
// and by the long way.
func (f *wireFrame) reaches(who *edge.Caller) bool {
	if who.AllQueues() || f.kind == framePuts {
		return true
	}
	for i := range f.commits {
		create, ok := f.commits[i].Ops[0].(*core.TaskCreate) // a commit of this way has one op, but for settles
		if !ok || !who.ReachesQueue(create.Queue) {
			return false
		}
	}
	return true
}

// read reads a whole frame. What it returns aliases b. kind is 0 when it is not one of the three, or not plain.
func (r *wireReader) read(b []byte) (f wireFrame) {
	num, typ, n := protowire.ConsumeTag(b)
	if n < 0 || typ != protowire.BytesType {
		return f
	}
	body, m := protowire.ConsumeBytes(b[n:])
	if m < 0 || n+m != len(b) {
		return f
	}
	ok := false
	switch num {
	case frameCreate:
		ok = r.creates(&f, body)
	case frameSettle:
		ok = r.settles(&f, body)
	case framePuts:
		ok = r.puts(&f, body)
	}
	if !ok {
		return wireFrame{}
	}
	f.kind = num
	return f
}

// list reads the seq and the items of a frame, both of which have the same numbers in the two. Any other field, a seq
// that comes twice, and a number of items that is not allowed say no.
func (r *wireReader) list(b []byte, seq *uint64) (items [][]byte, ok bool) {
	seen := false
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return nil, false
		}
		b = b[n:]
		switch {
		case num == 1 && typ == protowire.VarintType && !seen:
			if *seq, n = protowire.ConsumeVarint(b); n < 0 {
				return nil, false
			}
			seen = true
		case num == 2 && typ == protowire.BytesType && int64(len(items)) < r.l.FrameItems:
			var item []byte
			if item, n = protowire.ConsumeBytes(b); n < 0 {
				return nil, false
			}
			if items == nil { // as many as there is room for, if all are as long as the first
				items = make([][]byte, 0, min(int64(len(b)/max(n, 1))+1, r.l.FrameItems))
			}
			items = append(items, item)
		default:
			return nil, false
		}
		b = b[n:]
	}
	return items, len(items) > 0
}

// commitOf makes a commit of ops that are here.
func (r *wireReader) commitOf(ops []core.Op) core.Commit {
	return core.Commit{Partition: r.home.Partition, Principal: r.principal, Ops: ops}
}

// creates reads a frame of creates into a commit for each task. A frame that is atomic has a field that list does not take.
func (r *wireReader) creates(f *wireFrame, b []byte) bool {
	items, ok := r.list(b, &f.seq)
	if !ok {
		return false
	}
	// Three allocations for all items, not three for each.
	tasks := make([]core.TaskCreate, len(items))
	ops := make([]core.Op, len(items))
	f.commits = make([]core.Commit, len(items))
	for i, item := range items {
		if !r.create(&tasks[i], item) || !r.home.makes(&tasks[i]) {
			return false
		}
		ops[i] = &tasks[i] // a slice of one op each, which no append can make reach the next
		f.commits[i] = r.commitOf(ops[i : i+1 : i+1])
	}
	return true
}

// fields has a bit for each field that was seen, by its number. All numbers that are read here are below 32.
type fields uint32

// once notes a field and reports whether it is the first of its number.
func (s *fields) once(num protowire.Number) bool {
	bit := fields(1) << uint(num)
	first := *s&bit == 0
	*s |= bit
	return first
}

// create reads a TaskSpec. Its numbers without a case in createField are of fields that are not plain.
func (r *wireReader) create(op *core.TaskCreate, b []byte) bool {
	var seen fields
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 || num > 25 || num != 25 && !seen.once(num) {
			return false
		}
		b = b[n:]
		if typ == protowire.VarintType {
			v, n := protowire.ConsumeVarint(b)
			if n < 0 || !r.createNumber(op, num, v) {
				return false
			}
			b = b[n:]
			continue
		}
		if typ != protowire.BytesType {
			return false
		}
		v, n := protowire.ConsumeBytes(b)
		if n < 0 || !r.createField(op, num, v) {
			return false
		}
		b = b[n:]
	}
	return op.Queue != "" && !op.ID.IsZero() && !slices.ContainsFunc(op.After, func(a core.After) bool { return a.Task == op.ID })
}

// createNumber reads a field of a TaskSpec that is a number.
func (r *wireReader) createNumber(op *core.TaskCreate, num protowire.Number, v uint64) bool {
	switch num {
	case 7:
		op.Priority = uint8(v)
		return v <= uint64(r.l.Priority)
	case 23:
		op.Cost = uint32(v)
		return v <= core.MaxCost && r.shares()
	}
	return false
}

// createField reads a field of a TaskSpec that has a length: text, bytes, or a message.
func (r *wireReader) createField(op *core.TaskCreate, num protowire.Number, v []byte) bool {
	var fact core.Fact
	switch num {
	case 1:
		return parseID(&op.ID, v)
	case 2:
		op.Queue = kept(&r.queue, v)
		return api.QueueName("", op.Queue) == nil
	case 3:
		op.TaskKind = kept(&r.task, v)
		return op.TaskKind == "" || api.QueueName("", op.TaskKind) == nil
	case 4:
		op.Payload = orNil(v)
		return int64(len(v)) <= r.l.PayloadBytes
	case 5:
		op.ContentType = kept(&r.contentType, v)
		return api.TextUpTo("", op.ContentType, "", r.l.ContentTypeBytes) == nil
	case 13:
		var d durationpb.Duration
		if !consumeDuration(&d, v) {
			return false
		}
		op.Lease, fact = api.Millis("", &d, api.LeaseSpan(r.l))
		return fact == nil
	case 16:
		return r.unique(&op.Unique, v)
	case 21:
		op.Key = kept(&r.lane, v)
		return len(v) > 0 && api.TaskKey("", op.Key) == nil && r.shares()
	case 25:
		return r.after(op, v)
	case 22:
		op.Tag = kept(&r.tag, v)
		return api.TextUpTo("", op.Tag, "", r.l.TagBytes) == nil
	}
	return false
}

// wireField is a field as it came: a number, or bytes. Messages that are in each frame have loops of their own, which cost a fifth less.
type wireField struct {
	num  protowire.Number
	n    uint64 // its value where it is a number
	b    []byte // where it has a length
	text bool   // it has a length
}

// next takes a field off the front of b. It says no at damage, at types that these messages do not have, and at numbers above most.
func (f *wireField) next(b *[]byte, most protowire.Number) bool {
	num, typ, n := protowire.ConsumeTag(*b)
	if n < 0 || num > most {
		return false
	}
	*f = wireField{num: num, text: typ == protowire.BytesType}
	m := -1
	switch typ {
	case protowire.VarintType:
		f.n, m = protowire.ConsumeVarint((*b)[n:])
	case protowire.BytesType:
		f.b, m = protowire.ConsumeBytes((*b)[n:])
	}
	if m < 0 {
		return false
	}
	*b = (*b)[n+m:]
	return true
}

// unique reads a Unique whose second create is answered with the task of the first.
func (r *wireReader) unique(u *core.Unique, b []byte) bool {
	var seen fields
	var f wireField
	for len(b) > 0 {
		if !f.next(&b, 3) || !seen.once(f.num) || f.text != (f.num != 2) {
			return false
		}
		switch f.num {
		case 1:
			u.Key = string(f.b)
		case 2:
			if f.n > uint64(core.UniqueTerminal) || f.n != uint64(core.UniqueTTL) && !r.shares() {
				return false
			}
			u.Until = core.UniqueUntil(f.n)
		case 3:
			var d durationpb.Duration
			if !consumeDuration(&d, f.b) {
				return false
			}
			var fact core.Fact
			if u.TTL, fact = api.Millis("", &d, api.Span{Min: 1, Max: r.l.UniqueTTLMs}); fact != nil {
				return false
			}
		}
	}
	return u.Key != "" && api.TextUpTo("", u.Key, "", r.l.UniqueKeyBytes) == nil
}

// after reads a task that the new one waits for. Those of a list must come in the order of their ids.
func (r *wireReader) after(op *core.TaskCreate, b []byte) bool {
	var a core.After
	var seen fields
	var f wireField
	for len(b) > 0 {
		switch {
		case !f.next(&b, 2) || !seen.once(f.num):
			return false
		case f.num == 1 && f.text:
			if !parseID(&a.Task, f.b) {
				return false
			}
		case f.num == 2 && !f.text && f.n <= 1:
			a.Terminal = f.n == 1
		default:
			return false
		}
	}
	if n := len(op.After); n == core.MaxAfter || n > 0 && bytes.Compare(op.After[n-1].Task[:], a.Task[:]) >= 0 {
		return false
	}
	op.After = append(op.After, a)
	return !a.Task.IsZero() && a.Task.Partition() == r.home.Partition.Index && r.shares()
}

// consumeDuration reads a Duration; none of ours is negative, so a number that is reads as one out of range.
func consumeDuration(d *durationpb.Duration, b []byte) bool {
	var seen fields
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 || num > 2 || typ != protowire.VarintType || !seen.once(num) {
			return false
		}
		v, m := protowire.ConsumeVarint(b[n:])
		if m < 0 || v > math.MaxInt32 {
			return false
		}
		if num == 1 {
			d.Seconds = int64(v)
		} else {
			d.Nanos = int32(v)
		}
		b = b[n+m:]
	}
	return true
}

// orNil is how the generated code gives bytes that are there and empty. No append to what it returns reaches the bytes behind it.
func orNil(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return b[:len(b):len(b)]
}

// parseID reads a task id, which must not be zero.
func parseID(id *core.TaskID, b []byte) bool {
	var err error
	*id, err = core.ParseTaskIDBytes(b)
	return err == nil && !id.IsZero()
}

// settles reads a frame of settles that all complete their tasks without effects.
func (r *wireReader) settles(f *wireFrame, b []byte) bool {
	items, ok := r.list(b, &f.seq)
	if !ok {
		return false
	}
	done := make([]core.TaskComplete, len(items))
	ops := make([]core.Op, len(items))
	f.commits, f.holds = make([]core.Commit, len(items)), make([]core.TaskHold, len(items))
	for i, item := range items {
		if !r.complete(&done[i], item) || !r.home.hasTask(done[i].Task) {
			return false
		}
		ops[i] = &done[i]
		f.commits[i] = r.commitOf(ops[i : i+1 : i+1])
		f.holds[i] = core.TaskHold{Task: done[i].Task, Token: done[i].Token}
	}
	return true
}

// complete reads a SettleItem that completes a task and has no effects.
func (r *wireReader) complete(op *core.TaskComplete, b []byte) bool {
	var seen fields
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 || num > 3 || !seen.once(num) {
			return false
		}
		b = b[n:]
		switch {
		case num == 1 && typ == protowire.BytesType:
			var v []byte
			if v, n = protowire.ConsumeBytes(b); n < 0 || !parseID(&op.Task, v) {
				return false
			}
		case num == 2 && typ == protowire.VarintType:
			var v uint64
			if v, n = protowire.ConsumeVarint(b); n < 0 || v == 0 || v > math.MaxInt64 {
				return false
			}
			op.Token = core.Token(v)
		case num == 3 && typ == protowire.BytesType:
			var v []byte
			if v, n = protowire.ConsumeBytes(b); n < 0 || !r.result(op, v) {
				return false
			}
		default:
			return false
		}
		b = b[n:]
	}
	return seen == 1<<1|1<<2|1<<3 // id, token and outcome are all there
}

// result reads a Complete: what the task gave, and of which type.
func (r *wireReader) result(op *core.TaskComplete, b []byte) bool {
	var seen fields
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 || num > 2 || typ != protowire.BytesType || !seen.once(num) {
			return false
		}
		v, m := protowire.ConsumeBytes(b[n:])
		if m < 0 {
			return false
		}
		if num == 1 {
			op.Result = orNil(v)
		} else {
			op.ResultType = kept(&r.resultType, v)
		}
		b = b[n+m:]
	}
	return int64(len(op.Result)) <= r.l.ResultBytes && api.TextUpTo("", op.ResultType, "", r.l.ContentTypeBytes) == nil
}

// takeWire handles a frame that was read the short way, as take does one that was not.
func (st *stream) takeWire(f *wireFrame, bytes int) {
	if f.kind == framePuts {
		st.takeWirePuts(f, bytes)
		return
	}
	r := received{name: "create", seq: f.seq, load: load{frames: 1, items: weight(len(f.commits)), bytes: int64(bytes)}}
	if f.kind == frameCreate {
		st.sequenced(r, func(p *pending) core.Fact {
			b := &api.Creating{Commits: f.commits}
			if fact := st.d.RatedCreates(st.home.Partition, len(f.commits), false); fact != nil {
				return fact
			}
			p.wire = f.kind
			p.answer = func(ack *pb.Ack, d core.Proposed) {
				ack.Created, _ = b.Answer(p.answers, d.Results) // an error is an atomic batch's
			}
			st.propose(p, f.commits)
			return nil
		})
		return
	}
	r.name = "settle"
	st.sequenced(r, func(p *pending) core.Fact {
		b := &api.Settling{Commits: f.commits, Holds: f.holds}
		p.wire = f.kind
		p.answer = func(ack *pb.Ack, d core.Proposed) {
			ack.Settled = b.Answer(p.answers, d.Results)
		}
		st.proposeSettles(p, b)
		return nil
	})
}
