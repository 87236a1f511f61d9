package millrace

import (
	"sync"
	"time"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/sdk/go/internal/retry"
	"github.com/millrace/millrace/sdk/go/internal/wire"
)

// producerStream is a client's stream to one partition, the role of a stream: creates and commits of all goroutines.
type producerStream struct {
	s    *session
	pool sync.Pool // of *call

	// Guarded by the session's mu.
	started bool
	creates deque[*call]
	commits deque[*call]
	turn    bool      // the next frame is a commit, if one waits
	gone    int       // abandoned calls that still lie in a queue
	idsFrom time.Time // before it commits with a fence go under numbers: the server has no room for request ids

	numbers // of commits
}

func newProducerStream(c *Client, partition int) *producerStream {
	p := &producerStream{s: newSession(c, new(sync.Mutex), partition)}
	p.s.role = p
	return p
}

// enqueue adds c to its queue and starts the stream with the first call.
func (p *producerStream) enqueue(c *call) *Error {
	s := p.s
	s.mu.Lock()
	if s.closing || s.ctx.Err() != nil {
		defer s.mu.Unlock()
		return closedError().of(c)
	}
	if c.commit != nil && c.unsure && c.seq != 0 && c.life != p.life {
		defer s.mu.Unlock()
		return (&Error{Code: CodeUnavailable, Reason: wire.ReasonSessionExpired, Op: OpNone}).of(c)
	}
	if n := s.c.partitions(); n > 0 && c.asks || n > 1 && !c.placed && !c.unsure {
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

func (p *producerStream) add(c *call) {
	switch {
	case c.commit == nil:
		p.creates.pushBack(c)
	case c.seq != 0 && c.life == p.life:
		p.commits.pushFront(c) // its number comes before those that are not given yet
	default:
		c.seq = 0
		p.commits.pushBack(c)
	}
}

// abandoned notes that c lies dead in its queue, and sweeps the queues when half of them is dead.
func (p *producerStream) abandoned(c *call) {
	p.gone++
	if p.gone < 64 || 2*p.gone < p.creates.len()+p.commits.len() {
		return
	}
	p.gone = 0
	p.creates.keep(func(c *call) bool { return c.state.Load() != callAbandoned })
	p.commits.keep(func(c *call) bool { return c.state.Load() != callAbandoned || c.mustRepeat() })
}

// mustRepeat says that a commit is sent again though its caller has left: the numbers after its own depend on it.
func (c *call) mustRepeat() bool { return c.commit != nil && c.seq != 0 && c.unsure }

// moved begins a new life when the session goes over to a way without sequence numbers: a commit that left under one
// cannot be repeated there, so it ends as unknown. Those that left under an id of their own can, anywhere.
func (p *producerStream) moved() {
	if !p.s.plain {
		return
	}
	var rest deque[*call]
	for p.commits.len() > 0 {
		switch c := p.commits.popFront(); {
		case !c.mustRepeat():
			c.seq = 0
			rest.pushBack(c)
		case c.claim(callQueued):
			c.end((&Error{Code: CodeUnavailable, Reason: wire.ReasonSessionExpired, Message: "the stream that it left on is gone", Op: OpNone}).of(c))
		}
	}
	p.commits, p.gone = rest, 0
	p.newLife(p.s)
}

func (p *producerStream) hello(*millracev1.Hello)         {}
func (p *producerStream) receive(*millracev1.ServerFrame) {}
func (p *producerStream) parted()                         {}

// welcomed sends back to be placed what came before it was known how many partitions there are.
func (p *producerStream) welcomed(*millracev1.Welcome) {
	several := p.s.c.partitions() > 1
	for _, d := range []*deque[*call]{&p.creates, &p.commits} {
		d.keep(func(c *call) bool {
			if !c.asks && (!several || c.placed || c.unsure) || !c.claim(callQueued) {
				return true
			}
			p.told(c)
			return false
		})
	}
}

// told ends a claimed call that waited for how many partitions there are.
func (p *producerStream) told(c *call) {
	if c.asks {
		c.end(nil)
	} else {
		c.end(unplacedError())
	}
}

func (p *producerStream) idle() bool { return p.creates.len() == 0 && p.commits.len() == 0 }

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
	p     *producerStream
	calls []*call
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
		n := window{items: len(c.specs), bytes: c.bytes}
		if out != nil {
			alone := c.solo || c.atomic || out.calls[0].solo || out.calls[0].atomic
			if alone || out.n.items+n.items > wire.FrameItems || out.n.bytes+n.bytes > frameAim {
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
			out = &createFrame{p: p, calls: make([]*call, 0, size)}
			tasks, now = make([]*millracev1.TaskSpec, 0, max(size, len(c.specs))), time.Now()
		}
		if c.first.IsZero() {
			c.first = now
		}
		out.calls, out.n = append(out.calls, c), n
		tasks = append(tasks, c.specs...)
	}
	if out == nil {
		return nil, nil
	}
	p.s.c.turn.Add(1)
	return &millracev1.ClientFrame{Frame: &millracev1.ClientFrame_Create{
		Create: &millracev1.CreateFrame{Seq: seq, Tasks: tasks, Atomic: out.calls[0].atomic},
	}}, out
}

func (f *createFrame) size() window { return f.n }

func (f *createFrame) acked(a *millracev1.Ack) {
	if a.Error != nil {
		f.refused(a.Error)
		return
	}
	rest := a.Created
	for _, c := range f.calls {
		n := len(c.specs)
		if !c.claim(callSent) {
			rest = rest[min(n, len(rest)):]
			continue
		}
		if len(rest) < n {
			f.p.settle(c, &Error{Code: CodeInternal, Message: "the ack lacks results", Op: OpNone, Outcome: Unknown})
			continue
		}
		c.created, c.at = rest[:n:n], a.At
		rest = rest[n:]
		var e *Error
		if n == 1 {
			e = fromWire(c.created[0].Error)
		}
		f.p.settle(c, e)
	}
}

// refused ends a frame that was refused as a whole. When one bad item can have been the reason, the others are tried
// without it: each call gets a frame of its own.
func (f *createFrame) refused(w *millracev1.Error) {
	bad := Code(w.Code) == CodeInvalidArgument || Code(w.Code) == CodeTooLarge
	if !bad || len(f.calls) == 1 {
		for _, c := range f.calls {
			if c.claim(callSent) {
				f.p.settle(c, fromWire(w))
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
func (p *producerStream) settle(c *call, e *Error) {
	if e != nil {
		p.s.mu.Lock()
		e = c.sure(e)
		c.unsure = e.Outcome == Unknown
		p.s.mu.Unlock()
	}
	c.end(e)
}

func (f *createFrame) lost() {
	for i := len(f.calls) - 1; i >= 0; i-- {
		c := f.calls[i]
		c.unsure = true
		if c.state.CompareAndSwap(callSent, callQueued) {
			f.p.creates.pushFront(c)
		}
	}
}

func (f *createFrame) expire(t time.Time) time.Time { return expireCalls(f.calls, callSent, t) }

// expireCalls ends the calls of a state that left before t, and returns when the oldest of the others left.
func expireCalls(calls []*call, state uint32, t time.Time) (oldest time.Time) {
	for _, c := range calls {
		switch {
		case c.first.IsZero() || c.state.Load() != state:
		case c.first.After(t):
			oldest = retry.Earlier(oldest, c.first)
		case c.claim(state):
			c.end(expiredError())
		}
	}
	return oldest
}

func (p *producerStream) expire(t time.Time) time.Time {
	var oldest time.Time
	for _, d := range []*deque[*call]{&p.creates, &p.commits} {
		d.keep(func(c *call) bool {
			oldest = retry.Earlier(oldest, expireCalls([]*call{c}, callQueued, t))
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

func (p *producerStream) refuse(err *Error) {
	for _, d := range []*deque[*call]{&p.creates, &p.commits} {
		for d.len() > 0 {
			c := d.popFront()
			if c.mustRepeat() {
				p.renew = true
			}
			e := *err
			if c.claim(callQueued) {
				c.end(e.of(c))
			}
		}
	}
	p.gone = 0
}

// of makes e the end of c, which may have been applied by an earlier try.
func (e *Error) of(c *call) *Error {
	e.Outcome = Refused
	if c.unsure {
		e.Outcome = Unknown
	}
	return e
}

func closedError() *Error {
	return &Error{Code: CodeUnavailable, Reason: "closed", Message: "the client is closed", Op: OpNone, Outcome: Refused, cause: ErrClosed}
}

// close refuses further calls, waits at most d for those under way, and ends the stream.
func (p *producerStream) close(d time.Duration) {
	p.s.mu.Lock()
	started := p.started
	p.s.closing = true
	p.s.mu.Unlock()
	if !started {
		p.s.stop(ErrClosed)
		return
	}
	p.s.drain(d)
}
