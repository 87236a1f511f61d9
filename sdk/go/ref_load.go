package millrace

import (
	"context"
	"iter"
	"sync"
	"time"

	"google.golang.org/grpc"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/sdk/go/internal/fault"
	"github.com/millrace/millrace/sdk/go/internal/retry"
	"github.com/millrace/millrace/sdk/go/internal/wire"
)

// Bounds of a load.
const (
	loadChanges = 1000 // of a frame
	loadFlight  = 16   // frames under way
)

// Loaded tells what a load did.
type Loaded struct {
	Changed uint64 // refs that were moved
	// Failures count changes from the first of the load on. Rev is the repository's change counter after the last frame.
	Failures []RefFailure
	Rev      uint64
}

// Load applies many changes, each by itself: 1,000 at a time, several of these under way together. When the stream breaks
// it goes on where it was. Of the changes that fail it returns at most 10,000.
func (r Repo) Load(ctx context.Context, changes iter.Seq[RefChange]) (Loaded, error) {
	next, stop := iter.Pull(changes)
	defer stop()
	l := &load{r: r, next: next, session: wire.Random16()}
	began := time.Now()
	for try := 0; ; try++ {
		applied := l.applied
		err := l.stream(ctx)
		if err == nil {
			return l.out, nil
		}
		e := fromStatus(err)
		if ctx.Err() != nil {
			return l.out, errorOf(fault.Ended(ctx, true, e.Message))
		}
		if l.applied > applied {
			try, began = 0, time.Now()
		}
		f := e.fault()
		r.c.router.Follow(f.Refusal())
		if f.Patience() == 0 && !isEOF(err) || time.Since(began) > retry.ResendFor || !retry.Sleep(ctx, retry.Backoff(try)) {
			return l.out, e
		}
	}
}

// maxLoadFailures bounds what a load remembers of changes that failed.
const maxLoadFailures = 10_000

// loadStream is the stream of one load.
type loadStream = grpc.BidiStreamingClient[millracev1.LoadRefsRequest, millracev1.LoadRefsResponse]

// load is one load, over as many streams as it takes.
type load struct {
	// next returns the changes one after the other, and session is 16 bytes that name the load.
	r       Repo
	next    func() (RefChange, bool)
	session []byte

	mu      sync.Mutex                    // guards the fields below
	waiting []*millracev1.LoadRefsRequest // without an answer, in order
	// number counts the frames that were made, and applied is the highest of them that has an answer.
	number  uint64
	applied uint64
	ended   bool // no more changes come
	// out is what the load did so far.
	out Loaded
}

// stream carries the load on until it is done, or breaks.
func (l *load) stream(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	routed, _ := l.r.c.routed(ctx, l.r.place())
	stream, err := l.r.c.refs.LoadRefs(routed)
	if err != nil {
		return err
	}
	if err := stream.Send(&millracev1.LoadRefsRequest{Repo: l.r.name, Tag: l.r.tag, Session: l.session}); err != nil {
		_, err = stream.Recv()
		return err
	}
	hello, err := stream.Recv()
	if err != nil {
		return err
	}
	// What the server has applied and not answered is sent again all the same: it has the answers.
	l.mu.Lock()
	l.out.Rev = hello.GetRev()
	again := append([]*millracev1.LoadRefsRequest(nil), l.waiting...)
	l.mu.Unlock()
	room := make(chan struct{}, loadFlight)
	var sender sync.WaitGroup
	sender.Go(func() { l.send(ctx, stream, again, room) })
	defer sender.Wait()
	defer cancel()
	return l.receive(stream, room)
}

// send writes again first, and then frames of what comes, with at most loadFlight under way: each takes a place in room.
func (l *load) send(ctx context.Context, stream loadStream, again []*millracev1.LoadRefsRequest, room chan struct{}) {
	for {
		select {
		case room <- struct{}{}:
		case <-ctx.Done():
			return
		}
		var frame *millracev1.LoadRefsRequest
		if len(again) > 0 {
			frame, again = again[0], again[1:]
		} else if frame = l.frame(); frame == nil {
			_ = stream.CloseSend() // the receiver learns why it failed
			return
		}
		if stream.Send(frame) != nil {
			return
		}
	}
}

// frame makes the next frame; nil at the end.
func (l *load) frame() *millracev1.LoadRefsRequest {
	var changes []*millracev1.RefChange
	for len(changes) < loadChanges {
		c, ok := l.next()
		if !ok {
			break
		}
		changes = append(changes, c.c)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(changes) == 0 {
		l.ended = true
		return nil
	}
	l.number++
	frame := &millracev1.LoadRefsRequest{Number: l.number, Changes: changes}
	l.waiting = append(l.waiting, frame)
	return frame
}

// receive takes answers until the stream ends, and gives the places in room back.
func (l *load) receive(stream loadStream, room chan struct{}) error {
	for {
		in, err := stream.Recv()
		l.mu.Lock()
		done := l.ended && len(l.waiting) == 0
		l.mu.Unlock()
		if err != nil {
			if done && isEOF(err) {
				return nil
			}
			return err
		}
		if in.GetError() != nil {
			return fromWire(in.GetError())
		}
		l.answer(in)
		<-room
	}
}

// answer takes the answer to one frame. Failures are counted from the first change of the load on.
func (l *load) answer(in *millracev1.LoadRefsResponse) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, frame := range l.waiting {
		if frame.GetNumber() != in.GetNumber() {
			continue
		}
		l.waiting = append(l.waiting[:i:i], l.waiting[i+1:]...)
		l.applied = max(l.applied, in.GetNumber())
		l.out.Changed += uint64(in.GetChanged())
		l.out.Rev = max(l.out.Rev, in.GetRev())
		for _, f := range failuresOf(fault.Failures(in.GetFailures())) {
			if len(l.out.Failures) < maxLoadFailures {
				f.Change += (int(in.GetNumber()) - 1) * loadChanges
				l.out.Failures = append(l.out.Failures, f)
			}
		}
		return
	}
}
