package edge

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
)

// secureListener gives package http connections above TLS, which look at what the client sends. To package http they are
// connections without TLS: it tells HTTP/2 by its preface.
type secureListener struct {
	net.Listener
	s      *Edge
	config *tls.Config
}

// Secured is limited above TLS.
func (e *Edge) Secured(lis net.Listener, config *tls.Config) net.Listener {
	return secureListener{e.Limited(lis, false), e, config}
}

// Accept returns the next connection, before its handshake.
func (l secureListener) Accept() (net.Conn, error) {
	raw, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c, ok := raw.(*Conn)
	if !ok {
		_ = raw.Close() // as it must not be served
		return nil, fmt.Errorf("accept: a connection of another kind: %T", raw)
	}
	c.Secure = true
	return &secureConn{Conn: tls.Server(c, l.config), c: c}, nil
}

// secureConn is a connection of the REST listener above TLS. The first Read does the handshake, within the time that package http
// sets for the first request. It does not show the state of TLS: package http would take it for one that has no preface.
type secureConn struct {
	net.Conn // a *tls.Conn
	// c is the connection below TLS, as it was counted.
	c      *Conn
	open   bool       // the handshake was done
	frames *frameConn // of HTTP/2; nil: it speaks HTTP/1
	heads  headReader
}

// handshake does what TLS wants before the first byte, and finds out whether HTTP/2 was agreed on. A
// client that speaks plain HTTP to the port is told so.
func (s *secureConn) handshake() error {
	t, ok := s.Conn.(*tls.Conn)
	if !ok {
		return fmt.Errorf("handshake: a connection of another kind: %T", s.Conn)
	}
	if err := t.Handshake(); err != nil {
		if re, ok := errors.AsType[tls.RecordHeaderError](err); ok && re.Conn != nil && re.RecordHeader[0] >= 'A' && re.RecordHeader[0] <= 'Z' {
			_, _ = io.WriteString(re.Conn, "HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n") // it is closed anyway
		}
		_ = s.Close()
		return err
	}
	if t.ConnectionState().NegotiatedProtocol == "h2" {
		s.frames = newFrameConn(t, s.c)
	}
	s.open = true
	return nil
}

// Read reads what the client sends.
func (s *secureConn) Read(p []byte) (int, error) {
	if !s.open {
		if err := s.handshake(); err != nil {
			return 0, err
		}
	}
	if s.frames != nil {
		return s.frames.Read(p)
	}
	n, err := s.Conn.Read(p)
	if s.heads.take(p[:n]) {
		s.c.Ambiguous.Store(true)
	}
	if s.heads.preface { // without the handshake's leave
		_ = s.Close()
		return 0, errPreface
	}
	return n, err
}

// Write writes.
func (s *secureConn) Write(p []byte) (int, error) {
	if s.frames != nil {
		return s.frames.Write(p)
	}
	return s.Conn.Write(p)
}
