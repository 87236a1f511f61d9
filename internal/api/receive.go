package api

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

const (
	// headBytes is what precedes a message: a byte that says whether it is compressed, and four of its length.
	headBytes = 5
	// smallMessage is the length up to which a message of a stream needs no reservation: the number of streams bounds them.
	smallMessage = 16 * kib
	// partBytes is how much of a larger message is taken from the transport at once, and copied to where all of it will be: the
	// transport keeps each frame in a buffer of its own, however small it is.
	partBytes = 64 * kib
)

// transportStream is what the transport calls a stream. grpc.ServerTransportStreamFromContext returns it; its methods are
// exported, but gRPC has no interface of them. With them the length of a message is known before the transport takes more of it
// than a window: grpc.ServerStream.RecvMsg lets all of a message come first.
type transportStream interface {
	ReadMessageHeader(header []byte) error
	Read(n int) (mem.BufferSlice, error)
	WriteStatus(st *status.Status) error
}

// The state of receiving counts up. It is odd while a message must come: the first one from the beginning, another one once it has
// begun, since a stream may be silent between messages. Beyond expired it was given up.
const expired = 1 << 63

// guardedStream is a stream as handlers see it. It knows the caller. It receives messages by itself: the bytes of a message are
// reserved before they are read, and what must come has to come in time (grpc_receive_ms).
type guardedStream struct {
	grpc.ServerStream
	// ctx knows the caller.
	ctx context.Context
	s   *Server
	// raw is the transport's own stream.
	raw transportStream
	// tenant is that of the caller, whose share of memory a message takes.
	tenant string
	// one says that the client sends one message, begun that it was asked for.
	one   bool
	begun bool            // the first message was asked for
	head  [headBytes]byte // of the message that is received
	// held is how many bytes of the server's requests the call has, until it ends.
	held int64
	// state is that of receiving; see expired. The reader counts it up, and the sweep may set expired.
	state atomic.Uint64

	// Of incoming, under its mutex.
	prev, next *guardedStream
	// seen is the state at the last round, rounds how often it was found so.
	seen   uint64
	rounds int32 // that it has been so
}

// errTransport ends every call of a build with another gRPC: without the transport's own methods nothing is bounded here.
var errTransport = errors.New("the transport of gRPC has another kind of stream than this build knows")

// guarding begins to guard a call; its leave must be called.
func (s *Server) guarding(ctx context.Context, ss grpc.ServerStream, tenant string, one bool) (*guardedStream, error) {
	raw, ok := grpc.ServerTransportStreamFromContext(ctx).(transportStream)
	if !ok {
		return nil, errTransport
	}
	g := &guardedStream{ServerStream: ss, ctx: ctx, s: s, raw: raw, tenant: tenant, one: one}
	g.state.Store(1)
	s.incoming.enter(g)
	return g, nil
}

// leave ends the guard of a call and gives back what it holds.
func (g *guardedStream) leave() {
	g.s.incoming.leave(g)
	if g.held > 0 {
		g.s.Requests.Give(g.held)
	}
}

// Context returns the context that knows the caller.
func (g *guardedStream) Context() context.Context { return g.ctx }

// RecvMsg receives the next message; io.EOF: there is none. What is wrong with the content of an inbound is kept in it.
func (g *guardedStream) RecvMsg(m any) error {
	read := 0
	if g.begun {
		if err := g.raw.ReadMessageHeader(g.head[:1]); err != nil {
			return g.lost(err)
		}
		read = 1
		g.state.Add(1)
	}
	g.begun = true
	// Even again once the message is there. If the sweep has given it up meanwhile, its error counts.
	state := g.state.Load()
	err := g.message(g.head[:], read, m)
	if state >= expired || !g.state.CompareAndSwap(state, state+1) {
		return core.DeadlineExceeded{}
	}
	return err
}

// RecvBytes receives one message of a stream that Add serves, and does not decode it. The bytes are the caller's. An error that is a
// fact says that the message is too large; io.EOF, that the client has ended its side.
func (s *Server) RecvBytes(ss grpc.ServerStream) ([]byte, error) {
	in := &inbound{limit: s.Limits.MessageBytes, raw: true}
	if err := ss.RecvMsg(in); err != nil {
		return nil, err
	}
	if in.fact != nil {
		return nil, in.fact
	}
	return in.data, nil
}

// message receives a message whose head was read in part.
func (g *guardedStream) message(head []byte, read int, m any) error {
	switch err := g.raw.ReadMessageHeader(head[read:]); {
	case errors.Is(err, io.EOF) && read > 0:
		return errCutShort
	case errors.Is(err, io.EOF) && g.one:
		return edge.Invalid("message", "is required")
	case err != nil:
		return g.lost(err)
	// A compressed message could grow beyond any reservation.
	case head[0] != 0:
		return status.Error(codes.Unimplemented, "compressed messages are not supported")
	}
	n := int64(binary.BigEndian.Uint32(head[1:]))
	in, _ := m.(*inbound)
	// Its bytes are not read: a stream can go on only where its receiver keeps the fact.
	if n > g.s.Limits.MessageBytes {
		fact := edge.TooLarge("", "grpc_message", g.s.Limits.MessageBytes)
		if in == nil {
			return fact
		}
		in.bytes, in.fact = int(n), fact
		return nil
	}
	give, err := g.reserve(n)
	if err != nil {
		return err
	}
	defer give()
	if err := g.content(int(n), in, m); err != nil {
		return err
	}
	if !g.one {
		return nil
	}
	// The client must end its side: a second message is a mistake.
	switch err := g.raw.ReadMessageHeader(head[:1]); {
	case err == nil:
		return edge.Invalid("message", "must be sent only once")
	case !errors.Is(err, io.EOF):
		return g.lost(err)
	}
	return nil
}

// content receives a message of n bytes into m, which is in if that is not nil.
func (g *guardedStream) content(n int, in *inbound, m any) error {
	if n <= smallMessage {
		var data mem.BufferSlice
		if n > 0 {
			var err error
			if data, err = g.raw.Read(n); err != nil {
				return g.cut(err)
			}
		}
		defer data.Free()
		return g.s.codec.Unmarshal(data, m)
	}
	if in != nil && in.raw {
		in.bytes, in.fact, in.data = n, nil, make([]byte, n)
		return g.fill(in.data)
	}
	pool := mem.DefaultBufferPool()
	whole := pool.Get(n)
	data := mem.BufferSlice{mem.NewBuffer(whole, pool)}
	defer data.Free()
	if err := g.fill(*whole); err != nil {
		return err
	}
	return g.s.codec.Unmarshal(data, m)
}

// fill reads as much as b takes.
func (g *guardedStream) fill(b []byte) error {
	for len(b) > 0 {
		part, err := g.raw.Read(min(len(b), partBytes))
		if err != nil {
			return g.cut(err)
		}
		b = b[part.CopyTo(b):]
		part.Free()
	}
	return nil
}

// errCutShort is of a client that ended its side within a message.
var errCutShort = edge.Invalid("message", "ends before its announced length")

// cut is the error of a message that has begun.
func (g *guardedStream) cut(err error) error {
	if errors.Is(err, io.EOF) {
		return errCutShort
	}
	return g.lost(err)
}

// lost is the error of a stream that cannot be read on.
func (g *guardedStream) lost(err error) error {
	if errors.Is(err, io.EOF) {
		return io.EOF
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return errCutShort
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	if g.ctx.Err() != nil {
		return status.FromContextError(g.ctx.Err()).Err()
	}
	return status.Error(codes.Unavailable, err.Error())
}

// reserve takes n bytes of what the node may hold before they come, and of the share that a tenant's messages on their way may
// have, until give. A call that gets none is refused; a stream waits, as its window lets it anyway.
func (g *guardedStream) reserve(n int64) (give func(), err error) {
	s := g.s
	if g.one {
		if !s.Requests.Take(n) {
			return nil, edge.ErrRequests
		}
		g.held += n
		if n <= smallMessage {
			return nothing, nil
		}
		if fact := s.RequestShares.Take(g.tenant, n); fact != nil {
			return nil, fact
		}
		return func() { s.RequestShares.Give(g.tenant, n) }, nil
	}
	if n <= smallMessage {
		return nothing, nil
	}
	n = min(n, s.Frames.Most)
	for {
		// Asked for before it is tried, so that what is given back in between wakes it.
		freed := s.Frames.Next()
		if s.FrameShares.Take(g.tenant, n) == nil {
			if s.Frames.Take(n) {
				return func() { s.FrameShares.Give(g.tenant, n); s.Frames.Give(n) }, nil
			}
			s.FrameShares.Give(g.tenant, n)
		}
		select {
		case <-freed:
		case <-g.ctx.Done():
			return nil, status.FromContextError(g.ctx.Err()).Err()
		}
	}
}

// nothing gives back what was not taken.
func nothing() {}

// expire ends the call from outside: its message did not come.
func (g *guardedStream) expire() {
	g.s.Refusals.Add("grpc_receive_ms")
	_ = g.raw.WriteStatus(status.Convert(g.s.Status(g.ctx, "", core.DeadlineExceeded{}))) // who is gone needs none
}

// incoming are the calls that are under way.
type incoming struct {
	mu   sync.Mutex     // guards all, and the streams' own fields
	last *guardedStream // the newest; the others by prev
}

// enter adds a call that begins.
func (l *incoming) enter(g *guardedStream) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if g.prev = l.last; g.prev != nil {
		g.prev.next = g
	}
	l.last = g
}

// leave removes a call that ends.
func (l *incoming) leave(g *guardedStream) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if g.prev != nil {
		g.prev.next = g.next
	}
	if g.next != nil {
		g.next.prev = g.prev
	} else {
		l.last = g.prev
	}
}

// overdue gives up the calls whose message has not come for the given rounds, and returns them; it is called once a round.
func (l *incoming) overdue(rounds int32) (out []*guardedStream) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for g := l.last; g != nil; g = g.prev {
		state := g.state.Load()
		if state != g.seen || state%2 == 0 || state >= expired {
			g.seen, g.rounds = state, 0
			continue
		}
		if g.rounds++; g.rounds >= rounds && g.state.CompareAndSwap(state, expired) {
			out = append(out, g)
		}
	}
	return out
}
