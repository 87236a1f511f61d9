package transport_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/internal/env"
	"github.com/millrace/millrace/internal/replog/transport"
)

// classNet tells the connections of plain text that are dialled apart by their class: those of one can be held, or cut, alone.
type classNet struct {
	env.Net

	mu    sync.Mutex // guards the fields below
	held  map[transport.Class]chan struct{}
	conns map[*classConn]struct{}
}

type classConn struct {
	net.Conn
	n     *classNet
	class transport.Class // of its greeting, which is its first write
	once  sync.Once
	gone  chan struct{}
}

func newClassNet(n env.Net) *classNet {
	return &classNet{Net: n, held: make(map[transport.Class]chan struct{}), conns: make(map[*classConn]struct{})}
}

func (n *classNet) Dial(ctx context.Context, address string) (net.Conn, error) {
	raw, err := n.Net.Dial(ctx, address)
	if err != nil {
		return nil, err
	}
	c := &classConn{Conn: raw, n: n, gone: make(chan struct{})}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.conns[c] = struct{}{}
	return c, nil
}

// hold has nothing leave by connections of a class until release.
func (n *classNet) hold(class transport.Class) (release func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	held := make(chan struct{})
	n.held[class] = held
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.held, class)
		close(held)
	}
}

// cut breaks the connections of a class, and returns how many there were.
func (n *classNet) cut(class transport.Class) (broken int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for c := range n.conns {
		if c.class == class {
			_ = c.Conn.Close() // as by a network that resets it
			broken++
		}
	}
	return broken
}

func (c *classConn) Write(b []byte) (int, error) {
	c.n.mu.Lock()
	if c.class == 0 {
		c.class, _ = transport.ReadHello(bytes.NewReader(b)) // 0: no greeting
	}
	held := c.n.held[c.class]
	c.n.mu.Unlock()
	if held != nil {
		select {
		case <-held:
		case <-c.gone:
			return 0, net.ErrClosed
		}
	}
	return c.Conn.Write(b)
}

func (c *classConn) Close() error {
	c.once.Do(func() { close(c.gone) })
	c.n.mu.Lock()
	delete(c.n.conns, c)
	c.n.mu.Unlock()
	return c.Conn.Close()
}

// partsPair runs node 1, whose connections are told apart, and node 2.
func partsPair(t *testing.T) (a, b *node, by *classNet) {
	r := newRig(t)
	by = newClassNet(r.net)
	o := r.options(1)
	o.Net = by
	a, b = r.start(o, nil), r.start(r.options(2), nil)
	r.join(a, b)
	return a, b, by
}

func TestPartsOfASnapshotThatStandStillHoldNothingElseUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, by := partsPair(t)
		release := by.hold(transport.Parts)
		part := make([]byte, 256<<10)
		taken := 0
		for a.Send(2, transport.Parts, 1, part) {
			taken++
			synctest.Wait()
			if taken > 1000 {
				t.Fatal("more and more parts are taken")
			}
		}
		for i := range 40 { // 8 seconds: the connection is not given up yet
			for _, class := range []transport.Class{transport.Control, transport.Bulk} {
				text := fmt.Sprint(class, i)
				a.send(t, 2, class, text)
				synctest.Wait()
				if got := b.in.all(); len(got) != 1 || got[0] != "1/3 "+text {
					t.Fatalf("while parts stand still, %q arrived of %q", got, text)
				}
			}
			a.Send(2, transport.Parts, 1, part)
			pass(200 * time.Millisecond)
		}
		s := a.Stats()
		if s.Parts.QueuedBytes > 4<<20 || s.Parts.QueuedBytes < 3<<20 || s.Parts.DroppedFull != 41 || s.Bulk.QueuedBytes != 0 {
			t.Errorf("what waits: %+v", s.Parts)
		}
		pass(4 * time.Second) // now it is given up, and another one stands still
		release()
		pass(2 * time.Second)
		b.in.all()
		a.send(t, 2, transport.Parts, "again")
		synctest.Wait()
		if got := b.in.all(); len(got) != 1 || got[0] != "1/3 again" {
			t.Errorf("after the standstill %q arrived", got)
		}
		if s := a.Stats(); s.Parts.Connects < 2 || s.Control.Connects != 1 || s.Bulk.Connects != 1 {
			t.Errorf("connected %d, %d and %d times", s.Parts.Connects, s.Control.Connects, s.Bulk.Connects)
		}
	})
}

func TestOnlyTheConnectionOfPartsIsMadeAgainWhenItIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, by := partsPair(t)
		for i := range 5 {
			if n := by.cut(transport.Parts); n != 1 {
				t.Fatalf("%d connections carry parts", n)
			}
			pass(2 * time.Second)
			a.send(t, 2, transport.Parts, "part")
			synctest.Wait()
			if got := b.in.all(); len(got) != 1 {
				t.Errorf("after cut %d %q arrived", i+1, got)
			}
		}
		if s := a.Stats(); s.Parts.Connects != 6 || s.Control.Connects != 1 || s.Bulk.Connects != 1 {
			t.Errorf("connected %d, %d and %d times", s.Parts.Connects, s.Control.Connects, s.Bulk.Connects)
		}
	})
}

// A program that is older than the class of parts calls its greeting malformed.
func TestPartsGoWithAppendsToANodeThatKnowsNoConnectionOfTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		lis, err := r.net.Listen(address(2))
		if err != nil {
			t.Fatal(err)
		}
		defer lis.Close()
		got := make(chan string, 10)
		go func() {
			for {
				c, err := lis.Accept()
				if err != nil {
					return
				}
				go old(c, got)
			}
		}()
		a := r.start(r.options(1), nil)
		if err := a.SetPeer(2, address(2)); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		a.send(t, 2, transport.Parts, "part")
		synctest.Wait()
		select {
		case s := <-got:
			if s != "bulk part" {
				t.Errorf("it got %q", s)
			}
		default:
			t.Errorf("nothing came: %+v", a.Status())
		}
		a.Close()
	})
}

// old serves a connection as node 2 with a program that knows two classes.
func old(c net.Conn, got chan<- string) {
	defer c.Close()
	class, err := transport.ReadHello(c)
	if err != nil {
		return
	}
	if class == transport.Parts {
		_, _ = c.Write(transport.EncodeRefusal(testCluster, 2, [16]byte{2}, transport.Malformed)) // then it hangs up
		return
	}
	if _, err := c.Write(transport.EncodeAnswer(testCluster, 2, [16]byte{2})); err != nil {
		return
	}
	in := transport.NewFrameReader(c, 1<<20, 1<<10)
	for {
		shard, kind, payload, err := in.Next()
		switch {
		case err != nil:
			return
		case kind == transport.KindMessage:
			got <- fmt.Sprint(class, " ", string(payload))
		default:
			if _, err := c.Write(transport.AppendFrame(nil, shard, transport.KindPong, payload)); err != nil {
				return
			}
		}
	}
}
