package stream

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api"
	"github.com/millrace/millrace/internal/auth"
	"github.com/millrace/millrace/internal/core"
)

// Node is the node as streams alone need it.
type Node interface {
	// Session opens or resumes a stream's session. sink is told of its tasks until the session is closed.
	Session(ctx context.Context, p core.Partition, s core.SessionSpec, sink core.Sink) (core.Session, core.Welcome, error)
	// Nodes lists the native addresses of all members of the cluster, this one too; none when this node is alone.
	Nodes() []string
	// Moved returns a channel that is closed when the leader of any partition changes, or begins to serve, or the members do.
	Moved() <-chan struct{}
}

// Backend is what streams ask of the node together with the unary services, through the server, which counts it.
type Backend interface {
	api.PlaceBackend
	// Propose puts independent commits of one partition into the log, in order; each is judged alone. done is called
	// exactly once, perhaps before Propose returns, and must not block.
	Propose(p core.Partition, commits []core.Commit, done func(core.Proposed))
	// Keys reads keys of one partition at one index, in the order given. It stops early once the values exceed a number
	// of bytes, but returns at least one.
	Keys(ctx context.Context, p core.Partition, keyspace string, keys [][]byte, bytes int, o core.ReadOptions) ([]core.KeyRead, core.At, error)
	// WaitEnd returns when the task has ended, or ctx has. It reads neither payload nor result.
	WaitEnd(ctx context.Context, p core.Partition, id core.TaskID) error
	// TaskUpTo reads a task with at most that many bytes (most) of its payload and its result.
	TaskUpTo(ctx context.Context, p core.Partition, id core.TaskID, most core.ContentSize, o core.ReadOptions) (core.Task, core.ContentSize, core.At, error)
	// TakeRate takes what ops put in keyspaces of a partition from the rates of these, of the namespace and of the tenant: all of
	// it, or nothing. It returns how long to wait before it is asked again, and the limit that is the reason; zero: it is taken.
	TakeRate(p core.Partition, ops []core.Op, carried bool) (wait time.Duration, by core.RateHeld)
	// CountRefusal counts that a bound refused something, or held it up.
	CountRefusal(b core.Bound)
	// OpenStream counts a stream of a partition's tenant in, unless the tenant has as many as it may. CloseStream must follow one that
	// was counted.
	OpenStream(p core.Partition) core.Fact
	// CloseStream counts a stream out.
	CloseStream(p core.Partition)
}

// door serves both services of streams. What it shares with the unary services, limits and budgets and gauges, is the server's.
type door struct {
	*api.Server
	node    Node    // for sessions, members and changes of leaders
	backend Backend // the same node

	mu   sync.Mutex             // guards the field below
	open map[sessionKey]*stream // the stream of each session that has one
}

// Add has a server serve the streams, each as far as its service is enabled. It must come before Serve.
func Add(s *api.Server, node Node) error {
	_, err := newDoor(s, node)
	return err
}

// newDoor is Add, and returns what it added.
func newDoor(s *api.Server, node Node) (*door, error) {
	d := &door{Server: s, node: node, backend: s.Backend(), open: make(map[sessionKey]*stream)}
	if err := s.Add(&pb.QueueStream_ServiceDesc, &queueStream{d: d}); err != nil {
		return nil, err
	}
	return d, s.Add(&pb.KVStream_ServiceDesc, &keyStream{d: d})
}

// queueStream serves streams of producers and workers, which have all frames.
type queueStream struct {
	pb.UnimplementedQueueStreamServer
	d *door
}

// Open serves one stream until either side ends it.
func (qs *queueStream) Open(ss grpc.BidiStreamingServer[pb.ClientFrame, pb.ServerFrame]) error {
	return qs.d.serve(ss, false)
}

// keyStream serves streams of clients that only write and read keys. It is the same stream, with fewer frames.
type keyStream struct {
	pb.UnimplementedKVStreamServer
	d *door
}

// Open serves one stream until either side ends it.
func (ks *keyStream) Open(ss grpc.BidiStreamingServer[pb.ClientFrame, pb.ServerFrame]) error {
	return ks.d.serve(ss, true)
}

// serve serves a stream of all frames, or of those of keys alone.
func (d *door) serve(ss grpc.BidiStreamingServer[pb.ClientFrame, pb.ServerFrame], keys bool) error {
	if d.Stopping() {
		return core.Unavailable{Reason: "stopping"}
	}
	st := &stream{
		d: d, ss: ss, keys: keys, opened: d.Clock.Boot(), ended: make(chan struct{}), gone: make(chan struct{}),
		kick: make(chan struct{}, 1), room: make(chan struct{}, 1), subs: make(map[uint32]bool),
		follow: make(chan (<-chan struct{}), 1), drained: make(chan struct{}, 1),
	}
	var ok bool
	if st.call, ok = auth.CallOf(ss.Context()); !ok {
		return core.Unauthenticated{}
	}
	return st.run()
}

// sessionKey names a session; the tenant is in the partition.
type sessionKey struct {
	part core.Partition
	id   core.SessionID
}

// enter makes st the stream of its session, and counts it as one of its tenant's. One that is open is ended first, and what it did not
// deliver is back.
func (d *door) enter(ctx context.Context, st *stream) error {
	for {
		old := d.taken(st)
		if old == nil {
			break
		}
		old.end(core.Unavailable{Reason: "session_resumed"})
		select {
		case <-old.gone:
		case <-st.ended:
			return st.cause
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	counted := false
	defer func() {
		if !counted {
			d.forget(st)
		}
	}()
	if fact := d.backend.OpenStream(st.key.part); fact != nil {
		return fact
	}
	counted = true
	return nil
}

// taken makes st the stream of its session, or returns the one that is.
func (d *door) taken(st *stream) (old *stream) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if old = d.open[st.key]; old == nil {
		d.open[st.key] = st
	}
	return old
}

// leave counts st out, and makes room for the next stream of its session.
func (d *door) leave(st *stream) {
	defer d.forget(st)
	d.backend.CloseStream(st.key.part)
}

// forget makes room for the next stream of st's session.
func (d *door) forget(st *stream) {
	d.mu.Lock()
	delete(d.open, st.key)
	d.mu.Unlock()
	close(st.gone)
}
