package session

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/sdk/go/internal/fault"
	"github.com/millrace/millrace/sdk/go/internal/place"
	"github.com/millrace/millrace/sdk/go/internal/transport"
)

// hub makes a hub whose server is never reached.
func hub(t *testing.T) *Hub {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	h := NewHub(Options{Namespace: "n", Address: "server.test:1", Logger: log, Error: func(f *fault.Fault) error { return errors.New(f.Text()) }}, "")
	var err error
	h.Router, err = transport.New(transport.Options{
		Mode: transport.Stream, Addresses: []string{"server.test:1"}, Namespace: "n", Codec: h.Codec(), Logger: log,
		DialOptions: func(*transport.Router, string) []grpc.DialOption {
			return []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
				return nil, errors.New("no server in this test")
			})}
		},
		Secure: func(string) bool { return false }, Partitions: h.Partitions, Moved: func() {}, Lost: h.Lost, Reached: h.Reached,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Router.Close)
	return h
}

// bare are handlers that run nothing.
type bare struct{ t *testing.T }

func (bare) Begin(*pb.Assignment) *Attempt { return new(Attempt) }
func (bare) Double(*Attempt) *Attempt      { return new(Attempt) }
func (b bare) Run(*Attempt, *fault.Fault)  { b.t.Error("a handler ran") }
func (b bare) RunBatch(string, []*Attempt) { b.t.Error("a handler ran") }

func (bare) Settled(*Attempt, string, bool, *fault.Fault) {}

// idIn returns an id of a partition.
func idIn(partition, partitions int) string {
	return place.Fresh().Placed(partition, partitions).String()
}

func TestASettleThatIsTriedLaterFollowsItsTaskToAnotherLane(t *testing.T) {
	h := hub(t)
	w := NewWorker(h, bare{t}, WorkerOptions{Slots: 16})
	w.base = context.Background()
	w.streams = append(w.streams, newWorkerStream(w, 1))
	h.Learned(2)
	from, to := w.streams[0], w.streams[1]
	w.mu.Lock()
	k := from.begin(&pb.Assignment{Id: idIn(1, 2), Token: 1, Kind: "k"}, time.Now())
	k.unbound = true
	k.to(settling)
	from.held[k.Lease], from.unbound = k, 1
	from.handOver()
	w.mu.Unlock()
	w.again(k)
	w.again(k)
	if from.settles.len() != 0 || to.settles.len() != 1 || to.settles.front() != k {
		t.Errorf("%d and %d settles wait, want the one on the second lane", from.settles.len(), to.settles.len())
	}
	if from.unbound != 0 || to.unbound != 1 {
		t.Errorf("%d and %d tasks are unbound", from.unbound, to.unbound)
	}
}

func TestOverRESTTheFirstLaneAloneAsksForTasks(t *testing.T) {
	h := hub(t)
	w := NewWorker(h, bare{t}, WorkerOptions{Slots: 16})
	w.streams = append(w.streams, newWorkerStream(w, 1))
	h.Learned(2)
	w.mu.Lock()
	defer w.mu.Unlock()
	for p, want := range []bool{true, false} {
		l := w.streams[p]
		l.s.plain = true
		l.welcomed(&pb.Welcome{})
		if l.subscribe != want || l.share.up != want {
			t.Errorf("lane %d: subscribes %v, is open %v, want %v", p, l.subscribe, l.share.up, want)
		}
	}
	w.streams[1].s.plain = false
	w.streams[1].welcomed(&pb.Welcome{})
	if !w.streams[1].subscribe {
		t.Error("back on its stream, the second lane asks for no tasks")
	}
	w.slots.stop()
}

func TestNoHandlerBeginsWhenTheWorkerIsOver(t *testing.T) {
	w := NewWorker(hub(t), bare{t}, WorkerOptions{Slots: 16})
	w.base = context.Background()
	w.mu.Lock()
	w.finish()
	w.finish() // as two streams end
	w.mu.Unlock()
	w.streams[0].assigned([]*pb.Assignment{{Id: "t1", Token: 1, Kind: "k"}})
	if left := w.finishAll(fault.ErrClosed, 0); left != 0 || w.live != 0 {
		t.Errorf("%d tasks are held by %d goroutines, want none", left, w.live)
	}
}

func TestACallThatMayHaveBeenAppliedIsNotPlacedAgain(t *testing.T) {
	h := hub(t)
	p := newProducerStream(h, 0)
	p.started = true // no stream sends
	h.Learned(2)
	for unsure, want := range map[bool]uint32{true: callQueued, false: callEnded} {
		k := &Call{Unsure: unsure, done: make(chan struct{}, 1)}
		if e := p.enqueue(k); e != nil || k.state.Load() != want {
			t.Errorf("unsure %v: got state %d, %v, want %d", unsure, k.state.Load(), e, want)
		}
	}
}
