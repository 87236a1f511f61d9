package api

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/auth"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

const (
	// streamTick is how often a stream looks at its reader.
	streamTick = 10 * time.Second
	// helloWait is how long a stream may say nothing at first.
	helloWait = time.Minute
	// streamVersion is the version of the frames' protocol.
	streamVersion = 1
)

// queueStream serves the bidirectional stream of producers and workers.
type queueStream struct {
	pb.UnimplementedQueueStreamServer
	s *Server
}

// Open serves one stream until either side ends it.
func (qs *queueStream) Open(ss grpc.BidiStreamingServer[pb.ClientFrame, pb.ServerFrame]) error {
	return qs.s.openStream(ss, false)
}

// openStream serves a stream of all frames, or of those of keys.
func (s *Server) openStream(ss grpc.BidiStreamingServer[pb.ClientFrame, pb.ServerFrame], keys bool) error {
	if s.Stopping() {
		return core.Unavailable{Reason: "stopping"}
	}
	st := &stream{
		s: s, ss: ss, keys: keys, opened: s.o.Clock.Boot(), ended: make(chan struct{}), gone: make(chan struct{}),
		kick: make(chan struct{}, 1), room: make(chan struct{}, 1), subs: make(map[uint32]bool),
		follow: make(chan (<-chan struct{}), 1), drained: make(chan struct{}, 1),
	}
	var ok bool
	if st.call, ok = auth.CallOf(ss.Context()); !ok {
		return core.Unauthenticated{}
	}
	return st.run()
}

// sessionKey names a session; the tenant is in the partition.
type sessionKey struct {
	part core.Partition
	id   core.SessionID
}

// stream is one open stream. Three goroutines serve it: the reader takes frames and proposes them in order, the
// writer sends what is queued, and the handler watches token, reader and server. It is the core.Sink of its session.
//
// A frame that was admitted is acknowledged once, by the writer, when its proposal has ended; until then it weighs on
// the window, at which the reader stops. Tasks that were assigned and never sent are given back at the end, and the
// next stream of the same session opens only after that.
type stream struct {
	s      *Server
	ss     grpc.ServerStream
	call   *auth.Call    // knows the caller, and ends the stream's context with the caller's token
	opened time.Duration // by the boot clock

	keys bool // it takes only the frames of keys

	kick    chan struct{} // wakes the writer
	room    chan struct{} // wakes the reader
	drained chan struct{} // wakes who reads keys

	ended   chan struct{} // closed when the stream is over; cause is set before
	endOnce sync.Once
	cause   error
	gone    chan struct{} // closed when no task of the stream is on its way back any more

	// Of the reader alone; partitions, part and key do not change after the Hello.
	partitions []core.PartitionInfo // of the namespace
	space      string               // its name
	part       core.Partition
	key        sessionKey
	subs       map[uint32]bool
	asks       chan asked             // for who reads keys; nil before the first
	follow     chan (<-chan struct{}) // tells the handler to follow the leaders: what is closed when one changes

	mu        sync.Mutex   // guards the fields below
	session   core.Session // nil before the Hello is answered
	out       []outgoing   // to send, oldest first
	outBytes  int64        // of out and of what is being sent
	sendSince time.Duration
	sending   bool
	load      load          // admitted and not acknowledged
	finishing bool          // no frame is admitted; the stream ends when load is empty and all is sent
	final     error         // what it ends with then
	told      *pb.Directory // the directory as it was sent last
	telling   bool          // another one is queued
	closed    bool          // nothing is queued any more
}

// load is what frames weigh on a stream's window.
type load struct{ frames, items, bytes, commits int64 }

func (l *load) add(d load, sign int64) {
	l.frames += sign * d.frames
	l.items += sign * d.items
	l.bytes += sign * d.bytes
	l.commits += sign * d.commits
}

func (st *stream) run() error {
	st.s.Work.Add(1)
	go func() {
		defer st.s.Work.Done()
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
	if session := st.shut(); session != nil {
		session.Close()
	}
}

// shut queues nothing any more, and returns the session, if there is one.
func (st *stream) shut() core.Session {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.closed = true
	if st.session == nil { // what is queued is never sent
		st.weigh(-st.outBytes)
	}
	return st.session
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
	stop := st.s.Life.Done()
	var moved <-chan struct{}
	tick := st.s.o.Clock.NewTimer(streamTick)
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
			moved = st.s.o.Backend.Moved()
			st.tellLeaders()
		}
	}
}

// who is the caller, with the rights that they have now.
func (st *stream) who() *edge.Caller { return st.call.Holder() }

// check ends the stream when its reader takes nothing, or it never said hello.
func (st *stream) check() {
	now := st.s.o.Clock.Boot()
	st.mu.Lock()
	stuck := st.sending && now-st.sendSince >= time.Duration(st.s.Limits.SendStallMs)*time.Millisecond
	silent := st.session == nil && now-st.opened >= helloWait
	st.mu.Unlock()
	switch {
	case stuck:
		st.end(core.Unavailable{Reason: "slow_consumer", Limit: "send_stall_ms"})
	case silent:
		st.end(core.DeadlineExceeded{})
	}
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

// hello opens or resumes the session and queues the Welcome.
func (st *stream) hello(ctx context.Context, in *pb.Hello) error {
	s, who := st.s, *st.who()
	spec, name, fact := s.sessionSpec(ctx, who, in)
	if fact != nil {
		return edge.Within("hello", fact)
	}
	ns, err := s.namespace(ctx, who, name, true)
	if err != nil {
		return err
	}
	if int64(in.GetPartition()) >= int64(len(ns.Partitions)) {
		return edge.Invalid("hello.partition", "must be a partition of the namespace")
	}
	st.space, st.partitions, st.part = name, ns.Partitions, ns.Partitions[in.GetPartition()].Partition
	st.key = sessionKey{st.part, spec.ID}
	// Headers go before there is a writer. Else the first frame takes them along, unless the handler ends the stream just then:
	// its status would count for them, and the frame could reach the client before it.
	if err := st.ss.SendHeader(nil); err != nil {
		return err
	}
	if err := s.enter(ctx, st); err != nil {
		return err
	}
	writes := false
	defer func() {
		if !writes { // the writer leaves else
			s.leave(st)
		}
	}()
	session, welcome, err := s.o.Backend.Session(ctx, st.part, spec, st)
	if err != nil {
		return err
	}
	defer func() {
		if !writes {
			session.Close()
		}
	}()
	moved := s.o.Backend.Moved() // before the leaders are read
	out := s.welcome(who, st.part, welcome)
	places := s.placesOf(st.partitions)
	out.Directory, out.Nodes, out.Partitions = places.Partitions, places.Nodes, uint32(len(st.partitions))
	if len(st.partitions) == 1 {
		out.Directory = s.directory(st.partitions)
	}
	first := outgoing{frame: &pb.ServerFrame{Frame: &pb.ServerFrame_Welcome{Welcome: out}}}
	st.mu.Lock()
	st.session, st.told = session, places
	before := []outgoing{first}
	for _, c := range welcome.Cancelled {
		f := cancelFrame(core.TaskHold{Task: c.Task, Token: c.Token}, c.Reason, c.Until)
		f.bytes = 0 // as the welcome's: it does not wait for room
		before = append(before, f)
	}
	st.out = append(before, st.out...)
	closed := st.closed
	st.mu.Unlock()
	if closed { // the stream ended in between, before it had a session to close
		session.Close()
	}
	s.Work.Add(1)
	writes = true
	go func() {
		defer s.Work.Done()
		st.write()
	}()
	st.follow <- moved // nil, for ever, where there is only this partition: with its leader the stream ends
	return nil
}

// sessionSpec reads a Hello.
func (s *Server) sessionSpec(ctx context.Context, who edge.Caller, in *pb.Hello) (spec core.SessionSpec, name string, fact core.Fact) {
	if in.GetVersion() != streamVersion {
		return spec, "", core.Invalid{Field: "version", Reason: "not_supported", Message: "must be 1"}
	}
	if len(in.GetSession()) != sessionBytes || core.SessionID(in.GetSession()) == (core.SessionID{}) {
		return spec, "", edge.Invalid("session", "must be 16 random bytes")
	}
	if name = in.GetNamespace(); name == "" {
		md, _ := metadata.FromIncomingContext(ctx)
		if name, fact = namespaceOf(md); fact != nil {
			return spec, "", fact
		}
	}
	if fact = SpaceName("namespace", name); fact != nil {
		return spec, "", fact
	}
	if fact = s.worker(in.GetWorker()); fact != nil {
		return spec, "", edge.Within("worker", fact)
	}
	if top := s.Limits.Subscriptions * s.Limits.Slots; int64(len(in.GetHeld())) > top {
		return spec, "", edge.TooLarge("held", "slots", top)
	}
	t := translator{l: &s.Limits}
	held, fact := t.holds("held", in.GetHeld())
	if fact != nil {
		return spec, "", fact
	}
	spec = core.SessionSpec{
		ID: core.SessionID(in.GetSession()), Worker: in.GetWorker().GetId(), Principal: who.Name, Held: held,
	}
	if spec.Worker == "" {
		spec.Worker = who.Name
	}
	return spec, name, nil
}

func (s *Server) worker(in *pb.WorkerInfo) core.Fact {
	if fact := TextUpTo("id", in.GetId(), "worker_bytes", s.Limits.WorkerBytes); fact != nil {
		return fact
	}
	if fact := TextUpTo("host", in.GetHost(), "worker_bytes", s.Limits.WorkerBytes); fact != nil {
		return fact
	}
	if int64(len(in.GetKinds())) > s.Limits.WorkerKinds {
		return edge.TooLarge("kinds", "worker_kinds", s.Limits.WorkerKinds)
	}
	for i, kind := range in.GetKinds() {
		if fact := QueueName(edge.Item("kinds", i), kind); fact != nil {
			return fact
		}
	}
	return nil
}

func (s *Server) welcome(who edge.Caller, p core.Partition, w core.Welcome) *pb.Welcome {
	now := w.At.Stamp
	if now == 0 {
		now = s.o.Backend.Now(p)
	}
	return &pb.Welcome{
		Tenant: who.Tenant, ShardTime: timeOf(now),
		Kept: showHolds(w.Kept), Lost: showHolds(w.Lost), AppliedSeq: w.AppliedSeq,
		Limits: &pb.Limits{
			FrameItems: uint32(s.Limits.FrameItems), FrameBytes: uint32(s.Limits.MessageBytes), UnackedItems: uint32(s.Limits.UnackedItems),
			UnackedBytes: uint32(s.Limits.UnackedBytes), UnackedCommits: uint32(s.Limits.UnackedCommits), Slots: uint32(s.Limits.Slots),
		},
	}
}

// enter makes st the stream of its session. One that is open is ended first, and what it did not deliver is back.
func (s *Server) enter(ctx context.Context, st *stream) error {
	for {
		s.mu.Lock()
		old := s.sessions[st.key]
		if old == nil {
			s.sessions[st.key] = st
			s.mu.Unlock()
			return nil
		}
		s.mu.Unlock()
		old.end(core.Unavailable{Reason: "session_resumed"})
		select {
		case <-old.gone:
		case <-st.ended:
			return st.cause
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// leave makes room for the next stream of st's session.
func (s *Server) leave(st *stream) {
	s.mu.Lock()
	delete(s.sessions, st.key)
	s.mu.Unlock()
	close(st.gone)
}

// recovered turns a panic of one of the stream's goroutines into its end. Builds that check invariants let it pass.
func (st *stream) recovered() {
	if !st.s.Recovers {
		return
	}
	if p := recover(); p != nil {
		st.end(fmt.Errorf("panic: %v\n%s", p, debug.Stack()))
	}
}
