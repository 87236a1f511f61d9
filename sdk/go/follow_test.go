package millrace

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/sdk/go/internal/transport"
)

func TestATokenIsNotTakenToALeaderInClearText(t *testing.T) {
	var at [2]string
	for i := range at {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close() //nolint:errcheck // no connection is accepted
		at[i] = l.Addr().String()
	}
	c, err := Dial(t.Context(), Address(at[0]), Token("secret"), Transport(TransportStream))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	named := func(leader string) *transport.Refusal {
		return (&Error{Code: CodeNotLeader, Leader: leader}).fault().Refusal()
	}
	if c.router.Follow(named("192.0.2.1:7081")) {
		t.Error("a client without TLS follows a leader beyond this machine")
	}
	if !c.router.Follow(named(at[1])) || addressOf(c) != at[1] {
		t.Errorf("a leader on this machine is not followed: the client is at %s", addressOf(c))
	}
	if c.router.Follow(named(at[1])) {
		t.Error("a client that is there goes there again")
	}
}

// addressOf is the address of the node that c speaks to first.
func addressOf(c *Client) string {
	g := c.router.Acquire()
	defer c.router.Release(g)
	return g.Address
}

func TestAStreamOnlyClientComesBackFromALeaderThatIsGone(t *testing.T) {
	ns := newNodes(t, 2, 0)
	c := ns.client()
	defer ns.end(c)
	if !c.router.Follow((&Error{Code: CodeNotLeader, Leader: nodeAddress(1)}).fault().Refusal()) {
		t.Fatal("the leader is not followed")
	}
	g := c.router.Acquire()
	ns.all[1].stop()
	receive(t, g.Gone.Done())
	c.router.Release(g)
	if at := addressOf(c); at != nodeAddress(0) {
		t.Errorf("the client is at %s, want its own address", at)
	}
}

func TestFromRESTTheStreamIsLookedForAtEachAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ns := newNodes(t, 2, 0)
		var dead atomic.Bool
		plain := bufconn.Listen(1 << 16)
		web := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"durability":"fsync"}`)
		})}
		go func() { _ = web.Serve(plain) }()
		defer web.Close() //nolint:errcheck // nothing is under way
		c := ns.client(Address(nodeAddress(0)+","+nodeAddress(1)), RESTAddress("rest.test:80"), Transport(TransportAuto), Dialer(func(ctx context.Context, address string) (net.Conn, error) {
			switch {
			case address == "rest.test:80":
				return plain.DialContext(ctx)
			case address == nodeAddress(1):
				return ns.all[1].lis.DialContext(ctx)
			case address == nodeAddress(0) && !dead.Load():
				return ns.all[0].lis.DialContext(ctx)
			}
			return nil, errors.New("not reached")
		}))
		synctest.Wait()
		dead.Store(true)
		goOver(t, c)
		r := c.router.Acquire()
		if !r.Plain {
			t.Fatal("the client is not at REST")
		}
		ns.all[1].welcome(nil)
		<-r.Gone.Done()
		c.router.Release(r)
		if at := addressOf(c); at != nodeAddress(1) {
			t.Errorf("the client is at %q, want the second address", at)
		}
		ns.end(c)
	})
}

func noLeader() error {
	st, err := status.New(codes.Unavailable, "no node leads").WithDetails(&pb.Error{Code: "UNAVAILABLE", Reason: "no_leader"})
	if err != nil {
		panic(err)
	}
	return st.Err()
}

// A node that the others do not reach knows of no leader, and answers all the same.
func TestAStreamLeavesANodeThatKnowsOfNoLeader(t *testing.T) {
	ns := newNodes(t, 2)
	c := ns.client(Address(nodeAddress(0) + "," + nodeAddress(1)))
	defer ns.end(c)
	over := make(chan struct{})
	defer close(over)
	go func() {
		for {
			select {
			case st := <-ns.all[0].Streams:
				st.End(noLeader())
			case <-over:
				return
			}
		}
	}()
	out := add(t, c)
	st := ns.all[1].welcome(nil)
	st.created(st.create())
	if a := receive(t, out); a.err != nil {
		t.Error(a.err)
	}
}

func TestAReadLeavesANodeThatKnowsOfNoLeader(t *testing.T) {
	ns := newNodes(t, 2)
	c := ns.client(Address(nodeAddress(0) + "," + nodeAddress(1)))
	defer ns.end(c)
	ns.all[0].kv = func(*pb.KVGetRequest) (*pb.KVGetResponse, error) { return nil, noLeader() }
	ns.all[1].kv = func(*pb.KVGetRequest) (*pb.KVGetResponse, error) {
		return &pb.KVGetResponse{Found: true, Value: []byte("v"), Rev: 3}, nil
	}
	ctx, cancel := context.WithTimeout(t.Context(), testWait)
	defer cancel()
	if v, err := c.KV("s").Get(ctx, "k"); err != nil || v.Rev != 3 {
		t.Errorf("got %v, %v, want the answer of the other node", v, err)
	}
}

func TestOverRESTANodeThatKnowsOfNoLeaderIsLeft(t *testing.T) {
	f, lost, w := newFake(t), newWeb(t), newWeb(t)
	c := w.client(f, Transport(TransportREST), RESTAddress(lost.address()+","+w.address()), Dialer(func(ctx context.Context, address string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", address)
	}))
	defer f.end(c)
	lost.handle("GET /v1/tasks/t", func(out http.ResponseWriter, _ *http.Request) {
		out.Header().Set("Content-Type", "application/json")
		out.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(out, `{"error":{"code":"UNAVAILABLE","reason":"no_leader","outcome":"refused"}}`)
	})
	w.on("GET /v1/tasks/t", `{"id":"t","queue":"q","state":"ready"}`)
	ctx, cancel := context.WithTimeout(t.Context(), testWait)
	defer cancel()
	if got, err := c.Task(ctx, "t"); err != nil || got.Queue != "q" {
		t.Errorf("got %v, %v, want the answer of the other node", got, err)
	}
}

func TestTheFirstConnectionIsMadeAgainThoughNoStreamUsesIt(t *testing.T) {
	ns := newNodes(t, 1, 0)
	dialled := make(chan net.Conn, 8)
	c := ns.client(Dialer(func(ctx context.Context, _ string) (net.Conn, error) {
		conn, err := ns.all[0].lis.DialContext(ctx)
		if err == nil {
			dialled <- conn
		}
		return conn, err
	}))
	defer ns.end(c)
	first := receive(t, dialled)
	if g := c.router.Acquire(); !g.Ready(t.Context()) {
		t.Fatal("no connection was made")
	}
	_ = first.Close()
	receive(t, dialled)
}

func TestAClientWhoseNodeIsGoneGoesOnWithTheMembersItWasToldOf(t *testing.T) {
	ns := newNodes(t, 3, 0)
	c := ns.client()
	defer ns.end(c)
	out := add(t, c)
	w := ns.hello(0)
	w.Nodes = []string{nodeAddress(0), nodeAddress(1)}
	first := ns.all[0].welcome(w)
	for _, nodes := range [][]string{{nodeAddress(2)}, nil} { // nil: a node that is alone says nothing
		first.push(&pb.ServerFrame{Frame: &pb.ServerFrame_Directory{Directory: &pb.Directory{Nodes: nodes}}})
	}
	first.created(first.create())
	receive(t, out)
	ns.all[0].stop()
	ns.led[0] = 2
	out = add(t, c)
	st := ns.stream(2, 0)
	st.created(st.create())
	if a := receive(t, out); a.err != nil {
		t.Error(a.err)
	}
}

// play answers all streams at a node as one that leads, or as a follower that names the leader.
func (ns *nodes) play(node int, leader int) {
	one := func(st *fakeStream) {
		if leader != node {
			st.end(notLeader(nodeAddress(leader)))
			return
		}
		if st.send(&pb.ServerFrame{Frame: &pb.ServerFrame_Welcome{Welcome: ns.hello(node)}}) != nil {
			return // who asked has its answer
		}
		for f := range st.in {
			if c := f.GetCreate(); c != nil {
				st.created(c)
			}
		}
	}
	over := make(chan struct{})
	ns.t.Cleanup(func() { close(over) })
	go func() {
		for {
			select {
			case st := <-ns.all[node].Streams:
				go one(ns.all[node].played(st))
			case <-over:
				return
			}
		}
	}()
}

func TestANodeThatIsSilentIsLeftWhenOthersNameAnotherLeader(t *testing.T) {
	ns := newNodes(t, 3)
	c := ns.client(Address(nodeAddress(0) + "," + nodeAddress(1) + "," + nodeAddress(2)))
	defer ns.end(c)
	out := add(t, c)
	ns.all[0].welcome(nil).create() // and it hangs
	ns.play(1, 2)
	ns.play(2, 2)
	if a := receive(t, out); a.err != nil {
		t.Error(a.err)
	}
}

func TestANodeThatIsSilentIsWaitedForWhileOthersNameIt(t *testing.T) {
	ns := newNodes(t, 3)
	c := ns.client(Address(nodeAddress(0) + "," + nodeAddress(1) + "," + nodeAddress(2)))
	defer ns.end(c)
	out := add(t, c)
	st := ns.all[0].welcome(nil)
	frame := st.create()
	for _, follower := range []int{1, 2, 1, 2} {
		ns.all[follower].accept().end(notLeader(nodeAddress(0)))
	}
	st.created(frame)
	if a := receive(t, out); a.err != nil {
		t.Error(a.err)
	}
	if at := addressOf(c); at != nodeAddress(0) {
		t.Errorf("the client went to %s", at)
	}
}

func TestAReadAtANodeThatIsSilentIsMadeAtTheLeader(t *testing.T) {
	ns := newNodes(t, 2)
	c := ns.client(Address(nodeAddress(0) + "," + nodeAddress(1)))
	defer ns.end(c)
	hangs := make(chan struct{})
	defer close(hangs)
	ns.all[0].kv = func(*pb.KVGetRequest) (*pb.KVGetResponse, error) {
		<-hangs
		return nil, noLeader()
	}
	ns.all[1].kv = func(*pb.KVGetRequest) (*pb.KVGetResponse, error) {
		return &pb.KVGetResponse{Found: true, Value: []byte("v"), Rev: 3}, nil
	}
	ns.play(1, 1)
	ctx, cancel := context.WithTimeout(t.Context(), testWait)
	defer cancel()
	if v, err := c.KV("s").Get(ctx, "k"); err != nil || v.Rev != 3 {
		t.Errorf("got %v, %v, want the answer of the leader", v, err)
	}
}
