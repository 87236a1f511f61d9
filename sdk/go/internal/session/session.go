package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/sdk/go/internal/fault"
	"github.com/millrace/millrace/sdk/go/internal/retry"
	"github.com/millrace/millrace/sdk/go/internal/transport"
	"github.com/millrace/millrace/sdk/go/internal/wakeup"
	"github.com/millrace/millrace/sdk/go/internal/wire"
)

// session keeps one stream open under one session id. A broken stream is opened again; what was written and not
// acknowledged goes back to its role, which sends it again.
//
// Two goroutines serve it: run opens the stream and reads, write writes. Callers only add to the role's queues.
type session struct {
	hub *Hub
	// role is what is sent and received.
	role role
	// ctx ends the session at once; stop ends it with a cause, which run returns.
	ctx  context.Context
	stop context.CancelCauseFunc
	// wake tells the writer, or an idle run, that there is something to look at.
	wake wakeup.Wakeup
	// done is closed when run has returned.
	done chan struct{}

	// partition is that of its streams, and keys says that they are of puts and not of tasks.
	partition int
	keys      bool

	mu *sync.Mutex // guards the fields below and those of the role
	// id is 16 bytes, under which a server remembers what the session did. The role may replace it.
	id []byte
	// seq is the number of the last frame; it is unique in a stream.
	seq uint64
	// frames are those that were written and are not acknowledged, by seq; used is how much of the window they take, and limit all of
	// it.
	frames map[uint64]outgoing
	used   window
	limit  window
	// endpoint is where the stream is, or was last.
	endpoint *transport.Endpoint
	// up says that Welcome came and the stream is writable.
	up bool
	// cancel ends the stream; nil while there is none.
	cancel context.CancelFunc
	// goaway says that the server stops: nothing more is written to this stream.
	goaway bool
	// closing has the stream half-closed when nothing is left.
	closing bool
	// pause is until when the server asked to send no more work.
	pause time.Time
	// plain says that the way has no sessions: what must be repeatable carries an id of its own.
	plain bool
	// again says that the stream was cut on purpose: the next one is opened without a wait.
	again bool
	// blocked says that the window had no room for what waits.
	blocked bool
	// sweep gives up what is too old; nil while nothing is under way.
	sweep *time.Timer
	// auth is a token to tell the open stream; nil: it knows the newest.
	auth *string
	// lastErr is why there is no stream.
	lastErr error
}

// window counts what the server has not acknowledged: tasks and settles, their encoded bytes, and commits, which have a bound of their
// own because each may hold many changes.
type window struct{ items, bytes, commits int }

// Limits of a stream until the server names its own.
const (
	FrameAim      = 1 << 20 // bytes: a frame is closed here
	FrameBytes    = 4 << 20 // bytes: a frame that is larger is refused
	welcomeWithin = 10 * time.Second
)

// defaultWindow holds until a Welcome names limits.
var defaultWindow = window{items: 4096, bytes: 16 << 20, commits: 64}

// role is what a session does with its stream. All methods but receive are called with the session's mu held.
type role interface {
	// hello adds to the first frame of a stream what the role has to say.
	hello(h *millracev1.Hello)
	// moved says that the next stream goes another way than the last: its plain has changed.
	moved()
	// welcomed says that the server let the session in. What waits may be written from here on.
	welcomed(w *millracev1.Welcome)
	// parted says that the stream has ended.
	parted()
	// next makes the next frame to write, with that seq; nil when nothing waits or the window is full. A frame that is
	// not acknowledged has no outgoing.
	next(seq uint64) (*millracev1.ClientFrame, outgoing)
	// receive takes a frame that is not the session's own, such as tasks. It is called without mu, by one goroutine.
	receive(f *millracev1.ServerFrame)
	// refuse ends all that waits: what had left as unknown, the rest as refused.
	refuse(err *fault.Fault)
	// expire ends what was first sent before t and waits to be sent again; it returns the first sending of the oldest
	// that is left, or zero.
	expire(t time.Time) time.Time
	// idle reports whether nothing waits to be written.
	idle() bool
}

// outgoing is a frame that awaits its ack.
type outgoing interface {
	// size is what the frame takes of the window. It does not change while the frame is under way.
	size() window
	// acked takes the answer, which is the end of the frame. It is called without mu.
	acked(a *millracev1.Ack)
	// lost puts the content back to the front of its queue; called in falling order of seq.
	lost()
	// expire ends what was first sent before t and has no answer. Otherwise as the role's.
	expire(t time.Time) time.Time
}

// newSession makes a session whose streams are of a partition. mu guards it and its role.
func newSession(hub *Hub, mu *sync.Mutex, partition int) *session {
	s := &session{
		hub: hub, mu: mu, partition: partition, wake: wakeup.New(), done: make(chan struct{}), id: wire.Random16(),
		frames: map[uint64]outgoing{}, limit: defaultWindow,
	}
	s.ctx, s.stop = context.WithCancelCause(context.Background())
	return s
}

// poke makes the writer look for work.
func (s *session) poke() { s.wake.Poke() }

// run serves the session until it is stopped or, when it is closing, drained. once makes it return on an error that
// opening again cannot mend; otherwise it then waits for the next call.
func (s *session) run(once bool) error {
	defer close(s.done)
	for try := 0; ; try++ {
		// connect serves a stream to its end: what follows decides how the next one begins.
		asked, welcomed, err := s.connect()
		if welcomed {
			try = 0
		}
		s.mu.Lock()
		s.lastErr = err
		s.putBack()
		finished := s.closing && s.role.idle()
		stop, again := s.ctx.Err() != nil, s.again
		s.again = false
		if stop {
			s.role.refuse(fault.Closed())
		} else if retry.Permanent(err) {
			s.role.refuse(fault.FromStatus(err))
		}
		s.mu.Unlock()
		switch {
		case stop:
			return context.Cause(s.ctx)
		// The error named another node: the next stream goes there, without a wait.
		case s.turns(asked, err, try < retry.Hops):
		// It was closing, and nothing is left.
		case finished:
			return nil
		// The role cannot go on without the server's consent: its owner is told.
		case retry.Permanent(err) && once:
			return s.hub.Error(fault.FromStatus(err))
		// Each call was refused. The next one tries again, as the reason may have gone by then.
		case retry.Permanent(err):
			try = -1
			if !s.awaitWork() {
				return context.Cause(s.ctx)
			}
		case !again:
			e := fault.FromStatus(err)
			if e.Code == wire.Unavailable && !welcomed {
				s.hub.outage.failed(s.hub.Logger, asked, s.hub.Error(e))
			}
			retry.Sleep(s.ctx, e.Wait(try))
		}
	}
}

// turns takes in what the end of a stream at an address says of the partition's leader. It reports whether to go there at
// once, which is done only so often in a row.
func (s *session) turns(asked string, err error, soon bool) bool {
	if err == nil {
		return false
	}
	return s.hub.Router.TurnTo(s.partition, asked, fault.FromStatus(err).Refusal()) && soon
}

// awaitWork blocks until something waits to be written; false when the session was stopped.
func (s *session) awaitWork() bool {
	for {
		s.mu.Lock()
		ready := !s.role.idle() || s.closing
		s.mu.Unlock()
		if ready {
			return s.ctx.Err() == nil
		}
		select {
		case <-s.wake:
		case <-s.ctx.Done():
			return false
		}
	}
}

// connect opens a stream at the address asked and serves it to its end. welcomed says that the server let the session in.
func (s *session) connect() (asked string, welcomed bool, err error) {
	// The endpoint stays open while this stream uses it, even if the router has left it meanwhile.
	g := s.hub.Router.AcquireTo(s.partition)
	defer s.hub.Router.Release(g)
	conn := s.hub.Router.OpenStream(g)
	defer s.hub.Router.CloseStream(conn)
	s.move(g.Plain)
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	stay := context.AfterFunc(g.Gone, cancel) // until it is let in: then it ends well
	defer stay()
	// Remembered, so that a change while the stream opens is told to it.
	token := s.hub.Token()
	stream, err := s.open(ctx, cancel, g, conn)
	if err = s.hub.Router.Admitted(s.ctx, g, err); err != nil {
		return g.Address, false, err
	}
	stay()
	s.hub.outage.over(s.hub.Logger, g.Address)
	s.mu.Lock()
	s.endpoint, s.up, s.goaway, s.cancel, s.auth = g, true, false, cancel, nil
	if newest := s.hub.token.Load(); *newest != token {
		s.auth = newest // the stream began with the one before
	}
	s.mu.Unlock()
	quit, wrote := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(wrote)
		s.write(stream, quit)
	}()
	err = s.read(stream, cancel, g)
	cancel() // frees a writer that the server's window holds
	close(quit)
	<-wrote
	return g.Address, true, g.End(err)
}

// move tells the role when the next stream goes another way.
func (s *session) move(plain bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.plain != plain {
		s.plain = plain
		s.role.moved()
	}
}

// open opens a stream on g that is let in.
func (s *session) open(ctx context.Context, cancel func(), g *transport.Endpoint, conn *transport.StreamConn) (grpc.BidiStreamingClient[millracev1.ClientFrame, millracev1.ServerFrame], error) {
	begin := millracev1.NewQueueStreamClient(conn).Open
	if s.keys {
		begin = millracev1.NewKVStreamClient(conn).Open
	}
	stream, err := begin(ctx, grpc.WaitForReady(s.hub.Router.Waits(g)), grpc.ForceCodecV2(s.hub.codec))
	if err != nil {
		return nil, err
	}
	// gRPC bounds no single message: a server that says nothing is left by the timer.
	hung := time.AfterFunc(welcomeWithin, cancel)
	defer hung.Stop()
	return stream, s.greet(stream, g)
}

// greet sends Hello and takes Welcome.
func (s *session) greet(stream grpc.BidiStreamingClient[millracev1.ClientFrame, millracev1.ServerFrame], g *transport.Endpoint) error {
	hello := &millracev1.Hello{Version: 1, Namespace: s.hub.Namespace, Partition: uint32(s.partition)}
	s.mu.Lock()
	s.role.hello(hello)
	hello.Session = s.id
	s.mu.Unlock()
	if err := stream.Send(&millracev1.ClientFrame{Frame: &millracev1.ClientFrame_Hello{Hello: hello}}); err != nil && !errors.Is(err, io.EOF) {
		return err // io.EOF means that Recv has the reason
	}
	f, err := stream.Recv()
	if err != nil {
		return err
	}
	w := f.GetWelcome()
	if w == nil {
		return fmt.Errorf("server began its stream with %T, not with a welcome", f.Frame)
	}
	s.hub.Learned(max(int(w.Partitions), 1))
	s.hub.Router.SetLeader(g, s.partition, w.Directory, w.Nodes)
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := w.Limits; l != nil {
		s.limit = window{
			items:   orDefault(l.UnackedItems, defaultWindow.items),
			bytes:   orDefault(l.UnackedBytes, defaultWindow.bytes),
			commits: orDefault(l.UnackedCommits, defaultWindow.commits),
		}
	}
	s.role.welcomed(w)
	return nil
}

// orDefault is v, or d where a limit is not named.
func orDefault(v uint32, d int) int {
	if v == 0 {
		return d
	}
	return int(v)
}

// read serves what the server sends, until the stream ends.
func (s *session) read(stream grpc.BidiStreamingClient[millracev1.ClientFrame, millracev1.ServerFrame], cancel func(), g *transport.Endpoint) error {
	for {
		f, err := stream.Recv()
		if err != nil {
			return err
		}
		g.Heard()
		switch x := f.Frame.(type) {
		case *millracev1.ServerFrame_Ack:
			s.ack(x.Ack)
		case *millracev1.ServerFrame_Throttle:
			s.throttle(x.Throttle.RetryAfter.AsDuration())
		case *millracev1.ServerFrame_Goaway:
			s.mu.Lock()
			s.goaway = true
			s.mu.Unlock()
			s.poke()
			late := time.AfterFunc(wire.GoawayWithin, cancel)
			defer late.Stop()
		case *millracev1.ServerFrame_Directory:
			s.hub.Router.Directory(g, x.Directory.GetPartitions(), x.Directory.GetNodes())
		default:
			s.role.receive(f)
		}
	}
}

// ack ends the frame that a answers. An ack of a frame that nothing is known of is ignored.
func (s *session) ack(a *millracev1.Ack) {
	s.mu.Lock()
	out, ok := s.frames[a.Seq]
	if !ok {
		s.mu.Unlock()
		return
	}
	delete(s.frames, a.Seq)
	s.endpoint.Acked()
	n := out.size()
	s.used = window{s.used.items - n.items, s.used.bytes - n.bytes, s.used.commits - n.commits}
	wake := s.blocked || n.commits > 0 || s.closing
	s.blocked = false
	s.mu.Unlock()
	out.acked(a)
	if wake {
		s.poke()
	}
}

// throttle pauses the sending of work for d, and wakes the writer after it.
func (s *session) throttle(d time.Duration) {
	s.mu.Lock()
	s.pause = time.Now().Add(d)
	s.mu.Unlock()
	time.AfterFunc(d, s.poke)
}

// putBack ends the stream's bookkeeping: what was not acknowledged goes back to the role. It needs mu.
func (s *session) putBack() {
	s.up, s.cancel, s.pause = false, nil, time.Time{}
	seqs := slices.Sorted(maps.Keys(s.frames))
	if len(seqs) > 0 {
		s.endpoint.Answered(len(seqs))
	}
	for _, seq := range slices.Backward(seqs) {
		out := s.frames[seq]
		delete(s.frames, seq)
		out.lost()
	}
	s.role.expire(time.Now().Add(-retry.ResendFor))
	s.used = window{}
	s.role.parted()
}

// reauth tells an open stream of a new token.
func (s *session) reauth(token string) {
	s.mu.Lock()
	s.auth = &token
	s.mu.Unlock()
	s.poke()
}

// cut ends the stream, so that it is opened again. It needs mu.
func (s *session) cut() {
	if s.cancel != nil {
		s.again = true
		s.cancel()
	}
}

// fits reports whether the window has room for n more. An empty window takes anything. It needs mu.
func (s *session) fits(n window) bool {
	ok := s.used == (window{}) || s.used.items+n.items <= s.limit.items && s.used.bytes+n.bytes <= s.limit.bytes &&
		s.used.commits+n.commits <= s.limit.commits
	s.blocked = s.blocked || !ok
	return ok
}

// sent is how many frames that need an ack were written on the open stream.
func (s *session) sent() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seq
}
