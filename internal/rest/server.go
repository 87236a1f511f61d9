package rest

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/internal/api"
	"github.com/millrace/millrace/internal/auth"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
	"github.com/millrace/millrace/internal/env"
	"github.com/millrace/millrace/internal/live"
	"github.com/millrace/millrace/internal/strictjson"
)

// Options are the options of the HTTP side. A zero field means its default.
type Options struct {
	// Git serves git clients, below /git/; nil: nothing does.
	Git http.Handler
	// Pages are the files of the web interface, below /ui/; nil, or without an index.html: nothing is served there.
	Pages fs.FS
	// Sessions are those of browsers; nil: there are none.
	Sessions *Sessions
	// Forward says what happens to a request for another node that says nothing itself: it is
	// forwarded, or else its caller is sent to that node.
	Forward bool
	// Peers sends what is forwarded, by the bases of PeerOf alone: over connections whose other end has proved which node it is. None:
	// nothing is forwarded.
	Peers *http.Client
	// PeerOf is the base of the URLs by which Peers reaches the node whose gRPC side has an address; empty: it is not known.
	PeerOf func(address string) string
	// WebOf is the base of the URLs of a node's REST side, given the address of its gRPC side; empty if it has none, or if this
	// node is alone.
	WebOf func(address string) string
}

// Server is the HTTP side of the edge: each route reads JSON into the message that the gRPC method takes, calls that
// method, and writes its answer as JSON. So both doors have one set of rules, limits and errors.
type Server struct {
	// s has the services, and what all doors share.
	s *api.Server
	o Options
	// http and secure serve the same routes: HTTP/1 without TLS, and HTTP/1 and HTTP/2 above it.
	// Package http cannot be told one set of protocols for each listener.
	http   *http.Server
	secure *http.Server
	routes router
	// pages are the web interface; nil: there is none.
	pages *pages
	// attempts bounds who fails to sign in.
	attempts *auth.Attempts
	// live tells streams of events what changes.
	live *live.Hub
	// bodies is how many bytes of request bodies are held; RESTBodiesBytes bounds it.
	bodies atomic.Int64
	// writers are *jsonWriter that wait for an answer to write.
	writers sync.Pool
	// outcomes has the counters of each route. It is filled in New and only read afterwards.
	outcomes map[*Route]*edge.Ended

	mu     sync.Mutex // guards closed, and requests while it grows
	closed bool
	work   sync.WaitGroup // requests in hand
}

const (
	// headerFactor is how much larger than their limit headers may be to be refused by name. What is larger still is
	// refused unread by package http, in words of its own.
	headerFactor = 4
	// pooledBytes bounds the buffer that an answer leaves for the next.
	pooledBytes = 64 * kib
)

// New makes the HTTP side. It fails when a route has no rule that says who may use it.
func New(s *api.Server, o Options) (*Server, error) {
	h := &Server{s: s, o: o, outcomes: make(map[*Route]*edge.Ended), attempts: auth.NewAttempts(s.Clock)}
	if o.Pages != nil {
		var err error
		if h.pages, err = newPages(o.Pages); err != nil {
			return nil, err
		}
	}
	h.live = live.New(live.Options{Source: eventSource{h}, Clock: s.Clock, Rand: env.SystemRand{}, Life: s.Life})
	routes := routes()
	if err := setRules(routes); err != nil {
		return nil, err
	}
	for _, r := range routes {
		if !s.Enabled(r.Native) || r.ofSessions && o.Sessions == nil {
			continue
		}
		if !r.checkRepeats() {
			return nil, fmt.Errorf("route %s does not say how its requests are repeated, or says what its headers do not", r.name())
		}
		// What a call needs is the same for all requests of a route, so it is made once.
		r.rights = edge.RightsOf(r.rule, false)
		h.outcomes[r] = s.Outcomes.Of(r.name())
		h.routes.add(r)
	}
	h.writers.New = func() any { return &jsonWriter{l: &s.Limits} }
	var plain, both http.Protocols
	plain.SetHTTP1(true)
	both.SetHTTP1(true)
	both.SetUnencryptedHTTP2(true) // TLS ends before package http
	h.http, h.secure = h.server(&plain), h.server(&both)
	s.Join(h)
	return h, nil
}

// server makes a server of the routes.
func (h *Server) server(protocols *http.Protocols) *http.Server {
	s := h.s
	return &http.Server{
		Handler:           h,
		Protocols:         protocols,
		ConnContext:       edge.WithConn,
		ReadHeaderTimeout: time.Duration(s.Limits.HTTPHeaderMs) * time.Millisecond,
		IdleTimeout:       time.Duration(s.Limits.HTTPIdleMs) * time.Millisecond,
		// The limit itself is checked by serve, which names it.
		MaxHeaderBytes: int(s.Limits.HTTPHeaderBytes) * headerFactor,
		// The same bounds as connections of gRPC have.
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: int(s.Limits.StreamsConnection),
			WriteByteTimeout:     time.Duration(s.Limits.SendStallMs) * time.Millisecond,
			SendPingTimeout:      api.PingIdle,
			PingTimeout:          api.PingTimeout,
		},
		ErrorLog: slog.NewLogLogger(s.Log.Handler(), slog.LevelDebug), // noise of strangers at a port is not worth more
	}
}

// Serve accepts HTTP connections until Shutdown of the server; then it returns nil. It takes lis over, and bounds its
// connections together with those of gRPC. With a configuration of TLS it speaks HTTP/2 too.
func (h *Server) Serve(lis net.Listener, config *tls.Config) error {
	h.s.StartSweep()
	l, serve := h.s.Limited(lis, true), h.http.Serve
	if config != nil {
		l, serve = h.s.Secured(lis, config), h.secure.Serve
	}
	if err := serve(l); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve REST: %w", err)
	}
	return nil
}

// Shutdown stops accepting and returns when no request is in hand.
func (h *Server) Shutdown() {
	for _, server := range []*http.Server{h.http, h.secure} {
		_ = server.Shutdown(context.Background()) // of its listeners, whose errors Serve returned; Cut ends the wait
	}
	// Requests that came before are counted in work already; later ones find closed.
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	h.work.Wait()
	h.live.Wait()
}

// Cut closes all connections; requests in hand see their callers gone.
func (h *Server) Cut() {
	for _, server := range []*http.Server{h.http, h.secure} {
		_ = server.Close() // as above
	}
}

// enter counts a request in, unless the server has stopped.
func (h *Server) enter() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.closed {
		h.work.Add(1)
	}
	return !h.closed
}

// restCall is one request.
type restCall struct {
	// h is the door, s the server behind it.
	h *Server
	s *api.Server
	// w, r and control belong to package http. control sets the deadlines of the connection.
	w http.ResponseWriter
	r *http.Request
	// ctx is what the request's work runs under. It is narrowed on the way: by the token, by the
	// deadline of the route.
	ctx     context.Context
	control *http.ResponseController
	// conn is the connection as it was counted; nil: no listener accepted it.
	conn *edge.Conn
	who  edge.Caller
	// call ends the request when the token of who ends; nil before they are known.
	call *auth.Call
	// route is nil until it is found: errors before that have no route to be counted for.
	route *Route
	// params are the values in the path, query those behind it.
	params params
	query  query
	// held is how many bytes of its body are held, and shared how many of them count to the tenant's
	// share of what is on its way.
	held   int64
	shared int64
	// sent is the body, once it is read: it is sent again where the request is forwarded.
	sent []byte
	// ended says that the body was read to its end, written that an answer was begun, so that none can
	// follow.
	ended   bool
	written bool
}

// ServeHTTP serves one request.
func (h *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !h.enter() {
		panic(http.ErrAbortHandler) // only after Cut: the connection is closed
	}
	defer h.work.Done()
	// First, so that limits and logs below see the client's address.
	clientAddress(r)
	c := &restCall{h: h, s: h.s, w: w, r: r, ctx: r.Context(), control: http.NewResponseController(w)}
	c.conn = edge.HTTPConn(c.ctx)
	c.bound()
	if c.ambiguous() {
		c.fail(edge.Invalid("Transfer-Encoding", "and Content-Length are mutually exclusive"))
		return
	}
	// The door of git finds its caller by itself: its clients send tokens in other ways.
	if h.o.Git != nil && strings.HasPrefix(r.URL.EscapedPath(), edge.GitPrefix) {
		c.setDeadline(c.control.SetWriteDeadline, h.s.Limits.SendStallMs)
		h.o.Git.ServeHTTP(w, r)
		return
	}
	if h.pages != nil && toPages(r) {
		c.showPage()
		return
	}
	// Deferred, so that a panic of a handler gives back all that its request held.
	defer func() {
		h.bodies.Add(-c.held)
		c.s.Requests.Give(c.held)
		c.unshare()
		if c.call != nil {
			c.call.End()
		}
	}()
	err := c.s.Safely(c.serve)
	err = edge.Revoked(c.call, err)
	if err != nil {
		c.fail(err)
	}
	if e := h.outcomes[c.route]; e != nil {
		e.Count(err)
	}
}

// serve finds the route and stands before it: who calls, whether they may, whether there is room.
func (c *restCall) serve() (err error) {
	// Before anything is looked up: larger headers must not cost more.
	if n := headerBytes(c.r); n > c.s.Limits.HTTPHeaderBytes {
		return core.TooLarge{Field: "headers", Limit: edge.LimitHeader, Max: c.s.Limits.HTTPHeaderBytes}
	}
	route, fact := c.h.routes.find(c.r, &c.params)
	if fact != nil {
		return fact
	}
	c.route = route
	if !route.rule.Public {
		if fact = c.authenticate(); fact != nil {
			return fact
		}
		c.conn.Begin()
		defer c.conn.End()
		// In this order, so that a stranger learns nothing of scopes, and a caller without a scope takes
		// no place.
		if fact := route.rule.Missing(c.who.Scopes); fact != nil {
			return fact
		}
		room := &c.s.Calls
		if route.Streams {
			room = &c.s.Events
		}
		if fact := room.Enter(c.who.Tenant); fact != nil {
			return fact
		}
		defer room.Leave(c.who.Tenant)
		// From here the end of the token ends the request.
		c.call = c.s.Live.Begin(c.ctx, c.who, route.rights)
		c.ctx = c.call
	} else {
		c.conn.Served()
	}
	if fact := c.readQuery(); fact != nil {
		return fact
	}
	if fact := c.checkHeaders(); fact != nil {
		return fact
	}
	// A body that would be passed over is a mistake of the client: it asked for something that is not
	// done.
	if c.r.ContentLength != 0 && route.Body == "" && !route.Raw {
		return edge.Invalid(strictjson.Document, "is not allowed on this route")
	}
	if route.bounds {
		return route.handle(c)
	}
	ctx, cancel := context.WithTimeout(c.ctx, c.limit())
	defer cancel()
	c.ctx = ctx
	return route.handle(c)
}

// limit is how long the call may take.
func (c *restCall) limit() time.Duration {
	limit := time.Duration(c.s.Limits.RESTCallMs) * time.Millisecond
	switch {
	case c.route.Streams:
		return eventsFor
	case c.route.waits:
		// What a client asks to wait for comes on top: here the longer of both limits, for the handler holds the client to its own.
		return limit + time.Duration(max(c.s.Limits.ClaimWaitMs, c.s.Limits.ResultWaitMs))*time.Millisecond
	}
	return limit
}

// headerBytes is about what the request line and the headers took on the wire.
func headerBytes(r *http.Request) int64 {
	n := len(r.Method) + len(r.RequestURI) + len(r.Host)
	for name, values := range r.Header {
		for _, v := range values {
			n += len(name) + len(v) + len(": \r\n")
		}
	}
	return int64(n)
}

// readQuery reads the query: the namespace, and the route's own parameters. Any other is refused.
func (c *restCall) readQuery() core.Fact {
	if fact := c.query.parse(c.r.URL.RawQuery, c.route); fact != nil {
		return fact
	}
	// The services find the namespace where gRPC has it.
	ns, ok := c.query.get("ns")
	if !ok {
		return nil
	}
	if fact := edge.SpaceName("ns", ns); fact != nil {
		return fact
	}
	c.ctx = edge.WithNamespace(c.ctx, ns)
	return nil
}
