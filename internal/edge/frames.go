package edge

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/credentials"
)

// The costs of frames to a connection's allowance (http2_frames). A frame that carries nothing costs one. A reset costs what opening
// the stream had earned and one more, so that streams which are opened to be reset are bounded too.
const (
	costEmpty = 1
	costReset = 2
	earnOpen  = 1
	// earnBytes is how many bytes the server writes for one more frame: answers are acknowledged by WINDOW_UPDATE frames, two for
	// each frame of data at the most. What only acknowledges PING or SETTINGS frames is shorter than this.
	earnBytes = 32
	// emptyBytes is up to what length DATA carries nothing: the shortest message that a stream needs is longer.
	emptyBytes = 4
	// framesWindow is the time after which a connection has its whole allowance again.
	framesWindow = 10 * time.Second
	// newShare is the share of the allowance that a connection has until a call on it was authenticated.
	newShare = 5

	// LimitFrames is the name of the allowance in configuration and errors.
	LimitFrames = "http2_frames"
)

// The types and flags of frames that are told apart; see RFC 9113, section 6.
const (
	frameHeadBytes = 9
	frameData      = 0
	frameHeaders   = 1
	frameReset     = 3
	FlagPadded     = 8
)

// clientPreface is what each client of HTTP/2 sends first; RFC 9113, section 3.4.
const clientPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// frameReader finds the frames in the bytes that a client sends over HTTP/2 after its preface, and adds up what they cost. The
// payloads are skipped.
type frameReader struct {
	head [frameHeadBytes]byte
	// have is how many bytes of head have come, skip how many bytes of the payload have not.
	have int
	skip int // bytes of the payload that have not come
	cost int64
}

// take reads the next bytes.
func (f *frameReader) take(p []byte) {
	for {
		if f.skip > 0 {
			n := min(f.skip, len(p))
			f.skip -= n
			p = p[n:]
		}
		if len(p) == 0 {
			return
		}
		n := copy(f.head[f.have:], p)
		p = p[n:]
		if f.have += n; f.have < frameHeadBytes {
			return
		}
		f.have, f.skip = 0, int(f.head[0])<<16|int(f.head[1])<<8|int(f.head[2])
		f.cost = max(f.cost+f.price(), 0)
	}
}

// price is what the frame whose head has come costs; what it earns is negative.
func (f *frameReader) price() int64 {
	switch f.head[3] {
	case frameData:
		if f.skip > emptyBytes && f.head[4]&FlagPadded == 0 {
			return 0
		}
	case frameHeaders:
		return -earnOpen
	case frameReset:
		return costReset
	}
	return costEmpty
}

// frameConn is a connection that speaks HTTP/2. It ends one whose frames carry nothing for too long: the allowance of LimitFrames
// within framesWindow, and what its calls earn.
type frameConn struct {
	net.Conn
	c *Conn
	// preface is how many bytes of the client's preface have come.
	preface int
	frames  frameReader
	// most is up to where frames.cost may rise: a share of the limit, and all of it once a call was
	// authenticated.
	most int64
	// since is the boot time at which the allowance was whole.
	since time.Duration
	// earned is how many bytes of written were counted already. written is added to by those who write,
	// all other fields belong to the reader.
	earned  int64
	written atomic.Int64
}

var (
	// Both end a connection; its client sees only that.
	errFrames  = errors.New("too many frames of HTTP/2 that carry nothing")
	errPreface = errors.New("what follows the handshake must be HTTP/2")
)

// newFrameConn wraps a connection on which HTTP/2 is spoken. raw is what is read and written, above
// TLS; c is the connection as it was counted. It begins with the share of a stranger.
func newFrameConn(raw net.Conn, c *Conn) *frameConn {
	return &frameConn{Conn: raw, c: c, most: max(c.s.Limits.HTTP2Frames/newShare, 1), since: c.s.Clock.Boot()}
}

// Read reads what the client sends.
func (f *frameConn) Read(p []byte) (int, error) {
	n, err := f.Conn.Read(p)
	if wrong := f.saw(p[:n]); wrong != nil {
		_ = f.Close() // its readers and writers learn
		return 0, wrong
	}
	return n, err
}

// saw counts what has come. Its error says that the connection must end.
func (f *frameConn) saw(b []byte) error {
	if left := clientPreface[f.preface:]; left != "" {
		n := min(len(b), len(left))
		if string(b[:n]) != left[:n] {
			return errPreface
		}
		f.preface += n
		b = b[n:]
	}
	if f.frames.take(b); f.frames.cost > f.most && !f.more() {
		f.c.s.Refusals.Add(LimitFrames)
		return errFrames
	}
	return nil
}

// more reports whether the connection may go on: because of what was written on it, or as its allowance is whole again.
func (f *frameConn) more() bool {
	written := f.written.Load()
	f.frames.cost = max(f.frames.cost-(written-f.earned)/earnBytes, 0)
	f.earned = written
	if f.c.known.Load() {
		f.most = f.c.s.Limits.HTTP2Frames
	}
	if f.frames.cost <= f.most {
		return true
	}
	now := f.c.s.Clock.Boot()
	if now-f.since < framesWindow {
		return false
	}
	f.since, f.frames.cost = now, 0
	return true
}

// Write writes, and counts what earns further frames.
func (f *frameConn) Write(p []byte) (int, error) {
	n, err := f.Conn.Write(p)
	f.written.Add(int64(n))
	return n, err
}

// counting are credentials of a server whose connections are limited by their frames; inner does the handshake, none where there is
// no TLS.
type counting struct {
	inner credentials.TransportCredentials
}

// FrameCredentials are credentials of a gRPC server whose connections are limited by their frames; a nil config is for plain text.
func FrameCredentials(config *tls.Config) credentials.TransportCredentials {
	if config == nil {
		return counting{}
	}
	return counting{credentials.NewTLS(config)}
}

// ServerHandshake returns the connection above TLS.
func (k counting) ServerHandshake(raw net.Conn) (conn net.Conn, info credentials.AuthInfo, err error) {
	conn = raw
	if k.inner != nil {
		if conn, info, err = k.inner.ServerHandshake(raw); err != nil {
			return nil, nil, err
		}
	}
	if c, ok := raw.(*Conn); ok {
		conn = newFrameConn(conn, c)
	}
	return conn, info, nil
}

// ClientHandshake fails: these are credentials of a server.
func (counting) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("api: credentials of a server")
}

// Info describes the protocol.
func (k counting) Info() credentials.ProtocolInfo {
	if k.inner != nil {
		return k.inner.Info()
	}
	return credentials.ProtocolInfo{SecurityProtocol: "insecure"}
}

// Clone returns a copy.
func (k counting) Clone() credentials.TransportCredentials {
	if k.inner != nil {
		k.inner = k.inner.Clone()
	}
	return k
}

// OverrideServerName does nothing, as in all credentials of servers.
func (counting) OverrideServerName(string) error { return nil }
