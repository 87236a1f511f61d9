package replogtest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/config"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/replog/replogtest"
	"github.com/millrace/millrace/internal/replog/transport"
)

// three returns three nodes that know each other, and what they get.
func three(t *testing.T, most int) (*replogtest.Network, [4]*replogtest.Endpoint, *[]string) {
	t.Helper()
	n := replogtest.NewNetwork(most)
	var ends [4]*replogtest.Endpoint
	got := new([]string)
	for id := transport.NodeID(1); id <= 3; id++ {
		e := n.Node(id)
		for other := transport.NodeID(1); other <= 3; other++ {
			if other == id {
				continue
			}
			if err := e.SetPeer(other, fmt.Sprint("a", other)); err != nil {
				t.Fatal(err)
			}
		}
		err := e.Start(func(from transport.NodeID, shard core.ShardID, msg []byte) {
			*got = append(*got, fmt.Sprintf("%s>%s/%d %s", from, id, shard, msg))
			if string(msg) == "ping" {
				e.Send(from, transport.Control, shard, []byte("pong"))
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		ends[id] = e
	}
	return n, ends, got
}

func TestNothingMovesUntilItIsDeliveredAndThenInAnyOrder(t *testing.T) {
	n, e, got := three(t, 0)
	for _, s := range []string{"a", "b", "c", "d"} {
		if !e[1].Send(2, transport.Bulk, 7, []byte(s)) {
			t.Fatal("not taken")
		}
	}
	<-n.Wake()
	if len(*got) != 0 || n.Len() != 4 {
		t.Fatalf("delivered on its own: %q", *got)
	}
	n.Duplicate(1)
	n.Drop(2)
	if p := n.Packets(); p[1].N != 2 || p[3].N != 2 || p[0].From != 1 || p[0].To != 2 || p[0].Class != transport.Bulk {
		t.Errorf("packets: %+v", p)
	}
	n.Deliver(2)
	if taken := n.DeliverAll(100); taken != 3 || n.Len() != 0 {
		t.Errorf("took %d, %d left", taken, n.Len())
	}
	if want := []string{"1>2/7 d", "1>2/7 a", "1>2/7 b", "1>2/7 b"}; !slices.Equal(*got, want) {
		t.Errorf("got %q, want %q", *got, want)
	}
	e[1].Send(3, transport.Control, 0, []byte("ping")) // a handler may send
	if n.DeliverAll(100) != 2 || (*got)[5] != "3>1/0 pong" {
		t.Errorf("got %q", *got)
	}
	for range 10 {
		e[1].Send(3, transport.Control, 0, []byte("ping"))
	}
	if n.DeliverAll(3) != 3 || n.Len() != 10 {
		t.Errorf("a bounded delivery left %d", n.Len())
	}
}

func TestACutLinkLosesWhatIsSentAndWhatIsOnItsWay(t *testing.T) {
	n, e, got := three(t, 0)
	e[1].Send(2, transport.Control, 0, []byte("early"))
	n.Cut(1, 2, true)
	if e[1].Send(2, transport.Control, 0, []byte("late")) {
		t.Error("a cut link takes messages")
	}
	if !e[2].Send(1, transport.Control, 0, []byte("back")) {
		t.Error("the other direction is cut too")
	}
	if n.Deliver(0) || !n.Deliver(0) || !slices.Equal(*got, []string{"2>1/0 back"}) {
		t.Errorf("got %q", *got)
	}
	s := e[1].Status()
	if len(s) != 2 || s[0].ID != 2 || s[0].Control.Connected || !s[0].Control.Inbound || !s[1].Bulk.Connected || s[1].Address != "a3" {
		t.Errorf("status: %+v", s)
	}
	n.Cut(1, 2, false)
	if !e[1].Send(2, transport.Control, 0, nil) {
		t.Error("a mended link takes nothing")
	}
}

func TestWhatWaitsIsBoundedByLinkAndClass(t *testing.T) {
	n, e, _ := three(t, 3)
	taken := 0
	for range 10 {
		if e[1].Send(2, transport.Bulk, 0, nil) {
			taken++
		}
	}
	if taken != 3 || !e[1].Send(2, transport.Control, 0, nil) || !e[1].Send(3, transport.Bulk, 0, nil) || !e[2].Send(1, transport.Bulk, 0, nil) {
		t.Errorf("%d taken of 10", taken)
	}
	n.Deliver(0)
	n.Drop(0)
	again := 0
	for range 10 {
		if e[1].Send(2, transport.Bulk, 0, nil) {
			again++
		}
	}
	if again != 2 {
		t.Errorf("after one was delivered and one lost, %d more were taken", again)
	}
}

func TestANodeThatRestartsGetsWhatWasOnItsWay(t *testing.T) {
	n, e, _ := three(t, 0)
	e[1].Send(2, transport.Bulk, 0, []byte("x"))
	again := n.Node(2)
	if e[2].Send(1, transport.Bulk, 0, nil) {
		t.Error("the node before can still send")
	}
	got := ""
	if err := again.SetPeer(1, "a1"); err != nil {
		t.Fatal(err)
	}
	if err := again.Start(func(_ transport.NodeID, _ core.ShardID, msg []byte) { got = string(msg) }); err != nil {
		t.Fatal(err)
	}
	n.Deliver(0)
	again.RemovePeer(1)
	e[1].Send(2, transport.Bulk, 0, []byte("y"))
	if n.Deliver(0) || got != "x" {
		t.Errorf("got %q", got)
	}
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
	if err := again.SetPeer(1, "a1"); !errors.Is(err, transport.ErrClosed) {
		t.Errorf("a closed node: %v", err)
	}
}

func TestAStreamInMemoryIsServedWhenItIsDelivered(t *testing.T) {
	n, e, _ := three(t, 0)
	e[2].HandleStream("echo", func(from transport.NodeID, s transport.Stream) {
		b, err := io.ReadAll(s)
		if err != nil || from != 1 {
			t.Errorf("from %s: %v", from, err)
		}
		_, _ = s.Write(append(b, '!'))
		_ = s.CloseWrite()
	})
	s, err := e[1].OpenStream(context.Background(), 2, "echo")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	if err := s.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Read(make([]byte, 1)); !errors.Is(err, replogtest.ErrWouldBlock) {
		t.Errorf("read before it is served: %v", err)
	}
	if !n.Deliver(0) {
		t.Fatal("not served")
	}
	if b, err := io.ReadAll(s); err != nil || string(b) != "hello!" {
		t.Errorf("answer %q, %v", b, err)
	}
	s, err = e[1].OpenStream(context.Background(), 2, "none")
	if err != nil {
		t.Fatal(err)
	}
	n.Deliver(0)
	_, err = io.ReadAll(s)
	if refused, ok := errors.AsType[*transport.RefusedError](err); !ok || refused.Reason != transport.UnknownStream {
		t.Errorf("a stream without a handler: %v", err)
	}
	s, err = e[1].OpenStream(context.Background(), 2, "echo")
	if err != nil {
		t.Fatal(err)
	}
	n.Drop(0)
	if _, err := io.ReadAll(s); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a stream that was lost: %v", err)
	}
	if _, err := e[1].OpenStream(context.Background(), 9, "echo"); !errors.Is(err, transport.ErrUnknownPeer) {
		t.Errorf("a stream to an unknown node: %v", err)
	}
}

// developed writes the files of a development cluster to a disk.
func developed(t *testing.T, disk *replogtest.Disk, dir string) *config.DevelopmentFiles {
	t.Helper()
	p, err := config.Development{
		Dir: dir, Nodes: 3, Host: "127.0.0.1", BasePort: 7400, Shards: 4, Tokens: []byte("tokens: []\n"), Now: time.Now(),
	}.Plan()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range p.Files {
		name := filepath.Join(dir, f.Name)
		if err := errors.Join(disk.MkdirAll(filepath.Dir(name)), replogtest.WriteFile(disk, name, f.Content)); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// started runs a node with those files.
func started(t *testing.T, disk *replogtest.Disk, dir string, plan *config.DevelopmentFiles, i int) *transport.Transport {
	t.Helper()
	cluster, err := transport.ParseClusterID(plan.Cluster)
	if err != nil {
		t.Fatal(err)
	}
	in := func(name string) string { return filepath.Join(dir, plan.Nodes[i].Name, name) }
	x, err := transport.New(transport.Options{
		Cluster: cluster, Node: transport.NodeID(plan.Nodes[i].ID), Listen: "127.0.0.1:0", FS: disk,
		TLS: &transport.Files{CA: in("ca.pem"), Cert: in("node.pem"), Key: in("node.key")},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { x.Close() })
	if err := x.Start(func(transport.NodeID, core.ShardID, []byte) {}); err != nil {
		t.Fatal(err)
	}
	return x
}

// until waits for what real nodes do.
func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	late := time.After(30 * time.Second)
	for !done() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("%s: not within 30 s", what)
		}
	}
}

// The files of cluster init are what the transport reads: three nodes of them meet, and one of another cluster does not.
func TestNodesOfADevelopmentClusterAcceptEachOther(t *testing.T) {
	disk := replogtest.NewDisk()
	ours, theirs := developed(t, disk, "/ours"), developed(t, disk, "/theirs")
	var nodes []*transport.Transport
	for i := range ours.Nodes {
		nodes = append(nodes, started(t, disk, "/ours", ours, i))
	}
	stranger := started(t, disk, "/theirs", theirs, 1)
	for i, x := range nodes {
		for j, y := range nodes {
			if i == j {
				continue
			}
			if err := x.SetPeer(transport.NodeID(j+1), y.Addr().String()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := stranger.SetPeer(1, nodes[0].Addr().String()); err != nil {
		t.Fatal(err)
	}
	until(t, "three nodes meet", func() bool {
		for _, x := range nodes {
			for _, p := range x.Status() {
				if !p.Control.Connected || !p.Bulk.Connected || !p.Control.Inbound || !p.Bulk.Inbound {
					return false
				}
			}
		}
		return true
	})
	until(t, "the stranger is refused", func() bool {
		p := stranger.Status()[0].Control
		return !p.Connected && p.Error != ""
	})
}
