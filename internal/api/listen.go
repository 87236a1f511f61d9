package api

import (
	"net"
	"sync"
)

// limitedListener closes connections beyond the node's limit, or that of one client address, as soon as they come.
type limitedListener struct {
	net.Listener
	s *Server

	mu   sync.Mutex // guards the fields below
	n    int64
	from map[string]int64 // of those above 0
}

func newLimitedListener(lis net.Listener, s *Server) *limitedListener {
	return &limitedListener{Listener: lis, s: s, from: make(map[string]int64)}
}

// Accept returns the next connection that is within the limits.
func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		host := hostOf(c.RemoteAddr())
		if limit := l.enter(host); limit != "" {
			l.s.refusals.add(limit)
			_ = c.Close() // it was never used
			continue
		}
		return &limitedConn{Conn: c, leave: sync.OnceFunc(func() { l.leave(host) })}, nil
	}
}

func (l *limitedListener) enter(host string) (limit string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.n >= l.s.l.ConnectionsNode:
		return "connections_node"
	case l.from[host] >= l.s.l.ConnectionsAddress:
		return "connections_address"
	}
	l.n++
	l.from[host]++
	return ""
}

func (l *limitedListener) leave(host string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n--
	if l.from[host]--; l.from[host] == 0 {
		delete(l.from, host)
	}
}

func (l *limitedListener) open() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.n
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
}

// Close closes the connection and counts it out, once.
func (c *limitedConn) Close() error {
	c.leave()
	return c.Conn.Close()
}
