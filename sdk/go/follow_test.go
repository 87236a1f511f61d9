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
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/sdk/go/internal/retry"
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
	named := func(leader string) *Error { return &Error{Code: CodeNotLeader, Leader: leader} }
	if c.router.follow(named("192.0.2.1:7081")) {
		t.Error("a client without TLS follows a leader beyond this machine")
	}
	if !c.router.follow(named(at[1])) || c.router.now.address != at[1] {
		t.Errorf("a leader on this machine is not followed: the client is at %s", c.router.now.address)
	}
	if c.router.follow(named(at[1])) {
		t.Error("a client that is there goes there again")
	}
}

func TestAStreamOnlyClientComesBackFromALeaderThatIsGone(t *testing.T) {
	ns := newNodes(t, 2, 0)
	c := ns.client()
	defer ns.end(c)
	if !c.router.follow(&Error{Code: CodeNotLeader, Leader: nodeAddress(1)}) {
		t.Fatal("the leader is not followed")
	}
	c.router.mu.Lock()
	g := c.router.now
	c.router.mu.Unlock()
	ns.all[1].stop()
	receive(t, g.gone.Done())
	c.router.mu.Lock()
	defer c.router.mu.Unlock()
	if c.router.now.address != nodeAddress(0) {
		t.Errorf("the client is at %s, want its own address", c.router.now.address)
	}
}

func TestFromRESTTheStreamIsLookedForAtEachAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ns := newNodes(t, 2, 0)
		var dead atomic.Bool
		c := ns.client(Address(nodeAddress(0)+","+nodeAddress(1)), Transport(TransportAuto), Dialer(func(ctx context.Context, address string) (net.Conn, error) {
			switch {
			case address == nodeAddress(1):
				return ns.all[1].lis.DialContext(ctx)
			case address == nodeAddress(0) && !dead.Load():
				return ns.all[0].lis.DialContext(ctx)
			}
			return nil, errors.New("not reached")
		}))
		synctest.Wait()
		dead.Store(true)
		r := c.router.overREST()
		c.router.take(r)
		ns.all[1].welcome(nil)
		<-r.gone.Done()
		c.router.mu.Lock()
		at := c.router.now.address
		c.router.mu.Unlock()
		if at != nodeAddress(1) {
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
			case st := <-ns.all[0].streams:
				st.end(noLeader())
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

func TestMovesWaitLongerOnceAllNodesWereTried(t *testing.T) {
	for moves := range 3 {
		if d := moveWait(moves, 3); d > moveWithin {
			t.Errorf("move %d waits %v, want at most %v", moves, d, moveWithin)
		}
	}
	longest := moveWait(60, 3)
	for range 50 {
		longest = max(longest, moveWait(60, 3))
	}
	if longest < 2*moveWithin || longest > moveWithin/2+retry.Max {
		t.Errorf("after 20 rounds a move waits %v at most", longest)
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
	for s := c.router.now.conns[0].GetState(); s != connectivity.Ready; s = c.router.now.conns[0].GetState() {
		if !c.router.now.conns[0].WaitForStateChange(t.Context(), s) {
			t.Fatal("no connection was made")
		}
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
			case st := <-ns.all[node].streams:
				go one(st)
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
	if at := c.router.acquire().address; at != nodeAddress(0) {
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
