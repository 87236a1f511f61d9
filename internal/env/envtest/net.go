package envtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// Net is a network in memory. Nothing in it waits for anything but the other end, so that it works in a bubble of
// testing/synctest. It is safe for concurrent use.
type Net struct {
	mu sync.Mutex // guards the fields below
	// ports are the listeners by their address.
	ports map[string]*netListener
	// next is the last port that was given away, to listeners and to callers.
	next int
	// cut are the addresses that are stalled.
	cut map[string]bool
	// links are the connections that are not closed on both sides.
	links map[*netLink]struct{}
}

// netWindow is how much one end may have written that the other has not read.
const netWindow = 256 << 10

// NewNet returns a network without listeners.
func NewNet() *Net {
	// Ports count up from 40000, so that none is used twice.
	return &Net{ports: make(map[string]*netListener), next: 40000, cut: make(map[string]bool), links: make(map[*netLink]struct{})}
}

// Listen listens on an address, whose port 0 stands for a free one.
func (n *Net) Listen(address string) (net.Listener, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if port == "0" {
		n.next++
		port = strconv.Itoa(n.next)
	}
	address = net.JoinHostPort(host, port)
	if n.ports[address] != nil {
		return nil, fmt.Errorf("listen %s: %w", address, syscall.EADDRINUSE)
	}
	l := &netListener{net: n, address: address, calls: make(chan net.Conn, 128), done: make(chan struct{})}
	n.ports[address] = l
	return l, nil
}

// Dial connects to a listener.
func (n *Net) Dial(ctx context.Context, address string) (net.Conn, error) {
	n.mu.Lock()
	l, cut := n.ports[address], n.cut[address]
	n.next++
	from := net.JoinHostPort("127.0.0.1", strconv.Itoa(n.next))
	// The lock is not held while a connection waits to be accepted.
	n.mu.Unlock()
	switch {
	case cut: // as a network that loses everything
		<-ctx.Done()
		return nil, ctx.Err()
	case l == nil:
		return nil, fmt.Errorf("dial %s: %w", address, syscall.ECONNREFUSED)
	}
	link := &netLink{net: n, address: address, open: 2}
	link.there.init()
	link.back.init()
	caller := &netConn{link: link, in: &link.back, out: &link.there, local: netAddr(from), remote: netAddr(address)}
	callee := &netConn{link: link, in: &link.there, out: &link.back, local: netAddr(address), remote: netAddr(from)}
	n.mu.Lock()
	n.links[link] = struct{}{}
	n.mu.Unlock()
	select {
	case l.calls <- callee:
		return caller, nil
	case <-l.done:
		return nil, fmt.Errorf("dial %s: %w", address, syscall.ECONNREFUSED)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Stall makes all connections to an address, old and new, carry nothing, as a cable that was pulled: neither end hears of
// it. Undone, they go on where they were.
func (n *Net) Stall(address string, stalled bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut[address] = stalled
	for link := range n.links {
		if link.address == address {
			link.there.stall(stalled)
			link.back.stall(stalled)
		}
	}
}

// Break resets all connections to an address, and returns how many there were.
func (n *Net) Break(address string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	broken := 0
	for link := range n.links {
		if link.address == address {
			link.there.fail(syscall.ECONNRESET)
			link.back.fail(syscall.ECONNRESET)
			delete(n.links, link)
			broken++
		}
	}
	return broken
}

// netAddr is an address of the network.
type netAddr string

func (a netAddr) Network() string { return "memory" }
func (a netAddr) String() string  { return string(a) }

// netListener listens on one address.
type netListener struct {
	net *Net
	// address is host and port.
	address string
	// calls are connections that wait to be accepted, 128 at most; more callers wait.
	calls chan net.Conn
	// once makes a second Close do nothing; done is closed by the first.
	once sync.Once
	done chan struct{}
}

// Accept returns the next connection, or an error when the listener is closed.
func (l *netListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.calls:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close frees the address, and closes the connections that were not accepted.
func (l *netListener) Close() error {
	l.once.Do(func() {
		close(l.done)
		l.net.mu.Lock()
		defer l.net.mu.Unlock()
		delete(l.net.ports, l.address)
		for {
			select {
			case c := <-l.calls:
				go func() { _ = c.Close() }() // it will not be accepted any more; Close takes the lock
				continue
			default:
			}
			return
		}
	})
	return nil
}

// Addr returns the address with the port that was chosen.
func (l *netListener) Addr() net.Addr { return netAddr(l.address) }

// netLink is one connection.
type netLink struct {
	net *Net
	// address is that of the listener, by which Stall and Break find the link.
	address string
	// open is the number of ends that are not closed; guarded by the network's mutex.
	open int
	// there goes from the caller to the listener, back the other way.
	there, back netPipe
}

// netPipe is one direction of it.
type netPipe struct {
	mu sync.Mutex // guards the fields below
	// cond is signalled at every change of the fields.
	cond *sync.Cond
	// b is what was written and not read, netWindow bytes at most.
	b []byte
	// ended says that the writer has closed its end.
	ended bool
	// stalled says that nothing may be read.
	stalled bool
	// err is what both ends fail with.
	err error

	// readBy and writeBy are the deadlines; zero: there is none.
	readBy, writeBy time.Time
	// timers wake those that wait when a deadline passes: of reading, and of writing.
	timers [2]*time.Timer
}

// init must be called before the pipe is used.
func (p *netPipe) init() { p.cond = sync.NewCond(&p.mu) }

// stall lets nothing through, or lets it through again.
func (p *netPipe) stall(stalled bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stalled = stalled
	p.cond.Broadcast()
}

// fail ends both ends with an error; the first one stays.
func (p *netPipe) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		p.err = err
	}
	p.cond.Broadcast()
}

// end says that nothing more is written.
func (p *netPipe) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	p.cond.Broadcast()
}

// read waits for bytes. closed is the reader's own mark, which is guarded by the pipe's mutex.
func (p *netPipe) read(b []byte, closed *bool) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		switch {
		case *closed:
			return 0, net.ErrClosed
		case p.err != nil:
			return 0, p.err
		case len(p.b) > 0 && !p.stalled:
			n := copy(b, p.b)
			if p.b = p.b[n:]; len(p.b) == 0 {
				p.b = nil
			}
			p.cond.Broadcast()
			return n, nil
		case p.ended && !p.stalled:
			return 0, io.EOF
		case passed(p.readBy):
			return 0, os.ErrDeadlineExceeded
		}
		p.cond.Wait()
	}
}

// write waits for room, and returns how much was written before an error.
func (p *netPipe) write(b []byte, closed *bool) (n int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(b) > 0 {
		switch room := netWindow - len(p.b); {
		case *closed:
			return n, net.ErrClosed
		case p.err != nil:
			return n, p.err
		case p.ended:
			return n, syscall.EPIPE
		case passed(p.writeBy):
			return n, os.ErrDeadlineExceeded
		case room > 0:
			k := min(room, len(b))
			p.b = append(p.b, b[:k]...)
			b = b[k:]
			n += k
			p.cond.Broadcast()
			continue
		}
		p.cond.Wait()
	}
	return n, nil
}

// passed reports whether a deadline is set and over.
func passed(t time.Time) bool { return !t.IsZero() && !time.Now().Before(t) }

// deadline sets one of the two deadlines, and wakes who waits when it has passed.
func (p *netPipe) deadline(which int, at *time.Time, t time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	*at = t
	if p.timers[which] != nil {
		p.timers[which].Stop()
		p.timers[which] = nil
	}
	if !t.IsZero() {
		p.timers[which] = time.AfterFunc(time.Until(t), p.wake)
	}
	p.cond.Broadcast()
}

// wake lets those that wait look again.
func (p *netPipe) wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cond.Broadcast()
}

// stopTimers stops both timers, so that they do not outlive a test.
func (p *netPipe) stopTimers() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range p.timers {
		if t != nil {
			t.Stop()
		}
	}
}

// netConn is one end of a link.
type netConn struct {
	link *netLink
	// in is what this end reads, out what it writes.
	in, out *netPipe
	// local and remote are the addresses as this end sees them.
	local, remote net.Addr
	// closed is guarded by the mutex of the pipe that it is for.
	closedIn, closedOut bool
	// once makes a second Close fail and do nothing.
	once sync.Once
}

func (c *netConn) Read(b []byte) (int, error)  { return c.in.read(b, &c.closedIn) }
func (c *netConn) Write(b []byte) (int, error) { return c.out.write(b, &c.closedOut) }

// CloseWrite ends what this end writes.
func (c *netConn) CloseWrite() error {
	c.out.end()
	return nil
}

// Close closes this end. The other reads what was written, then io.EOF; what it writes fails.
func (c *netConn) Close() error {
	err := error(net.ErrClosed)
	c.once.Do(func() {
		err = nil
		c.out.end()
		for pipe, closed := range map[*netPipe]*bool{c.in: &c.closedIn, c.out: &c.closedOut} {
			pipe.mu.Lock()
			*closed = true
			pipe.cond.Broadcast()
			pipe.mu.Unlock()
			pipe.stopTimers()
		}
		c.in.end()
		c.link.net.mu.Lock()
		defer c.link.net.mu.Unlock()
		if c.link.open--; c.link.open == 0 {
			delete(c.link.net.links, c.link)
		}
	})
	return err
}

func (c *netConn) LocalAddr() net.Addr  { return c.local }
func (c *netConn) RemoteAddr() net.Addr { return c.remote }

// SetDeadline sets both deadlines.
func (c *netConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// SetReadDeadline sets the deadline of reads; zero takes it away.
func (c *netConn) SetReadDeadline(t time.Time) error {
	c.in.deadline(0, &c.in.readBy, t)
	return nil
}

// SetWriteDeadline sets the deadline of writes; zero takes it away.
func (c *netConn) SetWriteDeadline(t time.Time) error {
	c.out.deadline(1, &c.out.writeBy, t)
	return nil
}
