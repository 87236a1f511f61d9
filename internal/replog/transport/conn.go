package transport

import (
	"bufio"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"sync/atomic"
)

// Sizes of a connection's buffers. A TLS record is at most 16 KiB: reading a few at once saves calls of the kernel.
const (
	readBuffer  = 32 << 10
	corkedBytes = 256 << 10
)

// wire is what lies beneath TLS: reads are buffered, and the records of one batch leave in one write. It counts what
// moves, so that others can see that something does.
type wire struct {
	net.Conn
	// r reads from the connection by counted.
	r *bufio.Reader
	// reads counts reads that brought something, and writes counts writes. The keeper compares
	// them.
	reads, writes atomic.Uint64
	// writing says that a write is under way. While one lasts the peer takes nothing.
	writing atomic.Bool

	mu sync.Mutex // guards the fields below
	// corked says that writes gather in out.
	corked bool
	out    []byte
}

// newWire returns the wire of a connection.
func newWire(c net.Conn) *wire {
	w := &wire{Conn: c}
	w.r = bufio.NewReaderSize(counted{w}, readBuffer)
	return w
}

// counted reads from the connection itself.
type counted struct{ w *wire }

// Read counts what came.
func (c counted) Read(p []byte) (int, error) {
	n, err := c.w.Conn.Read(p)
	if n > 0 {
		c.w.reads.Add(1)
	}
	return n, err
}

// Read reads what was buffered, or waits for more.
func (w *wire) Read(p []byte) (int, error) { return w.r.Read(p) }

// Write writes, or collects while the connection is corked.
func (w *wire) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.corked {
		return w.write(p)
	}
	if len(w.out) > 0 && len(w.out)+len(p) > corkedBytes {
		if err := w.flush(); err != nil {
			return 0, err
		}
	}
	w.out = append(w.out, p...)
	return len(p), nil
}

// cork collects what is written until uncork.
func (w *wire) cork() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.corked = true
}

// uncork writes what was collected, and ends the collecting.
func (w *wire) uncork() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.corked = false
	return w.flush()
}

// flush writes what was collected. mu is held.
func (w *wire) flush() error {
	_, err := w.write(w.out)
	w.out = w.out[:0]
	return err
}

// write writes at once, and counts. mu is held.
func (w *wire) write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	w.writing.Store(true)
	n, err := w.Conn.Write(p)
	w.writing.Store(false)
	w.writes.Add(1)
	return n, err
}

// writev writes pieces as they are, in one call of the kernel if it has one for that.
func (w *wire) writev(pieces *net.Buffers) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writing.Store(true)
	_, err := pieces.WriteTo(w.Conn)
	w.writing.Store(false)
	w.writes.Add(1)
	return err
}

// CloseWrite ends what this side writes.
func (w *wire) CloseWrite() error {
	c, ok := w.Conn.(interface{ CloseWrite() error })
	if !ok {
		return errors.ErrUnsupported
	}
	return c.CloseWrite()
}

// conn is one connection to a peer, from its greeting on.
//
// Its class and ends are set by the greeting, and do not change after it.
type conn struct {
	wire  *wire
	tls   *tls.Conn // nil: plain text
	class Class
	// outbound says that this node dialled.
	outbound bool
	// from is the node that dialled, and to the one that it wanted.
	from NodeID
	to   NodeID
	// address is what was dialled; empty on the accepting side.
	address string
	// boot tells the peer's process from others of the same node.
	boot    bootID
	formats Formats

	// busy says that a handler runs, so that nothing is read: the peer is not silent then.
	busy atomic.Bool
	// seen and still are the keeper's: what moved when it last looked, and for how long nothing did.
	seen  uint64
	still atomic.Int64 // nanoseconds

	// once has it closed once.
	once sync.Once
	dead chan struct{} // closed with the connection
	// err is why it was closed. It is set before dead is closed.
	err error
}

// newConn returns a connection that was not greeted yet.
func newConn(raw net.Conn) *conn { return &conn{wire: newWire(raw), dead: make(chan struct{})} }

// Read reads what the peer wrote.
func (c *conn) Read(p []byte) (int, error) {
	if c.tls != nil {
		return c.tls.Read(p)
	}
	return c.wire.Read(p)
}

// Write writes to the peer.
func (c *conn) Write(p []byte) (int, error) {
	if c.tls != nil {
		return c.tls.Write(p)
	}
	return c.wire.Write(p)
}

// writeAll writes pieces so that they leave together.
func (c *conn) writeAll(pieces *net.Buffers) error {
	if c.tls == nil {
		return c.wire.writev(pieces)
	}
	c.wire.cork()
	for _, p := range *pieces {
		if _, err := c.tls.Write(p); err != nil {
			_ = c.wire.uncork() // the connection is broken: the first error tells
			return err
		}
	}
	return c.wire.uncork()
}

// close ends the connection at once, for a reason that is kept if it is the first. It never blocks.
func (c *conn) close(why error) {
	c.once.Do(func() {
		c.err = why
		close(c.dead)
		_ = c.wire.Close() // beneath TLS, which would wait for a peer that takes nothing
	})
}

// moved counts what was read, and for a stream what was written.
func (c *conn) moved() uint64 {
	n := c.wire.reads.Load()
	if c.class.carriesBytes() {
		n += c.wire.writes.Load()
	}
	return n
}

// peer returns the node at the other end.
func (c *conn) peer() NodeID {
	if c.outbound {
		return c.to
	}
	return c.from
}

// isDead says whether the connection was closed.
func (c *conn) isDead() bool {
	select {
	case <-c.dead:
		return true
	default:
		return false
	}
}

// cause returns why the connection was closed, if it was by this node, else err: reading from a connection that is
// closed tells less.
func (c *conn) cause(err error) error {
	if c.isDead() {
		return c.err
	}
	return err
}
