package transport_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/replog/replogtest"
	"github.com/millrace/millrace/internal/replog/transport"
)

func TestNodesConnectAndMessagesArriveInOrder(t *testing.T) {
	for name, rigOf := range rigs() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := rigOf(t)
				a, b := r.pair()
				if !a.connected(t, 2) || !b.connected(t, 1) {
					t.Fatalf("not connected: %+v, %+v", a.Status(), b.Status())
				}
				var want []string
				for i := range 200 {
					text := fmt.Sprint("message ", i, strings.Repeat("x", i*i))
					a.send(t, 2, transport.Bulk, text)
					want = append(want, "1/3 "+text)
				}
				b.send(t, 1, transport.Control, "")
				synctest.Wait()
				if got := b.in.all(); !slices.Equal(got, want) {
					t.Errorf("node 2 got %d messages, not the %d that were sent", len(got), len(want))
				}
				if got := a.in.all(); !slices.Equal(got, []string{"2/3 "}) {
					t.Errorf("node 1 got %q", got)
				}
				s := a.Stats()
				if s.Bulk.SentMessages != 200 || s.Bulk.Writes > 100 || s.Bulk.QueuedBytes != 0 {
					t.Errorf("200 messages queued at once left as %+v", s.Bulk)
				}
				if p := a.peer(t, 2); p.Boot == "" || p.Formats != (transport.Formats{Min: 1, Max: 1}) || p.Address != address(2) {
					t.Errorf("status of a peer: %+v", p)
				}
				pass(time.Second)
				if !a.connected(t, 2) || a.Stats().Control.Connects != 1 {
					t.Error("an idle connection did not last")
				}
			})
		})
	}
}

// The handler checks every byte, on a real network, with TLS.
func TestAHundredThousandMessagesOfEachClassArriveWholeAndInOrder(t *testing.T) {
	r := newTLSRig(t)
	r.net = nil
	const count = 100_000
	var next [3]atomic.Uint64
	var bad atomic.Uint64
	oa, ob := r.options(1), r.options(2)
	for _, o := range []*transport.Options{&oa, &ob} {
		o.QueueMessages, o.ControlQueueMessages, o.ControlQueueBytes, o.IdleTimeout = count, count, 64<<20, time.Minute
	}
	a := r.start(oa, nil)
	b := r.start(ob, func(from transport.NodeID, shard core.ShardID, msg []byte) {
		n := binary.LittleEndian.Uint64(msg)
		if from != 1 || shard != core.ShardID(n%5) || n != next[msg[8]].Add(1)-1 || !filled(msg[9:], byte(n)) {
			bad.Add(1)
		}
	})
	r.join(a, b)
	eventually(t, "connection", func() bool { return a.connected(t, 2) })
	for n := range uint64(count) {
		for _, class := range []transport.Class{transport.Control, transport.Bulk} {
			msg := make([]byte, 9+n%300)
			if n%10_000 == 0 && class == transport.Bulk {
				msg = make([]byte, 1<<20)
			}
			binary.LittleEndian.PutUint64(msg, n)
			msg[8] = byte(class)
			fill(msg[9:], byte(n))
			for !a.Send(2, class, core.ShardID(n%5), msg) {
				eventually(t, "room in the queue", func() bool { return a.peer(t, 2).Bulk.QueuedBytes < 32<<20 })
			}
		}
	}
	eventually(t, "all messages", func() bool { return next[1].Load() == count && next[2].Load() == count || bad.Load() > 0 })
	if bad.Load() > 0 {
		t.Errorf("%d messages were not what was sent next", bad.Load())
	}
	if s := a.Stats(); s.Bulk.Writes*2 > s.Bulk.SentMessages {
		t.Errorf("messages did not leave together: %+v", s.Bulk)
	}
}

func fill(b []byte, with byte) {
	for i := range b {
		b[i] = with + byte(i)
	}
}

func filled(b []byte, with byte) bool {
	for i := range b {
		if b[i] != with+byte(i) {
			return false
		}
	}
	return true
}

func TestAFullQueueDropsAndCountsAndControlIsNotHeldUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		release := make(chan struct{})
		in := newInbox()
		oa := r.options(1)
		oa.QueueMessages, oa.QueueBytes = 50, 4<<20
		a := r.start(oa, nil)
		b := r.start(r.options(2), func(from transport.NodeID, shard core.ShardID, msg []byte) {
			if len(msg) > 1000 {
				<-release // the handler of bulk messages is slow
			}
			in.take(from, shard, msg[:8])
		})
		r.join(a, b)
		big := make([]byte, 64<<10)
		sent, dropped := 0, 0
		for range 400 {
			if a.Send(2, transport.Bulk, 0, big) {
				sent++
			} else {
				dropped++
			}
			synctest.Wait()
		}
		s := a.Stats().Bulk
		if dropped == 0 || s.DroppedFull != uint64(dropped) || s.QueuedMessages > 50 || s.QueuedBytes > 4<<20 {
			t.Errorf("sent %d, dropped %d, counted %+v", sent, dropped, s)
		}
		for i := range 20 {
			a.send(t, 2, transport.Control, fmt.Sprintf("urgent%02d", i))
			synctest.Wait()
			if got := in.all(); len(got) != 1 {
				t.Fatalf("while bulk stands still, %q arrived of a control message", got)
			}
			pass(200 * time.Millisecond)
		}
		if n := a.Stats().Control.Connects; n != 1 {
			t.Errorf("control connected %d times", n)
		}
		close(release)
		synctest.Wait()
		if got := len(in.all()); got != sent {
			t.Errorf("%d of %d queued messages arrived at last", got, sent)
		}
	})
}

func TestWhatIsSentAndReceivedIsCountedForEachPeerAndClass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		a, b := r.pair()
		if err := a.SetPeer(3, address(3)); err != nil { // no process listens there
			t.Fatal(err)
		}
		synctest.Wait()
		a.send(t, 2, transport.Bulk, "12345")
		a.send(t, 2, transport.Bulk, "678")
		b.send(t, 1, transport.Control, "x")
		a.Send(3, transport.Control, 0, nil)
		pass(time.Second)
		to, from, gone := a.peer(t, 2), b.peer(t, 1), a.peer(t, 3)
		if to.Bulk.SentMessages != 2 || to.Bulk.SentBytes != 8 || to.Control.SentMessages != 0 || to.Control.ReceivedMessages != 1 {
			t.Errorf("the sender counts %+v", to)
		}
		if from.Bulk.ReceivedMessages != 2 || from.Bulk.ReceivedBytes != 8 || from.Control.SentBytes != 1 {
			t.Errorf("the receiver counts %+v", from)
		}
		if gone.Control.DroppedDown != 1 || a.Stats().Control.DroppedDown != 1 || to.Control.DroppedDown != 0 {
			t.Errorf("what was for a node that is down is counted as %+v", gone.Control)
		}
		if !a.Reaches(2) || a.Reaches(3) || a.Reaches(9) {
			t.Error("who can be reached")
		}
	})
}

func TestAQueueIsBoundedInBytesToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		o := r.options(1)
		o.ControlQueueBytes = 1000
		a := r.start(o, nil)
		r.net.Stall(address(2), true) // the first attempt hangs: what is sent waits for its end
		if err := a.SetPeer(2, address(2)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if !a.Send(2, transport.Control, 0, make([]byte, 5000)) {
			t.Error("an empty queue does not take a message above its bound")
		}
		if a.Send(2, transport.Control, 0, nil) || a.Stats().Control.DroppedFull != 1 {
			t.Error("a full queue took a message")
		}
		pass(3 * time.Second)
		taken := 0
		for a.Send(2, transport.Control, 0, make([]byte, 300)) {
			taken++
		}
		if taken != 3 || a.Stats().Control.DroppedFull != 2 {
			t.Errorf("%d messages of 300 B in a queue of 1000 B: %+v", taken, a.Stats().Control)
		}
	})
}

func TestABrokenConnectionIsMadeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTLSRig(t)
		a, b := r.pair()
		pass(time.Second) // one that lasted this long is made again at once, also when its first attempts were refused
		for i := range 3 {
			if n := r.net.Break(address(2)); n != 3 {
				t.Fatalf("%d connections broke, want 3", n)
			}
			synctest.Wait()
			if i == 0 && !a.connected(t, 2) { // the first time at once
				t.Fatalf("not connected again: %+v", a.Status())
			}
			pass(3 * time.Second)
			if !a.connected(t, 2) {
				t.Fatalf("not connected again: %+v", a.Status())
			}
			a.send(t, 2, transport.Control, "again")
			synctest.Wait()
			if got := b.in.all(); len(got) != 1 {
				t.Errorf("round %d: node 2 got %q", i, got)
			}
		}
		a.wantLog(t, "connection to peer lost", "peer=2")
	})
}

func TestASilentPeerIsNoticedWithinTwoSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		a, b := r.pair()
		r.net.Stall(address(2), true) // as if the cable were pulled, in one direction of dialling
		pass(2 * time.Second)
		if p := a.peer(t, 2); p.Control.Connected || !p.Control.Inbound {
			t.Errorf("after 2 s of silence: %+v", p)
		}
		if p := b.peer(t, 1); p.Control.Inbound || p.Bulk.Inbound || !p.Control.Connected {
			t.Errorf("after 2 s of silence the other side has %+v", p)
		}
		if a.Send(2, transport.Control, 0, []byte("x")) && a.Stats().Control.DroppedDown == 0 {
			pass(3 * time.Second)
			if a.Stats().Control.DroppedDown == 0 {
				t.Error("a message to a dead peer was not given up")
			}
		}
		r.net.Stall(address(2), false)
		pass(4 * time.Second)
		if !a.connected(t, 2) || !b.connected(t, 1) {
			t.Errorf("not connected again: %+v", a.Status())
		}
	})
}

// While this process does not run, its peers' pings wait unread: that does not count as silence.
func TestAProcessThatSleptDropsNoPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		clock := &leapClock{Clock: replogtest.NewClock()}
		o := r.options(1)
		o.Clock = clock
		a, b := r.start(o, nil), r.start(r.options(2), nil)
		r.join(a, b)
		clock.leap.Store(int64(time.Hour))
		pass(time.Second)
		if !a.connected(t, 2) || a.Stats().Control.Connects != 1 || a.Stats().Bulk.Connects != 1 {
			t.Errorf("after a leap of the clock: %+v", a.Status())
		}
	})
}

// leapClock is a clock whose boot time a test moves on, as a suspension does.
type leapClock struct {
	replogtest.Clock
	leap atomic.Int64
}

func (c *leapClock) Boot() time.Duration { return c.Clock.Boot() + time.Duration(c.leap.Load()) }

func TestWithoutAConnectionMessagesAreDroppedAndCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		a := r.start(r.options(1), nil)
		if a.Send(2, transport.Control, 0, nil) || a.Stats().Undeliverable != 1 {
			t.Error("a message to an unknown node was taken")
		}
		if err := a.SetPeer(2, address(2)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // the first attempt has failed
		if a.Send(2, transport.Control, 0, nil) || a.Stats().Control.DroppedDown == 0 {
			t.Errorf("a message to a node that is down was taken: %+v", a.Stats().Control)
		}
		if p := a.peer(t, 2); p.Control.Connected || p.Control.Error == "" || p.Control.Refused != 0 {
			t.Errorf("status of a node that is down: %+v", p)
		}
		a.wantLog(t, "no connection to peer", "peer=2", "connection refused")
		if a.Send(2, transport.Bulk, 0, make([]byte, 8<<20+1)) || a.Stats().Undeliverable != 2 {
			t.Error("a message above the bound was taken")
		}
		b := r.start(r.options(2), nil)
		r.join(a, b)
		pass(2 * time.Second)
		if !a.connected(t, 2) {
			t.Errorf("not connected: %+v", a.Status())
		}
		if a.peer(t, 2).Control.Error != "" {
			t.Error("the status still shows an error")
		}
	})
}

func TestAPeerMovesAndIsRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		a, b := r.pair()
		ob := b.o
		b.Close()
		ob.Listen = address(777)
		b = r.start(ob, nil)
		if err := b.SetPeer(1, address(1)); err != nil {
			t.Fatal(err)
		}
		pass(10 * time.Second)
		if p := a.peer(t, 2); p.Control.Connected || !p.Control.Inbound {
			t.Errorf("before the new address is known: %+v", p)
		}
		if err := a.SetPeer(2, ob.Listen); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if !a.connected(t, 2) {
			t.Errorf("not connected at the new address: %+v", a.Status())
		}
		a.RemovePeer(2)
		synctest.Wait()
		if len(a.Status()) != 0 || a.Send(2, transport.Control, 0, nil) {
			t.Error("a removed peer is still there")
		}
		pass(5 * time.Second)
		if p := b.peer(t, 1); p.Control.Refused != transport.UnknownPeer || p.Control.Inbound {
			t.Errorf("a removed node sees %+v", p)
		}
		if s := a.Stats(); s.Connections != 0 || s.Refused[transport.UnknownPeer] == 0 {
			t.Errorf("after a removal: %+v", s)
		}
		if err := a.SetPeer(2, ob.Listen); err != nil {
			t.Fatal(err)
		}
		pass(3 * time.Second)
		if !a.connected(t, 2) {
			t.Error("not connected after it was added again")
		}
	})
}

func TestTheCloseOfOneSideIsSeenByTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTLSRig(t)
		a, b := r.pair()
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if p := a.peer(t, 2); p.Control.Connected || p.Bulk.Inbound {
			t.Errorf("after the peer closed: %+v", p)
		}
		if b.Send(1, transport.Control, 0, nil) {
			t.Error("a closed transport took a message")
		}
		if err := b.SetPeer(3, address(3)); !errors.Is(err, transport.ErrClosed) {
			t.Errorf("add a peer after the close: %v", err)
		}
		if err := b.Close(); err != nil {
			t.Errorf("second close: %v", err)
		}
	})
}

func TestOptionsThatAreNotSafeOrMakeNoSenseAreRefused(t *testing.T) {
	good := transport.Options{Cluster: testCluster, Node: 1, Listen: "127.0.0.1:0", Plain: true}
	for want, change := range map[string]func(*transport.Options){
		"cluster id":           func(o *transport.Options) { o.Cluster = transport.ClusterID{} },
		"node id":              func(o *transport.Options) { o.Node = 0 },
		"certificate files":    func(o *transport.Options) { o.Plain = false },
		"exclude each other":   func(o *transport.Options) { o.TLS = &transport.Files{} },
		"loopback address":     func(o *transport.Options) { o.Listen = "0.0.0.0:peers" },
		"192.0.2.1":            func(o *transport.Options) { o.Listen = "192.0.2.1:7000" },
		"example.org":          func(o *transport.Options) { o.Listen = "example.org:7000" },
		"missing port":         func(o *transport.Options) { o.Listen = "127.0.0.1" },
		"formats":              func(o *transport.Options) { o.Formats = transport.Formats{Min: 3, Max: 2} },
		"message bytes":        func(o *transport.Options) { o.MessageBytes = -1 },
		"streams":              func(o *transport.Options) { o.Streams = -1 },
		"idle timeout":         func(o *transport.Options) { o.IdleTimeout = -1 },
		"need a file system":   func(o *transport.Options) { o.Plain, o.TLS = false, &transport.Files{} },
		"control queue bytes:": func(o *transport.Options) { o.ControlQueueBytes = -1 },
	} {
		o := good
		change(&o)
		if _, err := transport.New(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error that says %q, got %v", want, err)
		}
	}
	x, err := transport.New(good)
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	for id, address := range map[transport.NodeID]string{2: "192.0.2.1:7000", 3: "nonsense", 1: address(1), 0: address(9)} {
		if err := x.SetPeer(id, address); err == nil {
			t.Errorf("peer %s at %s was taken", id, address)
		}
	}
	if err := x.SetPeer(2, "localhost:peers"); err != nil {
		t.Error(err)
	}
}
