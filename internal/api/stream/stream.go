package stream

import (
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/auth"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

const (
	// streamTick is how often a stream looks whether its client still reads: often enough for send_stall_ms, and cheap for streams
	// that have nothing to do.
	streamTick = 10 * time.Second
	// helloWait is how long a stream may be open without a Hello: until then it has no session, and counts among the streams.
	helloWait = time.Minute
)

// stream is one open stream. Three goroutines serve it: the reader takes frames and proposes them in order, the
// writer sends what is queued, and the handler watches token, reader and server. It is the core.Sink of its session.
//
// A frame that was admitted is acknowledged once, by the writer, when its proposal has ended; until then it weighs on
// the window, at which the reader stops. Tasks that were assigned and never sent are given back at the end, and the
// next stream of the same session opens only after that.
type stream struct {
	d      *door
	ss     grpc.ServerStream // as the guard gives it: it reserves what comes
	call   *auth.Call        // knows the caller, and ends the stream's context with the caller's token
	opened time.Duration     // when, by the boot clock

	heardAt atomic.Int64 // when its last frame came, by the boot clock, in nanoseconds

	keys bool // it takes only the frames of keys

	// Each of these has room for one wake-up: a goroutine that is woken looks at the state again, so that one is enough for any
	// number of changes.
	kick    chan struct{} // wakes the writer
	room    chan struct{} // wakes the reader
	drained chan struct{} // wakes a goroutine that waits for room to send

	ended   chan struct{} // closed when the stream is over; cause is set before
	endOnce sync.Once     // of ended
	cause   error         // what the stream ends with; nil is a clean end
	gone    chan struct{} // closed when no task of the stream is on its way back any more

	// Of the reader alone; partitions, home and key do not change after the Hello.
	partitions []core.PartitionInfo   // of the namespace
	home       home                   // its partition
	key        sessionKey             // of its session, among those that are open
	subs       map[uint32]bool        // the subscriptions, by the client's number; limited by Limits.Subscriptions
	asks       chan asked             // to the goroutine that reads keys; nil before the first frame of gets
	follow     chan (<-chan struct{}) // tells the handler to follow the leaders: what is closed when one changes

	mu        sync.Mutex    // guards the fields below
	session   core.Session  // nil before the Hello is answered
	out       []outgoing    // to send, oldest first
	outBytes  int64         // of out and of what is being sent
	sendSince time.Duration // when the transport was given what is being sent, by the boot clock
	sending   bool          // something is being sent
	load      load          // admitted and not acknowledged
	finishing bool          // no frame is admitted; the stream ends when load is empty and all is sent
	final     error         // what it ends with then
	told      *pb.Directory // the directory as it was sent last
	telling   bool          // another one is queued
	waits     waits         // the tasks whose end the client is told of
	closed    bool          // nothing is queued any more
	asksNone  bool          // the client asked for no more tasks
	left      bool          // and then ended its side
}

// load is what frames weigh on a stream's window. bytes are those of the frames as they came.
type load struct{ frames, items, bytes, commits int64 }

// add adds what a frame weighs; sign is 1, or -1 to take it off.
func (l *load) add(d load, sign int64) {
	l.frames += sign * d.frames
	l.items += sign * d.items
	l.bytes += sign * d.bytes
	l.commits += sign * d.commits
}

// run serves the stream until it ends, and returns what it ends with. The writer may still give tasks back then: Work waits for it.
func (st *stream) run() error {
	st.d.Work.Add(1)
	go func() {
		defer st.d.Work.Done()
		st.read()
	}()
	defer st.close()
	st.watch()
	return st.cause
}

// errStreamFailed ends a stream whose handler panicked.
var errStreamFailed = errors.New("the stream's handler failed")

// close ends the stream, if it has not ended yet, and its session.
func (st *stream) close() {
	st.end(errStreamFailed)
	switch session, broke, left := st.shut(); {
	case session == nil:
	case broke:
		session.Break()
	case left:
		session.Leave()
	default:
		session.Close()
	}
}

// shut queues nothing any more, and returns the session, if there is one. broke says that it did not end on purpose: neither its
// client closed its side, nor did the node or the server end it; left, that its client closed its side after it asked for no more tasks.
func (st *stream) shut() (session core.Session, broke, left bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.closed = true
	if st.session == nil { // what is queued is never sent
		st.weigh(-st.outBytes)
	}
	return st.session, !st.finishing, st.left
}

// end ends the stream with err; nil is a clean end. The first call counts.
func (st *stream) end(err error) {
	st.endOnce.Do(func() {
		st.cause = err
		close(st.ended)
	})
}

// watch returns when the stream has ended.
func (st *stream) watch() {
	stop := st.d.Life.Done()
	var moved <-chan struct{}
	tick := st.d.Clock.NewTimer(streamTick)
	defer tick.Stop()
	for {
		select {
		case <-st.ended:
			return
		case <-st.ss.Context().Done():
			st.end(st.ss.Context().Err())
		case <-stop:
			stop = nil
			st.push(outgoing{frame: &pb.ServerFrame{Frame: &pb.ServerFrame_Goaway{Goaway: &pb.Goaway{Reason: "stopping"}}}})
			st.finish(core.Unavailable{Reason: "stopping"})
		case <-tick.C():
			st.check()
			tick.Reset(streamTick)
		case moved = <-st.follow:
		case <-moved:
			moved = st.d.node.Moved()
			st.tellLeaders()
		}
	}
}

// Heard is when the client was heard of last, by the boot clock.
func (st *stream) Heard() time.Duration { return time.Duration(st.heardAt.Load()) }

// who is the caller, with the rights that they have now.
func (st *stream) who() *edge.Caller { return st.call.Holder() }

// check ends the stream when its reader takes nothing, or it never said hello.
func (st *stream) check() {
	now := st.d.Clock.Boot()
	st.mu.Lock()
	stuck := st.sending && now-st.sendSince >= time.Duration(st.d.Limits.SendStallMs)*time.Millisecond
	silent := st.session == nil && now-st.opened >= helloWait
	st.mu.Unlock()
	switch {
	case stuck:
		st.end(core.Unavailable{Reason: "slow_consumer", Limit: "send_stall_ms"})
	case silent:
		st.end(core.DeadlineExceeded{})
	}
}

// drain has the session get no more tasks, as the client asked.
func (st *stream) drain() {
	st.session.Drain()
	st.mu.Lock()
	defer st.mu.Unlock()
	st.asksNone = true
}

// leave lets the stream end well: the client ended its side.
func (st *stream) leave() {
	st.mu.Lock()
	st.left = st.asksNone && !st.finishing
	st.mu.Unlock()
	st.finish(nil)
}

// finish lets the stream end with err once every admitted frame is acknowledged.
func (st *stream) finish(err error) {
	st.mu.Lock()
	if !st.finishing {
		st.finishing, st.final = true, err
	}
	session := st.session
	st.mu.Unlock()
	if session == nil {
		st.end(err)
		return
	}
	session.Drain()
	wake(st.kick)
	wake(st.room)
}

// wake sends to a channel of capacity 1 unless it is full: the waiting goroutine then looks again anyway.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// recovered turns a panic of one of the stream's goroutines into its end. Builds that check invariants let it pass.
func (st *stream) recovered() {
	if !st.d.Recovers {
		return
	}
	if p := recover(); p != nil {
		st.end(fmt.Errorf("panic: %v\n%s", p, debug.Stack()))
	}
}
