package edge

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
	Mu    sync.Mutex // guards the fields below
	N     int64
	from  map[string]*address
	Fresh list.List // of the *Conn that are new, the oldest first
	All   map[*Conn]struct{}
}

// address is a client address with open connections.
type address struct {
	// n is how many are open, fresh which of them are new, the oldest first.
	n     int64
	fresh list.List // as connections.fresh
}

// oldest is the new connection that is open for longest; nil: none is new.
func (a *address) oldest() *Conn { return oldestOf(&a.fresh) }

// oldestOf is the first connection of a list; nil: the list is empty.
func oldestOf(l *list.List) *Conn {
	if e := l.Front(); e != nil {
		c, _ := e.Value.(*Conn)
		return c
	}
	return nil
}

// enter counts c in, or names the limit that is reached. With a connection that has to make room comes a limit too.
func (cs *connections) enter(c *Conn, l *Limits) (out *Conn, limit string) {
	cs.Mu.Lock()
	defer cs.Mu.Unlock()
	if cs.from == nil {
		cs.from, cs.All = make(map[string]*address), make(map[*Conn]struct{})
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
	case cs.N >= l.ConnectionsNode:
		if limit = "connections_node"; a.fresh.Len() > 1 {
			out = a.oldest()
		} else {
			out = oldestOf(&cs.Fresh)
		}
	}
	// All of them are in use by callers who have shown a token: the one that comes is refused.
	if limit != "" && out == nil {
		return nil, limit
	}
	if out != nil {
		cs.remove(out)
	}
	cs.from[c.host], c.from = a, a // again, if it lost its last one just now
	cs.N++
	a.n++
	cs.All[c] = struct{}{}
	c.inAll, c.inFrom = cs.Fresh.PushBack(c), a.fresh.PushBack(c)
	return out, limit
}

// remove counts c out, unless it is out.
func (cs *connections) remove(c *Conn) {
	if _, in := cs.All[c]; !in {
		return
	}
	delete(cs.All, c)
	cs.grownUp(c)
	cs.N--
	if c.from.n--; c.from.n == 0 {
		delete(cs.from, c.host)
	}
}

// grownUp ends that c is new.
func (cs *connections) grownUp(c *Conn) {
	if c.inAll != nil {
		cs.Fresh.Remove(c.inAll)
		c.from.fresh.Remove(c.inFrom)
		c.inAll, c.inFrom = nil, nil
	}
}

// leave counts c out, unless that was done.
func (cs *connections) leave(c *Conn) {
	cs.Mu.Lock()
	defer cs.Mu.Unlock()
	cs.remove(c)
}

// Open is how many connections are open.
func (cs *connections) Open() int64 {
	cs.Mu.Lock()
	defer cs.Mu.Unlock()
	return cs.N
}

// Overdue returns the new connections on which nothing was served for more than the given rounds; it is called once a round.
func (cs *connections) Overdue(rounds int32) (out []*Conn) {
	cs.Mu.Lock()
	defer cs.Mu.Unlock()
	for e := cs.Fresh.Front(); e != nil; e = e.Next() {
		if c, _ := e.Value.(*Conn); c.rounds.Add(1) > rounds {
			out = append(out, c)
		}
	}
	return out
}

// Without returns the connections that have no authenticated call under way, or of those the new ones.
func (cs *connections) Without(onlyNew bool) (out []*Conn) {
	cs.Mu.Lock()
	defer cs.Mu.Unlock()
	for c := range cs.All {
		if c.inAll != nil || !onlyNew && c.Calls.Load() == 0 {
			out = append(out, c)
		}
	}
	return out
}

// CloseAll closes connections.
func CloseAll(cs []*Conn) {
	for _, c := range cs {
		_ = c.Close() // who reads or writes on it learns
	}
}

// limitedListener closes connections beyond the node's limit, or that of one client address, as soon as they come.
type limitedListener struct {
	net.Listener
	s     *Edge
	heads bool // what comes is HTTP/1
}

// Limited bounds the connections of a listener, together with those of the edge's others. http1 says that what comes is HTTP/1.
func (e *Edge) Limited(lis net.Listener, http1 bool) net.Listener {
	return &limitedListener{Listener: lis, s: e, heads: http1}
}

// Accept returns the next connection that is within the limits.
func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		raw, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &Conn{Conn: raw, s: l.s, host: hostOf(raw.RemoteAddr())}
		if l.heads {
			c.heads = new(headReader)
		}
		c.addr = connAddr{raw.RemoteAddr(), c}
		out, limit := l.s.Conns.enter(c, &l.s.Limits)
		if limit != "" {
			l.s.Refusals.Add(limit)
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

// Conn is a connection that is counted.
type Conn struct {
	net.Conn
	s    *Edge
	addr connAddr
	host string

	// known says that a call on it was authenticated: it is not new any more.
	known atomic.Bool
	// rounds counts calls of Overdue since something was served on it.
	rounds atomic.Int32
	// Calls is how many authenticated calls are under way on it. A connection with one is not closed to
	// make room.
	Calls atomic.Int64

	// Secure says that TLS is above it, so that what is read here is encrypted.
	Secure bool
	// heads looks at what is read here; nil: that is not HTTP/1.
	heads *headReader
	// Ambiguous says that a request has come whose body has two lengths.
	Ambiguous atomic.Bool

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
	c *Conn
}

// RemoteAddr returns the client's address.
func (c *Conn) RemoteAddr() net.Addr { return &c.addr }

// Read reads what the client sends.
func (c *Conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.heads != nil && c.heads.take(p[:n]) {
		c.Ambiguous.Store(true)
	}
	return n, err
}

// Close closes the connection and counts it out, once.
func (c *Conn) Close() error {
	c.s.Conns.leave(c)
	return c.Conn.Close()
}

// Begin says that a call on c was authenticated and is under way, until end.
func (c *Conn) Begin() {
	if c == nil {
		return
	}
	c.Calls.Add(1)
	if c.known.Load() || c.known.Swap(true) {
		return
	}
	c.s.Conns.Mu.Lock()
	defer c.s.Conns.Mu.Unlock()
	c.s.Conns.grownUp(c)
}

// End ends what Begin began.
func (c *Conn) End() {
	if c != nil {
		c.Calls.Add(-1)
	}
}

// Served says that something was served on c that takes no token.
func (c *Conn) Served() {
	if c != nil && !c.known.Load() {
		c.rounds.Store(0)
	}
}

// ConnOf finds the connection of a call over gRPC; nil if no listener accepted it.
func ConnOf(ctx context.Context) *Conn {
	if p, ok := grpcpeer.FromContext(ctx); ok {
		if a, ok := p.Addr.(*connAddr); ok {
			return a.c
		}
	}
	return nil
}

// connKey is the key under which the context of a request over HTTP has its connection.
type connKey struct{}

// WithConn lets the requests of a connection find it.
func WithConn(ctx context.Context, c net.Conn) context.Context {
	if t, ok := c.(*secureConn); ok {
		c = t.c
	}
	switch c.(type) {
	case *Conn, ForwardedConn:
		return context.WithValue(ctx, connKey{}, c)
	}
	return ctx
}

// Authenticated says that a request of the REST listener was authenticated by whom it was passed to, until the request ends.
func Authenticated(ctx context.Context) {
	if c, ok := ctx.Value(connKey{}).(*Conn); ok {
		c.Begin()
		context.AfterFunc(ctx, c.End)
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
	return ForwardedConn{c}, nil
}

// Forwarded is a listener of what other nodes send on.
func Forwarded(lis net.Listener) net.Listener { return forwardedListener{lis} }

// WasForwarded reports whether a request came from another node, which sends it on for its client.
func WasForwarded(ctx context.Context) bool {
	_, ok := ctx.Value(connKey{}).(ForwardedConn)
	return ok
}

// HTTPConn finds the connection of a request over HTTP; nil if no listener accepted it.
func HTTPConn(ctx context.Context) *Conn {
	c, _ := ctx.Value(connKey{}).(*Conn)
	return c
}

// ForwardedConn is a connection of another node, which it has proved to be.
type ForwardedConn struct{ net.Conn }
