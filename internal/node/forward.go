package node

import (
	"context"
	"encoding/binary"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/core"
)

// forwards are the proposals that this node gave to leaders elsewhere, for callers who cannot go there themselves.
type forwards struct {
	mu    sync.Mutex // guards the fields below
	last  uint64
	waits map[uint64]chan core.Proposed // by number; each is buffered
}

// begin takes a number for one proposal.
func (f *forwards) begin() (id uint64, answer chan core.Proposed) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.waits == nil {
		f.waits = make(map[uint64]chan core.Proposed)
	}
	f.last++
	answer = make(chan core.Proposed, 1)
	f.waits[f.last] = answer
	return f.last, answer
}

func (f *forwards) forget(id uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.waits, id)
}

// end gives an answer to whom it belongs, once.
func (f *forwards) end(id uint64, p core.Proposed) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if answer := f.waits[id]; answer != nil {
		delete(f.waits, id)
		answer <- p
	}
}

const (
	// forwardLook is how often a caller looks whether the leader that it gave a proposal to leads still.
	forwardLook = 50 * time.Millisecond
	// forwardPatience is for how long a proposal waits for somebody to lead.
	forwardPatience = 5 * time.Second
	// forwardTries bounds how often a proposal that was refused by one who leads no more goes on to the next.
	forwardTries = 5
)

// Forward puts independent commits of one partition into the log at the node that leads it, whichever that is, and waits
// for their end, or for that of ctx: then, or when that leader is gone, the outcome is unknown unless they never left.
func (n *Node) Forward(ctx context.Context, p core.Partition, commits []core.Commit) core.Proposed {
	s, err := n.shardOf(p)
	if err != nil {
		return core.Proposed{Err: core.NotFound{Kind: "namespace"}}
	}
	for try := 1; ; try++ {
		if why := s.awaitLeader(ctx); why != nil {
			return core.Proposed{Err: why}
		}
		moved := n.moved.wait()
		out := s.forward(ctx, p, commits)
		if try == forwardTries || !neverLeft(out.Err) {
			return out
		}
		look := n.o.Clock.NewTimer(forwardLook) // this node knows less than the one that was asked
		select {
		case <-moved:
		case <-look.C():
		case <-ctx.Done():
		}
		look.Stop()
	}
}

// neverLeft reports whether nothing was proposed because nobody led where the proposal went.
func neverLeft(err core.Fact) bool {
	switch f := err.(type) {
	case core.NotLeader:
		return true
	case core.Unavailable:
		return f.Reason == "no_leader" && !f.Unknown
	}
	return false
}

// awaitLeader returns when somebody leads the shard, or says why it does not.
func (s *shard) awaitLeader(ctx context.Context) core.Fact {
	late := s.n.o.Clock.NewTimer(forwardPatience)
	defer late.Stop()
	for {
		moved := s.n.moved.wait()
		if s.served() {
			return nil
		}
		select {
		case <-moved:
		case <-late.C():
			return core.Unavailable{Reason: "no_leader"}
		case <-ctx.Done():
			return core.DeadlineExceeded{}
		case <-s.n.stopping:
			return core.Unavailable{Reason: "stopping"}
		}
	}
}

// forward proposes once, here or at the leader.
func (s *shard) forward(ctx context.Context, p core.Partition, commits []core.Commit) core.Proposed {
	to := s.leader.Load()
	if to == s.n.o.Replica || s.ready.Load() {
		answer := make(chan core.Proposed, 1)
		s.n.Propose(p, commits, func(p core.Proposed) { answer <- p })
		return s.outcome(ctx, answer, 0)
	}
	id, answer := s.n.forwards.begin()
	defer s.n.forwards.forget(id)
	msg := binary.BigEndian.AppendUint64([]byte{peerAsk}, id)
	msg = core.AppendEntry(msg, &core.Entry{Format: core.FormatCurrent, Commits: commits})
	if !s.n.o.Network.Send(to, s.id, true, msg) {
		return core.Proposed{Err: core.Unavailable{Reason: "leader_unreached"}}
	}
	return s.outcome(ctx, answer, to)
}

// outcome waits for the answer of a proposal that has left, to another node if to is not 0.
func (s *shard) outcome(ctx context.Context, answer chan core.Proposed, to uint64) core.Proposed {
	for {
		look := s.n.o.Clock.NewTimer(forwardLook)
		select {
		case p := <-answer:
			look.Stop()
			return p
		case <-look.C():
			if to != 0 && s.leader.Load() != to {
				select {
				case p := <-answer:
					return p
				default:
					return core.Proposed{Err: core.Unavailable{Reason: "no_leader", Unknown: true}}
				}
			}
		case <-ctx.Done():
			look.Stop()
			return core.Proposed{Err: core.DeadlineExceeded{Unknown: true}}
		case <-s.n.stopping:
			look.Stop()
			return core.Proposed{Err: core.Unavailable{Reason: "stopping", Unknown: true}}
		}
	}
}

// takeAsk proposes what another node was asked for, and answers it.
func (s *shard) takeAsk(from uint64, b []byte) {
	if len(b) < 8 {
		return
	}
	head := append([]byte{peerAnswer}, b[:8]...)
	answer := func(p core.Proposed) { s.n.o.Network.Send(from, s.id, true, appendProposed(head, &p)) }
	e, err := core.DecodeEntry(b[8:])
	if err != nil || len(e.Commits) == 0 || slices.ContainsFunc(e.Commits, func(c core.Commit) bool {
		return c.Partition != e.Commits[0].Partition || c.Partition == systemPartition && s.id != 0
	}) {
		answer(core.Proposed{Err: core.Invalid{Field: "commits", Reason: "malformed", Message: "are not what a node may ask for"}})
		return
	}
	if s.n.full.Load() && slices.ContainsFunc(e.Commits, func(c core.Commit) bool { return grows(&c) }) {
		answer(core.Proposed{Err: core.Exhausted{Limit: "disk", Max: int64(s.n.diskReserve())}})
		return
	}
	p := &proposal{commits: e.Commits, done: answer, bytes: len(b)}
	s.enqueue(p, false)
}

// takeAnswer ends a proposal that this node had asked a leader for.
func (n *Node) takeAnswer(b []byte) {
	if len(b) < 8 {
		return
	}
	p, err := decodeProposed(b[8:])
	if err != nil {
		n.o.Logger.Warn("answer of a peer", "error", err)
		p = core.Proposed{Err: core.Unavailable{Reason: "no_leader", Unknown: true}}
	}
	n.forwards.end(binary.BigEndian.Uint64(b), p)
}

// The end of a proposal travels as partition (2 bytes), index (8), stamp (8), and results, each behind its length (4). A
// proposal that ended with an error has one result, whose refusal is of no op.
const noOp = -1 << 20

func appendProposed(b []byte, p *core.Proposed) []byte {
	b = binary.BigEndian.AppendUint16(b, p.At.Partition)
	b = binary.BigEndian.AppendUint64(b, p.At.Index)
	b = binary.BigEndian.AppendUint64(b, uint64(p.At.Stamp))
	results := p.Results
	if p.Err != nil {
		results = []core.Result{{Refusal: &core.Refusal{Op: noOp, Fact: p.Err}}}
	}
	for i := range results {
		at := len(b)
		b = core.AppendResult(append(b, 0, 0, 0, 0), &results[i])
		binary.BigEndian.PutUint32(b[at:], uint32(len(b)-at-4))
	}
	return b
}

func decodeProposed(b []byte) (p core.Proposed, err error) {
	if len(b) < 18 {
		return p, core.ErrMalformed
	}
	p.At = core.At{
		Partition: binary.BigEndian.Uint16(b), Index: binary.BigEndian.Uint64(b[2:]),
		Stamp: core.ShardTime(binary.BigEndian.Uint64(b[10:])),
	}
	for b = b[18:]; len(b) > 0; {
		if len(b) < 4 || uint64(binary.BigEndian.Uint32(b)) > uint64(len(b)-4) {
			return p, core.ErrMalformed
		}
		n := binary.BigEndian.Uint32(b)
		r, err := core.DecodeResult(b[4 : 4+n])
		if err != nil {
			return p, err
		}
		b = b[4+n:]
		if r.Refusal != nil && r.Refusal.Op == noOp {
			return core.Proposed{At: p.At, Err: r.Refusal.Fact}, nil
		}
		p.Results = append(p.Results, *r)
	}
	return p, nil
}
