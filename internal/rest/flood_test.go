package rest

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/net/http2"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api/apitest"
	"github.com/millrace/millrace/internal/edge"
)

// floods are frames that cost a server work and ask it for nothing; i counts up.
func floods(t *testing.T, scheme, path string) map[string]func(i int) []byte {
	open := func(i int) []byte {
		return apitest.Opening(t, uint32(2*i+1), ":method", "POST", ":scheme", scheme, ":path", path, ":authority", "x", "content-type", "application/grpc", "te", "trailers")
	}
	after := func(frame func(stream uint32) []byte) func(int) []byte {
		return func(i int) []byte {
			if i == 0 {
				return open(0)
			}
			return frame(1)
		}
	}
	return map[string]func(int) []byte{
		"settings":      func(int) []byte { return apitest.RawFrame(4, 0, 0) },
		"settings acks": func(int) []byte { return apitest.RawFrame(4, 1, 0) },
		"pings":         func(int) []byte { return apitest.RawFrame(6, 0, 0, make([]byte, 8)...) },
		"priorities":    func(i int) []byte { return apitest.RawFrame(2, 0, uint32(2*i+1), 0, 0, 0, 0, 1) },
		"windows":       func(int) []byte { return apitest.RawFrame(8, 0, 0, 0, 0, 0, 1) },
		"resets":        func(i int) []byte { return append(open(i), apitest.RawFrame(3, 0, uint32(2*i+1), 0, 0, 0, 8)...) },
		"empty data":    after(func(id uint32) []byte { return apitest.RawFrame(0, 0, id) }),
		"padding":       after(func(id uint32) []byte { return apitest.RawFrame(0, edge.FlagPadded, id, 3, 0, 0, 0) }),
		"unknown":       func(int) []byte { return apitest.RawFrame(77, 0, 0, 1, 2, 3) },
	}
}

// flood sends frames until the connection ends, and reads what comes meanwhile. It fails if the server takes all of them.
func flood(t *testing.T, what string, conn net.Conn, frame func(i int) []byte) {
	t.Helper()
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	ended := make(chan error, 1)
	go func() { _, err := io.Copy(io.Discard, conn); ended <- err }()
	const most = 50_000
	_, err := io.WriteString(conn, http2.ClientPreface+string(apitest.RawFrame(4, 0, 0)))
	for i := 0; i < most && err == nil; {
		var b []byte
		for range 50 {
			b = append(b, frame(i)...)
			i++
		}
		_, err = conn.Write(b)
	}
	if err := <-ended; errors.Is(err, os.ErrDeadlineExceeded) { // frames that were written may not have been read
		t.Errorf("%s: the connection did not end", what)
	}
	_ = conn.Close()
}

// A connection over HTTP/2 whose frames carry nothing is ended, at both doors, before a call on it was authenticated. Others go on.
func TestAFloodOfEmptyFramesEndsItsConnection(t *testing.T) {
	r := newTLSRig(t, edge.Limits{})
	for what, frame := range floods(t, "http", openMethod) {
		conn, err := r.lis.Dial()
		if err != nil {
			t.Fatal(err)
		}
		flood(t, "gRPC, "+what, conn, frame)
	}
	config := r.trust.Clone()
	config.NextProtos, config.ServerName = []string{"h2"}, "example.com"
	for what, frame := range floods(t, "https", "/v1/tasks") {
		conn, err := tls.Dial("tcp", r.web.String(), config)
		if err != nil {
			t.Fatal(err)
		}
		flood(t, "REST, "+what, conn, frame)
	}
	if n, want := r.s.Stats().Refusals[edge.LimitFrames], uint64(2*len(floods(t, "http", "/"))); n != want {
		t.Errorf("%d refusals were counted, want %d", n, want)
	}
	if _, err := pb.NewServerServiceClient(r.conn).Status(apitest.As("acme/all"), &pb.StatusRequest{}); err != nil {
		t.Errorf("another connection: %v", err)
	}
	if a := r.do("GET", "/v1/status", ""); a.status != 200 {
		t.Errorf("another connection of REST: %d %s", a.status, a.body)
	}
}
