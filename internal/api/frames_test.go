package api

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	pb "github.com/millrace/millrace/gen/millrace/v1"
)

// rawFrame is a frame as it goes over the wire.
func rawFrame(kind, flags byte, stream uint32, payload ...byte) []byte {
	b := []byte{byte(len(payload) >> 16), byte(len(payload) >> 8), byte(len(payload)), kind, flags}
	return append(binary.BigEndian.AppendUint32(b, stream), payload...)
}

// opening is the frame of a request without a token.
func opening(t *testing.T, stream uint32, fields ...string) []byte {
	t.Helper()
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	e.SetMaxDynamicTableSize(0)
	for i := 0; i < len(fields); i += 2 {
		if err := e.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}); err != nil {
			t.Fatal(err)
		}
	}
	return rawFrame(1, 4, stream, block.Bytes()...)
}

func TestFramesAreFoundHoweverTheyCome(t *testing.T) {
	var all []byte
	var want int64
	for _, f := range []struct {
		frame []byte
		cost  int64
	}{
		{rawFrame(4, 0, 0), 1},
		{rawFrame(6, 0, 0, make([]byte, 8)...), 1},
		{rawFrame(2, 0, 1, make([]byte, 5)...), 1},
		{rawFrame(8, 0, 0, 0, 0, 0, 1), 1},
		{rawFrame(0, 0, 1), 1},
		{rawFrame(0, flagPadded, 1, append([]byte{200}, make([]byte, 200)...)...), 1},
		{rawFrame(9, 0, 1), 1},
		{rawFrame(99, 0, 1, make([]byte, 70_000)...), 1},
		{rawFrame(0, 0, 1, make([]byte, 16_384)...), 0},
		{rawFrame(3, 0, 1, 0, 0, 0, 8), 2},
		{rawFrame(1, 4, 3, make([]byte, 50)...), -1},
	} {
		all = append(all, f.frame...)
		want += f.cost
	}
	for _, size := range []int{1, 2, 7, 8, 9, 10, 1000, len(all)} {
		var r frameReader
		for rest := all; len(rest) > 0; {
			n := min(size, len(rest))
			r.take(rest[:n])
			rest = rest[n:]
		}
		if r.cost != want || r.have != 0 || r.skip != 0 {
			t.Errorf("in pieces of %d: %+v, want a cost of %d", size, r, want)
		}
	}
}

// floods are frames that cost a server work and ask it for nothing; i counts up.
func floods(t *testing.T, scheme, path string) map[string]func(i int) []byte {
	open := func(i int) []byte {
		return opening(t, uint32(2*i+1), ":method", "POST", ":scheme", scheme, ":path", path, ":authority", "x", "content-type", "application/grpc", "te", "trailers")
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
		"settings":      func(int) []byte { return rawFrame(4, 0, 0) },
		"settings acks": func(int) []byte { return rawFrame(4, 1, 0) },
		"pings":         func(int) []byte { return rawFrame(6, 0, 0, make([]byte, 8)...) },
		"priorities":    func(i int) []byte { return rawFrame(2, 0, uint32(2*i+1), 0, 0, 0, 0, 1) },
		"windows":       func(int) []byte { return rawFrame(8, 0, 0, 0, 0, 0, 1) },
		"resets":        func(i int) []byte { return append(open(i), rawFrame(3, 0, uint32(2*i+1), 0, 0, 0, 8)...) },
		"empty data":    after(func(id uint32) []byte { return rawFrame(0, 0, id) }),
		"padding":       after(func(id uint32) []byte { return rawFrame(0, flagPadded, id, 3, 0, 0, 0) }),
		"unknown":       func(int) []byte { return rawFrame(77, 0, 0, 1, 2, 3) },
	}
}

// flood sends frames until the connection ends, and reads what comes meanwhile. It fails if the server takes all of them.
func flood(t *testing.T, what string, conn net.Conn, frame func(i int) []byte) {
	t.Helper()
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	ended := make(chan error, 1)
	go func() { _, err := io.Copy(io.Discard, conn); ended <- err }()
	const most = 50_000
	_, err := io.WriteString(conn, http2.ClientPreface+string(rawFrame(4, 0, 0)))
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
	r := newTLSRig(t, Limits{})
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
	if n, want := r.s.Stats().Refusals[limitFrames], uint64(2*len(floods(t, "http", "/"))); n != want {
		t.Errorf("%d refusals were counted, want %d", n, want)
	}
	if _, err := pb.NewServerServiceClient(r.conn).Status(as("acme/all"), &pb.StatusRequest{}); err != nil {
		t.Errorf("another connection: %v", err)
	}
	if a := r.do("GET", "/v1/status", ""); a.status != 200 {
		t.Errorf("another connection of REST: %d %s", a.status, a.body)
	}
}

// countedConn is a connection in memory of which a frameConn is made.
func countedConn(t *testing.T, frames int64) (r *rig, client net.Conn, f *frameConn) {
	t.Helper()
	r = newRig(t, Limits{HTTP2Frames: frames})
	client, server := net.Pipe()
	t.Cleanup(func() { _ = client.Close() })
	return r, client, newFrameConn(server, &limitedConn{Conn: server, s: r.s.edge})
}

// What the server writes earns the frames that acknowledge it, calls earn the resets that cancel them, and what is left over comes
// back with time: clients that use a connection keep it.
func TestConnectionsThatAreUsedKeepTheirFrames(t *testing.T) {
	const allowance = 100
	window := rawFrame(8, 0, 0, 0, 0, 0, 1)
	r, client, f := countedConn(t, allowance)
	f.c.known.Store(true)
	if err := f.saw([]byte(clientPreface)); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, client) }()
	for i := range 50 * allowance { // a stream whose every frame is acknowledged twice
		if _, err := f.Write(make([]byte, 64)); err != nil {
			t.Fatal(err)
		}
		if err := f.saw(append(window, window...)); err != nil {
			t.Fatalf("after %d answers: %v", i, err)
		}
	}
	for i := range 50 * allowance { // calls of which one in two is cancelled
		if _, err := f.Write(make([]byte, 60)); err != nil {
			t.Fatal(err)
		}
		call := append(rawFrame(1, 4, uint32(i), make([]byte, 30)...), rawFrame(0, 1, uint32(i), make([]byte, 40)...)...)
		if err := f.saw(append(append(call, call...), rawFrame(3, 0, uint32(i), 0, 0, 0, 8)...)); err != nil {
			t.Fatalf("after %d calls: %v", i, err)
		}
	}
	for i := range 20 * allowance { // pings of a connection that does nothing else
		r.clock.advance(framesWindow / allowance)
		if err := f.saw(rawFrame(6, 0, 0, make([]byte, 8)...)); err != nil {
			t.Fatalf("after %d pings: %v", i, err)
		}
	}
	err := error(nil)
	for range 2*allowance + 2 {
		if err = f.saw(window); err != nil {
			break
		}
	}
	if !errors.Is(err, errFrames) {
		t.Errorf("windows at once: %v", err)
	}
}

func TestWhatFollowsTheHandshakeIsThePreface(t *testing.T) {
	_, _, f := countedConn(t, 100)
	for _, part := range []string{"PRI * HT", "TP/1.1\r\n"} {
		if err := f.saw([]byte(part)); (err != nil) != (part != "PRI * HT") {
			t.Errorf("%q: %v", part, err)
		}
	}
}
