package millrace

import (
	"context"
	"sync/atomic"
	"time"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/sdk/go/internal/retry"
	"github.com/millrace/millrace/sdk/go/internal/wire"
)

// call is one create or commit of a caller that waits for it.
type call struct {
	state atomic.Uint32
	done  chan struct{} // takes one token when the call ended

	// What is asked. One of specs and commit is set; a single create uses spec, so that it allocates no slice.
	spec   millracev1.TaskSpec
	one    [1]*millracev1.TaskSpec
	specs  []*millracev1.TaskSpec
	commit *millracev1.CommitRequest
	bytes  int
	atomic bool // all specs or none: a frame of its own
	asks   bool // nothing else: it ends when it is known how many partitions there are
	placed bool // place is its partition; else it waits for that on the first stream
	place  int

	// How far it got; guarded by the session's mu.
	unsure bool      // it may have been applied: it left, and no answer settled it
	first  time.Time // when it left first
	solo   bool      // a frame that it shared was refused as a whole
	life   uint64    // commits: the producer's life that seq belongs to
	seq    uint64    // commits: the session's sequence number, 0 = none yet
	tries  int       // commits: how often it was sent

	// The answer; written before done takes its token.
	err     *Error
	at      *millracev1.At
	created []*millracev1.CreateResult // one per spec
	commits *millracev1.CommitResponse
}

// The states of a call. Who moves it out of queued or sent owns what follows.
const (
	callQueued    uint32 = iota // only the writer sends it
	callSent                    // only its ack, or the loss of its stream, moves it
	callEnded                   // the answer is being written, then done takes its token
	callAbandoned               // its caller has left
)

// newCall returns a call from the pool.
func (p *producerStream) newCall() *call {
	if c, ok := p.pool.Get().(*call); ok {
		return c
	}
	return &call{done: make(chan struct{}, 1)}
}

// free returns a call that ended, and whose answer was read, to the pool.
func (p *producerStream) free(c *call) {
	c.state.Store(callQueued)
	c.spec.Reset()
	c.one[0], c.specs, c.commit, c.bytes, c.atomic = nil, nil, nil, 0, false
	c.asks, c.placed, c.place = false, false, 0
	c.unsure, c.first, c.solo, c.life, c.seq, c.tries = false, time.Time{}, false, 0, 0, 0
	c.err, c.at, c.created, c.commits = nil, nil, nil, nil
	p.pool.Put(c)
}

// claim makes the caller of claim the one that writes the answer; false when the call's caller has left, or the call
// ended otherwise.
func (c *call) claim(from uint32) bool { return c.state.CompareAndSwap(from, callEnded) }

// end wakes the caller of a claimed call.
func (c *call) end(e *Error) {
	c.err = e
	c.done <- struct{}{}
}

// sure settles what an earlier try left open. Only a refusal that was judged by the state itself proves that the try
// before it was not applied; one by an edge, a limit or a missing leader proves nothing.
func (c *call) sure(e *Error) *Error {
	if e == nil || e.Outcome == Unknown || !c.unsure {
		return e
	}
	switch e.Code {
	case CodeAlreadyExists:
		if c.commit == nil || e.Op != OpNone {
			return e
		}
		// The request id is known: the try before was applied.
	case CodeNotFound, CodeWrongState, CodePreconditionFailed, CodeWrongPartition, CodeLeaseLost:
		return e
	}
	e.Outcome = Unknown
	return e
}

// do carries c out: it queues it, waits, and repeats what may be repeated until ctx ends. When it returns, c may be
// freed only if done is true.
func (p *producerStream) do(ctx context.Context, c *call) (done bool, err *Error) {
	if ctx.Err() != nil {
		return true, ended(ctx, false, "the context had ended before the call")
	}
	var began time.Time
	for try := 0; ; try++ {
		if e := p.enqueue(c); e != nil {
			return true, e
		}
		select {
		case <-c.done:
		case <-ctx.Done():
			if e := p.abandon(ctx, c); e != nil {
				return false, e
			}
			<-c.done // it ended at the same time
		}
		e := c.err
		if e != nil && e.Reason == wire.ReasonExpired {
			return false, e // its frame may still hold it
		}
		if e == nil || e.patience() == 0 {
			return true, e
		}
		if began.IsZero() {
			began = c.first
		}
		if time.Since(began) > e.patience() || !retry.Sleep(ctx, e.wait(try)) {
			return true, e
		}
		c.state.Store(callQueued)
		c.err = nil
	}
}

// abandon leaves c because ctx ended; nil means that c has just ended and its token comes.
func (p *producerStream) abandon(ctx context.Context, c *call) *Error {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	for {
		state := c.state.Load()
		if state == callEnded {
			return nil
		}
		if !c.state.CompareAndSwap(state, callAbandoned) {
			continue
		}
		if state == callSent {
			return ended(ctx, true, "no answer came")
		}
		p.abandoned(c)
		e := ended(ctx, c.unsure, "")
		if e.Message = p.s.unreached(); e.Message != "" {
			e.Code = CodeUnavailable
		}
		return e
	}
}
