package api

import (
	"google.golang.org/grpc"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// keyStream serves streams of who only writes and reads keys. It is the same stream, with fewer frames.
type keyStream struct {
	pb.UnimplementedKVStreamServer
	s *Server
}

// Open serves one stream until either side ends it.
func (ks *keyStream) Open(ss grpc.BidiStreamingServer[pb.ClientFrame, pb.ServerFrame]) error {
	return ks.s.openStream(ss, true)
}

// ofKeys reports whether a frame has its place on a stream of keys.
func ofKeys(f *pb.ClientFrame) bool {
	switch f.GetFrame().(type) {
	case *pb.ClientFrame_Puts, *pb.ClientFrame_Gets, *pb.ClientFrame_Commit, *pb.ClientFrame_Auth, *pb.ClientFrame_Drain,
		*pb.ClientFrame_Hello, nil:
		return true
	}
	return false
}

// putting is a frame of puts on its way.
type putting struct {
	commits []core.Commit    // one
	places  []uint32         // of the items of the op in the frame; nil: all are in it
	refused []*pb.PutRefused // here already
	fact    core.Fact        // the whole frame is refused: its number is used up all the same
}

// takePuts admits a frame of puts. Whatever becomes of it, it goes through the log when it has a number in its session:
// the frames behind it count on that.
func (st *stream) takePuts(r received, read func(p *pending) *putting) {
	if !st.admit(r.load) {
		return
	}
	who := st.who()
	p := &pending{load: r.load, seq: r.seq, who: *who, answers: st.s.answers(r.name, who.Scopes.Has(edge.ReadsValues))}
	b := &putting{fact: st.allowed(r, who)}
	if b.fact == nil {
		b = read(p)
	}
	if r.commitSeq == 0 && (b.fact != nil || len(b.commits) == 0) {
		if b.fact == nil {
			p.answer = func(ack *pb.Ack, _ core.Proposed) { ack.Puts = &pb.PutsResult{Refused: b.refused} }
			st.done(p, core.Proposed{})
			return
		}
		st.refuse(p, b.fact)
		return
	}
	if b.fact != nil || len(b.commits) == 0 {
		b.commits = []core.Commit{{Partition: st.part, Principal: who.Name}}
	}
	st.awaitRate(b.commits[0].Ops)
	b.commits[0].Session, b.commits[0].Seq = st.key.id, r.commitSeq
	if r.commitSeq == 0 {
		b.commits[0].Session = core.SessionID{}
	}
	p.answer = func(ack *pb.Ack, d core.Proposed) { b.answer(p, ack, d) }
	if b.fact == nil && b.refused == nil {
		p.wire = framePuts
	}
	st.propose(p, b.commits)
}

// puts reads a frame of puts the long way. An item that cannot be used is refused alone.
func (st *stream) puts(p *pending, in *pb.PutsFrame) *putting {
	t := st.translator(p)
	b := new(putting)
	if b.fact = SpaceName("keyspace", in.GetKeyspace()); b.fact != nil {
		return b
	}
	if b.fact = t.items("items", len(in.GetItems())); b.fact != nil {
		return b
	}
	op := &core.KVPuts{Keyspace: in.GetKeyspace(), Items: make([]core.KVItem, 0, len(in.GetItems()))}
	for i, it := range in.GetItems() {
		fact := t.putItem(it)
		if fact != nil {
			b.refused = append(b.refused, &pb.PutRefused{Item: uint32(i), Error: p.answers.err(edge.Within(edge.Item("items", i), fact))})
			continue
		}
		op.Items = append(op.Items, core.KVItem{
			Key: it.GetKey(), Value: orNil(it.GetValue()), HasRev: it.IfRev != nil, IfRev: it.GetIfRev(), IfAbsent: it.GetIfAbsent(),
		})
		b.places = append(b.places, uint32(i))
	}
	if len(op.Items) == 0 {
		return b
	}
	b.commits = []core.Commit{t.commitOf([]core.Op{op})}
	b.fact = t.encoded(&b.commits[0])
	return b
}

func (t *translator) putItem(in *pb.PutItem) core.Fact {
	if in == nil {
		return edge.Invalid("", "is required")
	}
	if fact := t.keyOnly("key", in.GetKey()); fact != nil {
		return fact
	}
	if int64(len(in.GetValue())) > t.l.ValueBytes {
		return edge.TooLarge("value", "value_bytes", t.l.ValueBytes)
	}
	if in.GetIfAbsent() && in.GetIfRev() != 0 {
		return edge.Invalid("if_rev", "and if_absent are mutually exclusive")
	}
	if place := t.partOfKey(in.GetKey()); place != t.part {
		return edge.Belongs("key", int(place.Index))
	}
	return nil
}

// keyOnly is key without a keyspace.
func (t *translator) keyOnly(field string, key []byte) core.Fact {
	if len(key) == 0 {
		return edge.Invalid(field, "must not be empty")
	}
	if int64(len(key)) > t.l.KeyBytes {
		return edge.TooLarge(field, "key_bytes", t.l.KeyBytes)
	}
	return nil
}

func (b *putting) answer(p *pending, ack *pb.Ack, d core.Proposed) {
	r := d.Results[0]
	ack.At = ShowAt(atOf(r, d.At))
	switch {
	case r.Refusal != nil:
		ack.Error = p.answers.err(r.Refusal.Fact)
		return
	case b.fact != nil:
		ack.Error = p.answers.err(b.fact)
		return
	}
	out := &pb.PutsResult{Refused: b.refused, Replayed: r.Replayed}
	ack.Puts = out
	if len(r.Ops) != 1 {
		return
	}
	op := r.Ops[0]
	out.FirstRev = op.Rev
	if op.KV == nil {
		return
	}
	for _, item := range op.KV.Refused {
		place := item.Item
		if b.places != nil {
			place = b.places[item.Item]
		}
		out.Refused = append(out.Refused, &pb.PutRefused{Item: place, Error: p.answers.err(item.Fact)})
	}
	if b.refused != nil {
		sortRefused(out.Refused)
	}
}
