package node

import (
	"context"
	"encoding/binary"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/core"
)

const (
	// forwardLook is how often a caller looks whether the leader that it gave a proposal to leads still.
	forwardLook = 50 * time.Millisecond
	// forwardPatience is for how long a proposal looks for somebody who leads.
	forwardPatience = 5 * time.Second
	// forwardWait is for how long one that has left waits for its answer: messages may be lost.
	forwardWait = 30 * time.Second
)

// Forward puts independent commits of one partition into the log at the node that leads it, whichever that is, and waits
// for their end, or for that of ctx: then, or when that leader is gone, the outcome is unknown unless they never left.
func (n *Node) Forward(ctx context.Context, p core.Partition, commits []core.Commit) core.Proposed {
	s, err := n.shardOf(p)
	if err != nil {
		return core.Proposed{Err: core.NotFound{Kind: "namespace"}}
	}
	return n.forwardTo(ctx, s, p, commits)
}

// forwardTo is Forward for a partition that lies in a shard.
func (n *Node) forwardTo(ctx context.Context, s *shard, p core.Partition, commits []core.Commit) core.Proposed {
	var bytes int
	for i := range commits {
		bytes += commits[i].EncodedSize()
	}
	if bytes > maxProposal && len(commits) > 1 {
		return n.forwardHalves(ctx, s, p, commits)
	}
	for late := n.o.Clock.Boot() + forwardPatience; ; {
		if why := s.awaitLeader(ctx); why != nil {
			return core.Proposed{Err: why}
		}
		moved := n.moved.wait()
		out := s.forward(ctx, p, commits)
		if n.o.Clock.Boot() >= late || ctx.Err() != nil || !neverLeft(out.Err) {
			return out
		}
		look := n.o.Clock.NewTimer(forwardLook) // this node knows less than the one that was asked
		select {
		case <-moved:
		case <-look.C():
		case <-ctx.Done():
		case <-n.stopping: // this node asks for something itself, and its end waits for that
			look.Stop()
			return out
		}
		look.Stop()
	}
}

// forwardHalves is Forward for what is too large for one message.
func (n *Node) forwardHalves(ctx context.Context, s *shard, p core.Partition, commits []core.Commit) core.Proposed {
	half := len(commits) / 2
	first := n.forwardTo(ctx, s, p, commits[:half])
	if first.Err != nil {
		return first
	}
	rest := n.forwardTo(ctx, s, p, commits[half:])
	if rest.Err != nil {
		return core.Proposed{Err: core.Unavailable{Reason: "partly_applied", Unknown: true}}
	}
	rest.Results = append(first.Results, rest.Results...)
	return rest
}

// neverLeft reports whether nothing was proposed because the node that got the proposal did not lead, or it could not be sent.
func neverLeft(err core.Fact) bool {
	switch f := err.(type) {
	case core.NotLeader:
		return true
	case core.Unavailable:
		return (f.Reason == "no_leader" || f.Reason == "leader_unreached") && !f.Unknown
	}
	return false
}

// awaitLeader returns when somebody leads the shard, or says why it does not.
func (s *shard) awaitLeader(ctx context.Context) core.Fact {
	if ctx.Err() != nil { // the caller is gone and cannot be told the outcome
		return core.DeadlineExceeded{}
	}
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
	changes := s.standing.changes.Load() // before who leads is read
	to := s.view.leader.Load()
	if to == s.n.o.Replica || s.view.ready.Load() {
		answer := make(chan core.Proposed, 1)
		s.offer(p, commits, nil, func(p core.Proposed) { answer <- p })
		return s.outcome(ctx, answer, func() bool { return false })
	}
	id, answer := s.n.forwards.begin(to)
	defer s.n.forwards.forget(id)
	msg := binary.BigEndian.AppendUint64([]byte{peerAsk}, id)
	msg = core.AppendEntry(msg, &core.Entry{Format: s.n.Format(), Commits: commits})
	if !s.n.send(to, s.id, Bulk, msg) {
		return core.Proposed{Err: core.Unavailable{Reason: "leader_unreached"}}
	}
	late := s.n.o.Clock.Boot() + forwardWait
	return s.outcome(ctx, answer, func() bool {
		return s.standing.changes.Load() != changes || s.view.leader.Load() != to || s.n.o.Clock.Boot() >= late
	})
}

// outcome waits for the answer of a proposal that has left, until it is lost. An answer that is on its way when the leader
// goes has a little time to arrive.
func (s *shard) outcome(ctx context.Context, answer chan core.Proposed, lost func() bool) core.Proposed {
	for was := false; ; {
		look := s.n.o.Clock.NewTimer(forwardLook)
		select {
		case p := <-answer:
			look.Stop()
			return p
		case <-look.C():
			is := lost()
			if was && is {
				return core.Proposed{Err: core.Unavailable{Reason: "no_leader", Unknown: true}}
			}
			was = is
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
	head := slices.Clip(append([]byte{peerAnswer}, b[:8]...))
	answer := func(p core.Proposed) {
		if !s.n.send(from, s.id, Bulk, appendProposed(head, &p)) { // it may be too large
			p = core.Proposed{Err: core.Unavailable{Reason: "leader_unreached", Unknown: true}}
			s.n.send(from, s.id, Bulk, appendProposed(head, &p))
		}
	}
	e, err := core.DecodeEntry(b[8:])
	if err != nil || len(e.Commits) == 0 || slices.ContainsFunc(e.Commits, func(c core.Commit) bool {
		return c.Partition != e.Commits[0].Partition || c.Partition == systemPartition && s.id != 0 || s.n.speaksForAnother(from, &c)
	}) {
		answer(core.Proposed{Err: core.Invalid{Field: "commits", Reason: "malformed", Message: "are not what a node may ask for"}})
		return
	}
	s.take(&proposal{commits: e.Commits, done: answer, bytes: len(b)}, false)
}

// speaksForAnother reports whether a commit that a replica asks for says of another node what only that node may say: its
// addresses and its data directory.
func (n *Node) speaksForAnother(from uint64, c *core.Commit) bool {
	return slices.ContainsFunc(c.Ops, func(op core.Op) bool {
		change, ok := op.(*core.MemberChange)
		return ok && (change.Do == core.MemberSet || change.Do == core.MemberRegister) && change.Node != n.who().nodeOf(from)
	})
}

// takeAnswer ends a proposal that this node had asked a leader for.
func (n *Node) takeAnswer(from uint64, b []byte) {
	if len(b) < 8 {
		return
	}
	p, err := decodeProposed(b[8:])
	if err != nil {
		n.o.Logger.Warn("answer of a peer", "error", err)
		p = core.Proposed{Err: core.Unavailable{Reason: "no_leader", Unknown: true}}
	}
	n.forwards.end(from, binary.BigEndian.Uint64(b), p)
}

// The end of a proposal travels as partition (2 bytes), index (8), stamp (8), and results, each behind its length (4). A
// proposal that ended with an error has one result, whose refusal is of no op.
const noOp = -1 << 20

// appendProposed appends the end of a proposal, as an answer to another node carries it.
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

// decodeProposed reads what appendProposed wrote. What comes from another node may be anything: every length is
// checked.
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
