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

	"github.com/millrace/millrace/internal/api"
	"github.com/millrace/millrace/internal/replog/transport"
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

// nodeURL is the base of the URLs of a node for the forwarder.
func nodeURL(id uint64) string { return "http://n" + strconv.FormatUint(id, 10) + forwardHost }

// nodeOfURL is the node that an address of the forwarder names.
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

// forwarder is what fetches leaders' answers for clients; nil: this server is by itself.
func (r *Running) forwarder() *http.Client {
	if r.peers == nil {
		return nil
	}
	return &http.Client{
		Transport: &http.Transport{
			DialContext: r.dialNode, MaxIdleConnsPerHost: forwardKept, IdleConnTimeout: forwardIdle, ResponseHeaderTimeout: forwardHead,
			DisableCompression: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// dialNode connects to the node that an address of the forwarder names, and to no other.
func (r *Running) dialNode(ctx context.Context, _, address string) (net.Conn, error) {
	id, err := nodeOfURL(address)
	if err != nil {
		return nil, err
	}
	s, err := r.peers.OpenForward(ctx, id)
	refused, _ := errors.AsType[*transport.RefusedError](err)
	switch {
	case errors.Is(err, transport.ErrTooManyStreams), refused != nil && refused.Reason == transport.TooManyStreams:
		return nil, errors.Join(api.ErrForwards, err)
	case err != nil:
		return nil, err
	}
	return s, nil
}

// peerOf is the base of the URLs by which the forwarder reaches the node whose gRPC edge has an address.
func (r *Running) peerOf(api string) string {
	d := r.node.Members()
	for i := len(d.Members) - 1; i >= 0; i-- { // the newest replica of a node is the last
		if m := &d.Members[i]; m.API == api && api != "" && m.Node != r.o.Cluster.Node {
			return nodeURL(m.Node)
		}
	}
	return ""
}

// forwards is the listener of what other nodes send on for their clients.
type forwards struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
	served chan error
	addr   net.Addr
}

// serveForwards serves what other nodes send on, until the edge is shut down.
func (r *Running) serveForwards() {
	if r.peers == nil {
		return
	}
	f := &forwards{conns: make(chan net.Conn), closed: make(chan struct{}), served: make(chan error, 1), addr: r.peers.Addr()}
	r.forwards = f
	r.peers.HandleForward(f.take)
	go func() { f.served <- r.api.ServeForwarded(f) }()
}

// take hands a connection to the edge, and returns when the edge has closed it.
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

// forwardedStream is a connection that says when it is closed.
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
