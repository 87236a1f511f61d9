package apitest

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
)

// Dial returns a client of the server that listens at lis. It may send messages of any size.
func Dial(t *testing.T, lis *bufconn.Listener) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///bufconn",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }),
		grpc.WithDefaultCallOptions(grpc.MaxCallSendMsgSize(1<<30)),
	)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// Peer speaks HTTP/2 by hand, so that it may do what no client library does.
type Peer struct {
	t    *testing.T
	Conn net.Conn
	*http2.Framer
}

// NewPeer connects to the server that listens at lis, until the test ends.
func NewPeer(t *testing.T, lis *bufconn.Listener) *Peer {
	t.Helper()
	conn, err := lis.Dial()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	p := &Peer{t, conn, http2.NewFramer(conn, conn)}
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	if err := p.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	return p
}

// Open begins a call; its id is odd.
func (p *Peer) Open(id uint32, method, token string) {
	p.t.Helper()
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	for _, f := range [][2]string{
		{":method", "POST"},
		{":scheme", "http"},
		{":path", method},
		{":authority", "x"},
		{"content-type", "application/grpc"},
		{"te", "trailers"},
		{"authorization", "Bearer " + token},
	} {
		if err := e.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}); err != nil {
			p.t.Fatal(err)
		}
	}
	if err := p.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true}); err != nil {
		p.t.Fatal(err)
	}
}

// Send sends bytes of a call; end says that they are its last.
func (p *Peer) Send(id uint32, end bool, b []byte) {
	p.t.Helper()
	if err := p.WriteData(id, end, b); err != nil {
		p.t.Fatal(err)
	}
}

// Statuses reads on and passes on the end of each call, by the names of its trailers, until the connection ends. It answers pings.
func (p *Peer) Statuses() <-chan map[string]string {
	ends := make(chan map[string]string, 1000)
	p.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	go func() {
		defer close(ends)
		for {
			f, err := p.ReadFrame()
			if err != nil {
				return
			}
			switch f := f.(type) {
			case *http2.MetaHeadersFrame:
				fields := make(map[string]string)
				for _, h := range f.Fields {
					fields[h.Name] = h.Value
				}
				if f.StreamEnded() {
					ends <- fields
				}
			case *http2.PingFrame:
				if !f.IsAck() {
					_ = p.WritePing(true, f.Data) // what is wrong shows in the next frame
				}
			}
		}
	}()
	return ends
}

// Goaway reads until the server tells the peer to go, and answers its pings meanwhile.
func (p *Peer) Goaway() *http2.GoAwayFrame {
	p.t.Helper()
	for {
		f, err := p.ReadFrame()
		if err != nil {
			p.t.Fatalf("the connection ended without a goodbye: %v", err)
		}
		switch f := f.(type) {
		case *http2.GoAwayFrame:
			return f
		case *http2.PingFrame:
			if !f.IsAck() {
				_ = p.WritePing(true, f.Data) // what is wrong shows in the next frame
			}
		}
	}
}

// Announced is the head of a message of that length, and what comes of its content.
func Announced(length int, content []byte) []byte {
	head := make([]byte, 5, 5+len(content))
	binary.BigEndian.PutUint32(head[1:], uint32(length))
	return append(head, content...)
}

// Framed is a message with its head.
func Framed(t *testing.T, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return Announced(len(b), b)
}
