package api

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/millrace/millrace/internal/core"
)

// framePuts is the number of a frame of puts, as in the contract; ackPuts that of its answer.
const (
	framePuts = 10
	ackPuts   = 8
)

// puts reads a frame of puts into one commit. The items alias b.
func (r *wireReader) puts(f *wireFrame, b []byte) bool {
	op := new(core.KVPuts)
	var seen fields
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return false
		}
		b = b[n:]
		switch {
		case (num == 1 || num == 3) && typ == protowire.VarintType && seen.once(num):
			var v uint64
			if v, n = protowire.ConsumeVarint(b); n < 0 {
				return false
			}
			if num == 1 {
				f.seq = v
			} else {
				f.commitSeq = v
			}
		case num == 2 && typ == protowire.BytesType && seen.once(num):
			var v []byte
			if v, n = protowire.ConsumeBytes(b); n < 0 {
				return false
			}
			op.Keyspace = kept(&r.keyspace, v)
		case num == 4 && typ == protowire.BytesType && int64(len(op.Items)) < r.t.l.FrameItems:
			var v []byte
			if v, n = protowire.ConsumeBytes(b); n < 0 {
				return false
			}
			if op.Items == nil {
				op.Items = make([]core.KVItem, 0, min(int64(len(b)/max(n, 1))+1, r.t.l.FrameItems))
			}
			op.Items = append(op.Items, core.KVItem{})
			if !r.put(&op.Items[len(op.Items)-1], v) {
				return false
			}
		default:
			return false
		}
		b = b[n:]
	}
	if len(op.Items) == 0 || !core.ValidName(op.Keyspace) {
		return false
	}
	f.commits = []core.Commit{r.t.commitOf([]core.Op{op})}
	return r.t.encoded(&f.commits[0]) == nil
}

// put reads a PutItem of this partition.
func (r *wireReader) put(it *core.KVItem, b []byte) bool {
	var seen fields
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 || num > 4 || !seen.once(num) {
			return false
		}
		b = b[n:]
		if num <= 2 {
			if typ != protowire.BytesType {
				return false
			}
			v, n := protowire.ConsumeBytes(b)
			if n < 0 {
				return false
			}
			if num == 1 {
				it.Key = v[:len(v):len(v)]
			} else {
				it.Value = orNil(v)
			}
			b = b[n:]
			continue
		}
		if typ != protowire.VarintType {
			return false
		}
		v, n := protowire.ConsumeVarint(b)
		if n < 0 {
			return false
		}
		if num == 3 {
			it.HasRev, it.IfRev = true, v
		} else {
			it.IfAbsent = v != 0
		}
		b = b[n:]
	}
	switch {
	case len(it.Key) == 0, int64(len(it.Key)) > r.t.l.KeyBytes, int64(len(it.Value)) > r.t.l.ValueBytes, it.IfAbsent && it.IfRev != 0:
		return false
	}
	return r.t.partOfKey(it.Key) == r.t.part
}

// takeWirePuts handles a frame of puts that was read the short way.
func (st *stream) takeWirePuts(f *wireFrame, bytes int) {
	op, _ := f.commits[0].Ops[0].(*core.KVPuts)
	r := received{
		name: "puts", seq: f.seq, commitSeq: f.commitSeq,
		load: load{frames: 1, items: weight(len(op.Items)), bytes: int64(bytes), commits: 1},
	}
	st.takePuts(r, func(*pending) *putting { return &putting{commits: f.commits} })
}

// wirePutsAck writes the ack of a frame of puts of which none was refused.
func (p *pending) wirePutsAck(d core.Proposed) *wireOut {
	r := &d.Results[0]
	a := atOf(*r, d.At)
	rev := r.Ops[0].Rev
	at := atSize(a)
	puts := uintSize(rev) + 2*one(r.Replayed)
	size := uintSize(p.seq) + 1 + protowire.SizeBytes(at) + 1 + protowire.SizeBytes(puts)
	o := newWireOut(1 + protowire.SizeBytes(size))
	b := appendHead(o.b, frameAck, size)
	b = appendUint(b, 1, p.seq)
	b = appendAt(appendHead(b, ackAt, at), a)
	b = appendUint(appendHead(b, ackPuts, puts), 1, rev)
	o.b = appendBool(b, 3, r.Replayed)
	return o
}
