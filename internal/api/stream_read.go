package api

import (
	"errors"
	"io"
	"slices"
	"sync/atomic"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// read takes frames until the stream ends.
func (st *stream) read() {
	defer st.recovered()
	switch err := st.readFrames(); {
	case errors.Is(err, io.EOF): // the client closed its side: what it sent is still answered
		st.finish(nil)
	case err != nil:
		st.end(err)
	}
}

func (st *stream) readFrames() error {
	f, in, err := st.receive()
	if err != nil {
		return err
	}
	hello := f.GetHello()
	if hello == nil {
		return edge.Invalid("frame", "the first frame must be a hello")
	}
	if fact := st.s.shapes.check(in); fact != nil {
		return fact
	}
	if err := st.hello(st.ss.Context(), hello); err != nil {
		return err
	}
	wire := wireReader{t: translator{l: &st.s.Limits, part: st.part, parts: len(st.partitions), bound: true, edge: pointEdge{st.s, st.ss.Context()}}}
	for st.awaitRoom() {
		in := &inbound{limit: st.s.Limits.MessageBytes, raw: true}
		if err := st.ss.RecvMsg(in); err != nil {
			return err
		}
		if in.fact == nil {
			wire.t.who = st.who().Principal
			if f := wire.read(in.data); f.kind != 0 && (f.kind == framePuts || !st.keys) {
				st.takeWire(&f, in.bytes)
				continue
			}
		}
		f := new(pb.ClientFrame)
		in.msg = f
		if in.decode(); in.fact != nil {
			return in.fact
		}
		if err := st.take(f, in); err != nil {
			return err
		}
	}
	return nil
}

func (st *stream) receive() (*pb.ClientFrame, *inbound, error) {
	f := new(pb.ClientFrame)
	in := &inbound{msg: f, limit: st.s.Limits.MessageBytes}
	if err := st.ss.RecvMsg(in); err != nil {
		return nil, nil, err
	}
	if in.fact != nil {
		return nil, nil, in.fact
	}
	return f, in, nil
}

// awaitRoom waits until the window, and the node, have room for a frame. It reports false when no more frames are wanted.
func (st *stream) awaitRoom() bool {
	for {
		var freed <-chan struct{}
		st.mu.Lock()
		l, over := st.load, st.finishing || st.closed
		st.mu.Unlock()
		switch {
		case over:
			return false
		case l.items < st.s.Limits.UnackedItems && l.bytes < st.s.Limits.UnackedBytes && l.commits < st.s.Limits.UnackedCommits:
			if freed = st.s.Frames.Room(); freed == nil {
				return true
			}
		}
		select {
		case <-st.room:
		case <-freed:
		case <-st.ended:
			return false
		}
	}
}

// take handles one frame after the Hello. An error ends the stream; a frame with a seq is refused by its Ack instead.
func (st *stream) take(f *pb.ClientFrame, in *inbound) error {
	r := received{frame: f, load: load{frames: 1, items: 1, bytes: int64(in.bytes)}}
	if st.keys && !ofKeys(f) {
		return edge.Invalid("frame", "not allowed on a key stream")
	}
	switch f := f.GetFrame().(type) {
	case *pb.ClientFrame_Create:
		r.name, r.msg, r.seq, r.load.items = "create", f.Create, f.Create.GetSeq(), weight(len(f.Create.GetTasks()))
		st.sequenced(r, func(p *pending) core.Fact { return st.create(p, f.Create) })
	case *pb.ClientFrame_Commit:
		r.name, r.msg, r.seq, r.load.commits = "commit", f.Commit, f.Commit.GetSeq(), 1
		st.sequenced(r, func(p *pending) core.Fact { return st.commit(p, f.Commit) })
	case *pb.ClientFrame_Settle:
		r.name, r.msg, r.seq, r.load.items = "settle", f.Settle, f.Settle.GetSeq(), weight(len(f.Settle.GetItems()))
		st.sequenced(r, func(p *pending) core.Fact { return st.settle(p, f.Settle) })
	case *pb.ClientFrame_Renew:
		r.name, r.msg, r.seq, r.load.items = "renew", f.Renew, f.Renew.GetSeq(), weight(len(f.Renew.GetItems()))
		st.sequenced(r, func(p *pending) core.Fact { return st.renew(p, f.Renew) })
	case *pb.ClientFrame_Puts:
		r.name, r.msg, r.seq, r.commitSeq = "puts", f.Puts, f.Puts.GetSeq(), f.Puts.GetCommitSeq()
		r.load.items, r.load.commits = weight(len(f.Puts.GetItems())), 1
		st.takePuts(r, func(p *pending) *putting { return st.puts(p, f.Puts) })
	case *pb.ClientFrame_Gets:
		r.name, r.msg, r.seq = "gets", f.Gets, f.Gets.GetSeq()
		r.load.items, r.load.commits = weight(len(f.Gets.GetKeys())), 1
		st.sequenced(r, func(p *pending) core.Fact { return st.gets(p, f.Gets) })
	case *pb.ClientFrame_Subscribe:
		r.name, r.msg = "subscribe", f.Subscribe
		return st.plain(r, func() core.Fact { return st.subscribe(f.Subscribe) })
	case *pb.ClientFrame_Slots:
		r.name, r.msg = "slots", f.Slots
		return st.plain(r, func() core.Fact { return st.slots(f.Slots) })
	case *pb.ClientFrame_Auth:
		r.name, r.msg = "auth", f.Auth
		return st.plain(r, func() core.Fact { return st.auth(f.Auth) })
	case *pb.ClientFrame_Drain:
		r.name, r.msg = "drain", f.Drain
		return st.plain(r, func() core.Fact { st.session.Drain(); return nil })
	case *pb.ClientFrame_Hello:
		return edge.Invalid("hello", "is allowed only as the first frame")
	default:
		if fact := st.s.shapes.checkMessage(in.msg); fact != nil {
			return fact // a frame of a later version
		}
		return edge.Invalid("frame", "must not be empty")
	}
	return nil
}

func weight(items int) int64 { return max(int64(items), 1) }

// received is one frame as it came: its name in the contract, the message in it, and what it weighs.
type received struct {
	frame *pb.ClientFrame // nil: it was read the short way
	name  string
	msg   proto.Message
	seq   uint64
	load  load

	commitSeq uint64 // of puts
}

// allowed refuses a frame that the caller may not send, or that holds fields that are not known.
func (st *stream) allowed(r received, who *edge.Caller) core.Fact {
	if fact := frames[r.name].Missing(who.Scopes); fact != nil {
		return fact
	}
	if r.frame == nil {
		return nil // it was read the short way, which passes over nothing
	}
	if len(r.frame.ProtoReflect().GetUnknown()) > 0 {
		return st.s.shapes.checkMessage(r.frame)
	}
	return st.s.shapes.checkMessage(r.msg)
}

// sequenced admits a frame with a seq and starts its work; a fact refuses the frame. One that comes while the server
// stops is not admitted: the client sends it again elsewhere.
func (st *stream) sequenced(r received, start func(*pending) core.Fact) {
	if !st.admit(r.load) {
		return
	}
	who := st.who()
	p := &pending{load: r.load, seq: r.seq, who: *who, answers: st.s.answers(r.name, who.Scopes.Has(edge.ReadsValues))}
	fact := st.allowed(r, who)
	if fact == nil {
		fact = start(p)
	}
	if fact != nil {
		st.refuse(p, fact)
	}
}

// plain does the work of a frame without a seq; a fact ends the stream.
func (st *stream) plain(r received, do func() core.Fact) error {
	fact := st.allowed(r, st.who())
	if fact == nil {
		fact = do()
	}
	if fact != nil {
		return edge.Within(r.name, fact)
	}
	return nil
}

// admit puts a frame on the window, unless no more are wanted.
func (st *stream) admit(w load) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.finishing || st.closed {
		return false
	}
	st.load.add(w, 1)
	return true
}

// pending is a frame that was admitted and not acknowledged yet.
type pending struct {
	load    load
	freed   atomic.Bool // its bytes are not held any more
	seq     uint64
	who     edge.Caller
	answers *answers
	commits int                                // proposed; 0: it is answered without the node
	answer  func(ack *pb.Ack, p core.Proposed) // fills the ack's list or error
	wire    protowire.Number                   // frameCreate, frameSettle or framePuts: the ack may be written the short way
}

func (st *stream) translator(p *pending) translator {
	t := st.s.translator(p.who, st.part, len(st.partitions))
	t.bound, t.space = true, st.space
	return t
}

// refuse acknowledges a frame by an error.
func (st *stream) refuse(p *pending, fact error) {
	p.commits = 0
	p.answer = func(ack *pb.Ack, _ core.Proposed) { ack.Error = p.answers.err(fact) }
	st.done(p, core.Proposed{})
}

// propose hands a frame's commits to the node; without any the frame is answered at once.
func (st *stream) propose(p *pending, commits []core.Commit) {
	if p.commits = len(commits); p.commits == 0 {
		st.done(p, core.Proposed{})
		return
	}
	st.handOver(p, func(done func(core.Proposed)) { st.s.o.Backend.Propose(st.part, commits, done) })
}

// handOver gives a frame to the node by propose, and counts its bytes until the node has decided it: what is decided is not
// held any more, however long its ack waits for a slow reader. A propose that panics has handed over nothing.
func (st *stream) handOver(p *pending, propose func(done func(core.Proposed))) {
	st.s.Frames.Add(p.load.bytes)
	handed := false
	defer func() {
		if !handed {
			p.free(st.s.Frames)
		}
	}()
	propose(func(d core.Proposed) {
		p.free(st.s.Frames)
		st.done(p, d)
	})
	handed = true
}

// free gives back what the frame holds, once.
func (p *pending) free(held *edge.Budget) {
	if !p.freed.Swap(true) {
		held.Give(p.load.bytes)
	}
}

func (st *stream) create(p *pending, in *pb.CreateFrame) core.Fact {
	t := st.translator(p)
	b, fact := t.creates(p.answers, in.GetTasks(), in.GetAtomic())
	if fact != nil {
		return fact
	}
	p.answer = func(ack *pb.Ack, d core.Proposed) {
		created, err := b.answer(p.answers, d.Results)
		if err != nil {
			ack.Error = p.answers.err(err)
			return
		}
		ack.Created = created
	}
	st.propose(p, b.commits)
	return nil
}

func (st *stream) commit(p *pending, in *pb.CommitFrame) core.Fact {
	t := st.translator(p)
	c, fact := t.commit(in.GetCommit())
	if fact != nil {
		return fact
	}
	if in.GetCommitSeq() != 0 {
		if c.RequestID != (core.RequestID{}) {
			return edge.Invalid("commit_seq", "and a request id are mutually exclusive")
		}
		c.Session, c.Seq = st.key.id, in.GetCommitSeq()
		st.awaitRate(c.Ops)
	} else if fact := st.s.rated(&c, false); fact != nil {
		return fact
	}
	p.answer = func(ack *pb.Ack, d core.Proposed) {
		out, err := p.answers.commitResponse(d.Results[0], d.At)
		if err != nil {
			ack.Error = p.answers.err(err)
			return
		}
		ack.Commit, ack.At = out, out.GetAt()
	}
	st.propose(p, []core.Commit{c})
	return nil
}

func (st *stream) settle(p *pending, in *pb.SettleFrame) core.Fact {
	t := st.translator(p)
	b, fact := t.settles(p.answers, in.GetItems())
	if fact != nil {
		return fact
	}
	p.answer = func(ack *pb.Ack, d core.Proposed) { ack.Settled = b.answer(p.answers, d.Results) }
	st.proposeSettles(p, b)
	return nil
}

// proposeSettles is propose for the settles of the stream's session.
func (st *stream) proposeSettles(p *pending, b *settling) {
	if p.commits = len(b.commits); p.commits == 0 {
		st.done(p, core.Proposed{})
		return
	}
	st.handOver(p, func(done func(core.Proposed)) { st.session.Settle(st.part, b.commits, b.holds, done) })
}

func (st *stream) renew(p *pending, in *pb.RenewFrame) core.Fact {
	t := st.translator(p)
	extend, fact := Millis("extend", in.GetExtend(), LeaseSpan(t.l))
	if fact != nil {
		return fact
	}
	var holds []core.TaskHold
	if in.GetAll() {
		if len(in.GetItems()) > 0 {
			return edge.Invalid("items", "and all are mutually exclusive")
		}
		holds = st.session.Held()
	} else {
		if fact := t.items("items", len(in.GetItems())); fact != nil {
			return fact
		}
		if holds, fact = t.holds("items", in.GetItems()); fact != nil {
			return fact
		}
		for i, h := range holds {
			if p, ok := t.partOf(h.Task); ok && p != t.part { // its lease is not lost, and must not be called so
				return edge.Belongs(edge.Item("items", i)+".id", int(p.Index))
			}
		}
	}
	var commits []core.Commit
	for part := range slices.Chunk(holds, int(st.s.Limits.FrameItems)) {
		commits = append(commits, t.commitOf([]core.Op{&core.TaskRenew{Items: part, Extend: extend}}))
	}
	p.answer = func(ack *pb.Ack, d core.Proposed) {
		for _, r := range d.Results {
			if r.Refusal != nil {
				ack.Error = p.answers.err(r.Refusal.Fact)
				return
			}
		}
		ack.Renewed = heartbeats(d.Results, st.s.o.Backend.Shift(st.part))
	}
	st.propose(p, commits)
	return nil
}

func (st *stream) subscribe(in *pb.Subscribe) core.Fact {
	l := &st.s.Limits
	t := translator{l: l}
	queues, fact := t.queues(in.GetQueues())
	if fact != nil {
		return fact
	}
	if int64(in.GetSlots()) > l.Slots {
		return edge.Beyond("slots", "slots", l.Slots, "is out of range")
	}
	if int64(in.GetBatch()) > l.ClaimTasks {
		return edge.Beyond("batch", "claim_tasks", l.ClaimTasks, "is out of range")
	}
	lease, fact := Millis("lease", in.GetLease(), LeaseSpan(t.l))
	if fact != nil {
		return fact
	}
	if !st.subs[in.GetSub()] && int64(len(st.subs)) >= l.Subscriptions {
		return core.Exhausted{Limit: "subscriptions", Max: l.Subscriptions}
	}
	st.subs[in.GetSub()] = true
	batch := in.GetBatch()
	if batch == 0 {
		batch = uint32(l.ClaimTasks)
	}
	st.session.Subscribe(core.Subscription{
		Sub: in.GetSub(), Queues: queues, Slots: in.GetSlots(), Batch: batch, Lease: lease,
	})
	return nil
}

func (st *stream) slots(in *pb.Slots) core.Fact {
	if !st.subs[in.GetSub()] {
		return edge.Invalid("sub", "must be a subscription of this stream")
	}
	if int64(in.GetSlots()) > st.s.Limits.Slots {
		return edge.Beyond("slots", "slots", st.s.Limits.Slots, "is out of range")
	}
	st.session.Slots(in.GetSub(), in.GetSlots())
	return nil
}

// auth replaces the stream's token by another of the same tenant.
func (st *stream) auth(in *pb.AuthFrame) core.Fact {
	who, fact := st.s.CallerBy(in.GetToken(), st.call.Holder().From)
	if fact != nil {
		return fact
	}
	if !st.call.Renew(who) {
		return core.Unauthenticated{}
	}
	return nil
}
