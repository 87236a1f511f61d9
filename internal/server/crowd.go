package server

import (
	"container/list"
	"context"
	"net"
	"net/http"
	"sync"
)

// crowd bounds the connections of a listener that asks for no token. One more than the bound closes the connection that has done
// nothing for longest, so that connections that somebody opens and leaves idle, or whose request does not come, never keep out
// a probe. Where all are being served, the one that has been for longest is closed.
type crowd struct {
	most int

	mu    sync.Mutex // guards the fields below
	idle  *list.List // of *guest that are not served, the least recently used first
	busy  *list.List // of those that are served, by since when
	conns map[net.Conn]*guest
}

// guest is one connection.
type guest struct {
	conn    net.Conn
	serving bool
	at      *list.Element // in idle or busy
}

type guestKey struct{}

func newCrowd(most int) *crowd {
	return &crowd{most: most, idle: list.New(), busy: list.New(), conns: make(map[net.Conn]*guest)}
}

// bound has a server's connections counted. It is called once, before the server serves.
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

// enter counts a connection in, and closes another one where there are too many.
func (c *crowd) enter(conn net.Conn) *guest {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.conns) >= c.most {
		victim := c.idle.Front()
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

func (c *crowd) leave(conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if g := c.conns[conn]; g != nil {
		c.forget(g)
	}
}

// forget takes a connection out. mu is held.
func (c *crowd) forget(g *guest) {
	c.listOf(g).Remove(g.at)
	delete(c.conns, g.conn)
}

func (c *crowd) listOf(g *guest) *list.List {
	if g.serving {
		return c.busy
	}
	return c.idle
}

// serves notes that a request of a connection is served from now on, or no more.
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
