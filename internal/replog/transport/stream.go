package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// streamChunk is how much of a stream is in one frame, at most.
const streamChunk = 64 << 10

// streamConn is a stream as its user sees it: bytes in frames, with a frame that ends them. Neither
// the end of a TCP connection nor that of a TLS one tells whether the other side had more to say:
// that of a killed process looks alike. Reads and writes have a lock each, so that one may wait
// while the other goes on.
type streamConn struct {
	*conn
	t    *Transport
	peer *peer

	reading sync.Mutex // guards the fields below
	// in reads the frames of the stream.
	in frameReader
	// left is what was not read yet of the last frame.
	left []byte
	// readErr is how reading has ended, for good.
	readErr error

	writing sync.Mutex // guards the fields below
	// head is the buffer of a frame's head, used again.
	head []byte
	// writeErr says that nothing can be written any more: part of a frame may be gone, or the end
	// was said.
	writeErr error
}

// newStream returns the stream of a connection.
func newStream(c *conn, p *peer) *streamConn {
	in := frameReader{r: c, max: streamChunk, chunk: 2 * streamChunk}
	if c.class == forward { // there may be many, and most requests are small
		in.chunk = controlChunk
	}
	return &streamConn{conn: c, t: p.t, peer: p, in: in}
}

// mostStreams bounds the streams of a class to one peer, in one direction.
func (t *Transport) mostStreams(class Class) int {
	if class == forward {
		return t.o.Forwards
	}
	return t.o.Streams
}

// OpenStream opens a stream to a peer. ctx bounds the opening only. Errors: ErrUnknownPeer, ErrTooManyStreams,
// *RefusedError, and those of the connection. While the peer cannot be heard for the stall timeout, or takes nothing for
// as long, the stream is closed; how long an answer may take is the user's.
func (t *Transport) OpenStream(ctx context.Context, to NodeID, kind string) (Stream, error) {
	if len(kind) > maxKind {
		return nil, fmt.Errorf("kind of a stream: %d bytes, at most %d", len(kind), maxKind)
	}
	return t.openStream(ctx, to, stream, kind)
}

// OpenForward opens a stream for requests of clients to a peer, which its handler of forwards serves. It is bounded by
// Options.Forwards, apart from other streams; otherwise it is as OpenStream.
func (t *Transport) OpenForward(ctx context.Context, to NodeID) (Stream, error) {
	return t.openStream(ctx, to, forward, "")
}

// HandleForward sets the handler of the clients' requests that peers forward; nil: they are refused.
func (t *Transport) HandleForward(h StreamHandler) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forwards = h
}

// forwardHandler returns the handler of forwarded requests; nil: there is none.
func (t *Transport) forwardHandler() StreamHandler {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.forwards
}

// openStream opens a stream of a class. A place is reserved while it dials, so that many callers at
// once stay within the bound.
func (t *Transport) openStream(ctx context.Context, to NodeID, class Class, kind string) (Stream, error) {
	p := t.peer(to)
	switch {
	case t.ctx.Err() != nil:
		return nil, ErrClosed
	case p == nil:
		return nil, ErrUnknownPeer
	}
	if err := p.reserve(class); err != nil {
		return nil, err
	}
	defer p.opened(class)
	c, err := t.dial(ctx, p, class, kind)
	if err != nil {
		return nil, fmt.Errorf("open %s %s to node %s: %w", class, kind, to, err)
	}
	t.stats.streamsOpened.Add(1)
	return newStream(c, p), nil
}

// Read reads what the peer wrote. io.EOF: that was all. A read that came to its deadline may be repeated.
func (s *streamConn) Read(b []byte) (int, error) {
	s.reading.Lock()
	defer s.reading.Unlock()
	for len(s.left) == 0 && s.readErr == nil && len(b) > 0 {
		f, err := s.in.next()
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded) && !s.isDead():
			return 0, err
		case errors.Is(err, io.EOF):
			s.readErr = s.cause(io.ErrUnexpectedEOF)
		case err != nil:
			s.readErr = s.cause(s.t.broken(s.conn, err))
		case f.kind == kindEnd:
			s.readErr = io.EOF
		case f.kind != kindMessage:
			s.readErr = s.t.broken(s.conn, fmt.Errorf("%w: kind %d in a stream", ErrCorrupt, f.kind))
		default:
			s.left = f.payload
		}
	}
	n := copy(b, s.left)
	if s.left = s.left[n:]; n > 0 || len(b) == 0 {
		return n, nil
	}
	return 0, s.readErr
}

// Write writes to the peer. After an error, which may have cut a frame, nothing can be written any
// more. It is cut into frames of at most streamChunk, so that a reader checks what it gets before
// the whole has come.
func (s *streamConn) Write(b []byte) (int, error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	done := 0
	for done < len(b) {
		part := b[done:min(len(b), done+streamChunk)]
		if err := s.frame(kindMessage, part); err != nil {
			return done, err
		}
		done += len(part)
	}
	return done, nil
}

// frame writes one frame. writing is held.
func (s *streamConn) frame(kind byte, payload []byte) error {
	if s.writeErr != nil {
		return s.writeErr
	}
	s.head = appendHead(s.head[:0], 0, kind, payload)
	pieces := net.Buffers{s.head, payload}
	if err := s.writeAll(&pieces); err != nil {
		s.writeErr = s.cause(err)
		return s.writeErr
	}
	return nil
}

// CloseWrite tells the peer that all was said.
func (s *streamConn) CloseWrite() error {
	s.writing.Lock()
	defer s.writing.Unlock()
	if err := s.frame(kindEnd, nil); err != nil {
		return err
	}
	s.writeErr = fmt.Errorf("write after the end of a stream: %w", net.ErrClosed)
	return nil
}

// Close ends the stream, at once. Without CloseWrite before it, the peer sees that something may be missing.
func (s *streamConn) Close() error {
	s.close(net.ErrClosed)
	s.peer.leave(s.conn)
	return nil
}

// LocalAddr returns this side's address.
func (s *streamConn) LocalAddr() net.Addr { return s.wire.LocalAddr() }

// RemoteAddr returns the peer's address.
func (s *streamConn) RemoteAddr() net.Addr { return s.wire.RemoteAddr() }

// SetDeadline sets both deadlines.
func (s *streamConn) SetDeadline(t time.Time) error {
	return errors.Join(s.SetReadDeadline(t), s.SetWriteDeadline(t))
}

// SetReadDeadline ends reads at a time.
func (s *streamConn) SetReadDeadline(t time.Time) error { return s.wire.SetReadDeadline(t) }

// SetWriteDeadline ends writes at a time; one that it cuts short is the last.
func (s *streamConn) SetWriteDeadline(t time.Time) error {
	if s.tls != nil {
		return s.tls.SetWriteDeadline(t)
	}
	return s.wire.SetWriteDeadline(t)
}
