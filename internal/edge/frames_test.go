package edge

import (
	"errors"
	"io"
	"net"
	"testing"

	"github.com/millrace/millrace/internal/api/apitest"
	"github.com/millrace/millrace/internal/auth"
)

func TestFramesAreFoundHoweverTheyCome(t *testing.T) {
	var all []byte
	var want int64
	for _, f := range []struct {
		frame []byte
		cost  int64
	}{
		{apitest.RawFrame(4, 0, 0), 1},
		{apitest.RawFrame(6, 0, 0, make([]byte, 8)...), 1},
		{apitest.RawFrame(2, 0, 1, make([]byte, 5)...), 1},
		{apitest.RawFrame(8, 0, 0, 0, 0, 0, 1), 1},
		{apitest.RawFrame(0, 0, 1), 1},
		{apitest.RawFrame(0, FlagPadded, 1, append([]byte{200}, make([]byte, 200)...)...), 1},
		{apitest.RawFrame(9, 0, 1), 1},
		{apitest.RawFrame(99, 0, 1, make([]byte, 70_000)...), 1},
		{apitest.RawFrame(0, 0, 1, make([]byte, 16_384)...), 0},
		{apitest.RawFrame(3, 0, 1, 0, 0, 0, 8), 2},
		{apitest.RawFrame(1, 4, 3, make([]byte, 50)...), -1},
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

// countedConn is a connection in memory of which a frameConn is made.
func countedConn(t *testing.T, frames int64) (clock *apitest.Clock, client net.Conn, f *frameConn) {
	t.Helper()
	clock = new(apitest.Clock)
	calls := auth.NewCalls(new(apitest.Auth), apitest.SweepClock{Clock: clock})
	t.Cleanup(calls.Close)
	e, err := New(Options{Auth: new(apitest.Auth), Clock: clock, Calls: calls, Limits: Limits{HTTP2Frames: frames}})
	if err != nil {
		t.Fatal(err)
	}
	client, server := net.Pipe()
	t.Cleanup(func() { _ = client.Close() })
	return clock, client, newFrameConn(server, &Conn{Conn: server, s: e})
}

// What the server writes earns the frames that acknowledge it, calls earn the resets that cancel them, and what is left over comes
// back with time: clients that use a connection keep it.
func TestConnectionsThatAreUsedKeepTheirFrames(t *testing.T) {
	const allowance = 100
	window := apitest.RawFrame(8, 0, 0, 0, 0, 0, 1)
	clock, client, f := countedConn(t, allowance)
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
		call := append(apitest.RawFrame(1, 4, uint32(i), make([]byte, 30)...), apitest.RawFrame(0, 1, uint32(i), make([]byte, 40)...)...)
		if err := f.saw(append(append(call, call...), apitest.RawFrame(3, 0, uint32(i), 0, 0, 0, 8)...)); err != nil {
			t.Fatalf("after %d calls: %v", i, err)
		}
	}
	for i := range 20 * allowance { // pings of a connection that does nothing else
		clock.Advance(framesWindow / allowance)
		if err := f.saw(apitest.RawFrame(6, 0, 0, make([]byte, 8)...)); err != nil {
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
