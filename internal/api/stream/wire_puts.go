package stream

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/millrace/millrace/internal/api"
	"github.com/millrace/millrace/internal/core"
)

// Field numbers of puts, as in the contract.
const (
	framePuts = 10 // the frame, in a ClientFrame
	ackPuts   = 8  // its answer, in an Ack
)

// puts reads a frame of puts into one commit. The items alias b. A frame of which one item is not plain is not plain.
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
		case num == 4 && typ == protowire.BytesType && int64(len(op.Items)) < r.l.FrameItems:
			var v []byte
			if v, n = protowire.ConsumeBytes(b); n < 0 {
				return false
			}
			if op.Items == nil { // as many as there is room for, if all are as long as the first
				op.Items = make([]core.KVItem, 0, min(int64(len(b)/max(n, 1))+1, r.l.FrameItems))
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
	f.commits = []core.Commit{r.commitOf([]core.Op{op})}
	return api.FitsLog(r.l, &f.commits[0]) == nil
}

// put reads a PutItem of this partition. Of its fields 1 and 2 are the key and the value, 3 and 4 the conditions.
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
	// The same bounds as refusedPut.
	switch {
	case len(it.Key) == 0, int64(len(it.Key)) > r.l.KeyBytes, int64(len(it.Value)) > r.l.ValueBytes, it.IfAbsent && it.IfRev != 0:
		return false
	}
	return r.home.hasKey(it.Key)
}

// takeWirePuts handles a frame of puts that was read the short way. All of its items are good, so nothing is refused here.
func (st *stream) takeWirePuts(f *wireFrame, bytes int) {
	op, _ := f.commits[0].Ops[0].(*core.KVPuts)
	r := received{
		name: "puts", seq: f.seq, commitSeq: f.commitSeq,
		load: load{frames: 1, items: weight(len(op.Items)), bytes: int64(bytes), commits: 1},
	}
	st.takePuts(r, func(*pending) *putting { return &putting{commits: f.commits} })
}

// wirePutsAck writes the ack of a frame of puts of which none was refused.
func (p *pending) wirePutsAck(d core.Proposed) *api.Encoded {
	r := &d.Results[0]
	a := api.AtOf(*r, d.At) // a replay stands where it was applied first
	rev := r.Ops[0].Rev     // of the first item; the others follow it
	at := atSize(a)
	puts := uintSize(rev) + 2*one(r.Replayed)
	size := uintSize(p.seq) + 1 + protowire.SizeBytes(at) + 1 + protowire.SizeBytes(puts)
	o := api.NewEncoded(1 + protowire.SizeBytes(size))
	b := appendHead(o.B, frameAck, size)
	b = appendUint(b, 1, p.seq)
	b = appendAt(appendHead(b, ackAt, at), a)
	b = appendUint(appendHead(b, ackPuts, puts), 1, rev)
	o.B = appendBool(b, 3, r.Replayed)
	return o
}
