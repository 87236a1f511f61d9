package api

import (
	"bytes"
	"net"
	"sync"
)

// connections counts the open connections of all listeners, in all and by client address.
type connections struct {
	mu   sync.Mutex // guards the fields below
	n    int64
	from map[string]int64 // of those above 0
}

func (c *connections) enter(host string, l *Limits) (limit string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.n >= l.ConnectionsNode:
		return "connections_node"
	case c.from[host] >= l.ConnectionsAddress:
		return "connections_address"
	}
	if c.from == nil {
		c.from = make(map[string]int64)
	}
	c.n++
	c.from[host]++
	return ""
}

func (c *connections) leave(host string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n--
	if c.from[host]--; c.from[host] == 0 {
		delete(c.from, host)
	}
}

func (c *connections) open() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}

// limitedListener closes connections beyond the node's limit, or that of one client address, as soon as they come.
type limitedListener struct {
	net.Listener
	s *Server
}

// Accept returns the next connection that is within the limits.
func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		host := hostOf(c.RemoteAddr())
		if limit := l.s.conns.enter(host, &l.s.l); limit != "" {
			l.s.refusals.add(limit)
			_ = c.Close() // it was never used
			continue
		}
		return &limitedConn{Conn: c, leave: sync.OnceFunc(func() { l.s.conns.leave(host) })}, nil
	}
}

// hostOf is the address without the port.
func hostOf(a net.Addr) string {
	host, _, err := net.SplitHostPort(a.String())
	if err != nil {
		return a.String()
	}
	return host
}

type limitedConn struct {
	net.Conn
	leave func()

	// Of an answer that is gathered, see gather; used by the goroutine that writes alone.
	body  int           // bytes of its body; 0: what is written leaves at once
	whole int           // bytes of all of it, once the end of its head was seen
	held  *bytes.Buffer // what was written of it
}

// Close closes the connection and counts it out, once.
func (c *limitedConn) Close() error {
	c.leave()
	return c.Conn.Close()
}
