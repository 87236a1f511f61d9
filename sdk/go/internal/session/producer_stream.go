package session

import (
	"sync"
	"time"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/sdk/go/internal/fault"
	"github.com/millrace/millrace/sdk/go/internal/retry"
	"github.com/millrace/millrace/sdk/go/internal/wire"
)

// producerStream is a client's stream to one partition, the role of a stream: creates and commits of all goroutines.
type producerStream struct {
	// s is the session whose role this is. Its mu guards all below.
	s *session

	// started says that the session runs.
	started bool
	// creates and commits are calls that wait to be written, in the order in which they came, or came back.
	creates deque[*Call]
	commits deque[*Call]
	// turn says that the next frame is a commit, if one waits.
	turn bool
	// gone counts the abandoned calls that still lie in a queue.
	gone int
	// idsFrom is until when commits with a fence go under numbers: the server has no room for request ids.
	idsFrom time.Time

	// The numbers of commits.
	numbers
}

// newProducerStream makes the stream of a partition; nothing is opened before its first call.
func newProducerStream(hub *Hub, partition int) *producerStream {
	p := &producerStream{s: newSession(hub, new(sync.Mutex), partition)}
	p.s.role = p
	return p
}

// enqueue adds c to its queue and starts the stream with the first call.
func (p *producerStream) enqueue(c *Call) *fault.Fault {
	s := p.s
	s.mu.Lock()
	if s.closing || s.ctx.Err() != nil {
		defer s.mu.Unlock()
		return fault.Closed().After(c.Unsure)
	}
	// It left under a number of a life that has ended, and may have been applied: it cannot be repeated.
	if c.Commit != nil && c.Unsure && c.seq != 0 && c.life != p.life {
		defer s.mu.Unlock()
		return (&fault.Fault{Code: wire.Unavailable, Reason: wire.ReasonSessionExpired, Op: fault.OpNone}).After(c.Unsure)
	}
	// The number of partitions is known by now: c is told, or placed by it.
	if n := s.hub.Partitions(); n > 0 && c.asks || n > 1 && !c.placed && !c.Unsure {
		defer s.mu.Unlock()
		c.state.Store(callEnded)
		p.told(c)
		return nil
	}
	if !p.started {
		p.started = true
		go func() { _ = s.run(false) }() // each call carries its own error
	}
	p.add(c)
	s.mu.Unlock()
	s.poke()
	return nil
}

// add puts c into its queue. A commit that kept its number goes before those that have none, so that numbers leave in their order.
func (p *producerStream) add(c *Call) {
	switch {
	case c.Commit == nil:
		p.creates.pushBack(c)
	case c.seq != 0 && c.life == p.life:
		p.commits.pushFront(c) // its number comes before those that are not given yet
	default:
		c.seq = 0
		p.commits.pushBack(c)
	}
}

// abandoned notes that c lies dead in its queue, and sweeps the queues when half of them is dead.
func (p *producerStream) abandoned(c *Call) {
	p.gone++
	if p.gone < 64 || 2*p.gone < p.creates.len()+p.commits.len() {
		return
	}
	p.gone = 0
	p.creates.keep(func(c *Call) bool { return c.state.Load() != callAbandoned })
	p.commits.keep(func(c *Call) bool { return c.state.Load() != callAbandoned || c.mustRepeat() })
}

// mustRepeat says that a commit is sent again though its caller has left: the numbers after its own depend on it.
func (c *Call) mustRepeat() bool { return c.Commit != nil && c.seq != 0 && c.Unsure }

// moved begins a new life when the session goes over to a way without sequence numbers: a commit that left under one
// cannot be repeated there, so it ends as unknown. Those that left under an id of their own can, anywhere.
func (p *producerStream) moved() {
	if !p.s.plain {
		return
	}
	var rest deque[*Call]
	for p.commits.len() > 0 {
		switch c := p.commits.popFront(); {
		case !c.mustRepeat():
			c.seq = 0
			rest.pushBack(c)
		case c.claim(callQueued):
			c.end((&fault.Fault{Code: wire.Unavailable, Reason: wire.ReasonSessionExpired, Message: "the stream that it left on is gone", Op: fault.OpNone}).After(c.Unsure))
		}
	}
	p.commits, p.gone = rest, 0
	p.newLife(p.s)
}

// A producer has nothing to say when a stream begins, and nothing is pushed to it.
func (p *producerStream) hello(*millracev1.Hello)         {}
func (p *producerStream) receive(*millracev1.ServerFrame) {}

// parted has nothing to do: what had left is back in the queues.
func (p *producerStream) parted() {}

// welcomed sends back to be placed what came before it was known how many partitions there are.
func (p *producerStream) welcomed(*millracev1.Welcome) {
	several := p.s.hub.Partitions() > 1
	for _, d := range []*deque[*Call]{&p.creates, &p.commits} {
		d.keep(func(c *Call) bool {
			if !c.asks && (!several || c.placed || c.Unsure) || !c.claim(callQueued) {
				return true
			}
			p.told(c)
			return false
		})
	}
}

// told ends a claimed call that waited for how many partitions there are.
func (p *producerStream) told(c *Call) {
	if c.asks {
		c.end(nil)
	} else {
		c.end(unplaced())
	}
}

// idle reports whether no call waits. Those in frames that have no ack count elsewhere.
func (p *producerStream) idle() bool { return p.creates.len() == 0 && p.commits.len() == 0 }

// next makes the next frame. Creates and commits take turns, so that neither waits for a queue of the other; while the server has
// asked for a pause there is none.
func (p *producerStream) next(seq uint64) (*millracev1.ClientFrame, outgoing) {
	if !p.s.pause.IsZero() {
		if time.Now().Before(p.s.pause) {
			return nil, nil
		}
		p.s.pause = time.Time{}
	}
	p.turn = !p.turn
	if p.turn {
		if f, out := p.nextCommit(seq); f != nil {
			return f, out
		}
		return p.nextCreates(seq)
	}
	if f, out := p.nextCreates(seq); f != nil {
		return f, out
	}
	return p.nextCommit(seq)
}

// createFrame is the outgoing of gathered creates.
type createFrame struct {
	p *producerStream
	// In the order of the frame's tasks, of which each call has one or several.
	calls []*Call
	n     window
}

// nextCreates gathers what waits, up to the size of a frame.
func (p *producerStream) nextCreates(seq uint64) (*millracev1.ClientFrame, outgoing) {
	var out *createFrame
	var tasks []*millracev1.TaskSpec
	now := time.Time{}
	for p.creates.len() > 0 {
		c := p.creates.front()
		if c.state.Load() != callQueued {
			p.creates.popFront()
			p.gone--
			continue
		}
		n := window{items: len(c.Specs), bytes: c.Bytes}
		if out != nil {
			// What is all or nothing, or was in a frame that was refused as a whole, goes alone.
			alone := c.solo || c.Atomic || out.calls[0].solo || out.calls[0].Atomic
			if alone || out.n.items+n.items > wire.FrameItems || out.n.bytes+n.bytes > FrameAim {
				break
			}
			n = window{items: out.n.items + n.items, bytes: out.n.bytes + n.bytes}
		}
		if !p.s.fits(n) {
			break
		}
		p.creates.popFront()
		if !c.state.CompareAndSwap(callQueued, callSent) {
			p.gone--
			continue
		}
		if out == nil {
			size := min(p.creates.len()+1, wire.FrameItems)
			out = &createFrame{p: p, calls: make([]*Call, 0, size)}
			tasks, now = make([]*millracev1.TaskSpec, 0, max(size, len(c.Specs))), time.Now()
		}
		if c.first.IsZero() {
			c.first = now
		}
		out.calls, out.n = append(out.calls, c), n
		tasks = append(tasks, c.Specs...)
	}
	if out == nil {
		return nil, nil
	}
	p.s.hub.turn.Add(1)
	return &millracev1.ClientFrame{Frame: &millracev1.ClientFrame_Create{
		Create: &millracev1.CreateFrame{Seq: seq, Tasks: tasks, Atomic: out.calls[0].Atomic},
	}}, out
}

// size is what the frame takes of the window.
func (f *createFrame) size() window { return f.n }

// acked gives each call its results. Results of calls whose callers have left are passed over.
func (f *createFrame) acked(a *millracev1.Ack) {
	if a.Error != nil {
		f.refused(a.Error)
		return
	}
	rest := a.Created
	for _, c := range f.calls {
		n := len(c.Specs)
		if !c.claim(callSent) {
			rest = rest[min(n, len(rest)):]
			continue
		}
		if len(rest) < n {
			f.p.settle(c, fault.Lacking("results"))
			continue
		}
		c.Created, c.At = rest[:n:n], a.At
		rest = rest[n:]
		var e *fault.Fault
		if n == 1 {
			e = fault.FromWire(c.Created[0].Error)
		}
		f.p.settle(c, e)
	}
}

// refused ends a frame that was refused as a whole. When one bad item can have been the reason, the others are tried
// without it: each call gets a frame of its own.
func (f *createFrame) refused(w *millracev1.Error) {
	bad := w.Code == wire.InvalidArgument || w.Code == wire.TooLarge
	if !bad || len(f.calls) == 1 {
		for _, c := range f.calls {
			if c.claim(callSent) {
				f.p.settle(c, fault.FromWire(w))
			}
		}
		return
	}
	f.p.s.mu.Lock()
	for i := len(f.calls) - 1; i >= 0; i-- {
		c := f.calls[i]
		c.solo = true
		if c.state.CompareAndSwap(callSent, callQueued) {
			f.p.creates.pushFront(c)
		}
	}
	f.p.s.mu.Unlock()
	f.p.s.poke()
}

// settle ends a claimed call that was sent, with what its answer says about earlier tries too.
func (p *producerStream) settle(c *Call, e *fault.Fault) {
	if e != nil {
		p.s.mu.Lock()
		e = c.sure(e)
		c.Unsure = e.Unknown
		p.s.mu.Unlock()
	}
	c.end(e)
}

// lost queues the calls again, in their order. They have their ids, so sending them again is safe, but may have been applied.
func (f *createFrame) lost() {
	for i := len(f.calls) - 1; i >= 0; i-- {
		c := f.calls[i]
		c.Unsure = true
		if c.state.CompareAndSwap(callSent, callQueued) {
			f.p.creates.pushFront(c)
		}
	}
}

// expire ends the calls that left before t and still have no answer.
func (f *createFrame) expire(t time.Time) time.Time { return expireCalls(f.calls, callSent, t) }

// expireCalls ends the calls of a state that left before t, and returns when the oldest of the others left.
func expireCalls(calls []*Call, state uint32, t time.Time) (oldest time.Time) {
	for _, c := range calls {
		switch {
		case c.first.IsZero() || c.state.Load() != state:
		case c.first.After(t):
			oldest = retry.Earlier(oldest, c.first)
		case c.claim(state):
			c.end(fault.Expired())
		}
	}
	return oldest
}

// expire ends calls that wait to be sent again and left before t. It drops those that were abandoned, but for commits that must be
// repeated; where one of these is given up its number stays open, so a new life is to begin.
func (p *producerStream) expire(t time.Time) time.Time {
	var oldest time.Time
	for _, d := range []*deque[*Call]{&p.creates, &p.commits} {
		d.keep(func(c *Call) bool {
			oldest = retry.Earlier(oldest, expireCalls([]*Call{c}, callQueued, t))
			keep := c.state.Load() == callQueued || c.state.Load() == callAbandoned && c.mustRepeat() && c.first.After(t)
			if !keep && c.mustRepeat() {
				p.renew = true
			}
			return keep
		})
	}
	p.gone = 0
	return oldest
}

// refuse ends all calls that wait with err: those that left before as unknown. A number that is given up leaves a gap, which a new
// life closes.
func (p *producerStream) refuse(err *fault.Fault) {
	for _, d := range []*deque[*Call]{&p.creates, &p.commits} {
		for d.len() > 0 {
			c := d.popFront()
			if c.mustRepeat() {
				p.renew = true
			}
			if c.claim(callQueued) {
				c.end(err.Copy().After(c.Unsure))
			}
		}
	}
	p.gone = 0
}

// close refuses further calls, waits at most d for those under way, and ends the stream.
func (p *producerStream) close(d time.Duration) {
	p.s.mu.Lock()
	started := p.started
	p.s.closing = true
	p.s.mu.Unlock()
	if !started {
		p.s.stop(fault.ErrClosed)
		return
	}
	p.s.drain(d)
}
