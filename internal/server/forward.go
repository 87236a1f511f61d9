package server

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/replog/transport"
	"github.com/millrace/millrace/internal/rest"
)

// Requests of clients that another node must serve carry the clients' tokens. They go over the connections between nodes,
// whose other end has proved by its certificate which node it is: an address, wherever it came from, is only where a node
// is tried.

const (
	// forwardHost ends the host of the URLs of nodes, which are names of this process alone: n3.node.millrace is node 3.
	forwardHost = ".node.millrace"
	// forwardIdle is how long an unused connection to a node is kept, and forwardKept how many are. It is less than
	// the node waits for the next request.
	forwardIdle = 30 * time.Second
	forwardKept = 16
	// forwardHead bounds the wait for the head of an answer, beyond the time that a claim may wait.
	forwardHead = 90 * time.Second
)

// nodeURL returns the base URL of a node for the forwarder.
func nodeURL(id uint64) string { return "http://n" + strconv.FormatUint(id, 10) + forwardHost }

// nodeOfURL returns the node that a host of the forwarder names, and an error for any other host:
// the forwarder must not be led elsewhere.
func nodeOfURL(hostport string) (transport.NodeID, error) {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		return 0, err
	}
	digits, ok := strings.CutSuffix(strings.TrimPrefix(host, "n"), forwardHost)
	id, err := strconv.ParseUint(digits, 10, 64)
	if !ok || err != nil {
		return 0, errors.New("requests are forwarded to nodes only")
	}
	return transport.NodeID(id), nil
}

// forwarder returns the HTTP client that fetches other nodes' answers; nil on a single-node server.
// It follows no redirects and changes no content: the client of this node gets the answer as it is.
func (r *Running) forwarder() *http.Client {
	if r.peers == nil {
		return nil
	}
	return &http.Client{
		// Idle connections are kept, as a node often forwards many requests to one leader.
		Transport: &http.Transport{
			DialContext: r.dialNode, MaxIdleConnsPerHost: forwardKept, IdleConnTimeout: forwardIdle, ResponseHeaderTimeout: forwardHead,
			DisableCompression: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// dialNode opens a stream to the node that the address names, over the transport. If the node, or
// this one, has too many of them, the error is api.ErrForwards, which clients see as a limit.
func (r *Running) dialNode(ctx context.Context, _, address string) (net.Conn, error) {
	id, err := nodeOfURL(address)
	if err != nil {
		return nil, err
	}
	s, err := r.peers.OpenForward(ctx, id)
	refused, _ := errors.AsType[*transport.RefusedError](err)
	switch {
	case errors.Is(err, transport.ErrTooManyStreams), refused != nil && refused.Reason == transport.TooManyStreams:
		return nil, errors.Join(rest.ErrForwards, err)
	case err != nil:
		return nil, err
	}
	return s, nil
}

// peerOf returns the base URL for the forwarder of the node whose gRPC address is api; empty if it
// is this node or not known.
func (r *Running) peerOf(api string) string {
	d := r.node.Members()
	for i := len(d.Members) - 1; i >= 0; i-- { // the newest replica of a node is the last
		if m := &d.Members[i]; m.API == api && api != "" && m.Node != r.o.Cluster.Node {
			return nodeURL(m.Node)
		}
	}
	return ""
}

// forwards is the listener on which the REST edge accepts the streams of other nodes, as if they
// were connections.
type forwards struct {
	// Without a buffer: take waits until the edge accepts.
	conns chan net.Conn
	// Closed by Close.
	closed chan struct{}
	once   sync.Once
	// Receives the end of serving, once.
	served chan error
	addr   net.Addr
}

// serveForwards serves what other nodes forward, until the edge is shut down.
func (r *Running) serveForwards() {
	if r.peers == nil {
		return
	}
	f := &forwards{conns: make(chan net.Conn), closed: make(chan struct{}), served: make(chan error, 1), addr: r.peers.Addr()}
	r.forwards = f
	r.peers.HandleForward(f.take)
	go func() { f.served <- r.rest.ServeForwarded(f) }()
}

// take hands a stream to the edge, and returns when the edge has closed it: the transport counts a
// stream as open until its handler returns.
func (f *forwards) take(_ transport.NodeID, s transport.Stream) {
	c := &forwardedStream{Stream: s, done: make(chan struct{})}
	select {
	case f.conns <- c:
		<-c.done
	case <-f.closed:
	}
}

// Accept returns the next connection.
func (f *forwards) Accept() (net.Conn, error) {
	select {
	case c := <-f.conns:
		return c, nil
	case <-f.closed:
		return nil, net.ErrClosed
	}
}

// Close takes no more connections.
func (f *forwards) Close() error {
	f.once.Do(func() { close(f.closed) })
	return nil
}

// Addr is the address for peers.
func (f *forwards) Addr() net.Addr { return f.addr }

// forwardedStream is a stream as a connection; done is closed when the edge closes it.
type forwardedStream struct {
	transport.Stream
	once sync.Once
	done chan struct{}
}

// Close ends the connection.
func (c *forwardedStream) Close() error {
	c.once.Do(func() { close(c.done) })
	return c.Stream.Close()
}
