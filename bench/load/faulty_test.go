package load

import (
	"context"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pb "github.com/millrace/millrace/gen/millrace/v1"
)

// faults are what a planted server does wrong.
type faults struct {
	dropEvery   int           // acknowledges create 200 of each n, and forgets the task
	doubleEvery int           // gives every nth task to a worker again after it was completed
	spoilEvery  int           // stores another payload for every nth task
	noFsync     bool          // says fsync and counts none
	mute        bool          // never acknowledges a completion
	stall       time.Duration // of every stallEvery
	stallEvery  time.Duration
	forget      *atomic.Bool // from when it is set, one task is not there, though it is counted; nil: never
}

// faulty is a server in memory that speaks what the bench needs, with planted faults.
type faulty struct {
	pb.UnimplementedServerServiceServer

	f     faults
	line  *null
	start time.Time

	mu        sync.Mutex // guards the fields below
	namespace string
	tasks     map[string]*pb.Task
	created   int
	completed uint64
	fsyncs    uint64
	forgotten string
}

// startFaulty serves until the test ends, and returns the address.
func startFaulty(t *testing.T, f faults) string {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{PermitWithoutStream: true}))
	x := &faulty{f: f, line: &null{}, start: time.Now(), tasks: map[string]*pb.Task{}}
	x.line.before = x.before
	pb.RegisterQueueStreamServer(s, x.line)
	pb.RegisterServerServiceServer(s, x)
	pb.RegisterQueueServiceServer(s, faultyQueues{x: x})
	pb.RegisterTaskServiceServer(s, faultyTasks{x: x})
	served := make(chan error, 1)
	go func() { served <- s.Serve(lis) }()
	t.Cleanup(func() {
		s.Stop()
		<-served
	})
	return lis.Addr().String()
}

// before sees each frame, and says what of it is acknowledged and kept.
func (x *faulty) before(f *pb.ClientFrame) (keep func(id string) bool, mute bool) {
	if x.f.stallEvery > 0 {
		if into := time.Since(x.start) % x.f.stallEvery; into < x.f.stall {
			<-time.After(x.f.stall - into)
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.fsyncs++
	switch m := f.Frame.(type) {
	case *pb.ClientFrame_Create:
		dropped := map[string]bool{}
		for _, t := range m.Create.Tasks {
			x.created++
			if x.f.dropEvery > 0 && x.created%x.f.dropEvery == 200 {
				dropped[t.Id] = true
				continue
			}
			p := t.Payload
			if x.f.spoilEvery > 0 && x.created%x.f.spoilEvery == 0 {
				p = []byte("spoiled")
			}
			x.tasks[t.Id] = &pb.Task{Id: t.Id, Queue: t.Queue, Payload: p, State: pb.State_READY}
		}
		return func(id string) bool { return !dropped[id] }, false
	case *pb.ClientFrame_Settle:
		if x.f.mute {
			return nil, true
		}
		for _, item := range m.Settle.Items {
			t := x.tasks[item.Id]
			again := x.f.doubleEvery > 0 && t.State != pb.State_COMPLETED && int(x.completed)%x.f.doubleEvery == 0
			if t.State != pb.State_COMPLETED {
				x.completed++
			}
			t.State, t.HasResult, t.Result = pb.State_COMPLETED, true, item.GetComplete().GetResult()
			if again {
				x.line.add([]*pb.TaskSpec{{Id: t.Id, Queue: t.Queue, Kind: t.Queue, Payload: t.Payload}})
			}
		}
	}
	return nil, false
}

// Status also resets the counts for each namespace: every run has a namespace of its own.
func (x *faulty) Status(ctx context.Context, _ *pb.StatusRequest) (*pb.StatusResponse, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	x.mu.Lock()
	defer x.mu.Unlock()
	if ns := strings.Join(md["millrace-namespace"], ""); ns != x.namespace {
		x.namespace, x.tasks, x.created, x.completed, x.fsyncs = ns, map[string]*pb.Task{}, 0, 0, 0
	}
	r := &pb.StatusResponse{Version: "faulty", Durability: "fsync", Node: "faulty", Shards: 1, Entries: x.fsyncs}
	if !x.f.noFsync {
		r.Fsyncs = x.fsyncs
	}
	return r, nil
}

// faultyQueues and faultyTasks are its other services.
type faultyQueues struct {
	pb.UnimplementedQueueServiceServer
	x *faulty
}

type faultyTasks struct {
	pb.UnimplementedTaskServiceServer
	x *faulty
}

func (f faultyQueues) Stats(context.Context, *pb.QueueStatsRequest) (*pb.QueueStatsResponse, error) {
	x := f.x
	x.mu.Lock()
	defer x.mu.Unlock()
	n := uint64(len(x.tasks))
	return &pb.QueueStatsResponse{Stats: &pb.QueueStats{
		Queue: "bench", Created: n, Completed: x.completed, CompletedTotal: x.completed, Ready: n - x.completed,
	}}, nil
}

func (f faultyTasks) Get(_ context.Context, r *pb.GetRequest) (*pb.GetResponse, error) {
	x := f.x
	x.mu.Lock()
	defer x.mu.Unlock()
	t := x.tasks[r.Id]
	if t != nil && x.f.forget != nil && x.f.forget.Load() && (x.forgotten == "" || x.forgotten == r.Id) {
		x.forgotten, t = r.Id, nil
	}
	if t == nil {
		return nil, status.Error(codes.NotFound, "task "+r.Id)
	}
	return &pb.GetResponse{Task: t}, nil
}
