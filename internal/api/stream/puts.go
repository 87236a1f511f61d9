package stream

import (
	"slices"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// ofKeys reports whether a frame has its place on a stream of keys. An empty frame has: it is refused by another name.
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
	p := &pending{load: r.load, seq: r.seq, who: *who, answers: st.d.Answers(r.name, who.Scopes.Has(edge.ReadsValues))}
	b := &putting{fact: st.allowed(r, who)}
	if b.fact == nil {
		b = read(p)
	}
	// Without a number nothing counts on the frame, so that what is refused here need not go through the log.
	if r.commitSeq == 0 && (b.fact != nil || len(b.commits) == 0) {
		if b.fact == nil {
			p.answer = func(ack *pb.Ack, _ core.Proposed) { ack.Puts = &pb.PutsResult{Refused: b.refused} }
			st.done(p, core.Proposed{})
			return
		}
		st.refuse(p, b.fact)
		return
	}
	if b.fact != nil || len(b.commits) == 0 { // a commit of nothing uses the number up
		b.commits = []core.Commit{st.commitOf(p)}
	}
	st.awaitRate(b.commits[0].Ops) // the reader waits, and all frames behind this one
	b.commits[0].Session, b.commits[0].Seq = st.key.id, r.commitSeq
	if r.commitSeq == 0 {
		b.commits[0].Session = core.SessionID{}
	}
	p.answer = func(ack *pb.Ack, d core.Proposed) { b.answer(p, ack, d) }
	if b.fact == nil && b.refused == nil { // else the ack has an error, which only the long way writes
		p.wire = framePuts
	}
	st.propose(p, b.commits)
}

// puts reads a frame of puts the long way. An item that cannot be used is refused alone.
func (st *stream) puts(p *pending, in *pb.PutsFrame) *putting {
	l := &st.d.Limits
	b := new(putting)
	if b.fact = edge.SpaceName("keyspace", in.GetKeyspace()); b.fact != nil {
		return b
	}
	if b.fact = api.Items(l, "items", len(in.GetItems())); b.fact != nil {
		return b
	}
	// What is good goes on in one op. places remembers where it stood, because Apply counts only what it gets.
	op := &core.KVPuts{Keyspace: in.GetKeyspace(), Items: make([]core.KVItem, 0, len(in.GetItems()))}
	for i, it := range in.GetItems() {
		fact := st.refusedPut(it)
		if fact != nil {
			b.refused = append(b.refused, &pb.PutRefused{Item: uint32(i), Error: p.answers.Err(edge.Within(edge.Item("items", i), fact))})
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
	b.commits = []core.Commit{st.commitOf(p, op)}
	b.fact = api.FitsLog(l, &b.commits[0])
	return b
}

// refusedPut says why an item of a frame of puts cannot be used; nil: it can.
func (st *stream) refusedPut(in *pb.PutItem) core.Fact {
	if in == nil {
		return edge.Invalid("", "is required")
	}
	if fact := api.KeyLength(&st.d.Limits, "key", in.GetKey()); fact != nil {
		return fact
	}
	if int64(len(in.GetValue())) > st.d.Limits.ValueBytes {
		return edge.TooLarge("value", "value_bytes", st.d.Limits.ValueBytes)
	}
	if in.GetIfAbsent() && in.GetIfRev() != 0 {
		return edge.Invalid("if_rev", "and if_absent are mutually exclusive")
	}
	if !st.home.hasKey(in.GetKey()) {
		return edge.Belongs("key", st.home.placeOfKey(in.GetKey()))
	}
	return nil
}

// answer fills the ack of a frame of puts: the error of the whole, or the items that were refused here or in Apply, by their place in
// the frame.
func (b *putting) answer(p *pending, ack *pb.Ack, d core.Proposed) {
	r := d.Results[0]
	ack.At = api.ShowAt(api.AtOf(r, d.At))
	switch {
	case r.Refusal != nil:
		ack.Error = p.answers.Err(r.Refusal.Fact)
		return
	case b.fact != nil:
		ack.Error = p.answers.Err(b.fact)
		return
	}
	// Those that were refused here come first, and are sorted in with those of Apply below.
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
		out.Refused = append(out.Refused, &pb.PutRefused{Item: place, Error: p.answers.Err(item.Fact)})
	}
	if b.refused != nil {
		slices.SortFunc(out.Refused, func(a, b *pb.PutRefused) int { return int(a.GetItem()) - int(b.GetItem()) })
	}
}
