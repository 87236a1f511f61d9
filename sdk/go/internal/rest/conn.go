// Package rest carries the contract's calls and streams over the REST routes of a server, for clients whose way to the server
// lets no gRPC through.
//
// A Conn is a connection like gRPC's: the code above it does not know which of the two it has.
//
// A unary call becomes one request. Its path, query and body are written by a table from methods to routes, which is made from the
// contract (contract_gen.go); special.go has the few methods that need more than their route. A path segment, a parameter and If-Match
// are fields of the request message; what they do not carry is the body.
//
// A stream is made of requests. On that of tasks each frame with work is one, whose answer becomes the frame's Ack, and a subscription
// is a claim that waits for tasks, made again and again. The streams of refs are a list, read line by line, and transactions that are
// carried out one after another. There are no sessions: what must be repeatable carries an id of its own.
//
// Errors are a Fault, which gRPC's status package reads. It says who ended a request: the server, something in between, no one, or the
// caller's own context. Whether the request may have been applied follows from that: what never left was not, and what has no answer
// may have been.
package rest

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/sdk/go/internal/retry"
	"github.com/millrace/millrace/sdk/go/internal/wire"
)

// Conn carries calls and streams of the contract over REST, for clients whose way to the server lets no gRPC
// through. It is a connection like gRPC's: the code above it does not know which one it has.
type Conn struct {
	opts Options
	// http follows no redirects: where one leads is judged here, because requests carry a token.
	http      *http.Client
	transport *http.Transport
	// ctx ends every request when it ends, which stop does.
	ctx  context.Context
	stop context.CancelFunc
	// host is the one of the hosts that answered last; nil before one did.
	host atomic.Pointer[string]

	mu sync.Mutex // guards the fields below
	// streams are those that are open, so that they can be told to leave for gRPC.
	streams map[*restStream]struct{}
	// unled decides when a host that knows of no leader is left.
	unled retry.Unled
}

const (
	restCallWithin = 40 * time.Second // an answer: servers end a call after 30 s
	// A probe is answered at once or not at all: a call waits for it.
	restProbeWithin = 3 * time.Second
	restIdle        = 30 * time.Second // a connection that is kept; servers and proxies close theirs after 60 s
	restAnswerBytes = 32 << 20         // of one answer: several large payloads as base64
	// One leads to the leader; more are of proxies, or of a leader that has just changed.
	restRedirects = 3
	restLanes     = 16 // requests with work that one stream has open at once: what comes meanwhile shares the next
)

// Options is what a Conn needs to know of the client that it is for. All but TLS and Proxy are required.
type Options struct {
	// Hosts are where REST may be, host:port each, in the order in which they are tried.
	Hosts []string
	// Namespace is that of all calls.
	Namespace string
	// TLS is how hosts are spoken to where Secure asks for it; nil: as the system says.
	TLS *tls.Config
	// Proxy takes the proxy that the environment names.
	Proxy bool
	// Dial makes a connection to a host.
	Dial func(ctx context.Context, address string) (net.Conn, error)

	// Secure says whether TLS is spoken at a host.
	Secure func(hostPort string) bool
	// Token returns the newest token; empty: there is none.
	Token func() string
	// Partitions returns how many partitions the namespace has; 0: it is not known yet.
	Partitions func() int
}

// New makes a Conn. It dials nothing before the first call.
func New(o Options) *Conn {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	r := &Conn{opts: o, streams: map[*restStream]struct{}{}}
	r.transport = &http.Transport{
		DialContext:         r.dial,
		TLSClientConfig:     o.TLS,
		TLSHandshakeTimeout: 10 * time.Second,
		Protocols:           &protocols,
		HTTP2:               &http.HTTP2Config{SendPingTimeout: wire.PingEvery, PingTimeout: wire.PingTimeout},
		MaxIdleConnsPerHost: 4 * restLanes,
		IdleConnTimeout:     restIdle,
	}
	if o.Proxy {
		r.transport.Proxy = http.ProxyFromEnvironment
	}
	r.http = &http.Client{Transport: r.transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		// at and open follow.
		return http.ErrUseLastResponse
	}}
	r.ctx, r.stop = context.WithCancel(context.Background())
	return r
}

// dial connects to a host. One that is spoken to in clear text is listened to first: see restNetConn.
func (r *Conn) dial(ctx context.Context, _, address string) (net.Conn, error) {
	conn, err := r.opts.Dial(ctx, address)
	if err != nil || r.opts.Secure(address) {
		return conn, err
	}
	return &restNetConn{Conn: conn}, nil
}

// restNetConn fails when the other side speaks no HTTP/1. A port of gRPC speaks first, which package http would log.
type restNetConn struct {
	net.Conn
	// heard says that the first byte has come, so that the check is done.
	heard bool
}

// Read reads.
func (c *restNetConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && !c.heard {
		if c.heard = true; b[0] != 'H' {
			return 0, errNotHTTP
		}
	}
	return n, err
}

// errNotHTTP ends a connection to a port of something else, which is most likely that of gRPC.
var errNotHTTP = errors.New("the other side speaks no HTTP/1")

// Close ends all requests.
func (r *Conn) Close() {
	r.stop()
	r.transport.CloseIdleConnections()
}

// restRequest is one request, ready to be sent.
type restRequest struct {
	method string
	// path is escaped.
	path string
	// query lacks the namespace, which each request gets.
	query url.Values
	// body is JSON; nil: there is none.
	body []byte
	// ifMatch is the header of that name; empty: there is none.
	ifMatch string
	// lastEvent is the header Last-Event-ID; empty: there is none.
	lastEvent string
	// wait is how long the server is asked to wait before it answers.
	wait time.Duration
}

// restAnswer is the answer to a request.
type restAnswer struct {
	// status is HTTP's.
	status int
	header http.Header
	body   []byte
}

// isJSON reports whether the answer says of itself that it is JSON, as all of Millrace's own are but those of values.
func (a *restAnswer) isJSON() bool {
	t, _, err := mime.ParseMediaType(a.header.Get("Content-Type"))
	return err == nil && t == "application/json"
}

// do sends a request and returns its answer. The error is a *Fault.
func (r *Conn) do(ctx context.Context, q restRequest) (*restAnswer, error) {
	// The first call, and the first after a host was lost, looks for one that answers.
	host := r.host.Load()
	if host == nil {
		if err := r.Probe(ctx); err != nil {
			return nil, err
		}
		host = r.host.Load()
	}
	a, err := r.at(ctx, *host, q)
	if f, ok := errors.AsType[*Fault](err); ok && f.origin == byNobody && !f.left() {
		r.host.CompareAndSwap(host, nil) // another of them may serve now
	}
	r.leaderless(host, err)
	return a, err
}

// leaderless leaves a host that knows of no leader for long, for the next one.
func (r *Conn) leaderless(host *string, err error) {
	f, ok := errors.AsType[*Fault](err)
	if !ok || f.wire.GetReason() != wire.ReasonNoLeader || f.wire.GetCode() != wire.Unavailable {
		return
	}
	r.mu.Lock()
	leaves := r.unled.Leave(*host, len(r.opts.Hosts), time.Now())
	r.mu.Unlock()
	if leaves {
		r.host.CompareAndSwap(host, &r.opts.Hosts[(slices.Index(r.opts.Hosts, *host)+1)%len(r.opts.Hosts)])
	}
}

// at is do at one of the hosts.
func (r *Conn) at(ctx context.Context, host string, q restRequest) (*restAnswer, error) {
	// A server ends a call in time by itself; this is for one that is gone without a word.
	within, cancel := context.WithTimeout(ctx, restCallWithin+q.wait)
	defer cancel()
	defer context.AfterFunc(r.ctx, cancel)()
	target := r.url(host, q)
	for hop := 0; ; hop++ {
		a, left, err := r.send(within, target, q)
		if err != nil {
			return nil, restUnanswered(ctx, host, left, err)
		}
		// A redirect is followed with the same method and body: the server has not looked at the request.
		next := r.redirect(a, target)
		switch {
		case next != nil && hop < restRedirects:
			target = next
		case a.status >= 200 && a.status < 300:
			return a, nil
		default:
			return nil, restRefused(a)
		}
	}
}

// url is where a request goes at a host.
func (r *Conn) url(host string, q restRequest) *url.URL {
	// The namespace is a parameter of every route.
	query := url.Values{"ns": {r.opts.Namespace}}
	for name, v := range q.query {
		query[name] = v
	}
	u := &url.URL{Scheme: "http", Host: host, RawQuery: query.Encode(), RawPath: q.path}
	u.Path, _ = url.PathUnescape(q.path) // it was escaped here
	if r.opts.Secure(host) {
		u.Scheme = "https"
	}
	return u
}

// redirect is where an answer sends the request, if that does not step down to clear text and the token may go there; nil for
// any other answer.
func (r *Conn) redirect(a *restAnswer, from *url.URL) *url.URL {
	if a.status != http.StatusTemporaryRedirect && a.status != http.StatusPermanentRedirect {
		return nil
	}
	to, err := from.Parse(a.header.Get("Location"))
	if err != nil || a.header.Get("Location") == "" || to.Scheme != from.Scheme {
		return nil
	}
	if to.Scheme != "https" && r.opts.Secure(withPort(to.Host)) {
		return nil // clear text leaves this machine only by Insecure
	}
	return to
}

// withPort is the host of an http URL with its port.
func withPort(host string) string {
	if _, _, err := net.SplitHostPort(host); err == nil {
		return host
	}
	return net.JoinHostPort(strings.Trim(host, "[]"), "80")
}

// open is do for an answer that is read as it comes: its body is for the caller to close.
func (r *Conn) open(ctx context.Context, q restRequest) (*http.Response, error) {
	if r.host.Load() == nil {
		if err := r.Probe(ctx); err != nil {
			return nil, err
		}
	}
	host := r.host.Load()
	if host == nil { // just now, it stopped to answer another request
		host = &r.opts.Hosts[0]
	}
	target := r.url(*host, q)
	for hop := 0; ; hop++ {
		resp, left, err := r.request(ctx, target, q)
		if err != nil {
			if !left {
				r.host.CompareAndSwap(host, nil)
			}
			return nil, restUnanswered(ctx, *host, left, err)
		}
		if resp.StatusCode >= 200 && resp.StatusCode < 300 {
			return resp, nil
		}
		a, err := wholeAnswer(resp)
		if err != nil {
			return nil, restUnanswered(ctx, *host, true, err)
		}
		next := r.redirect(a, target)
		if next == nil || hop == restRedirects {
			err := restRefused(a)
			r.leaderless(host, err)
			return nil, err
		}
		target = next
	}
}

// send sends a request once. left says that it may have reached the server.
func (r *Conn) send(ctx context.Context, target *url.URL, q restRequest) (a *restAnswer, left bool, err error) {
	resp, left, err := r.request(ctx, target, q)
	if err != nil {
		return nil, left, err
	}
	a, err = wholeAnswer(resp)
	return a, true, err
}

// wholeAnswer reads an answer to its end.
func wholeAnswer(resp *http.Response) (*restAnswer, error) {
	defer resp.Body.Close() //nolint:errcheck // it was read to its end, or is given up
	// One byte more than is allowed tells an answer that is too long from one that just fits.
	b, err := io.ReadAll(io.LimitReader(resp.Body, restAnswerBytes+1))
	if err == nil && len(b) > restAnswerBytes {
		err = fmt.Errorf("the answer is longer than %d bytes", restAnswerBytes)
	}
	if err != nil {
		return nil, err
	}
	return &restAnswer{resp.StatusCode, resp.Header, b}, nil
}

// request sends a request once and returns the answer as it begins. left says that it may have reached the server.
func (r *Conn) request(ctx context.Context, target *url.URL, q restRequest) (resp *http.Response, left bool, err error) {
	// Once the header is written the server may act on the request, whether or not its body or the answer is lost.
	var wrote atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() { wrote.Store(true) }})
	var body io.Reader
	if q.body != nil {
		body = bytes.NewReader(q.body)
	}
	req, err := http.NewRequestWithContext(ctx, q.method, "", body)
	if err != nil {
		return nil, false, err
	}
	req.URL = target
	if t := r.opts.Token(); t != "" {
		req.Header.Set("Authorization", "Bearer "+t)
	}
	if q.body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if q.ifMatch != "" {
		req.Header.Set("If-Match", q.ifMatch)
	}
	if q.lastEvent != "" {
		req.Header.Set("Last-Event-ID", q.lastEvent)
	}
	if resp, err = r.http.Do(req); err != nil {
		return nil, wrote.Load(), err
	}
	return resp, true, nil
}

// call sends a request and reads its answer, which is an object.
func (r *Conn) call(ctx context.Context, q restRequest, into proto.Message) (*restAnswer, error) {
	a, err := r.do(ctx, q)
	if err != nil {
		return nil, err
	}
	return a, a.read(into)
}

// Host is where Millrace answered last; empty before it did, or when it stopped to.
func (r *Conn) Host() string {
	if host := r.host.Load(); host != nil {
		return *host
	}
	return ""
}

// Probe looks for Millrace at the hosts, in order, and keeps the first where it answers, be it with a refusal. Its error is a
// Fault: that of the first host.
func (r *Conn) Probe(ctx context.Context) error {
	var first error
	for _, host := range r.opts.Hosts {
		err := r.answers(ctx, host)
		if err == nil {
			r.host.Store(&host)
			return nil
		}
		if first == nil {
			first = err
		}
	}
	return first
}

// answers returns nil if Millrace answers at a host. A refusal counts too: calls then get it as their own error.
func (r *Conn) answers(ctx context.Context, host string) error {
	within, cancel := context.WithTimeout(ctx, restProbeWithin)
	defer cancel()
	a, err := r.at(within, host, restRequest{method: http.MethodGet, path: "/v1/status"})
	if err == nil {
		s := new(pb.StatusResponse)
		if err = a.read(s); err == nil && s.GetDurability() == "" {
			err = restBetween(a)
		}
	}
	f, ok := errors.AsType[*Fault](err)
	switch {
	case ok && f.origin == byServer:
		return nil
	// The time of the probe was over, not that of the caller.
	case ok && f.origin == byContext:
		return restUnanswered(ctx, host, false, errors.New("no answer came"))
	case ok && f.wire != nil:
		f.wire.Outcome = 0 // it was only asked whether it is there
	}
	return err
}

// restSegment escapes one segment of a path. Two that a proxy would resolve are escaped whole.
func restSegment(s string) string {
	if s == "." || s == ".." {
		return strings.ReplaceAll(s, ".", "%2E")
	}
	return url.PathEscape(s)
}
