package proc

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Way is what happens to bytes that go in one direction through a proxy. The zero value passes them on.
type Way struct {
	// Stall lets nothing through, and no end of a connection either. What was sent meanwhile comes later.
	Stall bool
	// Delay is how much later each byte comes.
	Delay time.Duration
	// Rate is in bytes a second for each connection; 0: there is no limit.
	Rate int
}

// Rule is what a proxy does to connections through it. The zero value passes everything on.
type Rule struct {
	// Forward is the way from the side that dials, and Back the way to it.
	Forward Way
	//
	Back Way
	// Refuse resets new connections.
	Refuse bool
}

// Silence lets nothing through in either direction and breaks no connection, like a cable that is cut.
var Silence = Rule{Forward: Way{Stall: true}, Back: Way{Stall: true}}

// Proxy stands on one link between two processes and does to its connections what it is told. It
// does not read what they say: TLS passes through it unchanged.
type Proxy struct {
	lis net.Listener

	// hindered counts what rules have done.
	hindered atomic.Int64

	mu      sync.Mutex // guards the fields below
	target  string     // what is dialled
	rule    Rule
	changed chan struct{} // closed and replaced when rule changes, and when the proxy closes
	conns   map[*net.TCPConn]struct{}
	closed  bool

	// all waits for the goroutines of the proxy.
	all sync.WaitGroup
}

// chunks × chunkBytes is what a proxy holds of a connection in one direction before it stops
// reading. Then the sender's own window fills, as on a slow link.
const (
	chunks     = 64
	chunkBytes = 32 << 10
	slowBuffer = 64 << 10 // bytes that the kernel takes in for a connection that begins under a rate
)

// NewProxy listens on a port of its own and dials target for each connection.
func NewProxy(target string) (*Proxy, error) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("open proxy: %w", err)
	}
	p := &Proxy{lis: lis, target: target, changed: make(chan struct{}), conns: map[*net.TCPConn]struct{}{}}
	p.all.Go(p.accept)
	return p, nil
}

// openLinks puts a proxy on each directed link between nodes, by their addresses.
func openLinks(addresses []string) (map[Link]*Proxy, error) {
	links := map[Link]*Proxy{}
	for i := range addresses {
		for j, to := range addresses {
			if i == j {
				continue
			}
			p, err := NewProxy(to)
			if err != nil {
				for _, open := range links {
					err = errors.Join(err, open.Close())
				}
				return nil, err
			}
			links[Link{i + 1, j + 1}] = p
		}
	}
	return links, nil
}

// Address is where the proxy is dialled.
func (p *Proxy) Address() string { return p.lis.Addr().String() }

// Retarget changes what is dialled for connections that begin from now on, such as for a server that serves at another port now.
func (p *Proxy) Retarget(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

// Set changes the rule, for open connections too: what is sent after Set has returned goes by the new one.
func (p *Proxy) Set(r Rule) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rule = r
	close(p.changed)
	p.changed = make(chan struct{})
}

// Reset resets all open connections.
func (p *Proxy) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		reset(c)
		p.hindered.Add(1)
	}
}

// Hindered counts what rules have held back, delayed, refused or reset: a rule that met nothing was no fault.
func (p *Proxy) Hindered() int64 { return p.hindered.Load() }

// Open counts the sockets of the connections through it, two for each.
func (p *Proxy) Open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns)
}

// Close ends all connections and waits until no goroutine serves them.
func (p *Proxy) Close() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	p.closed = true
	close(p.changed)
	p.changed = make(chan struct{})
	for c := range p.conns {
		reset(c)
	}
	p.mu.Unlock()
	err := p.lis.Close()
	p.all.Wait()
	return err
}

// reset ends a connection so that the other side sees a reset, not an end.
func reset(c *net.TCPConn) {
	_ = c.SetLinger(0) // it makes Close send a reset; a connection that is gone needs none
	_ = c.Close()
}

// accept serves connections until the listener is closed.
func (p *Proxy) accept() {
	for {
		conn, err := p.lis.Accept()
		if err != nil {
			return // closed
		}
		c := conn.(*net.TCPConn)
		if !p.keep(c) {
			reset(c)
			continue
		}
		p.all.Go(func() { p.serve(c) })
	}
}

// keep notes a connection, so that Reset and Close reach it. It returns false for one that must be refused.
func (p *Proxy) keep(c *net.TCPConn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rule.Refuse {
		p.hindered.Add(1)
	}
	if p.closed || p.rule.Refuse {
		return false
	}
	p.conns[c] = struct{}{}
	return true
}

// forget closes a connection and drops it from those that are noted.
func (p *Proxy) forget(c *net.TCPConn) {
	p.mu.Lock()
	delete(p.conns, c)
	p.mu.Unlock()
	_ = c.Close()
}

// forward and back select one direction of a rule.
func forward(r Rule) Way { return r.Forward }

func back(r Rule) Way { return r.Back }

// serve carries one connection. While nothing comes through, the target is not dialled either, so
// that a client sees silence and not a refusal.
func (p *Proxy) serve(from *net.TCPConn) {
	defer p.forget(from)
	if !p.pass(forward) {
		return
	}
	p.mu.Lock()
	target := p.target
	p.mu.Unlock()
	conn, err := net.Dial("tcp", target)
	if err != nil {
		reset(from)
		return
	}
	to := conn.(*net.TCPConn)
	if !p.keep(to) {
		reset(from)
		reset(to)
		return
	}
	defer p.forget(to)
	p.mu.Lock()
	slow := p.rule.Forward.Rate > 0 || p.rule.Back.Rate > 0
	p.mu.Unlock()
	if slow { // otherwise the kernel takes in megabytes for a reader that is slow: what was sent would be there, however low the rate
		_, _ = from.SetReadBuffer(slowBuffer), to.SetReadBuffer(slowBuffer) // a connection that is gone fails below
	}
	var both sync.WaitGroup
	both.Go(func() { p.pump(from, to, forward) })
	both.Go(func() { p.pump(to, from, back) })
	both.Wait()
}

// pass waits until a way is open. It returns false when the proxy closes.
func (p *Proxy) pass(way func(Rule) Way) bool {
	for first := true; ; first = false {
		p.mu.Lock()
		stalled, closed, changed := way(p.rule).Stall, p.closed, p.changed
		p.mu.Unlock()
		if closed || !stalled {
			return !closed
		}
		if first {
			p.hindered.Add(1)
		}
		<-changed
	}
}

// piece is what was read at once, and when.
type piece struct {
	bytes []byte
	at    time.Time
}

// pump carries what comes from one side to the other, and then the end of it. One goroutine reads
// ahead, so that a delay does not slow the reading.
func (p *Proxy) pump(from, to *net.TCPConn, way func(Rule) Way) {
	queue := make(chan piece, chunks)
	p.all.Go(func() {
		defer close(queue)
		for {
			b := make([]byte, chunkBytes)
			n, err := from.Read(b)
			if n > 0 {
				queue <- piece{b[:n], time.Now()}
			}
			if err != nil {
				return
			}
		}
	})
	for one := range queue {
		if !p.deliver(to, one, way) {
			break
		}
	}
	if p.pass(way) {
		_ = to.CloseWrite() // the other direction may have more to say
	}
	_ = from.CloseRead() // ends the reader when it was the writing that failed
	for range queue {    // what will not be read
		continue
	}
}

// deliver writes one piece when it is due by the rule that holds then, and slows down to the rule's
// rate. It returns false when nothing more can be written.
func (p *Proxy) deliver(to *net.TCPConn, one piece, way func(Rule) Way) bool {
	p.mu.Lock()
	w := way(p.rule)
	p.mu.Unlock()
	if late := time.Until(one.at.Add(w.Delay)); w.Delay > 0 && late > 0 {
		p.hindered.Add(1)
		time.Sleep(late)
	}
	if !p.pass(way) {
		return false
	}
	if _, err := to.Write(one.bytes); err != nil {
		return false
	}
	if w.Rate > 0 {
		p.hindered.Add(1)
		time.Sleep(time.Duration(len(one.bytes)) * time.Second / time.Duration(w.Rate))
	}
	return true
}
