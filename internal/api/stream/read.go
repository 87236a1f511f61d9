package stream

import (
	"errors"
	"io"

	"google.golang.org/protobuf/proto"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// read takes frames until the stream ends.
func (st *stream) read() {
	defer st.recovered()
	switch err := st.readFrames(); {
	case errors.Is(err, io.EOF): // the client closed its side: what it sent is still answered
		st.leave()
	case err != nil:
		st.end(err)
	}
}

// readFrames takes the Hello and then frames, one after the other, until no more are wanted. Its error ends the stream; io.EOF: the
// client has ended its side.
func (st *stream) readFrames() error {
	data, err := st.d.RecvBytes(st.ss)
	if err != nil {
		return err
	}
	f := new(pb.ClientFrame)
	if fact := api.Decode(data, f); fact != nil {
		return fact
	}
	hello := f.GetHello()
	if hello == nil {
		return edge.Invalid("frame", "the first frame must be a hello")
	}
	if fact := st.d.Known(f); fact != nil {
		return fact
	}
	if err := st.hello(st.ss.Context(), hello); err != nil {
		return err
	}
	wire := wireReader{l: &st.d.Limits, home: st.home, shares: st.d.Shares}
	for st.awaitRoom() {
		data, err := st.d.RecvBytes(st.ss)
		if err != nil {
			return err
		}
		st.heardAt.Store(int64(st.d.Clock.Boot()))
		who := st.who() // by the token of now
		wire.principal = who.Name
		if f := wire.read(data); f.kind != 0 && (f.kind == framePuts || !st.keys) && f.reaches(who) {
			st.takeWire(&f, len(data))
			continue
		}
		f := new(pb.ClientFrame)
		if fact := api.Decode(data, f); fact != nil {
			return fact
		}
		if err := st.take(f, len(data)); err != nil {
			return err
		}
	}
	return nil
}

// awaitRoom waits until the window, and the node, have room for a frame. This is what stops a stream's reading: while it waits, the
// transport's window fills, and the client can send no more. The window may be exceeded by the one frame that is let in. It reports false when no more frames are wanted.
func (st *stream) awaitRoom() bool {
	for {
		var freed <-chan struct{}
		st.mu.Lock()
		l, over := st.load, st.finishing || st.closed
		st.mu.Unlock()
		switch {
		case over:
			return false
		case l.items < st.d.Limits.UnackedItems && l.bytes < st.d.Limits.UnackedBytes && l.commits < st.d.Limits.UnackedCommits:
			if freed = st.d.Frames.Room(); freed == nil {
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
func (st *stream) take(f *pb.ClientFrame, bytes int) error {
	r := received{frame: f, load: load{frames: 1, items: 1, bytes: int64(bytes)}}
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
	case *pb.ClientFrame_Waits:
		r.name, r.msg, r.seq = "waits", f.Waits, f.Waits.GetSeq()
		r.load.items = weight(len(f.Waits.GetIds()))
		st.sequenced(r, func(p *pending) core.Fact { return st.wait(p, f.Waits) })
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
		return st.plain(r, func() core.Fact { st.drain(); return nil })
	case *pb.ClientFrame_Hello: // the first one was not taken here
		return edge.Invalid("hello", "is allowed only as the first frame")
	default:
		if fact := st.d.Known(r.frame); fact != nil {
			return fact // a frame of a later version
		}
		return edge.Invalid("frame", "must not be empty")
	}
	return nil
}

// weight is how many items a frame counts as: an empty one, which is refused, as one.
func weight(items int) int64 { return max(int64(items), 1) }

// received is one frame as it came: its name in the contract, the message in it, and what it weighs.
type received struct {
	frame *pb.ClientFrame // nil: it was read the short way
	name  string          // names its rule, and its part of fields and of the log
	msg   proto.Message   // the member of frame
	seq   uint64          // by which it is acknowledged
	load  load            // what it weighs on the window

	commitSeq uint64 // of puts: the number of its commit in the session; 0: it has none
}

// allowed refuses a frame that the caller may not send, or that holds fields that are not known.
func (st *stream) allowed(r received, who *edge.Caller) core.Fact {
	if fact := api.FrameRule(r.name).Missing(who.Scopes); fact != nil {
		return fact
	}
	if r.frame == nil {
		return nil // it was read the short way, which passes over nothing
	}
	if len(r.frame.ProtoReflect().GetUnknown()) > 0 {
		return st.d.Known(r.frame)
	}
	return st.d.Known(r.msg)
}

// sequenced admits a frame with a seq and starts its work; a fact refuses the frame. One that comes while the server
// stops is not admitted: the client sends it again elsewhere.
func (st *stream) sequenced(r received, start func(*pending) core.Fact) {
	if !st.admit(r.load) {
		return
	}
	who := st.who()
	p := &pending{load: r.load, seq: r.seq, who: *who, answers: st.d.Answers(r.name, who.Scopes.Has(edge.ReadsValues))}
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
