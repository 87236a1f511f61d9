package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	pb "github.com/millrace/millrace/gen/millrace/v1"
)

// NullServer reads the frames of streams and requests for tasks over HTTP, and acknowledges them at
// once. It stores nothing and checks nothing, so that a driver's own limit can be measured against
// it. It serves on free ports of 127.0.0.1 until ctx ends. ready is told both addresses.
func NullServer(ctx context.Context, ready func(grpc, http string)) error {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	web, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return errors.Join(fmt.Errorf("listen: %w", err), lis.Close())
	}
	s := grpc.NewServer(
		grpc.InitialWindowSize(4<<20), grpc.InitialConnWindowSize(8<<20), grpc.MaxRecvMsgSize(16<<20),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{PermitWithoutStream: true}),
	)
	n := &null{}
	pb.RegisterQueueStreamServer(s, n)
	pb.RegisterServerServiceServer(s, n)
	(&nullKeys{}).register(s)
	h := &http.Server{Handler: n.handler(), ReadHeaderTimeout: nullTimeout}
	// served gets the result of both servers, so its capacity is 2.
	served := make(chan error, 2)
	go func() { served <- s.Serve(lis) }()
	go func() { served <- h.Serve(web) }()
	ready(lis.Addr().String(), web.Addr().String())
	select {
	case <-ctx.Done():
		err = nil
	// The result is put back, so that both are waited for below.
	case err = <-served:
		served <- err
	}
	s.Stop()
	err = errors.Join(err, h.Close())
	<-served
	<-served
	if err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}

// nullTimeout bounds the reading of a request's header.
const nullTimeout = 5 * time.Second

// null is the server. Tasks pass from creates to subscriptions in order; an id is never checked,
// and a lease never ends.
type null struct {
	pb.UnimplementedQueueStreamServer
	pb.UnimplementedServerServiceServer

	// before sees each frame first. It says which of its created tasks are given to workers, and
	// whether the frame gets no answer at all. nil: all are given, and each frame is answered.
	before func(f *pb.ClientFrame) (keep func(id string) bool, mute bool)

	mu sync.Mutex // guards the fields below
	// token is the lease token of the newest task; ready are the tasks that wait, the oldest first.
	token uint64
	ready []*pb.Assignment
	// subs are the subscriptions of all streams, in the order in which they came.
	subs []*nullSub
}

// nullSub is one subscription: free is how many more tasks it takes now, and batch how many of them
// in one frame.
type nullSub struct {
	// stream is the one that the subscription came by, and sub its number there.
	stream *nullStream
	sub    uint32
	free   int
	batch  int
}

// nullStream sends from several goroutines: frames of others may assign tasks to it.
type nullStream struct {
	// mu guards sends: a stream of gRPC takes one at a time.
	mu sync.Mutex
	s  grpc.BidiStreamingServer[pb.ClientFrame, pb.ServerFrame]
}

// send sends one frame.
func (st *nullStream) send(f *pb.ServerFrame) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.s.Send(f)
}

// Status says that nothing is durable.
func (n *null) Status(context.Context, *pb.StatusRequest) (*pb.StatusResponse, error) {
	return &pb.StatusResponse{Version: "null", Durability: "none", Node: "null", Shards: 1}, nil
}

// Open serves one stream.
func (n *null) Open(s grpc.BidiStreamingServer[pb.ClientFrame, pb.ServerFrame]) error {
	st := &nullStream{s: s}
	defer n.leave(st)
	return st.serve(n.frame)
}

// serve greets the client and hands each of its frames to frame, until the client ends the stream
// or frame fails.
func (st *nullStream) serve(frame func(st *nullStream, f *pb.ClientFrame) error) error {
	s := st.s
	f, err := s.Recv()
	if err != nil {
		return err
	}
	if f.GetHello() == nil {
		return status.Error(codes.InvalidArgument, "a stream begins with hello")
	}
	if err := st.send(&pb.ServerFrame{Frame: &pb.ServerFrame_Welcome{Welcome: &pb.Welcome{Tenant: "null"}}}); err != nil {
		return err
	}
	for {
		f, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := frame(st, f); err != nil {
			return err
		}
	}
}

// frame answers one frame of a client. Other kinds need no answer.
func (n *null) frame(st *nullStream, f *pb.ClientFrame) error {
	// keep is nil when all tasks are given to workers.
	var keep func(id string) bool
	if n.before != nil {
		mute := false
		if keep, mute = n.before(f); mute {
			return nil
		}
	}
	switch x := f.Frame.(type) {
	case *pb.ClientFrame_Create:
		return n.create(st, x.Create, keep)
	case *pb.ClientFrame_Settle:
		ack := &pb.Ack{Seq: x.Settle.Seq, Settled: make([]*pb.SettleResult, len(x.Settle.Items))}
		for i := range ack.Settled {
			ack.Settled[i] = settledOK
		}
		if err := st.ack(ack); err != nil {
			return err
		}
		n.free(st, len(ack.Settled))
		return n.assign()
	case *pb.ClientFrame_Subscribe:
		n.mu.Lock()
		n.subs = append(n.subs, &nullSub{st, x.Subscribe.Sub, int(x.Subscribe.Slots), max(int(x.Subscribe.Batch), 1)})
		n.mu.Unlock()
		return n.assign()
	case *pb.ClientFrame_Renew:
		ack := &pb.Ack{Seq: x.Renew.Seq, Renewed: make([]*pb.HeartbeatResult, len(x.Renew.Items))}
		for i := range ack.Renewed {
			ack.Renewed[i] = &pb.HeartbeatResult{}
		}
		return st.ack(ack)
	}
	return nil
}

// settledOK is shared by all answers: it is never changed.
var settledOK = &pb.SettleResult{State: pb.State_COMPLETED}

// ack sends one acknowledgement.
func (st *nullStream) ack(a *pb.Ack) error {
	return st.send(&pb.ServerFrame{Frame: &pb.ServerFrame_Ack{Ack: a}})
}

// create acknowledges all tasks of a frame, and keeps those for the workers that keep wants.
func (n *null) create(st *nullStream, f *pb.CreateFrame, keep func(id string) bool) error {
	ack := &pb.Ack{Seq: f.Seq, Created: make([]*pb.CreateResult, len(f.Tasks))}
	results := make([]pb.CreateResult, len(f.Tasks))
	for i, t := range f.Tasks {
		results[i].Id = t.Id
		ack.Created[i] = &results[i]
	}
	if err := st.ack(ack); err != nil {
		return err
	}
	// Tasks that are not kept are acknowledged and lost, which a test's audit must find.
	if keep != nil {
		f.Tasks = slices.DeleteFunc(f.Tasks, func(t *pb.TaskSpec) bool { return !keep(t.Id) })
	}
	n.add(f.Tasks)
	return n.assign()
}

// add keeps tasks for the workers, in order. All assignments of a frame are one allocation.
func (n *null) add(specs []*pb.TaskSpec) {
	tasks := make([]pb.Assignment, len(specs))
	n.mu.Lock()
	defer n.mu.Unlock()
	// A token counts up over all tasks, so that each attempt has another one.
	for i, t := range specs {
		n.token++
		a := &tasks[i]
		a.Id, a.Token, a.Attempt, a.Queue, a.Kind, a.Payload, a.ContentType = t.Id, n.token, 1, t.Queue, t.Kind, t.Payload, t.ContentType
		a.LeaseMs, a.LeaseLeftMs, a.MaxAttempts = nullLease, nullLease, 5
		n.ready = append(n.ready, a)
	}
}

// nullLease is the lease of each task: longer than a window.
const nullLease = 300_000 // ms

// free gives slots back to the stream's subscription. A stream has one at most here.
func (n *null) free(st *nullStream, count int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, s := range n.subs {
		if s.stream == st {
			s.free += count
			return
		}
	}
}

// assign gives what waits to free slots, until nothing waits or no slot is free. It sends without
// the lock, and drops a stream that cannot be sent to.
func (n *null) assign() error {
	for {
		n.mu.Lock()
		var to *nullSub
		var tasks []*pb.Assignment
		for _, s := range n.subs {
			if k := min(s.free, s.batch, len(n.ready)); k > 0 {
				// The third index keeps a later append to ready from writing into the tasks that
				// are sent.
				to, tasks = s, n.ready[:k:k]
				n.ready = n.ready[k:]
				s.free -= k
				break
			}
		}
		n.mu.Unlock()
		if to == nil {
			return nil
		}
		f := &pb.ServerFrame{Frame: &pb.ServerFrame_Assign{Assign: &pb.Assign{Sub: to.sub, Tasks: tasks}}}
		if err := to.stream.send(f); err != nil {
			n.leave(to.stream)
		}
	}
}

// leave forgets the subscriptions of a stream. Tasks that it was given are lost.
func (n *null) leave(st *nullStream) {
	n.mu.Lock()
	defer n.mu.Unlock()
	// kept is a list of its own, so that the old one does not hold streams that have ended.
	kept := n.subs[:0:0]
	for _, s := range n.subs {
		if s.stream != st {
			kept = append(kept, s)
		}
	}
	n.subs = kept
}
