package rest

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/sdk/go/internal/retry"
	"github.com/millrace/millrace/sdk/go/internal/wire"
)

// restStream is the contract's stream over REST: each frame with work is a request, whose answer becomes its Ack, and a
// subscription is a request that waits for tasks, made again and again.
//
// A request without an answer breaks the stream, as a lost connection breaks gRPC's: the others are waited for, then the
// stream ends, and what was not acknowledged is sent again on the next one. A request that never left is acknowledged as
// refused before.
type restStream struct {
	// r sends the requests of the stream.
	r *Conn
	// ctx is the caller's; its end ends the stream.
	ctx context.Context
	// work is the context of the requests, and cancel ends it.
	work   context.Context
	cancel context.CancelFunc
	// lanes holds a token for each request with work.
	lanes chan struct{}
	// broken is closed when no more is sent.
	broken chan struct{}

	mu sync.Mutex // guards the fields below
	// in holds the frames that the client has yet to receive.
	in inbox[*millracev1.ServerFrame]
	// open counts the requests of frames that are under way, and the subscriptions that run.
	open int
	// closed says that the client closed its side.
	closed bool
	// cause is what broke the stream.
	cause error
	// welcomed says that the server let the client in.
	welcomed bool
	// retired says that the client goes over to gRPC.
	retired bool
	// worker is who the client says it is; nil for one that takes no tasks.
	worker *millracev1.WorkerInfo
	// draining says that the client asked for no more tasks.
	draining bool
	// namesClaims says that the server ends claims by their names.
	namesClaims bool
	// held are the leases that take a slot, and subs the subscriptions by their numbers.
	held map[wire.Lease]*restHold
	subs map[uint32]*restSub
}

// NewStream opens a stream of the contract.
func (r *Conn) NewStream(ctx context.Context, _ *grpc.StreamDesc, method string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	if method == millracev1.KVService_Range_FullMethodName {
		return &restRange{r: r, ctx: ctx}, nil
	}
	if s := r.refStream(ctx, method); s != nil {
		return s, nil
	}
	if method != millracev1.QueueStream_Open_FullMethodName {
		return nil, status.Errorf(codes.Unimplemented, "%s has no route", method)
	}
	s := &restStream{
		r: r, ctx: ctx, lanes: make(chan struct{}, restLanes), in: newInbox[*millracev1.ServerFrame](), broken: make(chan struct{}),
		held: map[wire.Lease]*restHold{}, subs: map[uint32]*restSub{},
	}
	s.work, s.cancel = context.WithCancel(ctx)
	r.mu.Lock()
	r.streams[s] = struct{}{}
	r.mu.Unlock()
	// A stream ends with its caller's context, as gRPC's do: nothing else needs to be closed.
	context.AfterFunc(ctx, func() {
		r.mu.Lock()
		delete(r.streams, s)
		r.mu.Unlock()
		s.cancel()
	})
	return s, nil
}

// Retire ends the open streams without a loss: each finishes what it has begun.
func (r *Conn) Retire() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for s := range r.streams {
		s.retire()
	}
}

// Header and the two below are gRPC's; there is nothing to tell.
func (s *restStream) Header() (metadata.MD, error) { return nil, nil }

// Trailer returns nothing.
func (s *restStream) Trailer() metadata.MD { return nil }

// Context is that of the caller.
func (s *restStream) Context() context.Context { return s.ctx }

// CloseSend says that no more is sent. The stream ends when all that was sent is answered.
func (s *restStream) CloseSend() error {
	s.mu.Lock()
	s.closed = true
	s.endClaims()
	s.mu.Unlock()
	s.in.arrive.Poke()
	return nil
}

// RecvMsg waits for the next frame.
func (s *restStream) RecvMsg(m any) error {
	f, ok := m.(*millracev1.ServerFrame)
	if !ok {
		return status.Errorf(codes.Internal, "message %T is not a frame of a server", m)
	}
	// Frames that came before the end are received before it.
	next, err := s.in.take(s.ctx, &s.mu, func() (bool, error) { return s.open == 0 && (s.closed || s.cause != nil), s.cause })
	if err == nil {
		f.Frame = next.Frame
	}
	return err
}

// push gives the client a frame. It needs mu.
func (s *restStream) push(f *millracev1.ServerFrame) { s.in.add(f) }

// fail breaks the stream with err; the first counts. It needs mu.
func (s *restStream) fail(err error) {
	if s.cause != nil {
		return
	}
	// The first cause is the one to tell: those after it follow from it.
	s.cause = err
	close(s.broken)
	s.stopClaims()
	// Requests under way may still be answered; those that are not are given up.
	late := time.AfterFunc(wire.GoawayWithin, s.cancel)
	context.AfterFunc(s.ctx, func() { late.Stop() })
	s.in.arrive.Poke()
}

// retire makes the stream end as one of a server that stops: nothing new is begun. One that was not let in yet breaks.
func (s *restStream) retire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.retired = true
	// Before its Welcome the client waits for one, and reads no Goaway.
	if !s.welcomed {
		s.fail(status.Error(codes.Unavailable, "the client goes over to gRPC"))
		return
	}
	s.goaway()
}

// goaway tells the client to leave, once no claim is under way: the tasks of one that is cut could be lost until their
// leases end. It needs mu.
func (s *restStream) goaway() {
	for _, u := range s.subs {
		u.nudge()
		if u.running {
			return
		}
	}
	s.push(&millracev1.ServerFrame{Frame: &millracev1.ServerFrame_Goaway{
		Goaway: &millracev1.Goaway{Reason: "the client goes over to gRPC"},
	}})
}

// SendMsg takes a frame. It returns io.EOF when the stream is broken: Recv has the reason.
func (s *restStream) SendMsg(m any) error {
	f, ok := m.(*millracev1.ClientFrame)
	if !ok {
		return status.Errorf(codes.Internal, "message %T is not a frame of a client", m)
	}
	switch x := f.Frame.(type) {
	case *millracev1.ClientFrame_Hello:
		return s.hello(x.Hello)
	case *millracev1.ClientFrame_Create:
		// The request is written here, before SendMsg returns: the sender may use its message again.
		c, err := creates(&millracev1.BatchCreateRequest{Tasks: x.Create.GetTasks(), Atomic: x.Create.GetAtomic()})
		if err != nil {
			return err
		}
		return s.sequenced(x.Create.GetSeq(), func(a *millracev1.Ack) error {
			var out millracev1.BatchCreateResponse
			err := s.r.carry(s.work, c, &out)
			a.Created, a.At = out.Results, out.At
			return err
		})
	// A commit carries a request id, as there are no numbers without a session.
	case *millracev1.ClientFrame_Commit:
		c, err := prepare(millracev1.CommitService_Commit_FullMethodName, x.Commit.GetCommit(), room)
		if err != nil {
			return err
		}
		return s.sequenced(x.Commit.GetSeq(), func(a *millracev1.Ack) error {
			var out millracev1.CommitResponse
			if err := s.r.carry(s.work, c, &out); err != nil {
				return err
			}
			a.Commit, a.At = &out, out.At
			return nil
		})
	case *millracev1.ClientFrame_Settle:
		return s.settle(x.Settle)
	case *millracev1.ClientFrame_Renew:
		return s.renew(x.Renew)
	case *millracev1.ClientFrame_Subscribe:
		s.subscribe(x.Subscribe)
	case *millracev1.ClientFrame_Slots:
		s.slots(x.Slots)
	case *millracev1.ClientFrame_Drain:
		s.drain()
	case *millracev1.ClientFrame_Auth: // each request takes the newest token
	default:
		return status.Errorf(codes.InvalidArgument, "frame %T is not known", f.Frame)
	}
	return nil
}

// hello asks who is there, which makes the Welcome: that the token is good, and that something answers.
func (s *restStream) hello(h *millracev1.Hello) error {
	s.mu.Lock()
	s.worker = h.GetWorker()
	// REST keeps no sessions, so whatever the client says it holds is taken as kept: a lease that is lost shows when it is renewed.
	for _, t := range h.GetHeld() {
		s.held[wire.Lease{ID: t.GetId(), Token: t.GetToken()}] = &restHold{}
	}
	s.mu.Unlock()
	return s.begin(func() {
		var out millracev1.StatusResponse
		err := s.r.invoke(s.work, millracev1.ServerService_Status_FullMethodName, &millracev1.StatusRequest{}, &out)
		partitions := 0
		if err == nil {
			partitions, err = s.partitions()
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if err != nil {
			s.fail(err)
			return
		}
		s.welcomed = true
		s.namesClaims = slices.Contains(out.GetFeatures(), wire.EndClaim)
		s.push(&millracev1.ServerFrame{Frame: &millracev1.ServerFrame_Welcome{
			Welcome: &millracev1.Welcome{Kept: h.GetHeld(), Partitions: uint32(partitions)},
		}})
	})
}

// partitions asks how many the namespace has, unless it is known to have several. One that is not there, or that the token
// may not look at, counts as having one until a later stream is told otherwise.
func (s *restStream) partitions() (int, error) {
	known := s.r.opts.Partitions()
	if known > 1 {
		return known, nil
	}
	var out millracev1.GetNamespaceResponse
	err := s.r.invoke(s.work, millracev1.QueueService_GetNamespace_FullMethodName, &millracev1.GetNamespaceRequest{}, &out)
	// A namespace that is known to have one partition may have more by now; where that cannot be asked, one is the answer.
	if f, ok := errors.AsType[*Fault](err); known > 0 || ok && f.wire != nil && retry.Patience(f.wire.Code, f.wire.Reason) == 0 {
		err = nil
	}
	return max(len(out.Partitions), known), err
}

// begin does work in a goroutine of its own, unless the stream is over.
func (s *restStream) begin(work func()) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.cause != nil {
		return io.EOF
	}
	// The stream does not end before work has returned: its frame is to be answered.
	s.open++
	go func() {
		work()
		s.mu.Lock()
		s.open--
		s.mu.Unlock()
		s.in.arrive.Poke()
	}()
	return nil
}

// sequenced answers a frame with work by its Ack, which do fills. It waits for a stream: calls that come meanwhile gather.
func (s *restStream) sequenced(seq uint64, do func(a *millracev1.Ack) error) error {
	// While all lanes are taken the sender waits here, and what its callers add meanwhile makes its next frame larger.
	select {
	case s.lanes <- struct{}{}:
	case <-s.broken:
		return io.EOF
	case <-s.ctx.Done():
		return io.EOF
	}
	err := s.begin(func() {
		defer func() { <-s.lanes }()
		s.answer(seq, do)
	})
	if err != nil {
		<-s.lanes
	}
	return err
}

// answer makes the Ack of one frame. Without an answer there is none, unless it never left.
func (s *restStream) answer(seq uint64, do func(a *millracev1.Ack) error) {
	a := &millracev1.Ack{Seq: seq}
	err := do(a)
	s.mu.Lock()
	defer s.mu.Unlock()
	f, failed := errors.AsType[*Fault](err)
	switch {
	case err == nil:
	case !failed || f.origin == byContext:
		s.fail(err)
		return
	case f.wire.Code == wire.Unauthenticated && s.worker != nil:
		s.fail(err) // it can do nothing any more, and is told so
		return
	// The connection is lost for all others too. What never left was certainly refused, and is acknowledged so.
	case f.origin == byNobody:
		s.fail(err)
		if f.left() {
			return
		}
		fallthrough
	default:
		a.Error = f.wire
	}
	s.push(&millracev1.ServerFrame{Frame: &millracev1.ServerFrame_Ack{Ack: a}})
}
