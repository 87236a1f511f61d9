package rest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// Parameters of the query that any route takes, for clusters.
const (
	// hopParam is in the address to which a node redirects a client. The node there answers itself or fails, so that a
	// client is not redirected in circles while leaders change.
	hopParam = "hop"
	// forwardParam asks the node to fetch the leader's answer instead of naming it.
	forwardParam = "forward"
)

// asks reports whether a parameter of 0 or 1 is given, and 1.
func (c *restCall) asks(name string) bool {
	v, _ := c.query.get(name)
	return v == "1"
}

// forwards says whether the node fetches the leader's answer for this request.
func (c *restCall) forwards() bool {
	if v, ok := c.query.get(forwardParam); ok {
		return v == "1"
	}
	return c.h.o.Forward
}

// leaderAddress is where this request goes at the leader, below the base that baseOf names: the same path and query, and the hop.
func (c *restCall) leaderAddress(f core.NotLeader, baseOf func(address string) string) (*url.URL, bool) {
	if baseOf == nil {
		return nil, false
	}
	base := baseOf(f.Leader)
	to, err := url.Parse(base)
	if err != nil || base == "" {
		return nil, false
	}
	// The leader answers by itself, whatever this node was asked to do.
	q := c.r.URL.Query()
	q.Del(forwardParam)
	q.Set(hopParam, "1")
	to.Path, to.RawPath, to.RawQuery = c.r.URL.Path, c.r.URL.RawPath, q.Encode()
	return to, true
}

// passedOn are the headers that go with any request which is forwarded, beyond those that its route takes, and passedBack
// those that come back.
var (
	passedOn   = []string{"Authorization", "Content-Type", "Accept"}
	passedBack = []string{
		"Content-Type", "Location", "Etag", "Retry-After", "Www-Authenticate", headerIndex, headerRev, headerWriter,
		"X-Content-Type-Options", "Cache-Control", "Content-Security-Policy", headerSize, headerType, headerDisposition,
	}
)

// headerClient names the client's address in a request that is forwarded. It counts on connections of nodes only.
const headerClient = "Millrace-Client"

// ErrForwards is the error of Options.Peers when as many requests as there may be are on their way to that node.
var ErrForwards = errors.New("too many requests are forwarded to this node")

// forward answers with what the leader answers. An answer that did not come leaves the outcome unknown, unless nothing was
// sent.
func (c *restCall) forward(to *url.URL) error {
	// Places are counted by tenant too: claims wait for long, and one tenant's must not take all
	// connections to the leader.
	if fact := c.s.Forwards.Enter(c.who.Tenant); fact != nil {
		return fact
	}
	defer c.s.Forwards.Leave(c.who.Tenant)
	// Of the call, which has no deadline of its own: the leader has all the time that a request there
	// may take.
	ctx, cancel := context.WithTimeout(c.call, time.Duration(c.s.Limits.RESTCallMs+max(c.s.Limits.ClaimWaitMs, c.s.Limits.ResultWaitMs))*time.Millisecond)
	defer cancel()
	// What was not sent has changed nothing. Package http sets this on a goroutine of its own.
	var sent atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() { sent.Store(true) }})
	req, err := http.NewRequestWithContext(ctx, c.r.Method, to.String(), bytes.NewReader(c.sent))
	if err != nil {
		return err
	}
	// Headers that the route takes are passed on, and few others: they are all that the leader looks
	// at.
	names := passedOn
	for _, p := range c.route.Header {
		// The capacity is cut, so that the shared list is not written to.
		names = append(names[:len(names):len(names)], p.Name)
	}
	for _, name := range names {
		if v := c.r.Header.Values(name); len(v) > 0 {
			req.Header[http.CanonicalHeaderKey(name)] = v
		}
	}
	// A session goes on as the node has it, which has held the request to its page. A key of this node alone opens nothing there.
	if c.who.Session != nil {
		req.Header[headerSealed], req.Header[headerSession] = []string{c.who.Session.Seal()}, []string{c.who.Session.CSRF}
	}
	// The leader notes the client's address, not that of this node.
	req.Header[headerClient] = []string{c.r.RemoteAddr}
	resp, err := c.h.o.Peers.Do(req)
	// An answer that did not come: only of what was not sent, or only reads, is it known that nothing
	// was changed.
	switch {
	case errors.Is(err, ErrForwards) && !sent.Load():
		return core.Unavailable{Reason: "overload", Limit: edge.LimitForwards}
	case err != nil:
		return core.Unavailable{Reason: "leader_unreached", Unknown: c.r.Method != http.MethodGet && sent.Load()}
	}
	defer resp.Body.Close() //nolint:errcheck // it was read to its end, or the caller is gone
	return c.passBack(resp)
}

// passBack sends the leader's answer on, piece by piece: it may be as large as the tasks of a claim.
func (c *restCall) passBack(resp *http.Response) error {
	h := c.w.Header()
	for _, name := range passedBack {
		if v := resp.Header.Values(name); len(v) > 0 {
			h[http.CanonicalHeaderKey(name)] = v
		}
	}
	// Else package http sends the answer in chunks, as it came.
	if resp.ContentLength >= 0 {
		h["Content-Length"] = []string{strconv.FormatInt(resp.ContentLength, 10)}
	}
	c.written = true
	c.setDeadline(c.control.SetWriteDeadline, c.s.Limits.SendStallMs)
	c.w.WriteHeader(resp.StatusCode)
	if _, err := io.Copy(c.w, resp.Body); err != nil {
		panic(http.ErrAbortHandler) // the caller must not take half an answer for all of it: the connection is closed
	}
	return nil
}

// ServeForwarded serves the requests that other nodes send on for their clients, until Shutdown. Who connects to lis has proved
// that it is a node of the cluster; whose request it is the token tells, as always.
func (h *Server) ServeForwarded(lis net.Listener) error {
	if err := h.http.Serve(edge.Forwarded(lis)); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve forwarded requests: %w", err)
	}
	return nil
}

// clientAddress gives a request that another node has sent on the address of that node's client.
func clientAddress(r *http.Request) {
	if !edge.WasForwarded(r.Context()) {
		return
	}
	from := r.Header.Get(headerClient)
	r.Header.Del(headerClient) // a client must not set this header
	if from != "" {
		if _, _, err := net.SplitHostPort(from); err == nil {
			r.RemoteAddr = from
		}
	}
}

// elsewhere deals with a request that another node must serve. It returns the error to answer with, and nil when it has
// answered.
func (c *restCall) elsewhere(err error) error {
	f, ok := errors.AsType[core.NotLeader](err)
	if !ok {
		return err
	}
	// A node that took this one for the leader has sent it. To send it on could go on for as long as
	// there is no leader.
	if c.asks(hopParam) {
		return core.Unavailable{Reason: "no_leader"}
	}
	// Where forwarding is not possible, a redirect is the next best answer.
	// A stream of events goes on for minutes, which no place for forwards is for.
	if c.forwards() && !c.route.Streams && c.h.o.Peers != nil {
		if to, ok := c.leaderAddress(f, c.h.o.PeerOf); ok {
			return c.forward(to)
		}
	}
	to, ok := c.leaderAddress(f, c.h.o.WebOf)
	if !ok {
		return err // it names the leader, to those who know where its REST side is
	}
	c.w.Header()["Location"] = []string{to.String()}
	return err
}
