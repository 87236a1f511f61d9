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
	mu    sync.Mutex // guards the fields below
	ports map[string]*netListener
	next  int
	cut   map[string]bool
	links map[*netLink]struct{}
}

// netWindow is how much one end may have written that the other has not read.
const netWindow = 256 << 10

// NewNet returns a network without listeners.
func NewNet() *Net {
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

type netAddr string

func (a netAddr) Network() string { return "memory" }
func (a netAddr) String() string  { return string(a) }

type netListener struct {
	net     *Net
	address string
	calls   chan net.Conn
	once    sync.Once
	done    chan struct{}
}

func (l *netListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.calls:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

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

func (l *netListener) Addr() net.Addr { return netAddr(l.address) }

// netLink is one connection.
type netLink struct {
	net         *Net
	address     string
	open        int // ends; guarded by the network's mutex
	there, back netPipe
}

// netPipe is one direction of it.
type netPipe struct {
	mu      sync.Mutex // guards the fields below
	cond    *sync.Cond
	b       []byte
	ended   bool // the writer said so
	stalled bool
	err     error // of both ends

	readBy, writeBy time.Time
	timers          [2]*time.Timer
}

func (p *netPipe) init() { p.cond = sync.NewCond(&p.mu) }

func (p *netPipe) stall(stalled bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stalled = stalled
	p.cond.Broadcast()
}

func (p *netPipe) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		p.err = err
	}
	p.cond.Broadcast()
}

func (p *netPipe) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	p.cond.Broadcast()
}

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

func (p *netPipe) wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cond.Broadcast()
}

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
	link          *netLink
	in, out       *netPipe
	local, remote net.Addr
	// closed is guarded by the mutex of the pipe that it is for.
	closedIn, closedOut bool
	once                sync.Once
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

func (c *netConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

func (c *netConn) SetReadDeadline(t time.Time) error {
	c.in.deadline(0, &c.in.readBy, t)
	return nil
}

func (c *netConn) SetWriteDeadline(t time.Time) error {
	c.out.deadline(1, &c.out.writeBy, t)
	return nil
}
