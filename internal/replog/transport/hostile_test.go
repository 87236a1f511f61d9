package transport_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/replog/transport"
)

// victim runs node 2, which knows node 9, and returns a connection that was greeted as that.
func victim(t *testing.T, r *rig, class transport.Class) (*node, net.Conn) {
	t.Helper()
	b := r.start(r.options(2), nil)
	if err := b.SetPeer(9, address(9)); err != nil {
		t.Fatal(err)
	}
	c := r.raw(b)
	if got := greet(t, c, transport.Hello{To: 2, Class: class}); got != 0 {
		t.Fatal(got)
	}
	return b, c
}

func TestAFrameThatMakesNoSenseClosesTheConnection(t *testing.T) {
	good := transport.AppendFrame(nil, 1, transport.KindMessage, []byte("payload"))
	flip := func(at int) []byte {
		b := bytes.Clone(good)
		b[at] ^= 1
		return b
	}
	huge := binary.LittleEndian.AppendUint32(nil, 8<<20+1)
	huge = append(huge, 0, 0, 0, 0, 0, 0, transport.KindMessage, 0)
	for name, bad := range map[string][]byte{
		"checksum":                   flip(5),
		"payload":                    flip(12),
		"shard":                      flip(8),
		"shorter":                    append(flip(0), good...), // 7 becomes 6
		"unknown kind":               transport.AppendFrame(nil, 1, 9, nil),
		"end without a stream":       transport.AppendFrame(nil, 1, transport.KindEnd, nil),
		"flags":                      flip(11),
		"payload of 8388609 bytes":   huge,
		"pong without a ping":        transport.AppendFrame(nil, 1, transport.KindPong, make([]byte, 8)),
		"ping of 17 bytes":           transport.AppendFrame(nil, 1, transport.KindPing, make([]byte, 17)),
		"payload of 4294967295 byte": {0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, c := victim(t, newRig(t), transport.Bulk)
				if _, err := c.Write(append(bytes.Clone(good), bad...)); err != nil {
					t.Fatal(err)
				}
				if !closed(c) {
					t.Error("the connection is still there")
				}
				synctest.Wait()
				if got := b.in.all(); len(got) != 1 || got[0] != "9/1 payload" {
					t.Errorf("handed over: %q", got)
				}
				if b.Stats().Corrupt != 1 {
					t.Errorf("counted: %+v", b.Stats())
				}
				b.wantLog(t, "bytes make no sense", "peer=9")
			})
		})
	}
}

func TestAPeerThatAnswersWithMessagesIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		lis, err := r.net.Listen(address(9))
		if err != nil {
			t.Fatal(err)
		}
		defer lis.Close()
		go func() {
			for {
				c, err := lis.Accept()
				if err != nil {
					return
				}
				defer c.Close()
				if !readGreeting(c) {
					continue
				}
				answer := transport.EncodeAnswer(testCluster, 9, [16]byte{1})
				_, _ = c.Write(transport.AppendFrame(answer, 1, transport.KindMessage, []byte("x")))
			}
		}()
		b := r.start(r.options(2), nil)
		if err := b.SetPeer(9, address(9)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if b.Stats().Corrupt == 0 || len(b.in.all()) != 0 {
			t.Errorf("counted: %+v", b.Stats())
		}
	})
}

func readGreeting(r io.Reader) bool {
	head := make([]byte, 14)
	if _, err := io.ReadFull(r, head); err != nil {
		return false
	}
	_, err := io.CopyN(io.Discard, r, int64(binary.LittleEndian.Uint16(head[12:]))+4)
	return err == nil
}

func TestWhoAnswersAsAnotherNodeIsRefusedByTheDialer(t *testing.T) {
	for name, c := range map[string]struct {
		answer []byte
		want   transport.Reason
	}{
		"node":    {transport.EncodeAnswer(testCluster, 8, [16]byte{1}), transport.WrongNode},
		"cluster": {transport.EncodeAnswer(transport.ClusterID{1}, 9, [16]byte{1}), transport.WrongCluster},
		"nothing": {[]byte("HTTP/1.1 400 Bad Request\r\n\r\n"), transport.Malformed},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				lis, err := r.net.Listen(address(9))
				if err != nil {
					t.Fatal(err)
				}
				defer lis.Close()
				go func() {
					for {
						conn, err := lis.Accept()
						if err != nil {
							return
						}
						readGreeting(conn)
						_, _ = conn.Write(c.answer)
						conn.Close()
					}
				}()
				b := r.start(r.options(2), nil)
				if err := b.SetPeer(9, address(9)); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if p := b.peer(t, 9); p.Control.Refused != c.want || p.Control.Connected {
					t.Errorf("status: %+v", p)
				}
			})
		})
	}
}

func TestGarbageInsteadOfAGreetingEndsTheConnection(t *testing.T) {
	for name, rigOf := range rigs() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := rigOf(t)
				b := r.start(r.options(2), nil)
				for _, garbage := range []string{
					"GET / HTTP/1.1\r\nHost: x\r\n\r\n", strings.Repeat("\x00", 5000), "MRHELLO\x00\x01\x00\x01\x00\xff\xff",
					"MRHELLO\x00\x01\x00\x01\x00\x04\x00abcdefgh", "\x16\x03\x01\x00\x05hello",
				} {
					c := r.raw(b)
					_, _ = c.Write([]byte(garbage))
					_ = c.(interface{ CloseWrite() error }).CloseWrite()
					if !closed(c) {
						t.Errorf("%q: the connection is still there", garbage)
					}
				}
				synctest.Wait()
				if s := b.Stats(); s.HandshakeFailures != 5 || s.Greeting != 0 || s.Connections != 0 {
					t.Errorf("counted: %+v", s)
				}
				b.wantLog(t, "before its greeting")
			})
		})
	}
}

func TestWhoConnectsAndSaysNothingIsBoundedInTimeAndNumber(t *testing.T) {
	for name, rigOf := range rigs() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := rigOf(t)
				o := r.options(2)
				o.Handshakes = 8
				b := r.start(o, nil)
				silent := []net.Conn{}
				for range 50 {
					c := r.raw(b)
					_, _ = c.Write([]byte("M"))
					silent = append(silent, c)
					synctest.Wait()
					if n := b.Stats().Greeting; n > 8 {
						t.Fatalf("%d connections are greeting", n)
					}
				}
				if s := b.Stats(); s.Crowded != 42 {
					t.Errorf("closed for want of room: %d", s.Crowded)
				}
				// Others get in meanwhile.
				a := r.start(r.options(1), nil)
				r.join(a, b)
				if !a.connected(t, 2) {
					t.Errorf("not connected while strangers are silent: %+v", a.Status())
				}
				pass(6 * time.Second)
				if s := b.Stats(); s.Greeting != 0 {
					t.Errorf("after the time for a greeting: %+v", s)
				}
				for _, c := range silent {
					if !closed(c) {
						t.Error("the connection is still there")
					}
				}
				if !a.connected(t, 2) {
					t.Error("a peer was closed too")
				}
			})
		})
	}
}

func TestAListenerThatNeverAnswersCostsOneAttemptAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		lis, err := r.net.Listen(address(9)) // accepts nothing
		if err != nil {
			t.Fatal(err)
		}
		defer lis.Close()
		b := r.start(r.options(2), nil)
		if err := b.SetPeer(9, address(9)); err != nil {
			t.Fatal(err)
		}
		pass(6 * time.Second)
		if p := b.peer(t, 9); p.Control.Connected || !strings.Contains(p.Control.Error, "too long") {
			t.Errorf("status: %+v", p)
		}
		r.net.Stall(address(9), true) // now not even the connection comes about
		pass(20 * time.Second)
		if p := b.peer(t, 9); !strings.Contains(p.Control.Error, "dial") || !strings.Contains(p.Control.Error, "too long") {
			t.Errorf("status: %+v", p)
		}
	})
}

// pieces gives a reader's bytes in pieces of a size.
type pieces struct {
	b    []byte
	size int
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.b) == 0 {
		return 0, io.EOF
	}
	n := copy(b[:min(len(b), p.size)], p.b)
	p.b = p.b[n:]
	return n, nil
}

func TestFramesAreReadWholeHoweverTheirBytesCome(t *testing.T) {
	var b []byte
	var want [][]byte
	for i := range 300 {
		payload := bytes.Repeat([]byte{byte(i)}, i*i%5000)
		b = transport.AppendFrame(b, core.ShardID(i), transport.KindMessage, payload)
		want = append(want, payload)
	}
	for _, size := range []int{1, 2, 7, 11, 12, 13, 100, 4096, 1 << 20} {
		for _, chunk := range []int{16, 64, 4096} {
			r := transport.NewFrameReader(&pieces{b, size}, 5000, chunk)
			var got [][]byte
			for i := range want {
				shard, kind, payload, err := r.Next()
				if err != nil || shard != core.ShardID(i) || kind != transport.KindMessage {
					t.Fatalf("pieces of %d, chunks of %d: frame %d: shard %d, kind %d, %v", size, chunk, i, shard, kind, err)
				}
				got = append(got, payload) // kept: nothing may overwrite it
			}
			for i := range want {
				if !bytes.Equal(got[i], want[i]) {
					t.Fatalf("pieces of %d, chunks of %d: frame %d is not what was written", size, chunk, i)
				}
			}
			if _, _, _, err := r.Next(); !errors.Is(err, io.EOF) {
				t.Errorf("after the last frame: %v", err)
			}
		}
	}
	for cut := 1; cut < 12; cut++ {
		if _, _, _, err := transport.NewFrameReader(&pieces{b[:cut], 100}, 5000, 64).Next(); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("a frame cut after %d bytes: %v", cut, err)
		}
	}
}

// A length takes no memory before its bytes come, and no bytes make the reader panic.
func FuzzFrames(f *testing.F) {
	f.Add(transport.AppendFrame(nil, 1, transport.KindMessage, []byte("abc")))
	f.Add(transport.AppendFrame(transport.AppendFrame(nil, 1, transport.KindPing, make([]byte, 8)), 2, transport.KindMessage, make([]byte, 3000)))
	f.Add([]byte{0, 0, 0x80, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 2, 3})
	f.Fuzz(func(t *testing.T, b []byte) {
		r := transport.NewFrameReader(bytes.NewReader(b), 8<<20, 4096)
		var again []byte
		for {
			shard, kind, payload, err := r.Next()
			if r.Held() > 4*len(b)+1<<20 {
				t.Fatalf("%d bytes of input hold %d bytes of memory", len(b), r.Held())
			}
			if err != nil {
				if !errors.Is(err, transport.ErrCorrupt) && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Fatalf("error %v", err)
				}
				break
			}
			again = transport.AppendFrame(again, shard, kind, payload)
		}
		if !bytes.HasPrefix(b, again) {
			t.Fatal("what was read is not what was there")
		}
	})
}
