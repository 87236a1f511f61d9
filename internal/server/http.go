package server

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"

	"github.com/millrace/millrace/internal/env"
)

// web is the listener of the REST edge. Without a listener lis is nil, without TLS tls is nil.
type web struct {
	lis net.Listener
	tls *tls.Config
	// Receives the end of serving, once; nil until it serves.
	served chan error
}

// checkHTTP refuses a REST listener that would send tokens and payloads in plain text to other
// machines, unless the operator allows it.
func (o Options) checkHTTP() error {
	if o.HTTP == off {
		return nil
	}
	host, _, err := net.SplitHostPort(o.HTTP)
	switch {
	case err != nil:
		return fmt.Errorf("http: %w", err)
	case !env.Loopback(host) && o.TLSCert == "" && !o.insecure(ListenerHTTP):
		return fmt.Errorf("http: %s is not a loopback address; give tls-cert and tls-key, or --insecure=http for plain text", o.HTTP)
	}
	return nil
}

// openHTTP opens the REST listener. serveHTTP serves it later, when the node is ready.
func (r *Running) openHTTP() (err error) {
	if r.o.HTTP == off {
		return nil
	}
	// REST speaks HTTP/2 where clients offer it.
	if r.cert != nil {
		r.web.tls = r.cert.config("h2", "http/1.1")
	}
	if r.web.lis, err = r.o.Net.Listen(r.o.HTTP); err != nil {
		return fmt.Errorf("http: %w", err)
	}
	r.HTTPAddress = r.web.lis.Addr().String()
	return nil
}

// serveHTTP serves until the edge is shut down.
func (r *Running) serveHTTP() {
	if r.web.lis == nil {
		return
	}
	r.web.served = make(chan error, 1)
	go func() { r.web.served <- r.rest.Serve(r.web.lis, r.web.tls) }()
}

// closeHTTP waits until serving has ended, or closes a listener on which nothing was served.
func (r *Running) closeHTTP() error {
	switch {
	case r.web.lis == nil:
		return nil
	case r.web.served != nil:
		return <-r.web.served
	}
	if err := r.web.lis.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("http: %w", err)
	}
	return nil
}
