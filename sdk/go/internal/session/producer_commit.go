package session

import (
	"cmp"
	"time"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/sdk/go/internal/fault"
	"github.com/millrace/millrace/sdk/go/internal/wire"
)

// commitFrame is the outgoing of one commit.
type commitFrame struct {
	p *producerStream
	c *Call
}

// size counts one commit, which is bounded apart from items.
func (f *commitFrame) size() window { return window{items: 1, bytes: f.c.Bytes, commits: 1} }

// nextCommit makes the frame of the commit that stands first; nil when none waits, the window is full, or a new life must begin
// before.
func (p *producerStream) nextCommit(seq uint64) (*millracev1.ClientFrame, outgoing) {
	if p.renew && !p.reborn() {
		return nil, nil
	}
	for p.commits.len() > 0 {
		c := p.commits.front()
		state := c.state.Load()
		repeat := state == callAbandoned && c.mustRepeat()
		if state != callQueued && !repeat {
			p.commits.popFront()
			p.gone--
			continue
		}
		// What may have been applied stands first and goes out under the old life; all else waits for the new one.
		if p.renew && !c.mustRepeat() {
			return nil, nil // of the next life
		}
		if !p.s.fits(window{items: 1, bytes: c.Bytes, commits: 1}) {
			return nil, nil
		}
		p.commits.popFront()
		if !repeat && !c.state.CompareAndSwap(callQueued, callSent) {
			p.gone--
			continue
		}
		return p.commitFrame(seq, c), &commitFrame{p: p, c: c}
	}
	return nil, nil
}

// commitFrame writes c, under what makes it repeatable: a number of the session, or a request id where there are no numbers, as
// over REST, and where it has a fence, so that commits in mid-task do not wait for numbers before their own.
func (p *producerStream) commitFrame(seq uint64, c *Call) *millracev1.ClientFrame {
	switch {
	case len(c.Commit.RequestId) > 0: // it left without a number before
	case p.s.plain || c.Commit.Fence != nil && !time.Now().Before(p.idsFrom):
		c.Commit.RequestId = wire.Random16()
	case c.seq == 0:
		c.seq, c.life = p.number()
		c.tries = 0
	}
	if c.first.IsZero() {
		c.first = time.Now()
	}
	c.tries++
	return &millracev1.ClientFrame{Frame: &millracev1.ClientFrame_Commit{
		Commit: &millracev1.CommitFrame{Seq: seq, Commit: c.Commit, CommitSeq: c.seq},
	}}
}

// reborn begins the new life of the session if nothing of the old one is open, and opens the stream again for it. It
// reports whether commits of the old life wait to be sent; they then stand first.
func (p *producerStream) reborn() bool {
	if p.s.used.commits > 0 {
		return false
	}
	var open, rest deque[*Call]
	for p.commits.len() > 0 {
		if c := p.commits.popFront(); c.mustRepeat() {
			open.pushBack(c)
		} else {
			rest.pushBack(c)
		}
	}
	if open.len() > 0 {
		for rest.len() > 0 {
			open.pushBack(rest.popFront())
		}
		p.commits = open
		return true
	}
	for i := range rest.len() {
		rest.ring[rest.at(i)].seq = 0
	}
	p.commits = rest
	p.newLife(p.s)
	p.s.cut()
	return false
}

// idsFull is how long commits in mid-task go under sequence numbers after a server has said that it holds as many request
// ids as it may: a part of the time for which it keeps each.
const idsFull = time.Minute

// numbered has a commit that was refused for want of room for its request id sent under a sequence number. It reports false
// where an earlier try may yet be applied under the id, or where there are no numbers.
func (f *commitFrame) numbered(e *fault.Fault) bool {
	p, c := f.p, f.c
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	if e == nil || e.Limit != limitRequestIDs || c.seq != 0 || c.Unsure || p.s.plain || !c.state.CompareAndSwap(callSent, callQueued) {
		return false
	}
	p.idsFrom = time.Now().Add(idsFull)
	c.Commit.RequestId, c.tries = nil, 0
	p.commits.pushBack(c)
	return true
}

// acked takes the answer. A number that was refused before it counted is tried again under another one; what a server that forgot
// the session refuses may have been applied, but for what numbers.forgotten excludes.
func (f *commitFrame) acked(a *millracev1.Ack) {
	p, c := f.p, f.c
	e := fault.FromWire(a.Error)
	switch {
	case f.numbered(e):
		p.s.poke()
		return
	case e == nil && a.Commit == nil:
		e = fault.Lacking("the commit")
	case e == nil:
		p.s.mu.Lock()
		p.counted = p.counted || c.seq != 0 && c.life == p.life
		p.s.mu.Unlock()
		if c.claim(callSent) {
			c.Committed, c.At = a.Commit, cmp.Or(a.Commit.At, a.At)
			c.end(nil)
		}
		return
	case c.seq != 0 && e.Code == wire.InvalidArgument && e.Reason == reasonGap:
		f.again() // a number before it never counted, so this one did not either
		return
	case c.seq != 0 && e.Reason == wire.ReasonSessionExpired:
		p.s.mu.Lock()
		early, forgotten := p.early(c.seq, c.tries, c.first), p.forgotten(c.seq, c.tries, c.first)
		if early && c.state.Load() == callAbandoned {
			p.commits.pushFront(c)
		}
		p.renew = p.renew || !early
		p.s.mu.Unlock()
		switch {
		case forgotten:
			f.again()
			return
		case early:
			e = &fault.Fault{Code: wire.Unavailable, Reason: reasonGap, Message: "those before it are not applied yet", Op: fault.OpNone, Unknown: true}
		default:
			e = &fault.Fault{Code: wire.Unavailable, Reason: wire.ReasonSessionExpired, Message: e.Message, Op: fault.OpNone, Unknown: true}
		}
	}
	if c.claim(callSent) {
		p.settle(c, e)
	}
}

// again queues a commit for the next life.
func (f *commitFrame) again() {
	p, c := f.p, f.c
	p.s.mu.Lock()
	c.Unsure, c.seq = false, 0
	p.renew = true
	if c.state.CompareAndSwap(callSent, callQueued) {
		p.commits.pushBack(c)
	}
	p.s.mu.Unlock()
	p.s.poke()
}

// lost queues the commit again, as one that may have been applied; also one that its caller left, if later numbers depend on it.
func (f *commitFrame) lost() {
	p, c := f.p, f.c
	c.Unsure = true
	if c.state.CompareAndSwap(callSent, callQueued) || c.state.Load() == callAbandoned && c.mustRepeat() {
		p.commits.pushFront(c)
	}
}

// expire ends a commit that has no answer. Its number stays open for ever, so the session begins a new life on a new stream.
func (f *commitFrame) expire(t time.Time) time.Time {
	oldest := expireCalls([]*Call{f.c}, callSent, t)
	if f.c.state.Load() == callEnded {
		f.p.renew = true
		f.p.s.cut()
	}
	return oldest
}
