package millrace_test

import (
	"bytes"
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	millrace "github.com/millrace/millrace/sdk/go"
)

// proxy stands between a client and the server of the tests, on one port. It speaks HTTP/1.1 to REST, until it is told
// to pass connections through to gRPC.
type proxy struct {
	t        *testing.T
	lis      net.Listener
	web      *http.Server
	accepted chan net.Conn
	passes   atomic.Bool
	down     atomic.Bool
	wait     sync.WaitGroup

	mu    sync.Mutex // guards the fields below
	conns map[net.Conn]struct{}

	// before sees a request and may answer it; it reports whether it did. after sees an answer and may refuse to pass it
	// on: the connection is then closed without one.
	before func(w http.ResponseWriter, r *http.Request, body []byte) bool
	after  func(r *http.Request, answer *http.Response, body []byte) bool
}

func newProxy(t *testing.T) *proxy {
	t.Helper()
	p := &proxy{t: t, accepted: make(chan net.Conn), conns: map[net.Conn]struct{}{}}
	var err error
	if p.lis, err = new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	p.web = &http.Server{Handler: p.handler(), ErrorLog: log.New(io.Discard, "", 0)}
	p.wait.Go(func() { _ = p.web.Serve(p) })
	p.wait.Go(p.accept)
	t.Cleanup(func() {
		_ = p.lis.Close()
		_ = p.web.Close()
		p.cut()
		p.wait.Wait()
	})
	return p
}

func (p *proxy) address() string { return p.lis.Addr().String() }

// Accept gives the web server its connections.
func (p *proxy) Accept() (net.Conn, error) {
	c, ok := <-p.accepted
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}

// Close is for the web server, which does not own the listener.
func (p *proxy) Close() error { return nil }

// Addr is the address of the proxy.
func (p *proxy) Addr() net.Addr { return p.lis.Addr() }

func (p *proxy) accept() {
	defer close(p.accepted)
	for {
		c, err := p.lis.Accept()
		switch {
		case err != nil:
			return
		case p.down.Load():
			_ = c.Close()
		case p.passes.Load():
			p.wait.Go(func() { p.pass(c) })
		default:
			p.accepted <- c
		}
	}
}

// pass joins a connection to the server's gRPC port.
func (p *proxy) pass(c net.Conn) {
	up, err := new(net.Dialer).DialContext(context.Background(), "tcp", os.Getenv("MILLRACE_URL"))
	if err != nil {
		_ = c.Close()
		return
	}
	p.mu.Lock()
	p.conns[c], p.conns[up] = struct{}{}, struct{}{}
	p.mu.Unlock()
	p.wait.Go(func() {
		_, _ = io.Copy(up, c)
		_ = up.Close()
	})
	_, _ = io.Copy(c, up)
	_ = c.Close()
	_ = up.Close()
}

// cut closes the connections that are passed through.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
	p.conns = map[net.Conn]struct{}{}
}

// handler passes requests on to REST.
func (p *proxy) handler() http.Handler {
	to := &url.URL{Scheme: "http", Host: restAddress()}
	transport := &http.Transport{}
	p.t.Cleanup(transport.CloseIdleConnections)
	back := &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(to) },
		Transport: transport,
		ErrorLog:  log.New(io.Discard, "", 0),
		ModifyResponse: func(a *http.Response) error {
			if p.after == nil {
				return nil
			}
			body, err := io.ReadAll(a.Body)
			if err != nil {
				return err
			}
			a.Body = io.NopCloser(bytes.NewReader(body))
			if !p.after(a.Request, a, body) {
				panic(http.ErrAbortHandler)
			}
			return nil
		},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p.before != nil {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				panic(http.ErrAbortHandler)
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
			if p.before(w, r, body) {
				return
			}
		}
		back.ServeHTTP(w, r)
	})
}

// dial makes a client whose only way is the proxy.
func (p *proxy) dial(opts ...millrace.Option) *millrace.Client {
	p.t.Helper()
	ns := millrace.Namespace(namespaceOf(p.t))
	return dial(p.t, append([]millrace.Option{millrace.Address(p.address()), ns, millrace.Logger(quiet())}, opts...)...)
}
