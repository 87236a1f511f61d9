package transport_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/internal/replog/transport"
)

// echo answers with what it got, once that has ended.
func echo(_ transport.NodeID, s transport.Stream) {
	b, err := io.ReadAll(s)
	if err == nil {
		_, _ = s.Write(b)
		_ = s.CloseWrite()
	}
}

func open(t *testing.T, n *node, to transport.NodeID, kind string) transport.Stream {
	t.Helper()
	s, err := n.OpenStream(context.Background(), to, kind)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestAStreamCarriesBytesBothWaysAndSaysWhereTheyEnd(t *testing.T) {
	for name, rigOf := range rigs() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := rigOf(t).pair()
				b.HandleStream("echo", echo)
				s := open(t, a, 2, "echo")
				want := bytes.Repeat([]byte("snapshot "), 200_000)
				if _, err := s.Write(want); err != nil {
					t.Fatal(err)
				}
				if a.peer(t, 2).Streams != 1 || b.peer(t, 1).Streams != 1 {
					t.Errorf("streams: %+v, %+v", a.Status(), b.Status())
				}
				if err := s.CloseWrite(); err != nil {
					t.Fatal(err)
				}
				got, err := io.ReadAll(s)
				if err != nil || !bytes.Equal(got, want) {
					t.Errorf("%d bytes came back of %d: %v", len(got), len(want), err)
				}
				if s.RemoteAddr().String() != address(2) || s.LocalAddr() == nil {
					t.Errorf("addresses %s, %s", s.LocalAddr(), s.RemoteAddr())
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
				synctest.Wait()
				if a.peer(t, 2).Streams != 0 || b.peer(t, 1).Streams != 0 {
					t.Errorf("after the close: %+v, %+v", a.Status(), b.Status())
				}
				if _, err := s.Read(want); !errors.Is(err, io.ErrClosedPipe) && err == nil {
					t.Error("a closed stream can be read")
				}
				if x, y := a.Stats(), b.Stats(); x.StreamsOpened != 1 || y.StreamsAccepted != 1 {
					t.Errorf("counted %+v, %+v", x, y)
				}
			})
		})
	}
}

func TestAStreamWithoutAHandlerOrBeyondTheBoundIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		oa, ob := r.options(1), r.options(2)
		oa.Streams, ob.Streams = 4, 3
		a, b := r.start(oa, nil), r.start(ob, nil)
		r.join(a, b)
		_, err := a.OpenStream(context.Background(), 2, "none")
		if e, ok := errors.AsType[*transport.RefusedError](err); !ok || e.Reason != transport.UnknownStream || !e.Remote {
			t.Errorf("a stream of no kind: %v", err)
		}
		if _, err := a.OpenStream(context.Background(), 7, "echo"); !errors.Is(err, transport.ErrUnknownPeer) {
			t.Errorf("a stream to an unknown node: %v", err)
		}
		if _, err := a.OpenStream(context.Background(), 2, string(make([]byte, 65))); err == nil {
			t.Error("a kind of 65 bytes was taken")
		}
		b.HandleStream("echo", echo)
		var first transport.Stream
		for i := range 3 {
			s := open(t, a, 2, "echo")
			if i == 0 {
				first = s
			}
		}
		_, err = a.OpenStream(context.Background(), 2, "echo")
		if e, ok := errors.AsType[*transport.RefusedError](err); !ok || e.Reason != transport.TooManyStreams {
			t.Errorf("beyond the peer's bound: %v", err)
		}
		b.wantLog(t, "reason=too_many_streams")
		first.Close()
		synctest.Wait()
		open(t, a, 2, "echo")

		b.HandleStream("echo", nil)
		if _, err := a.OpenStream(context.Background(), 2, "echo"); err == nil {
			t.Error("a stream whose handler was taken away was opened")
		}
	})
}

func TestTheOpenerHasABoundOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		o := r.options(1)
		o.Streams = 2
		a, b := r.start(o, nil), r.start(r.options(2), nil)
		r.join(a, b)
		b.HandleStream("echo", echo)
		open(t, a, 2, "echo")
		open(t, a, 2, "echo")
		if _, err := a.OpenStream(context.Background(), 2, "echo"); !errors.Is(err, transport.ErrTooManyStreams) {
			t.Errorf("beyond the bound: %v", err)
		}
	})
}

func TestAStreamThatNobodyReadsHoldsUpNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTLSRig(t)
		a, b := r.pair()
		hold := make(chan struct{})
		b.HandleStream("snapshot", func(transport.NodeID, transport.Stream) { <-hold })
		s := open(t, a, 2, "snapshot")
		ended := make(chan error, 1)
		go func() {
			for {
				if _, err := s.Write(make([]byte, 64<<10)); err != nil {
					ended <- err
					return
				}
			}
		}()
		for range 20 {
			pass(300 * time.Millisecond)
			a.send(t, 2, transport.Control, "heartbeat")
			a.send(t, 2, transport.Bulk, "append")
			synctest.Wait()
			if got := b.in.all(); len(got) != 2 {
				t.Fatalf("while a stream stands still arrived %q", got)
			}
		}
		// A reader that takes nothing for the stall timeout is given up.
		pass(10 * time.Second)
		select {
		case err := <-ended:
			if err == nil || errors.Is(err, io.EOF) {
				t.Errorf("the write ended with %v", err)
			}
		default:
			t.Error("the write still waits")
		}
		close(hold)
		if n := a.Stats().Control.Connects; n != 1 {
			t.Errorf("control connected %d times", n)
		}
	})
}

func TestAStreamMayWaitAsLongAsThePeerLives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		a, b := r.pair()
		b.HandleStream("slow", func(_ transport.NodeID, s transport.Stream) {
			<-time.After(time.Minute)
			_, _ = s.Write([]byte("done"))
			_ = s.CloseWrite()
		})
		got, err := io.ReadAll(open(t, a, 2, "slow"))
		if err != nil || string(got) != "done" {
			t.Errorf("after a minute: %q, %v", got, err)
		}

		s := open(t, a, 2, "slow")
		r.net.Stall(address(1), true)
		r.net.Stall(address(2), true)
		if _, err := io.ReadAll(s); err == nil {
			t.Error("a stream to a dead peer ended well")
		}
		pass(2 * time.Minute) // the handler ends
	})
}

func TestStreamsEndWithTheirPeerAndWithTheTransport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTLSRig(t)
		a, b := r.pair()
		ends := make(chan error, 1)
		b.HandleStream("read", func(_ transport.NodeID, s transport.Stream) {
			_, err := io.ReadAll(s)
			ends <- err
		})
		s := open(t, a, 2, "read")
		synctest.Wait()
		a.RemovePeer(2)
		if err := <-ends; err == nil {
			t.Error("a stream that was cut off ended as if all had been said")
		}
		if _, err := s.Write([]byte("x")); err == nil {
			t.Error("a stream to a removed peer takes bytes")
		}
		if err := a.SetPeer(2, address(2)); err != nil {
			t.Fatal(err)
		}
		s = open(t, a, 2, "read")
		b.Close() // waits for the handler
		if err := <-ends; err == nil {
			t.Error("a stream that was cut off ended as if all had been said")
		}
		if _, err := io.ReadAll(s); err == nil {
			t.Error("the opener reads a good end")
		}
		a.Close()
		if _, err := a.OpenStream(context.Background(), 2, "read"); !errors.Is(err, transport.ErrClosed) {
			t.Errorf("open on a closed transport: %v", err)
		}
	})
}

func TestOpeningAStreamEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		a, b := r.pair()
		b.HandleStream("echo", echo)
		r.net.Stall(address(2), true)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if _, err := a.OpenStream(ctx, 2, "echo"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("open: %v", err)
		}
		r.net.Stall(address(2), false)
		ctx, cancel = context.WithCancel(t.Context())
		s, err := a.OpenStream(ctx, 2, "echo")
		if err != nil {
			t.Fatal(err)
		}
		cancel() // it bounded the opening only
		synctest.Wait()
		_, _ = s.Write([]byte("x"))
		_ = s.CloseWrite()
		if got, err := io.ReadAll(s); err != nil || string(got) != "x" {
			t.Errorf("after the context ended: %q, %v", got, err)
		}
	})
}

func TestAStreamsReadEndsAtItsDeadline(t *testing.T) {
	for name, rigOf := range rigs() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := rigOf(t).pair()
				b.HandleStream("echo", echo)
				s := open(t, a, 2, "echo")
				if err := s.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
					t.Fatal(err)
				}
				if _, err := s.Read([]byte{0}); !isTimeout(err) {
					t.Errorf("read: %v", err)
				}
				if err := s.SetDeadline(time.Time{}); err != nil {
					t.Fatal(err)
				}
				_, _ = s.Write([]byte("y"))
				_ = s.CloseWrite()
				if got, err := io.ReadAll(s); err != nil || string(got) != "y" {
					t.Errorf("after the deadline: %q, %v", got, err)
				}
			})
		})
	}
}

func isTimeout(err error) bool {
	e, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](err)
	return ok && e.Timeout()
}

// A killed process closes its connections as one does that has said all.
func TestAStreamThatWasNotEndedByNameReadsAsBroken(t *testing.T) {
	for name, rigOf := range rigs() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := rigOf(t).pair()
				ends := make(chan error, 1)
				b.HandleStream("read", func(_ transport.NodeID, s transport.Stream) {
					got, err := io.ReadAll(s)
					if string(got) != "half" {
						t.Errorf("read %q", got)
					}
					ends <- err
				})
				s := open(t, a, 2, "read")
				_, _ = s.Write([]byte("half"))
				s.Close()
				if err := <-ends; !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Errorf("closed without an end: %v", err)
				}
				s = open(t, a, 2, "read")
				_, _ = s.Write([]byte("half"))
				if err := s.CloseWrite(); err != nil {
					t.Error(err)
				}
				if _, err := s.Write([]byte("more")); err == nil {
					t.Error("a write after the end was taken")
				}
				if err := <-ends; err != nil {
					t.Errorf("with an end: %v", err)
				}
			})
		})
	}
}

func TestGarbageInAStreamBreaksIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		b := r.start(r.options(2), nil)
		if err := b.SetPeer(9, address(9)); err != nil {
			t.Fatal(err)
		}
		ends := make(chan error, 1)
		b.HandleStream("read", func(_ transport.NodeID, s transport.Stream) {
			_, err := io.ReadAll(s)
			ends <- err
		})
		for _, bad := range [][]byte{
			transport.AppendFrame(nil, 0, transport.KindPing, nil),
			transport.AppendFrame(nil, 0, transport.KindMessage, make([]byte, 64<<10+1)),
			[]byte("no frame at all, but bytes"),
		} {
			c := r.raw(b)
			if got := greet(t, c, transport.Hello{To: 2, Class: transport.StreamClass, Kind: "read"}); got != 0 {
				t.Fatal(got)
			}
			if _, err := c.Write(append(transport.AppendFrame(nil, 0, transport.KindMessage, []byte("good")), bad...)); err != nil {
				t.Fatal(err)
			}
			if err := <-ends; !errors.Is(err, transport.ErrCorrupt) {
				t.Errorf("%v", err)
			}
		}
		if b.Stats().Corrupt != 3 {
			t.Errorf("counted %d", b.Stats().Corrupt)
		}
	})
}
