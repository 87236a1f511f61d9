package stream

import (
	"sync/atomic"

	"google.golang.org/protobuf/encoding/protowire"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// pending is a frame that was admitted and not acknowledged yet.
type pending struct {
	load    load                               // on the window until the ack is sent
	freed   atomic.Bool                        // its bytes are not held any more
	seq     uint64                             // the client's number of the frame
	who     edge.Caller                        // as it was when the frame came: the stream's token may be replaced meanwhile
	answers *api.Answers                       // shows results and errors as its sender may see them
	commits int                                // proposed; 0: it is answered without the node
	answer  func(ack *pb.Ack, p core.Proposed) // fills the ack's list or error
	wire    protowire.Number                   // frameCreate, frameSettle or framePuts: the ack may be written the short way
}

// translator reads what a frame asks for, by the rights of its sender.
func (st *stream) translator(p *pending) api.Translator { return st.d.Bound(p.who, st.home.Home) }

// commitOf makes a commit of ops that are here.
func (st *stream) commitOf(p *pending, ops ...core.Op) core.Commit {
	return core.Commit{Partition: st.home.Partition, Principal: p.who.Name, Ops: ops}
}

// refuse acknowledges a frame by an error.
func (st *stream) refuse(p *pending, fact error) {
	p.commits = 0
	p.answer = func(ack *pb.Ack, _ core.Proposed) { ack.Error = p.answers.Err(fact) }
	st.done(p, core.Proposed{})
}

// propose hands a frame's commits to the node; without any the frame is answered at once.
func (st *stream) propose(p *pending, commits []core.Commit) {
	if p.commits = len(commits); p.commits == 0 {
		st.done(p, core.Proposed{})
		return
	}
	st.handOver(p, func(done func(core.Proposed)) { st.d.backend.Propose(st.home.Partition, commits, done) })
}

// handOver gives a frame to the node by propose, and counts its bytes until the node has decided it: what is decided is not
// held any more, however long its ack waits for a slow reader. A propose that panics has handed over nothing.
func (st *stream) handOver(p *pending, propose func(done func(core.Proposed))) {
	st.d.Frames.Add(p.load.bytes)
	handed := false
	defer func() {
		if !handed {
			p.free(st.d.Frames)
		}
	}()
	propose(func(d core.Proposed) {
		p.free(st.d.Frames)
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

// ack answers a frame by how its proposal ended.
func (p *pending) ack(d core.Proposed) *pb.Ack {
	ack := &pb.Ack{Seq: p.seq, At: api.ShowAt(d.At)}
	if d.Err != nil {
		ack.Error = p.answers.Err(d.Err)
	} else if err := api.CheckResults(d, p.commits); err != nil {
		ack.Error = p.answers.Err(err)
	} else {
		p.answer(ack, d)
	}
	return ack
}
