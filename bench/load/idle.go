package load

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/millrace/millrace/bench"
	pb "github.com/millrace/millrace/gen/millrace/v1"
	millrace "github.com/millrace/millrace/sdk/go"
)

// A connection carries many idle streams: what is weighed is streams, not connections.
const (
	// idleConnections is the least number of connections.
	idleConnections = 4
	// idleStreams is the most streams of one connection.
	idleStreams = 900
)

// idleAnswer is how long an idle worker may take to be given a task.
const idleAnswer = 10 * time.Second

// idleRun is a number of workers' streams on which nothing happens.
type idleRun struct {
	rig *bench.Rig
	// queue is the one that the idle streams wait for.
	queue string
	// admin is where the server's memory and CPU are read.
	admin adminPage
	// clients are the connections, which the streams are dealt out to.
	clients []*millrace.Client
	// given has the first task that a stream was given, and failed the first error of a stream.
	given  chan *pb.Assignment
	failed chan error
	// readers waits for the goroutines that read the streams.
	readers sync.WaitGroup
}

// Idle measures what a server uses that has nothing to do: for the length of a window without
// streams, and then with as many as the row has workers.
func Idle(ctx context.Context, rig *bench.Rig) (err error) {
	r, err := newIdleRun(rig, rig.Queue)
	if err != nil {
		return err
	}
	before, err := r.admin.footprint(ctx)
	if err != nil {
		return err
	}
	// The server alone is measured first: no stream has been opened yet.
	alone, err := r.used(ctx, func() error {
		if bench.Pause(ctx, rig.Window) != nil {
			return ctx.Err()
		}
		return nil
	})
	if err != nil {
		return err
	}
	streaming, stop := context.WithCancel(ctx)
	defer r.close(stop)
	if err := r.open(streaming, rig.Shape.Workers); err != nil {
		return err
	}
	after, err := r.admin.footprint(ctx)
	if err != nil {
		return err
	}
	idle, err := r.used(ctx, func() error { return rig.Measure(ctx) })
	if err != nil {
		return err
	}
	// n is the number of streams.
	n := float64(rig.Shape.Workers)
	rig.Metric("alone_cpu_percent", alone*100, "%")
	rig.Metric("streams_cpu_percent", idle*100, "%")
	rig.Metric("rss_kib_per_stream", (after.resident-before.resident)/n/1024, "KiB")
	rig.Metric("live_kib_per_stream", (after.live-before.live)/n/1024, "KiB")
	return r.alive(ctx)
}

// newIdleRun makes a run without streams. It needs the server's admin listener.
func newIdleRun(rig *bench.Rig, queue string) (*idleRun, error) {
	admin, err := adminOf(rig)
	return &idleRun{rig: rig, queue: queue, admin: admin, given: make(chan *pb.Assignment, 1), failed: make(chan error, 1)}, err
}

// IdleBeside measures the memory that the idle streams of the row take, and then drives the queue
// next to them. It checks that the work goes on and that none of the streams ends. The idle streams
// wait for a queue of their own, so that they are given none of the work.
func IdleBeside(ctx context.Context, rig *bench.Rig) error {
	r, err := newIdleRun(rig, rig.Queue+"-idle")
	if err != nil {
		return err
	}
	before, err := r.admin.footprint(ctx)
	if err != nil {
		return err
	}
	streaming, stop := context.WithCancel(ctx)
	defer r.close(stop)
	if err := r.open(streaming, rig.Shape.Idle); err != nil {
		return err
	}
	after, err := r.admin.footprint(ctx)
	if err != nil {
		return err
	}
	n := float64(rig.Shape.Idle)
	rig.Metric("rss_kib_per_stream", (after.resident-before.resident)/n/1024, "KiB")
	rig.Metric("live_kib_per_stream", (after.live-before.live)/n/1024, "KiB")
	if err := Queue(ctx, rig); err != nil {
		return err
	}
	made, err := r.answered(ctx)
	if err != nil {
		return err
	}
	_, err = r.clients[0].Complete(ctx, made.Id, made.Token, rig.Result)
	return err
}

// used returns the share of one core that the server used while f ran.
func (r *idleRun) used(ctx context.Context, f func() error) (float64, error) {
	const cpu = "process_cpu_seconds_total"
	before, err := r.admin.metrics(ctx, cpu)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if err := f(); err != nil {
		return 0, err
	}
	took := time.Since(began)
	after, err := r.admin.metrics(ctx, cpu)
	if err != nil {
		return 0, err
	}
	return (after[cpu] - before[cpu]) / took.Seconds(), nil
}

// open subscribes n streams to the queue, dealt out to the connections. The streams last as long as ctx.
func (r *idleRun) open(ctx context.Context, n int) error {
	// More connections than the least are used when their streams would be too many for one.
	connections := max(idleConnections, (n+idleStreams-1)/idleStreams)
	for i := range connections {
		c, err := r.rig.Dial(ctx, i)
		if err != nil {
			return err
		}
		r.clients = append(r.clients, c)
	}
	return atOnce(ctx, connections, func(_ context.Context, i int) error {
		// Each connection opens every connections-th stream, one after the other.
		for k := i; k < n; k += connections {
			if err := r.subscribe(ctx, r.clients[i]); err != nil {
				return fmt.Errorf("open stream %d: %w", k, err)
			}
		}
		return nil
	})
}

// subscribe opens one stream with a session of its own, subscribes with one slot, and leaves a
// goroutine that reads it. It speaks the wire form itself: the client would share streams.
func (r *idleRun) subscribe(ctx context.Context, c *millrace.Client) error {
	stream, err := pb.NewQueueStreamClient(c.Conn()).Open(ctx)
	if err != nil {
		return err
	}
	session := make([]byte, 16)
	_, _ = rand.Read(session) // it never fails
	hello := &pb.Hello{Version: 1, Session: session, Namespace: r.rig.Namespace}
	if err := stream.Send(&pb.ClientFrame{Frame: &pb.ClientFrame_Hello{Hello: hello}}); err != nil {
		return err
	}
	f, err := stream.Recv()
	if err != nil {
		return err
	}
	if f.GetWelcome() == nil {
		return fmt.Errorf("the server began with %T, not with a welcome", f.Frame)
	}
	// One slot is enough: the stream is given a single task at the end of the run.
	sub := &pb.Subscribe{Sub: 1, Queues: []*pb.QueueWeight{{Name: r.queue, Weight: 1}}, Slots: 1, Batch: 1}
	if err := stream.Send(&pb.ClientFrame{Frame: &pb.ClientFrame_Subscribe{Subscribe: sub}}); err != nil {
		return err
	}
	r.readers.Go(func() { r.read(ctx, stream) })
	return nil
}

// read follows one stream to its end, which only ctx may bring: any other end goes to failed.
func (r *idleRun) read(ctx context.Context, stream grpc.BidiStreamingClient[pb.ClientFrame, pb.ServerFrame]) {
	for {
		f, err := stream.Recv()
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			select {
			case r.failed <- err:
			default: // one tells
			}
			return
		}
		for _, t := range f.GetAssign().GetTasks() {
			select {
			case r.given <- t:
			default: // more than the one task that there is: the audit tells
			}
		}
	}
}

// alive proves that an idle worker is given a task: it makes one and completes it, and notes both
// for the audit.
func (r *idleRun) alive(ctx context.Context) error {
	t, err := r.answered(ctx)
	if err != nil {
		return err
	}
	r.rig.Ledger.Created(t.Id)
	if _, err := r.clients[0].Complete(ctx, t.Id, t.Token, r.rig.Result); err != nil {
		return fmt.Errorf("complete the task that an idle worker was given: %w", err)
	}
	r.rig.Ledger.Completed(t.Id, t.Token, false)
	return nil
}

// answered makes one task and returns it as an idle worker is given it. It uses a single call,
// because the tenant may have no stream left.
func (r *idleRun) answered(ctx context.Context) (*pb.Assignment, error) {
	select {
	case err := <-r.failed:
		return nil, fmt.Errorf("a stream ended: %w", err)
	default:
	}
	spec := &pb.TaskSpec{Queue: r.queue, Kind: r.queue, Payload: r.rig.Payload}
	if _, err := pb.NewTaskServiceClient(r.clients[0].Conn()).Create(ctx, &pb.CreateRequest{Task: spec}); err != nil {
		return nil, fmt.Errorf("make a task: %w", err)
	}
	late := time.NewTimer(idleAnswer)
	defer late.Stop()
	select {
	case t := <-r.given:
		return t, nil
	case err := <-r.failed:
		return nil, fmt.Errorf("a stream ended: %w", err)
	case <-late.C:
		return nil, errors.New("no idle worker was given the task that was made")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// close ends every stream and waits for its reader.
func (r *idleRun) close(stop context.CancelFunc) {
	stop()
	r.readers.Wait()
	for _, c := range r.clients {
		_ = c.Close() // every call was answered, or an error tells
	}
}
