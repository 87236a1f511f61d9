package millrace

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
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
)

// restConn carries calls and streams of the contract over REST, for clients whose way to the server lets no gRPC
// through. It is a connection like gRPC's: the code above it does not know which one it has.
type restConn struct {
	c         *Client
	http      *http.Client
	transport *http.Transport
	ctx       context.Context // its end ends every request
	stop      context.CancelFunc
	hosts     []string               // host:port where REST may be
	host      atomic.Pointer[string] // the one of them that answered; nil before

	mu      sync.Mutex // guards the fields below
	streams map[*restStream]struct{}
	unled   unled
}

const (
	restCallWithin  = 40 * time.Second // an answer: servers end a call after 30 s
	restProbeWithin = 3 * time.Second
	restIdle        = 30 * time.Second // a connection that is kept; servers and proxies close theirs after 60 s
	restAnswerBytes = 32 << 20         // of one answer: several large payloads as base64
	restRedirects   = 3
	restLanes       = 16 // requests with work that one stream has open at once: what comes meanwhile shares the next
)

func newRESTConn(c *Client) *restConn {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	r := &restConn{c: c, hosts: c.opts.restHosts(), streams: map[*restStream]struct{}{}}
	r.transport = &http.Transport{
		DialContext:         r.dial,
		TLSClientConfig:     c.opts.tls,
		TLSHandshakeTimeout: 10 * time.Second,
		Protocols:           &protocols,
		HTTP2:               &http.HTTP2Config{SendPingTimeout: pingEvery, PingTimeout: pingTimeout},
		MaxIdleConnsPerHost: 4 * restLanes,
		IdleConnTimeout:     restIdle,
	}
	if !c.opts.dials {
		r.transport.Proxy = http.ProxyFromEnvironment
	}
	r.http = &http.Client{Transport: r.transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
	r.ctx, r.stop = context.WithCancel(context.Background())
	return r
}

func (r *restConn) dial(ctx context.Context, _, address string) (net.Conn, error) {
	conn, err := r.c.opts.dial(ctx, address)
	if err != nil || r.c.opts.secure(address) {
		return conn, err
	}
	return &restNetConn{Conn: conn}, nil
}

// restNetConn fails when the other side speaks no HTTP/1. A port of gRPC speaks first, which package http would log.
type restNetConn struct {
	net.Conn
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

var errNotHTTP = errors.New("the other side speaks no HTTP/1")

// close ends all requests.
func (r *restConn) close() {
	r.stop()
	r.transport.CloseIdleConnections()
}

// restRequest is one request, ready to be sent.
type restRequest struct {
	method  string
	path    string // escaped
	query   url.Values
	body    []byte
	ifMatch string
	wait    time.Duration // that it asks the server to wait
}

// restAnswer is the answer to a request.
type restAnswer struct {
	status int
	header http.Header
	body   []byte
}

func (a *restAnswer) isJSON() bool {
	t, _, err := mime.ParseMediaType(a.header.Get("Content-Type"))
	return err == nil && t == "application/json"
}

// do sends a request and returns its answer. The error is a *restFault.
func (r *restConn) do(ctx context.Context, q restRequest) (*restAnswer, error) {
	host := r.host.Load()
	if host == nil {
		if err := r.probe(ctx); err != nil {
			return nil, err
		}
		host = r.host.Load()
	}
	a, err := r.at(ctx, *host, q)
	if f, ok := errors.AsType[*restFault](err); ok && f.origin == byNobody && !f.left() {
		r.host.CompareAndSwap(host, nil) // another of them may serve now
	}
	r.leaderless(host, err)
	return a, err
}

// leaderless leaves a host that knows of no leader for long, for the next one.
func (r *restConn) leaderless(host *string, err error) {
	f, ok := errors.AsType[*restFault](err)
	if !ok || f.wire.GetReason() != reasonNoLeader || f.wire.GetCode() != string(CodeUnavailable) {
		return
	}
	r.mu.Lock()
	leaves := r.unled.leave(*host, len(r.hosts), time.Now())
	r.mu.Unlock()
	if leaves {
		r.host.CompareAndSwap(host, &r.hosts[(slices.Index(r.hosts, *host)+1)%len(r.hosts)])
	}
}

// at is do at one of the hosts.
func (r *restConn) at(ctx context.Context, host string, q restRequest) (*restAnswer, error) {
	within, cancel := context.WithTimeout(ctx, restCallWithin+q.wait)
	defer cancel()
	defer context.AfterFunc(r.ctx, cancel)()
	target := r.url(host, q)
	for hop := 0; ; hop++ {
		a, left, err := r.send(within, target, q)
		if err != nil {
			return nil, restUnanswered(ctx, host, left, err)
		}
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

func (r *restConn) url(host string, q restRequest) *url.URL {
	query := url.Values{"ns": {r.c.opts.namespace}}
	for name, v := range q.query {
		query[name] = v
	}
	u := &url.URL{Scheme: "http", Host: host, RawQuery: query.Encode(), RawPath: q.path}
	u.Path, _ = url.PathUnescape(q.path) // it was escaped here
	if r.c.opts.secure(host) {
		u.Scheme = "https"
	}
	return u
}

// redirect is where an answer sends the request, if that does not step down to clear text and the token may go there; nil for
// any other answer.
func (r *restConn) redirect(a *restAnswer, from *url.URL) *url.URL {
	if a.status != http.StatusTemporaryRedirect && a.status != http.StatusPermanentRedirect {
		return nil
	}
	to, err := from.Parse(a.header.Get("Location"))
	if err != nil || a.header.Get("Location") == "" || to.Scheme != from.Scheme {
		return nil
	}
	if to.Scheme != "https" && r.c.opts.secure(withPort(to.Host)) {
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
func (r *restConn) open(ctx context.Context, q restRequest) (*http.Response, error) {
	if r.host.Load() == nil {
		if err := r.probe(ctx); err != nil {
			return nil, err
		}
	}
	host := r.host.Load()
	if host == nil { // just now, it stopped to answer another request
		host = &r.hosts[0]
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
func (r *restConn) send(ctx context.Context, target *url.URL, q restRequest) (a *restAnswer, left bool, err error) {
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
func (r *restConn) request(ctx context.Context, target *url.URL, q restRequest) (resp *http.Response, left bool, err error) {
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
	if t := *r.c.token.Load(); t != "" {
		req.Header.Set("Authorization", "Bearer "+t)
	}
	if q.body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if q.ifMatch != "" {
		req.Header.Set("If-Match", q.ifMatch)
	}
	if resp, err = r.http.Do(req); err != nil {
		return nil, wrote.Load(), err
	}
	return resp, true, nil
}

// call sends a request and reads its answer, which is an object.
func (r *restConn) call(ctx context.Context, q restRequest, into any) (*restAnswer, error) {
	a, err := r.do(ctx, q)
	if err != nil {
		return nil, err
	}
	return a, a.read(into)
}

// read reads the object of an answer. An answer that is not such an object was not written by Millrace.
func (a *restAnswer) read(into any) error {
	if !a.isJSON() || json.Unmarshal(a.body, into) != nil {
		return restBetween(a)
	}
	return nil
}

// probe looks for Millrace at the hosts, in order, and keeps the first where it answers, be it with a refusal.
func (r *restConn) probe(ctx context.Context) error {
	var first error
	for _, host := range r.hosts {
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

func (r *restConn) answers(ctx context.Context, host string) error {
	within, cancel := context.WithTimeout(ctx, restProbeWithin)
	defer cancel()
	a, err := r.at(within, host, restRequest{method: http.MethodGet, path: "/v1/status"})
	if err == nil {
		var s restStatus
		if err = a.read(&s); err == nil && s.Durability == "" {
			err = restBetween(a)
		}
	}
	f, ok := errors.AsType[*restFault](err)
	switch {
	case ok && f.origin == byServer:
		return nil
	case ok && f.origin == byContext:
		return restUnanswered(ctx, host, false, errors.New("no answer came"))
	case ok && f.wire != nil:
		f.wire.Outcome = 0 // it was only asked whether it is there
	}
	return err
}

// restHex writes 16 bytes as the routes take them.
func restHex(id []byte) string { return hex.EncodeToString(id) }

// restSegment escapes one segment of a path. Two that a proxy would resolve are escaped whole.
func restSegment(s string) string {
	if s == "." || s == ".." {
		return strings.ReplaceAll(s, ".", "%2E")
	}
	return url.PathEscape(s)
}
