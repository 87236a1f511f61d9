package api

import (
	"bytes"
	"container/list"
	"context"
	"net"
	"sync"
	"sync/atomic"

	grpcpeer "google.golang.org/grpc/peer"
)

// connections are the open connections of all listeners, in all and by client address. A connection is new until a call on it
// was authenticated. New ones have a bound of their own, and make room: beyond a bound the oldest new connection of the address
// is closed, so that those who open connections and do nothing with them do not keep others out.
type connections struct {
	mu    sync.Mutex // guards the fields below
	n     int64
	from  map[string]*address
	fresh list.List // of the *limitedConn that are new, the oldest first
	all   map[*limitedConn]struct{}
}

// address is a client address with open connections.
type address struct {
	n     int64
	fresh list.List // as connections.fresh
}

func (a *address) oldest() *limitedConn { return oldestOf(&a.fresh) }

func oldestOf(l *list.List) *limitedConn {
	if e := l.Front(); e != nil {
		c, _ := e.Value.(*limitedConn)
		return c
	}
	return nil
}

// enter counts c in, or names the limit that is reached. With a connection that has to make room comes a limit too.
func (cs *connections) enter(c *limitedConn, l *Limits) (out *limitedConn, limit string) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.from == nil {
		cs.from, cs.all = make(map[string]*address), make(map[*limitedConn]struct{})
	}
	a := cs.from[c.host]
	if a == nil {
		a = new(address)
	}
	switch {
	case int64(a.fresh.Len()) >= l.ConnectionsNew:
		out, limit = a.oldest(), "connections_new"
	case a.n >= l.ConnectionsAddress:
		out, limit = a.oldest(), "connections_address"
	case cs.n >= l.ConnectionsNode:
		if limit = "connections_node"; a.fresh.Len() > 1 {
			out = a.oldest()
		} else {
			out = oldestOf(&cs.fresh)
		}
	}
	if limit != "" && out == nil {
		return nil, limit
	}
	if out != nil {
		cs.remove(out)
	}
	cs.from[c.host], c.from = a, a // again, if it lost its last one just now
	cs.n++
	a.n++
	cs.all[c] = struct{}{}
	c.inAll, c.inFrom = cs.fresh.PushBack(c), a.fresh.PushBack(c)
	return out, limit
}

// remove counts c out, unless it is out.
func (cs *connections) remove(c *limitedConn) {
	if _, in := cs.all[c]; !in {
		return
	}
	delete(cs.all, c)
	cs.grownUp(c)
	cs.n--
	if c.from.n--; c.from.n == 0 {
		delete(cs.from, c.host)
	}
}

// grownUp ends that c is new.
func (cs *connections) grownUp(c *limitedConn) {
	if c.inAll != nil {
		cs.fresh.Remove(c.inAll)
		c.from.fresh.Remove(c.inFrom)
		c.inAll, c.inFrom = nil, nil
	}
}

func (cs *connections) leave(c *limitedConn) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.remove(c)
}

func (cs *connections) open() int64 {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return cs.n
}

// overdue returns the new connections on which nothing was served for more than the given rounds; it is called once a round.
func (cs *connections) overdue(rounds int32) (out []*limitedConn) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for e := cs.fresh.Front(); e != nil; e = e.Next() {
		if c, _ := e.Value.(*limitedConn); c.rounds.Add(1) > rounds {
			out = append(out, c)
		}
	}
	return out
}

// without returns the connections that have no authenticated call under way, or of those the new ones.
func (cs *connections) without(onlyNew bool) (out []*limitedConn) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for c := range cs.all {
		if c.inAll != nil || !onlyNew && c.calls.Load() == 0 {
			out = append(out, c)
		}
	}
	return out
}

func closeAll(cs []*limitedConn) {
	for _, c := range cs {
		_ = c.Close() // who reads or writes on it learns
	}
}

// limitedListener closes connections beyond the node's limit, or that of one client address, as soon as they come.
type limitedListener struct {
	net.Listener
	s     *edge
	heads bool // what comes is HTTP/1
}

// limited bounds the connections of a listener, together with those of the edge's others. http1 says that what comes is HTTP/1.
func (e *edge) limited(lis net.Listener, http1 bool) net.Listener {
	return &limitedListener{Listener: lis, s: e, heads: http1}
}

// Accept returns the next connection that is within the limits.
func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		raw, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &limitedConn{Conn: raw, s: l.s, host: hostOf(raw.RemoteAddr())}
		if l.heads {
			c.heads = new(headReader)
		}
		c.addr = connAddr{raw.RemoteAddr(), c}
		out, limit := l.s.conns.enter(c, &l.s.l)
		if limit != "" {
			l.s.refusals.add(limit)
		}
		switch {
		case out != nil:
			_ = out.Close() // nothing was done on it
		case limit != "":
			_ = raw.Close() // it was never used
			continue
		}
		return c, nil
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
	s    *edge
	addr connAddr
	host string

	known  atomic.Bool  // a call on it was authenticated
	rounds atomic.Int32 // of overdue, since something was served on it
	calls  atomic.Int64 // authenticated and under way

	secure    bool        // TLS is above it
	heads     *headReader // of what is read here; nil: that is not HTTP/1
	ambiguous atomic.Bool // a request whose body has two lengths has come

	// Of the server's connections, under their mutex.
	from          *address
	inAll, inFrom *list.Element // while it is new

	// Of an answer that is gathered, see gather; used by the goroutine that writes alone.
	body  int           // bytes of its body; 0: what is written leaves at once
	whole int           // bytes of all of it, once the end of its head was seen
	held  *bytes.Buffer // what was written of it
}

// connAddr is the address of a client, by which a call over gRPC finds its connection.
type connAddr struct {
	net.Addr
	c *limitedConn
}

// RemoteAddr returns the client's address.
func (c *limitedConn) RemoteAddr() net.Addr { return &c.addr }

// Read reads what the client sends.
func (c *limitedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.heads != nil && c.heads.take(p[:n]) {
		c.ambiguous.Store(true)
	}
	return n, err
}

// Close closes the connection and counts it out, once.
func (c *limitedConn) Close() error {
	c.s.conns.leave(c)
	return c.Conn.Close()
}

// begin says that a call on c was authenticated and is under way, until end.
func (c *limitedConn) begin() {
	if c == nil {
		return
	}
	c.calls.Add(1)
	if c.known.Load() || c.known.Swap(true) {
		return
	}
	c.s.conns.mu.Lock()
	defer c.s.conns.mu.Unlock()
	c.s.conns.grownUp(c)
}

func (c *limitedConn) end() {
	if c != nil {
		c.calls.Add(-1)
	}
}

// served says that something was served on c that takes no token.
func (c *limitedConn) served() {
	if c != nil && !c.known.Load() {
		c.rounds.Store(0)
	}
}

// connOf finds the connection of a call over gRPC; nil if no listener accepted it.
func connOf(ctx context.Context) *limitedConn {
	if p, ok := grpcpeer.FromContext(ctx); ok {
		if a, ok := p.Addr.(*connAddr); ok {
			return a.c
		}
	}
	return nil
}

type connKey struct{}

// withConn lets the requests of a connection find it.
func withConn(ctx context.Context, c net.Conn) context.Context {
	if t, ok := c.(*secureConn); ok {
		c = t.c
	}
	switch c.(type) {
	case *limitedConn, forwardedConn:
		return context.WithValue(ctx, connKey{}, c)
	}
	return ctx
}

// Authenticated says that a request of the REST listener was authenticated by whom it was passed to, until the request ends.
func Authenticated(ctx context.Context) {
	if c, ok := ctx.Value(connKey{}).(*limitedConn); ok {
		c.begin()
		context.AfterFunc(ctx, c.end)
	}
}

// forwardedListener accepts what other nodes send on for their clients, whose connections they have counted.
type forwardedListener struct{ net.Listener }

// Accept returns the next connection.
func (l forwardedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return forwardedConn{c}, nil
}

// forwarded is a listener of what other nodes send on.
func forwarded(lis net.Listener) net.Listener { return forwardedListener{lis} }

// wasForwarded reports whether a request came from another node, which sends it on for its client.
func wasForwarded(ctx context.Context) bool {
	_, ok := ctx.Value(connKey{}).(forwardedConn)
	return ok
}

// restConn finds the connection of a request over HTTP; nil if no listener accepted it.
func restConn(ctx context.Context) *limitedConn {
	c, _ := ctx.Value(connKey{}).(*limitedConn)
	return c
}

// forwardedConn is a connection of another node, which it has proved to be.
type forwardedConn struct{ net.Conn }
