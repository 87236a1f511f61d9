package session

import (
	"context"
	"sync/atomic"
	"time"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/sdk/go/internal/fault"
	"github.com/millrace/millrace/sdk/go/internal/retry"
	"github.com/millrace/millrace/sdk/go/internal/wire"
)

// Call is one create or commit of a caller that waits for it. Producers.New makes one; its caller fills in what is asked, has it
// placed and carried out, reads the answer and frees it.
type Call struct {
	// state is one of the states below. Callers move it without the session's mu, so each move compares.
	state atomic.Uint32
	// done takes one token when the call has ended.
	done chan struct{}
	// timer fires when the call's time is over; nil: it was never needed. It is stopped between calls.
	timer *time.Timer

	// What is asked. One of Specs and Commit is set; a single create uses Spec, so that it allocates no slice: see Single.
	Spec   millracev1.TaskSpec
	Specs  []*millracev1.TaskSpec
	Commit *millracev1.CommitRequest
	// one is room for Specs where Spec is all there is.
	one [1]*millracev1.TaskSpec
	// Bytes is the encoded size of what is asked, at most.
	Bytes int
	// Atomic asks for all of Specs or none: the call gets a frame of its own.
	Atomic bool
	// asks says that nothing else is asked: the call ends when it is known how many partitions there are.
	asks bool
	// placed says that place is the partition; else the call waits on the first stream for it to be known.
	placed bool
	place  int
	// single says that it is one task, which Place has placed; given is the id that it had before.
	single bool
	given  string

	// How far it got; guarded by the session's mu.

	// Unsure says that it may have been applied: it left, here or before, and no answer settled it.
	Unsure bool
	// first is when it left first; zero: it has not.
	first time.Time
	// solo says that a frame which it shared was refused as a whole.
	solo bool
	// seq is a commit's number in the session, 0 = none yet; life is the life of the session that it is of.
	seq, life uint64
	// tries is how often a commit was sent under seq.
	tries int

	// The answer; written before done takes its token.

	err *fault.Fault
	// At is where the call stands in the log of its partition.
	At *millracev1.At
	// Created has one result per spec.
	Created   []*millracev1.CreateResult
	Committed *millracev1.CommitResponse
}

// Single makes c the create of Spec alone, which must be filled in.
func (c *Call) Single() {
	c.one[0] = &c.Spec
	c.Specs, c.Bytes = c.one[:], wire.Size(&c.Spec)
}

// PutIn fixes the partition of c, whose tasks were placed there.
func (c *Call) PutIn(partition int) { c.place, c.placed = partition, true }

// The states of a call. Who moves it out of queued or sent owns what follows.
const (
	callQueued    uint32 = iota // only the writer sends it
	callSent                    // only its ack, or the loss of its stream, moves it
	callEnded                   // the answer is being written, then done takes its token
	callAbandoned               // its caller has left
)

// claim makes the caller of claim the one that writes the answer; false when the call's caller has left, or the call
// ended otherwise.
func (c *Call) claim(from uint32) bool { return c.state.CompareAndSwap(from, callEnded) }

// end wakes the caller of a claimed call.
func (c *Call) end(e *fault.Fault) {
	c.err = e
	c.done <- struct{}{}
}

// sure settles what an earlier try left open. Only a refusal that was judged by the state itself proves that the try
// before it was not applied; one by an edge, a limit or a missing leader proves nothing.
func (c *Call) sure(e *fault.Fault) *fault.Fault {
	if e == nil || e.Unknown || !c.Unsure {
		return e
	}
	switch e.Code {
	case wire.AlreadyExists:
		if c.Commit == nil || e.Op != fault.OpNone {
			return e
		}
		// The request id is known: the try before was applied.
	case wire.NotFound, wire.WrongState, wire.PreconditionFailed, wire.WrongPartition, wire.LeaseLost:
		return e
	}
	e.Unknown = true
	return e
}

// arm returns what fires when the time of c is over; nil: ctx, or nothing, bounds it. disarm must follow.
func (c *Call) arm(ctx context.Context, d time.Duration) <-chan time.Time {
	if _, ok := ctx.Deadline(); ok || d <= 0 {
		return nil
	}
	// Not a context of its own: most calls are over in less time than that takes to make.
	if c.timer == nil {
		c.timer = time.NewTimer(d)
	} else {
		c.timer.Reset(d)
	}
	return c.timer.C
}

// disarm ends what arm began.
func (c *Call) disarm(late <-chan time.Time) {
	if late != nil {
		c.timer.Stop()
	}
}

// do carries c out: it queues it, waits, and repeats what may be repeated until ctx ends or late fires, which may be nil. When it
// returns, c may be freed only if done is true.
func (p *producerStream) do(ctx context.Context, late <-chan time.Time, c *Call) (done bool, err *fault.Fault) {
	if ctx.Err() != nil {
		return true, fault.Ended(ctx, false, "the context had ended before the call")
	}
	var began time.Time
	over := false // late has fired
	for try := 0; ; try++ {
		if e := p.enqueue(c); e != nil {
			return true, e
		}
		ended := false
		select {
		case <-c.done:
			ended = true
		case <-ctx.Done():
		case <-late:
			over = true
		}
		if !ended {
			if e := p.abandon(ctx, c); e != nil {
				return false, e
			}
			<-c.done // it ended at the same time
		}
		e := c.err
		if e != nil && e.Reason == wire.ReasonExpired {
			return false, e // its frame may still hold it
		}
		if e == nil || e.Patience() == 0 {
			return true, e
		}
		if began.IsZero() {
			began = c.first
		}
		if over || time.Since(began) > e.Patience() || !retry.SleepBefore(ctx, late, e.Wait(try)) {
			return true, e
		}
		c.state.Store(callQueued)
		c.err = nil
	}
}

// abandon leaves c because ctx ended, or its time is over; nil means that c has just ended and its token comes.
func (p *producerStream) abandon(ctx context.Context, c *Call) *fault.Fault {
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
			return fault.Ended(ctx, true, "no answer came")
		}
		p.abandoned(c)
		e := fault.Ended(ctx, c.Unsure, "")
		if e.Message = p.s.unreached(); e.Message != "" {
			e.Code = wire.Unavailable
		}
		return e
	}
}

const (
	reasonGap      = "gap"      // a sequence number before a commit's own was never judged
	reasonUnplaced = "unplaced" // a call has yet to be placed: it never reaches a caller

	limitRequestIDs = "request_ids" // how many request ids a partition keeps
)

// unplaced sends a call back to be placed, now that it is known how many partitions there are.
func unplaced() *fault.Fault {
	return &fault.Fault{Code: wire.WrongPartition, Reason: reasonUnplaced, Op: fault.OpNone}
}
