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

// at opens a stream by address, says something, and returns what came back.
func (n *node) at(addr, kind, say string) (string, error) {
	s, err := n.OpenAt(context.Background(), addr, kind)
	if err != nil {
		return "", err
	}
	defer s.Close() //nolint:errcheck // it returns none
	if _, err := s.Write([]byte(say)); err != nil {
		return "", err
	}
	if err := s.CloseWrite(); err != nil {
		return "", err
	}
	b, err := io.ReadAll(s)
	return string(b), err
}

func TestANodeThatIsNoPeerOpensOnlyWhatIsOpenToIt(t *testing.T) {
	for name, rigOf := range rigs() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := rigOf(t)
				a := r.start(r.options(1), nil)
				b, err := transport.New(r.options(2)) // it does not even listen
				if err != nil {
					t.Fatal(err)
				}
				defer b.Close() //nolint:errcheck // it listens on nothing
				n := &node{Transport: b, id: 2}
				a.HandleOpen("join", func(from transport.NodeID, s transport.Stream) {
					if from != 2 {
						t.Errorf("node %s opens it", from)
					}
					echo(from, s)
				})
				a.HandleStream("secret", echo)
				if got, err := n.at(address(1), "join", "hello"); got != "hello" || err != nil {
					t.Errorf("%q, %v", got, err)
				}
				var refused *transport.RefusedError
				if _, err := n.at(address(1), "secret", "x"); !errors.As(err, &refused) || refused.Reason != transport.WrongNode {
					t.Errorf("what is for peers only: %v", err)
				}
				if len(a.Status()) > 0 {
					t.Errorf("it became a peer: %+v", a.Status())
				}
				pass(time.Minute)
			})
		})
	}
}

func TestStrangersAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTLSRig(t)
		a := r.start(r.options(1), nil)
		a.HandleOpen("join", func(_ transport.NodeID, s transport.Stream) { _, _ = io.ReadAll(s) })
		b := r.start(r.options(2), nil)
		var open []transport.Stream
		for range 4 {
			s, err := b.OpenAt(context.Background(), address(1), "join")
			if err != nil {
				t.Fatal(err)
			}
			open = append(open, s)
		}
		var refused *transport.RefusedError
		if _, err := b.OpenAt(context.Background(), address(1), "join"); !errors.As(err, &refused) || refused.Reason != transport.TooManyStreams {
			t.Errorf("the fifth: %v", err)
		}
		for _, s := range open {
			_ = s.Close() // returns no error
		}
		pass(time.Second)
		s, err := b.OpenAt(context.Background(), address(1), "join")
		if err != nil {
			t.Fatalf("after the others ended: %v", err)
		}
		if err := a.Close(); err != nil { // does not wait for it
			t.Error(err)
		}
		_ = s.Close() // returns no error
	})
}

func TestARemovedReplicaIsRefusedAndLearnsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTLSRig(t)
		o := r.options(1)
		o.Gone = func(node transport.NodeID, replica uint64) bool { return node == 2 && replica < 5 }
		a := r.start(o, nil)
		told := make(chan struct{}, 100)
		o = r.options(2)
		o.Replica, o.OnRemoved = 4, func() { told <- struct{}{} }
		b := r.start(o, nil)
		r.join(a, b)
		select {
		case <-told:
		case <-time.After(10 * time.Second):
			t.Fatal("it does not learn that it was removed")
		}
		_ = b.Close()
		o.Replica = 5
		b = r.start(o, nil)
		if err := b.SetPeer(1, address(1)); err != nil {
			t.Fatal(err)
		}
		pass(5 * time.Second)
		if !b.connected(t, 1) {
			t.Error("the same node under another replica is refused")
		}
	})
}

func TestGreetingsWithAReplicaKeepTheirForm(t *testing.T) {
	plain := transport.EncodeHello(transport.Hello{Kind: "k"})
	with := transport.EncodeHello(transport.Hello{Kind: "k", Replica: 0x0102})
	body := func(b []byte) []byte { return b[14 : len(b)-4] }
	if want := append(bytes.Clone(body(plain)), 0, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0); !bytes.Equal(body(with), want) {
		t.Errorf("%x, want %x", body(with), want)
	}
}
