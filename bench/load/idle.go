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

// idleConnections carry all idle streams: what is weighed is streams, not connections.
const idleConnections = 4

// idleAnswer is how long a worker that was idle may take to be given a task.
const idleAnswer = 10 * time.Second

// idleRun is workers' streams on which nothing happens.
type idleRun struct {
	rig     *bench.Rig
	admin   adminPage
	clients []*millrace.Client
	given   chan *pb.Assignment
	failed  chan error
	readers sync.WaitGroup
}

// Idle measures what a server uses that has nothing to do, without streams and then with as many as the row has workers.
func Idle(ctx context.Context, rig *bench.Rig) (err error) {
	r := &idleRun{rig: rig, given: make(chan *pb.Assignment, 1), failed: make(chan error, 1)}
	if r.admin, err = adminOf(rig); err != nil {
		return err
	}
	before, err := r.admin.footprint(ctx)
	if err != nil {
		return err
	}
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
	if err := r.open(streaming); err != nil {
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
	n := float64(rig.Shape.Workers)
	rig.Metric("alone_cpu_percent", alone*100, "%")
	rig.Metric("streams_cpu_percent", idle*100, "%")
	rig.Metric("rss_kib_per_stream", (after.resident-before.resident)/n/1024, "KiB")
	rig.Metric("live_kib_per_stream", (after.live-before.live)/n/1024, "KiB")
	return r.alive(ctx)
}

// used returns the share of a core that the server used while f ran.
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

// open subscribes every stream to the queue. Streams last as long as ctx.
func (r *idleRun) open(ctx context.Context) error {
	for i := range idleConnections {
		c, err := r.rig.Dial(ctx, i)
		if err != nil {
			return err
		}
		r.clients = append(r.clients, c)
	}
	return atOnce(ctx, idleConnections, func(_ context.Context, i int) error {
		for n := i; n < r.rig.Shape.Workers; n += idleConnections {
			if err := r.subscribe(ctx, r.clients[i]); err != nil {
				return fmt.Errorf("open stream %d: %w", n, err)
			}
		}
		return nil
	})
}

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
	sub := &pb.Subscribe{Sub: 1, Queues: []*pb.QueueWeight{{Name: r.rig.Queue, Weight: 1}}, Slots: 1, Batch: 1}
	if err := stream.Send(&pb.ClientFrame{Frame: &pb.ClientFrame_Subscribe{Subscribe: sub}}); err != nil {
		return err
	}
	r.readers.Go(func() { r.read(ctx, stream) })
	return nil
}

// read follows one stream to its end, which only ctx may bring.
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

// alive proves that idle workers wait for work: one of them is given the task that is made now, by a single call, for
// the streams may be as many as one tenant may have.
func (r *idleRun) alive(ctx context.Context) error {
	select {
	case err := <-r.failed:
		return fmt.Errorf("a stream ended: %w", err)
	default:
	}
	spec := &pb.TaskSpec{Queue: r.rig.Queue, Kind: r.rig.Queue, Payload: r.rig.Payload}
	made, err := pb.NewTaskServiceClient(r.clients[0].Conn()).Create(ctx, &pb.CreateRequest{Task: spec})
	if err != nil {
		return fmt.Errorf("make a task: %w", err)
	}
	r.rig.Ledger.Created(made.Id)
	late := time.NewTimer(idleAnswer)
	defer late.Stop()
	select {
	case t := <-r.given:
		if _, err := r.clients[0].Complete(ctx, t.Id, t.Token, r.rig.Result); err != nil {
			return fmt.Errorf("complete the task that an idle worker was given: %w", err)
		}
		r.rig.Ledger.Completed(t.Id, t.Token, false)
		return nil
	case err := <-r.failed:
		return fmt.Errorf("a stream ended: %w", err)
	case <-late.C:
		return errors.New("no idle worker was given the task that was made")
	case <-ctx.Done():
		return ctx.Err()
	}
}

// close ends every stream.
func (r *idleRun) close(stop context.CancelFunc) {
	stop()
	r.readers.Wait()
	for _, c := range r.clients {
		_ = c.Close() // every call was answered, or an error tells
	}
}
