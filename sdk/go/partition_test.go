package millrace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/sdk/go/internal/place"
	"github.com/millrace/millrace/sdk/go/internal/transport"
)

// nodes are fakes that make up a cluster, each at an address of its own.
type nodes struct {
	t     *testing.T
	all   []*fake
	dials atomic.Int64
	p     int
	led   []int // by partition, the node that leads it
}

func newNodes(t *testing.T, n int, led ...int) *nodes {
	t.Helper()
	ns := &nodes{t: t, p: len(led), led: led}
	for range n {
		ns.all = append(ns.all, newFake(t))
	}
	return ns
}

func nodeAddress(i int) string { return fmt.Sprintf("n%d.test:1", i) }

// client knows the first node alone.
func (ns *nodes) client(opts ...Option) *Client {
	ns.t.Helper()
	opts = append([]Option{
		Address(nodeAddress(0)), Insecure(), Transport(TransportStream),
		Dialer(func(ctx context.Context, address string) (net.Conn, error) {
			ns.dials.Add(1)
			for i, f := range ns.all {
				if address == nodeAddress(i) {
					return f.lis.DialContext(ctx)
				}
			}
			return nil, errors.New("no such node: " + address)
		}),
		Logger(slog.New(slog.NewTextHandler(io.Discard, nil))),
	}, opts...)
	c, err := Dial(context.Background(), opts...)
	if err != nil {
		ns.t.Fatal(err)
	}
	return c
}

func (ns *nodes) end(c *Client) {
	ns.t.Helper()
	if err := c.Close(); err != nil {
		ns.t.Errorf("close: %v", err)
	}
	for _, f := range ns.all {
		f.stop()
	}
}

// hello is the Welcome of a node.
func (ns *nodes) hello(node int) *pb.Welcome {
	w := &pb.Welcome{Partitions: uint32(ns.p)}
	for p, leader := range ns.led {
		a := &pb.PartitionAddress{Partition: uint32(p)}
		if leader != node {
			a.Address = nodeAddress(leader)
		}
		w.Directory = append(w.Directory, a)
	}
	return w
}

// stream takes the next stream at a node, which must be of a partition, and lets it in.
func (ns *nodes) stream(node, partition int) *fakeStream {
	ns.t.Helper()
	st := ns.all[node].welcome(ns.hello(node))
	if got := st.hello.Partition; got != uint32(partition) {
		ns.t.Fatalf("got a stream of partition %d, want %d", got, partition)
	}
	return st
}

// tagIn returns a tag of a partition.
func tagIn(partition, partitions int) string {
	for i := 0; ; i++ {
		if tag := fmt.Sprint("tag", i); place.Text(tag, partitions) == partition {
			return tag
		}
	}
}

// idIn returns an id of a partition.
func idIn(partition, partitions int) string {
	return place.Fresh().Placed(partition, partitions).String()
}

func notLeader(address string) error {
	st, err := status.New(codes.Unavailable, "not the leader").WithDetails(&pb.Error{Code: "NOT_LEADER", Leader: address})
	if err != nil {
		panic(err)
	}
	return st.Err()
}

// added is what an Add came to.
type added struct {
	h   *Handle[int]
	err error
}

func add(t *testing.T, c *Client, opts ...AddOption) <-chan added {
	out := make(chan added, 1)
	go func() {
		h, err := thumb.Add(t.Context(), c, thumbArgs{}, opts...)
		out <- added{h, err}
	}()
	return out
}

func TestEachPartitionHasAStreamToItsLeader(t *testing.T) {
	ns := newNodes(t, 2, 0, 1, 0, 1)
	c := ns.client()
	defer ns.end(c)
	out := add(t, c, Tag(tagIn(3, 4)))
	first := ns.stream(0, 0) // which tells how many partitions there are, and who leads them
	st := ns.stream(1, 3)
	frame := st.create()
	if id, _ := place.Parse(frame.Tasks[0].Id); id.Partition() != 3 || frame.Tasks[0].Tag != tagIn(3, 4) {
		t.Errorf("got task %v, want one of partition 3 with its tag", frame.Tasks[0])
	}
	st.created(frame)
	if a := receive(t, out); a.err != nil || a.h.ID != frame.Tasks[0].Id {
		t.Errorf("got %+v, want the task %s", a, frame.Tasks[0].Id)
	}
	first.quiet()

	before := ns.dials.Load()
	out = add(t, c, UniqueKey(tagIn(1, 4), 0))
	st = ns.stream(1, 1)
	frame = st.create()
	if id, _ := place.Parse(frame.Tasks[0].Id); id.Partition() != 1 {
		t.Errorf("got id %s of partition %d, want 1", frame.Tasks[0].Id, id.Partition())
	}
	st.created(frame)
	receive(t, out)
	if got := ns.dials.Load(); got != before {
		t.Errorf("a stream to a node that is connected took %d connections more", got-before)
	}
}

func TestANewLeaderMovesItsPartitionAlone(t *testing.T) {
	ns := newNodes(t, 2, 0, 0)
	c := ns.client()
	defer ns.end(c)
	out := add(t, c, Tag(tagIn(0, 2)))
	zero := ns.stream(0, 0)
	zero.created(zero.create())
	receive(t, out)
	out = add(t, c, Tag(tagIn(1, 2)))
	one := ns.stream(0, 1)
	frame := one.create()
	ns.led[1] = 1
	one.end(notLeader(nodeAddress(1)))
	one = ns.stream(1, 1)
	again := one.create()
	if again.Tasks[0].Id != frame.Tasks[0].Id {
		t.Errorf("got task %s, want %s again", again.Tasks[0].Id, frame.Tasks[0].Id)
	}
	one.created(again)
	receive(t, out)
	out = add(t, c, Tag(tagIn(0, 2)))
	zero.created(zero.create())
	if a := receive(t, out); a.err != nil {
		t.Errorf("the other partition: %v", a.err)
	}
}

func TestALaneWhoseLeaderIsGoneAsksTheOthers(t *testing.T) {
	ns := newNodes(t, 3, 0, 1)
	c := ns.client()
	defer ns.end(c)
	out := add(t, c, Tag(tagIn(1, 2)))
	ns.stream(0, 0)
	st := ns.stream(1, 1)
	frame := st.create()
	ns.all[1].stop()
	ns.led[1] = 2
	asked := ns.all[0].accept()
	if asked.hello.Partition != 1 {
		t.Errorf("got a stream of partition %d, want 1", asked.hello.Partition)
	}
	asked.end(notLeader(nodeAddress(2)))
	st = ns.stream(2, 1)
	again := st.create()
	if again.Tasks[0].Id != frame.Tasks[0].Id {
		t.Errorf("got task %s, want %s again", again.Tasks[0].Id, frame.Tasks[0].Id)
	}
	st.created(again)
	if a := receive(t, out); a.err != nil {
		t.Error(a.err)
	}
}

func TestADirectoryTellsOfNewLeaders(t *testing.T) {
	ns := newNodes(t, 2, 0, 0)
	c := ns.client()
	defer ns.end(c)
	out := add(t, c, Tag(tagIn(0, 2)))
	zero := ns.stream(0, 0)
	zero.created(zero.create())
	receive(t, out)
	zero.push(&pb.ServerFrame{Frame: &pb.ServerFrame_Directory{Directory: &pb.Directory{
		Partitions: []*pb.PartitionAddress{{Partition: 0}, {Partition: 1, Address: nodeAddress(1)}},
	}}})
	out = add(t, c, Tag(tagIn(0, 2))) // its answer comes after the directory
	zero.created(zero.create())
	receive(t, out)
	ns.led[1] = 1
	out = add(t, c, Tag(tagIn(1, 2)))
	one := ns.stream(1, 1)
	one.created(one.create())
	if a := receive(t, out); a.err != nil {
		t.Error(a.err)
	}
}

func TestABatchIsSplitOverLanesAndAnsweredWhole(t *testing.T) {
	ns := newNodes(t, 2, 0, 1)
	c := ns.client()
	defer ns.end(c)
	ids := []string{idIn(0, 2), idIn(1, 2), idIn(1, 2), idIn(0, 2)}
	var wait sync.WaitGroup
	wait.Go(func() {
		st := ns.stream(0, 0)
		frame := st.create()
		st.ack(&pb.Ack{Seq: frame.Seq, Created: []*pb.CreateResult{{Id: frame.Tasks[0].Id}, {Id: frame.Tasks[1].Id}}})
		if len(frame.Tasks) != 2 || frame.Tasks[0].Id != ids[0] || frame.Tasks[1].Id != ids[3] {
			t.Errorf("got %v for the first partition", frame.Tasks)
		}
	})
	wait.Go(func() {
		st := ns.stream(1, 1)
		frame := st.create()
		st.ack(&pb.Ack{Seq: frame.Seq, Created: []*pb.CreateResult{
			{Id: frame.Tasks[0].Id}, {Error: &pb.Error{Code: "INVALID_ARGUMENT", Field: "tasks[1].payload"}},
		}})
	})
	next := -1
	hs, err := thumb.AddMany(t.Context(), c, make([]thumbArgs, 4), addFunc(func(s *pb.TaskSpec) { next++; s.Id = ids[next] }))
	wait.Wait()
	var many *BatchError
	if !errors.As(err, &many) || many.Errors[0] != nil || many.Errors[1] != nil || many.Errors[3] != nil {
		t.Fatalf("got %v, want an error of task 2 alone", err)
	}
	if e := asError(t, many.Errors[2]); e.Field != "tasks[2].payload" {
		t.Errorf("got field %s, want tasks[2].payload", e.Field)
	}
	for i, h := range hs {
		if i != 2 && h.ID != ids[i] {
			t.Errorf("handle %d is of %s, want %s", i, h.ID, ids[i])
		}
	}
}

func TestAnAtomicBatchIsOfOnePartition(t *testing.T) {
	ns := newNodes(t, 1, 0, 0)
	c := ns.client()
	defer ns.end(c)
	out := make(chan error, 1)
	go func() {
		_, err := thumb.AddAll(t.Context(), c, make([]thumbArgs, 20), Tag(tagIn(1, 2)))
		out <- err
	}()
	zero := ns.stream(0, 0)
	st := ns.stream(0, 1)
	frame := st.create()
	for _, s := range frame.Tasks {
		if id, _ := place.Parse(s.Id); id.Partition() != 1 {
			t.Errorf("got id %s of partition %d, want 1", s.Id, id.Partition())
		}
	}
	if !frame.Atomic || len(frame.Tasks) != 20 {
		t.Errorf("got %d tasks, atomic %v", len(frame.Tasks), frame.Atomic)
	}
	st.created(frame)
	if err := receive(t, out); err != nil {
		t.Error(err)
	}
	next := -1
	ids := []string{idIn(1, 2), "", idIn(0, 2)}
	_, err := thumb.AddAll(t.Context(), c, make([]thumbArgs, 3), addFunc(func(s *pb.TaskSpec) { next++; s.Id = ids[next] }))
	if e := asError(t, err); e.Code != CodeWrongPartition || e.Outcome != Refused || e.Message != "outside the batch's partition 1: tasks[2] of partition 0" {
		t.Errorf("got %v, want a refusal that names tasks[2]", err)
	}
	zero.quiet()
	st.quiet()
}

func TestACommitOfTwoPartitionsIsRefusedBeforeItIsSent(t *testing.T) {
	ns := newNodes(t, 1, 0, 0)
	c := ns.client()
	defer ns.end(c)
	here, there := tagIn(1, 2), tagIn(0, 2)
	out := make(chan error, 1)
	var id string
	go func() {
		out <- c.Commit(t.Context(), func(tx *Tx) {
			tx.KV("k").Put("{"+here+"}/a", 1)
			h := thumb.AddTx(tx, thumbArgs{})
			id = h.ID
			tx.KV("k").Put("{"+here+"}/last", h.ID)
		})
	}()
	zero := ns.stream(0, 0)
	one := ns.stream(0, 1)
	frame := one.commit()
	if n := (place.Space{Partitions: 2}).Create(frame.Commit.Ops[1].GetTaskCreate()); n != 1 {
		t.Errorf("the task is of partition %d, want that of the first op, 1", n)
	}
	one.committed(frame)
	if err := receive(t, out); err != nil {
		t.Fatal(err)
	}
	if got := string(frame.Commit.Ops[2].GetKvPut().Value); got != id || frame.Commit.Ops[1].GetTaskCreate().Id != id {
		t.Errorf("got id %q and value %q, want %q", frame.Commit.Ops[1].GetTaskCreate().Id, got, id)
	}
	err := c.Commit(t.Context(), func(tx *Tx) {
		tx.KV("k").Put("{"+here+"}/a", 1)
		tx.KV("k").Delete("{" + there + "}/b")
		thumb.AddTx(tx, thumbArgs{}, Tag(here))
		thumb.AddTx(tx, thumbArgs{}, Tag(there))
		tx.PauseQueue("q") // in the partition of the others
		tx.CancelTask(idIn(0, 2))
		tx.CancelTask(idIn(1, 2))
	})
	e := asError(t, err)
	if !errors.Is(err, ErrPartition) || e.Outcome != Refused || e.Op != 1 || e.Details["ops"] != "1,3,5" {
		t.Errorf("got %v with %v, want ops 1, 3 and 5 refused", err, e.Details)
	}
	err = c.Commit(t.Context(), func(tx *Tx) {
		tx.KV("k").Check("{"+there+"}", Exists())
		tx.KV("k").Put("{"+here+"}", 1)
	})
	if e := asError(t, err); e.Code != CodeWrongPartition || e.Op != OpCondition || e.Field != "conditions[0].key" {
		t.Errorf("got %v, want the condition refused", err)
	}
	zero.quiet()
	one.quiet()
}

func TestATaskAddedFirstInACommitHasItsIDAtOnce(t *testing.T) {
	ns := newNodes(t, 1, 0, 0)
	c := ns.client()
	defer ns.end(c)
	out := make(chan error, 1)
	tag := tagIn(1, 2)
	go func() {
		out <- c.Commit(t.Context(), func(tx *Tx) {
			h := thumb.AddTx(tx, thumbArgs{}, Tag(tag))
			tx.KV("k").Put("{"+tag+"}", h.ID)
		})
	}()
	ns.stream(0, 0)
	one := ns.stream(0, 1)
	frame := one.commit()
	create := frame.Commit.Ops[0].GetTaskCreate()
	if id, _ := place.Parse(create.Id); id.Partition() != 1 || string(frame.Commit.Ops[1].GetKvPut().Value) != create.Id {
		t.Errorf("got %v", frame.Commit.Ops)
	}
	one.committed(frame)
	if err := receive(t, out); err != nil {
		t.Fatal(err)
	}
}

func TestReadsGoToTheLeaderOfTheirPartition(t *testing.T) {
	ns := newNodes(t, 2, 0, 1)
	asked := make(chan int, 8)
	for i, f := range ns.all {
		f.kv = func(*pb.KVGetRequest) (*pb.KVGetResponse, error) {
			asked <- i
			if ns.led[1] != i {
				return nil, notLeader(nodeAddress(ns.led[1]))
			}
			return &pb.KVGetResponse{Found: true, Value: []byte("v"), Rev: 1}, nil
		}
	}
	c := ns.client()
	defer ns.end(c)
	out := add(t, c, Tag(tagIn(0, 2)))
	zero := ns.stream(0, 0)
	zero.created(zero.create())
	receive(t, out)
	key := "{" + tagIn(1, 2) + "}"
	if _, err := c.KV("k").Get(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	if got := receive(t, asked); got != 1 || len(asked) > 0 {
		t.Errorf("node %d was asked first, want the leader, 1", got)
	}
	ns.led[1] = 0
	if _, err := c.KV("k").Get(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	if a, b := receive(t, asked), receive(t, asked); a != 1 || b != 0 {
		t.Errorf("nodes %d and %d were asked, want 1, which names 0", a, b)
	}
	if _, err := c.KV("k").Get(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	if got := receive(t, asked); got != 0 {
		t.Errorf("node %d was asked after the move, want 0", got)
	}
}

func TestNewIDsAreOfThePartitionThatTheirTaskGoesTo(t *testing.T) {
	ns := newNodes(t, 1, 0, 0, 0, 0, 0)
	c := ns.client()
	defer ns.end(c)
	go func() { ns.stream(0, 0) }()
	tag := tagIn(4, 5)
	s, err := c.NewID(t.Context(), Tag(tag))
	id, ok := place.Parse(s)
	if err != nil || !ok || id.Partition() != 4 || id.Home(5) != 4 {
		t.Errorf("got %s, %v, want an id of partition 4", s, err)
	}
	out := add(t, c, Tag(tag), ID(s))
	st := ns.stream(0, 4)
	st.created(st.create())
	if a := receive(t, out); a.err != nil || a.h.ID != s {
		t.Errorf("got %+v, want %s as it is", a, s)
	}
	_, err = thumb.Add(t.Context(), c, thumbArgs{}, Tag(tagIn(3, 5)), ID(s))
	if !errors.Is(err, ErrPartition) || OutcomeOf(err) != Refused {
		t.Errorf("got %v, want ErrPartition", err)
	}
}

func TestRESTIsLookedForAtEachAddress(t *testing.T) {
	for _, c := range []struct {
		opts []Option
		want string
	}{
		{[]Option{Address("n1.test:1, n2.test:7081")}, "[n1.test:1 n2.test:7081 n2.test:7080]"},
		{[]Option{Address("n1.test:1"), RESTAddress("n1.test:2, n2.test:3")}, "[n1.test:2 n2.test:3]"},
	} {
		o, err := newOptions(c.opts)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(o.restHosts()); got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
	if _, err := newOptions([]Option{RESTAddress("n1.test:2,nowhere")}); err == nil {
		t.Error("a REST address that is not host:port is taken")
	}
}

func TestStreamsBeyondWhatAConnectionTakesGetAnother(t *testing.T) {
	f := newFake(t)
	c := f.client(Transport(TransportStream))
	defer f.end(c)
	w := c.router
	g := w.Acquire()
	defer w.Release(g)
	var conns []*transport.StreamConn // by stream
	distinct := map[*transport.StreamConn]bool{}
	for range 2*transport.ConnStreams + 1 {
		conn := w.OpenStream(g)
		conns = append(conns, conn)
		distinct[conn] = true
	}
	if conns[0] == conns[transport.ConnStreams] || conns[0] != conns[transport.ConnStreams-1] || len(distinct) != 3 {
		t.Errorf("got %d connections for %d streams, want 3", len(distinct), len(conns))
	}
	w.CloseStream(conns[0])
	if l := w.OpenStream(g); l != conns[0] {
		t.Error("the room of a stream that has ended is not used")
	}
}
