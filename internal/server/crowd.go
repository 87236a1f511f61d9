package server

import (
	"container/list"
	"context"
	"net"
	"net/http"
	"sync"
)

// crowd bounds the connections of a listener that asks for no token. When one connection too many
// comes, it closes another one: the connection that has been idle for longest, or if all are being
// served, the one that has been served for longest. So connections that a stranger opens and leaves
// idle never keep out a probe.
type crowd struct {
	// most is the largest number of connections.
	most int

	// mu guards the fields below.
	mu sync.Mutex
	// Elements are *guest that are not served, the least recently used first.
	idle *list.List
	// Guests that are served, in the order in which that began.
	busy *list.List
	// All guests by their connection; its size is the count that is bounded.
	conns map[net.Conn]*guest
}

// guest is one connection. The crowd's mu guards its fields.
type guest struct {
	// conn is the connection.
	conn net.Conn
	// serving says that a request on it is being answered.
	serving bool
	// Its place in idle or, if serving, in busy.
	at *list.Element
}

// guestKey is the key of a connection's guest in the contexts of its requests.
type guestKey struct{}

// newCrowd makes a crowd of at most the given number of connections, which must be positive.
func newCrowd(most int) *crowd {
	return &crowd{most: most, idle: list.New(), busy: list.New(), conns: make(map[net.Conn]*guest)}
}

// bound makes an HTTP server count its connections. Call it once, before the server serves. It
// keeps the server's ConnContext and handler and wraps them.
func (c *crowd) bound(s *http.Server) {
	base, handler := s.ConnContext, s.Handler
	s.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		if base != nil {
			ctx = base(ctx, conn)
		}
		return context.WithValue(ctx, guestKey{}, c.enter(conn))
	}
	s.ConnState = func(conn net.Conn, state http.ConnState) {
		if state == http.StateClosed || state == http.StateHijacked {
			c.leave(conn)
		}
	}
	s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if g, ok := r.Context().Value(guestKey{}).(*guest); ok {
			c.serves(g, true)
			defer c.serves(g, false)
		}
		handler.ServeHTTP(w, r)
	})
}

// enter counts a new connection, and closes another one if there are too many.
func (c *crowd) enter(conn net.Conn) *guest {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.conns) >= c.most {
		victim := c.idle.Front()
		// All connections are being served.
		if victim == nil {
			victim = c.busy.Front()
		}
		if g, ok := victim.Value.(*guest); ok {
			c.forget(g)
			_ = g.conn.Close() // its server sees the end
		}
	}
	g := &guest{conn: conn}
	g.at = c.idle.PushBack(g)
	c.conns[conn] = g
	return g
}

// leave takes out a connection that was closed. A connection that enter closed is out already.
func (c *crowd) leave(conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if g := c.conns[conn]; g != nil {
		c.forget(g)
	}
}

// forget takes a connection out. The caller holds mu.
func (c *crowd) forget(g *guest) {
	c.listOf(g).Remove(g.at)
	delete(c.conns, g.conn)
}

// listOf returns the list that g is in. The caller holds mu.
func (c *crowd) listOf(g *guest) *list.List {
	if g.serving {
		return c.busy
	}
	return c.idle
}

// serves records that a request of the connection begins or has ended, and moves the guest to the
// end of its list.
func (c *crowd) serves(g *guest, now bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conns[g.conn] != g {
		return // it was closed for another
	}
	c.listOf(g).Remove(g.at)
	g.serving = now
	g.at = c.listOf(g).PushBack(g)
}
