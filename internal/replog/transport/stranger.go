package transport

import (
	"context"
	"errors"
	"fmt"
)

// A node that is about to join is not a peer of any node yet. It knows the address of one node and not its id. Its
// certificate proves which node of the cluster it is to be. It may open streams of kinds that are open to such nodes. Peers
// may open them too.

// HandleOpen sets the handler of the streams of a kind that any node of the cluster may open; nil: they are refused.
func (t *Transport) HandleOpen(kind string, h StreamHandler) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if h == nil {
		delete(t.open, kind)
		return
	}
	t.open[kind] = h
}

// openHandler returns the handler of an open kind; nil: there is none.
func (t *Transport) openHandler(kind string) StreamHandler {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.open[kind]
}

// admit takes in a stream of a kind that is open to all nodes of the cluster. p is nil for a node that is not a peer.
func (t *Transport) admit(c *conn, p *peer, serve StreamHandler) (*peer, StreamHandler, error) {
	if p != nil {
		return p, serve, p.join(c)
	}
	if t.strange.Add(1) > int64(t.o.Strangers) {
		t.strange.Add(-1)
		return nil, nil, &RefusedError{Reason: TooManyStreams}
	}
	p = t.newStranger(c.from, "")
	if err := p.join(c); err != nil {
		t.done(p, c)
		return nil, nil, err
	}
	return p, serve, nil
}

// newStranger returns a node that is not a peer. Its connections end with the transport.
func (t *Transport) newStranger(id NodeID, address string) *peer {
	p := newPeer(t, id, address)
	p.stranger = true
	context.AfterFunc(p.ctx, func() { p.end(context.Cause(p.ctx)) })
	return p
}

// done forgets a connection that was served.
func (t *Transport) done(p *peer, c *conn) {
	p.leave(c)
	if p.stranger {
		p.end(errors.New("the stream has ended"))
		t.strange.Add(-1)
	}
}

// strangerStream is a stream to a node that is not a peer; closing it forgets the node. The place
// that it took is given back then.
type strangerStream struct {
	Stream
	p *peer
}

// Close ends the stream.
func (s strangerStream) Close() error {
	err := s.Stream.Close()
	s.p.end(ErrClosed)
	return err
}

// OpenAt opens a stream of an open kind to whichever node of the cluster listens at an address. ctx bounds the opening
// only. Errors: ErrClosed, *RefusedError, and those of the connection.
func (t *Transport) OpenAt(ctx context.Context, address, kind string) (Stream, error) {
	switch {
	case len(kind) > maxKind:
		return nil, fmt.Errorf("kind of a stream: %d bytes, at most %d", len(kind), maxKind)
	case t.ctx.Err() != nil:
		return nil, ErrClosed
	}
	if err := t.o.checkAddress(address); err != nil {
		return nil, err
	}
	p := t.newStranger(0, address)
	c, err := t.dial(ctx, p, stream, kind)
	if err != nil {
		p.end(err)
		return nil, fmt.Errorf("open stream %s at %s: %w", kind, address, err)
	}
	t.stats.streamsOpened.Add(1)
	return strangerStream{newStream(c, p), p}, nil
}
