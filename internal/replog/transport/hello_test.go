package transport_test

import (
	"encoding/hex"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/internal/env"
	"github.com/millrace/millrace/internal/replog/transport"
)

// Node 1 dials where node 2 is expected. Both sides name the reason, in their logs with the ids of both.
func TestEachRefusalIsNamedOnBothSides(t *testing.T) {
	other := transport.ClusterID{0xff, 1}
	for _, c := range []struct {
		reason   transport.Reason
		change   func(a, b *transport.Options) // of the dialling and the accepting node
		acceptor []string                      // words of its log
		dialer   []string
	}{
		{
			transport.WrongCluster, func(_, b *transport.Options) { b.Cluster = other },
			[]string{"peer=1", "peer_cluster=" + testCluster.String(), "node=2", "cluster=" + other.String()},
			[]string{"peer=2", "peer_cluster=" + other.String(), "node=1"},
		},
		{
			transport.WrongNode, func(_, b *transport.Options) { b.Node = 3 },
			[]string{"peer=1", "node=3", "wants node 2"},
			[]string{"peer=3", "node=1"},
		},
		{
			transport.NewerFormat, func(a, _ *transport.Options) { a.Formats = transport.Formats{Min: 2, Max: 3} },
			[]string{"peer=1", "formats 2 to 3", "1 to 1"},
			[]string{"peer=2"},
		},
		{
			transport.OlderFormat, func(_, b *transport.Options) { b.Formats = transport.Formats{Min: 2, Max: 3} },
			[]string{"peer=1"},
			[]string{"peer=2"},
		},
		{
			transport.OtherShards, func(a, b *transport.Options) { a.Shards, b.Shards = 4, 1 },
			[]string{"peer=1", "node=2", "the peer hosts 4 shards, this node 1"},
			[]string{"peer=2", "node=1", "the peer hosts 1 shards, this node 4"},
		},
		{transport.UnknownPeer, nil, []string{"peer=1", "node=2"}, []string{"peer=2", "node=1"}},
	} {
		t.Run(c.reason.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				oa, ob := r.options(1), r.options(2)
				if c.change != nil {
					c.change(&oa, &ob)
				}
				a, b := r.start(oa, nil), r.start(ob, nil)
				if c.reason != transport.UnknownPeer {
					if err := b.SetPeer(1, address(999)); err != nil { // nothing is there
						t.Fatal(err)
					}
				}
				if err := a.SetPeer(2, address(2)); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				p := a.peer(t, 2)
				if p.Control.Refused != c.reason || p.Bulk.Refused != c.reason || p.Control.Connected || p.Control.Error == "" {
					t.Errorf("the dialer's status: %+v, want %s", p, c.reason)
				}
				if told := p.Control.Error; !strings.Contains(told, "this is node 1") || !strings.Contains(told, "the peer is node "+b.id.String()) {
					t.Errorf("the dialer's status does not name both nodes: %s", told)
				}
				if b.Stats().Refused[c.reason] == 0 {
					t.Errorf("the acceptor counted %v", b.Stats().Refused)
				}
				reason := "reason=" + c.reason.String()
				b.wantLog(t, append(c.acceptor, "connection refused", reason)...)
				a.wantLog(t, append(c.dialer, "connection refused", reason)...)
				pass(time.Minute) // it is tried again and again, and stays refused
				if a.peer(t, 2).Control.Connected || b.Stats().Connections != 0 {
					t.Error("a refused node got in")
				}
			})
		})
	}
}

func TestANodeThatDoesNotSayHowManyShardsItHostsIsWelcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		oa, ob := r.options(1), r.options(2)
		oa.Shards = 4
		a, b := r.start(oa, nil), r.start(ob, nil)
		r.join(a, b)
		if !a.connected(t, 2) || !b.connected(t, 1) {
			t.Errorf("not connected: %+v", a.Status())
		}
	})
}

func TestANodeThatDialsItselfIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		a := r.start(r.options(1), nil)
		if err := a.SetPeer(2, address(1)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if p := a.peer(t, 2); p.Control.Refused != transport.Self {
			t.Errorf("status: %+v", p)
		}
		a.wantLog(t, "reason=self", "node=1")
	})
}

func TestASecondLiveProcessOfANodeIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTLSRig(t)
		a, b := r.pair()
		o := r.options(1)
		o.Listen, o.Rand = address(100), env.NewSeededRand(99)
		twin := r.start(o, nil)
		if err := twin.SetPeer(2, address(2)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if p := twin.peer(t, 2); p.Control.Refused != transport.DuplicateNode {
			t.Errorf("the second process sees %+v", p)
		}
		if !a.connected(t, 2) || !b.connected(t, 1) {
			t.Error("the first process lost its connections")
		}
		b.wantLog(t, "reason=duplicate_node", "peer=1", "node=2")
		twin.wantLog(t, "reason=duplicate_node", "peer=2")

		// It does not get in by being dialled either: the older one is alive.
		if err := b.SetPeer(1, address(100)); err != nil {
			t.Fatal(err)
		}
		pass(5 * time.Second)
		if p := b.peer(t, 1); p.Control.Connected || p.Control.Refused != transport.DuplicateNode || !p.Control.Inbound {
			t.Errorf("who dials the second process sees %+v", p)
		}

		// When the first is gone, the second is the node.
		a.Close()
		pass(5 * time.Second)
		if !b.connected(t, 1) {
			t.Errorf("after the first process ended: %+v", b.Status())
		}
	})
}

func TestAfterAPowerCutTheNextProcessOfANodeGetsInOnceTheOldOneIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		b := r.start(r.options(2), nil)
		if err := b.SetPeer(9, address(9)); err != nil {
			t.Fatal(err)
		}
		before := r.raw(b) // says hello and then nothing, as a machine without power
		if got := greet(t, before, transport.Hello{To: 2, Boot: [16]byte{1}}); got != 0 {
			t.Fatalf("the first process: %s", got)
		}
		if got := greet(t, r.raw(b), transport.Hello{To: 2, Boot: [16]byte{2}}); got != transport.DuplicateNode {
			t.Errorf("while it may be alive: %s", got)
		}
		pass(2 * time.Second)
		if got := greet(t, r.raw(b), transport.Hello{To: 2, Boot: [16]byte{2}}); got != 0 {
			t.Errorf("once it is silent: %s", got)
		}
		if !closed(before) {
			t.Error("the old connection is still there")
		}
	})
}

func TestANewerConnectionOfTheSameProcessReplacesTheOlder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		b := r.start(r.options(2), nil)
		if err := b.SetPeer(9, address(9)); err != nil {
			t.Fatal(err)
		}
		first := r.raw(b)
		for _, c := range []net.Conn{first, r.raw(b)} {
			if got := greet(t, c, transport.Hello{To: 2, Boot: [16]byte{1}}); got != 0 {
				t.Fatal(got)
			}
		}
		gone := closed(first)
		synctest.Wait()
		if !gone || b.Stats().Connections != 1 {
			t.Error("the older connection is still there")
		}
	})
}

func TestTwoProcessesOfOneNodeNeverJoinEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		b := r.start(r.options(2), nil)
		c := r.raw(b)
		if got := greet(t, c, transport.Hello{From: 2, To: 2, Boot: [16]byte{7}}); got != transport.DuplicateNode {
			t.Errorf("a process with this node's own id: %s", got)
		}
	})
}

func TestGreetingsThatMakeNoSenseAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		b := r.start(r.options(2), nil)
		if err := b.SetPeer(9, address(9)); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			hello transport.Hello
			want  transport.Reason
		}{
			{transport.Hello{To: 2}, 0},
			{transport.Hello{To: 2, VersionMin: 7, VersionMax: 9}, transport.UnsupportedVersion},
			{transport.Hello{To: 2, VersionMin: 1, VersionMax: 9}, 0},
			{transport.Hello{To: 2, Class: 77}, transport.Malformed},
			{transport.Hello{To: 2, Class: transport.StreamClass, Kind: "none"}, transport.UnknownStream},
			{transport.Hello{To: 2, From: 1 << 60}, transport.UnknownPeer},
		} {
			conn := r.raw(b)
			if got := greet(t, conn, c.hello); got != c.want {
				t.Errorf("%+v: %s, want %s", c.hello, got, c.want)
			}
			if c.want != 0 && !closed(conn) {
				t.Errorf("%+v: the connection is still there", c.hello)
			}
			conn.Close()
			synctest.Wait()
		}
		b.wantLog(t, "reason=unsupported_version", "versions 7 to 9")
	})
}

// The bytes of the greeting are what other builds read.
func TestTheBytesOfAGreetingStayAsTheyAre(t *testing.T) {
	h := transport.EncodeHello(transport.Hello{
		VersionMin: 1, VersionMax: 2, Cluster: testCluster, From: 3, To: 4, Boot: [16]byte{5}, Class: transport.Bulk,
		Formats: transport.Formats{Min: 6, Max: 7}, Kind: "snapshot",
	})
	const want = "4d5248454c4c4f0001000200" + "4400" + "c1057e12000000000000000000000000" + "0300000000000000" + "0400000000000000" +
		"05000000000000000000000000000000" + "02" + "08" + "0000" + "06000000" + "07000000" + "736e617073686f74" + "6f997766"
	if got := hex.EncodeToString(h); got != want {
		t.Errorf("hello is\n%s, want\n%s", got, want)
	}
	if !transport.CanReadHello(h) {
		t.Error("it cannot be read")
	}
	for i := range h {
		bad := append([]byte(nil), h...)
		bad[i] ^= 0x10
		if transport.CanReadHello(bad) {
			t.Errorf("with a bit of byte %d changed it can be read", i)
		}
		if transport.CanReadHello(h[:i]) {
			t.Errorf("the first %d bytes can be read", i)
		}
	}
	said := transport.EncodeHello(transport.Hello{
		VersionMin: 1, VersionMax: 2, Cluster: testCluster, From: 3, To: 4, Boot: [16]byte{5}, Class: transport.Bulk,
		Formats: transport.Formats{Min: 6, Max: 7}, Kind: "snapshot", Shards: 0x0102,
	})
	if got := hex.EncodeToString(said[14 : len(said)-4]); got != hex.EncodeToString(h[14:len(h)-4])+"02010000" || said[12] != h[12]+4 {
		t.Errorf("the number of shards does not follow the kind: %s", got)
	}
	f := transport.AppendFrame(nil, 0x0102, transport.KindMessage, []byte("ab"))
	if got := hex.EncodeToString(f); got != "02000000"+"e34a865d"+"0201"+"01"+"00"+"6162" {
		t.Errorf("frame is %s", got)
	}
}

func FuzzHello(f *testing.F) {
	f.Add(transport.EncodeHello(transport.Hello{VersionMin: 1, VersionMax: 1, From: 1, To: 2, Kind: "k"}))
	f.Add([]byte("MRHELLO\x00\x01\x00\x01\x00\xff\xff"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if transport.CanReadHello(b) && len(b) < 78 {
			t.Errorf("%d bytes are a greeting", len(b))
		}
	})
}
