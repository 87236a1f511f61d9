package millrace

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/sdk/go/internal/fault"
	"github.com/millrace/millrace/sdk/go/internal/retry"
	"github.com/millrace/millrace/sdk/go/internal/wire"
)

// refFlight is how many transactions of a session are under way at once: as many answers as a server keeps.
const refFlight = 64

// RefSession carries transactions of one repository over one stream, which is the fast path: a transaction that is
// committed while others are under way joins their log entry. When the stream breaks it is opened again, and what has no
// answer is repeated under its number: nothing is done twice. It is safe for concurrent use.
type RefSession struct {
	r Repo
	// ctx has the values of the caller's context and ends with Close, by stop. done is closed when run has returned.
	ctx    context.Context
	stop   context.CancelFunc
	done   chan struct{}
	flight chan struct{} // a place for each transaction under way

	mu sync.Mutex // guards the fields below, and sending
	// id is 16 bytes, under which the server remembers answers; next is the number that was given out last.
	id      []byte
	next    uint64
	pending []*refCall // in the order of their numbers
	// stream is nil while none is open.
	stream refSessionStream
	failed *Error // nothing more is sent
}

// refSessionStream is the stream of one session.
type refSessionStream = grpc.BidiStreamingClient[millracev1.RefSessionRequest, millracev1.RefSessionResponse]

// refCall is a transaction that waits for its answer.
type refCall struct {
	// txn holds the changes and their number; sent is how often it left in this life of the session.
	txn  *millracev1.RefSessionTxn
	sent int
	// done is closed when out and err are written.
	done chan struct{}
	out  RefsUpdated
	err  *Error
}

// frame is the call as the stream carries it.
func (c *refCall) frame() *millracev1.RefSessionRequest {
	return &millracev1.RefSessionRequest{Frame: &millracev1.RefSessionRequest_Txn{Txn: c.txn}}
}

// Session opens a session. Close it.
func (r Repo) Session(ctx context.Context) (*RefSession, error) {
	s := &RefSession{r: r, id: wire.Random16(), done: make(chan struct{}), flight: make(chan struct{}, refFlight)}
	s.ctx, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	var stream refSessionStream
	err := r.c.last(ctx, r.place(), func(context.Context) (err error) {
		stream, err = s.open()
		return err
	})
	if err != nil {
		s.stop()
		return nil, err
	}
	s.stream = stream
	go s.run(stream)
	return s, nil
}

// open opens a stream that was let in, under the session's id.
func (s *RefSession) open() (refSessionStream, error) {
	ctx, _ := s.r.c.routed(s.ctx, s.r.place())
	stream, err := s.r.c.refs.Session(ctx)
	if err != nil {
		return nil, err
	}
	open := &millracev1.RefSessionOpen{Repo: s.r.name, Tag: s.r.tag, Session: s.id}
	if err := stream.Send(&millracev1.RefSessionRequest{Frame: &millracev1.RefSessionRequest_Open{Open: open}}); err == nil {
		if _, err = stream.Recv(); err != nil {
			return nil, err
		}
		return stream, nil
	}
	_, err = stream.Recv() // it tells why
	return nil, err
}

// run receives answers, and opens the stream again when it breaks.
func (s *RefSession) run(stream refSessionStream) {
	defer close(s.done)
	for {
		err := s.receive(stream)
		s.mu.Lock()
		s.stream = nil
		s.mu.Unlock()
		if stream = s.reopen(err); stream == nil {
			return
		}
	}
}

// receive takes answers until the stream ends, and returns why it did.
func (s *RefSession) receive(stream refSessionStream) error {
	for {
		in, err := stream.Recv()
		if err != nil {
			return err
		}
		s.answer(in)
	}
}

// answer ends the transaction that it answers. A session that the server forgot is begun again, with the transactions that
// the server did not get.
func (s *RefSession) answer(in *millracev1.RefSessionResponse) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.pending, func(c *refCall) bool { return c.txn.GetNumber() == in.GetNumber() })
	if i < 0 {
		return
	}
	c := s.pending[i]
	e := fromWire(in.GetError())
	if e != nil {
		e.Failures = failuresOf(fault.Failures(in.GetFailures()))
		if e.Reason == wire.ReasonSessionExpired && c.sent == 1 {
			s.renew()
			return
		}
		if e.Code == CodeUnavailable || e.Code == CodeNotLeader {
			return // it is repeated on the next stream, which the server's end of this one brings
		}
	}
	s.pending = slices.Delete(s.pending, i, i+1)
	c.err, c.out = e, updatedOf(in.GetResults(), in.GetRev(), in.GetReplayed(), in.GetAt())
	close(c.done)
}

// renew begins a session of another id, because the server knows this one no more. The stream is left, and all that
// waits is sent on the next one.
func (s *RefSession) renew() {
	s.id, s.next = wire.Random16(), 0
	for _, c := range s.pending {
		s.next++
		c.txn.Number, c.sent = s.next, 0
	}
	if s.stream != nil {
		_ = s.stream.CloseSend() // it fails for a stream that is over, which is what is wanted
	}
}

// reopen opens the stream again and repeats what waits for its answer; nil when the session is over.
func (s *RefSession) reopen(err error) refSessionStream {
	began := time.Now()
	for try := 0; ; try++ {
		var f *fault.Fault // why the last stream ended; nil at its server's own end
		if err != nil {
			f = faultOf(err)
			s.r.c.router.Follow(f.Refusal())
		}
		if s.ctx.Err() != nil {
			s.fail(errorOf(fault.Closed()))
			return nil
		}
		if f != nil && f.Code != wire.Internal && f.Patience() == 0 && f.Cause == nil && !isEOF(err) || time.Since(began) > retry.ResendFor {
			s.fail(errorOf(f))
			return nil
		}
		if f != nil && try > 0 && !retry.Sleep(s.ctx, f.Wait(try)) {
			s.fail(errorOf(fault.Closed()))
			return nil
		}
		var stream refSessionStream
		if stream, err = s.open(); err == nil && s.resend(stream) {
			return stream
		}
	}
}

// resend sends what waits for its answer.
func (s *RefSession) resend(stream refSessionStream) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.pending {
		c.sent++
		if stream.Send(c.frame()) != nil {
			return false
		}
	}
	s.stream = stream
	return true
}

// isEOF reports whether the server ended the stream well, as one that stops does.
func isEOF(err error) bool { return errors.Is(err, io.EOF) }

// fail ends the session: what waits is unknown if it had left.
func (s *RefSession) fail(e *Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e == nil {
		e = errorOf(fault.Expired())
	}
	s.failed = e
	for _, c := range s.pending {
		last := *e
		if c.sent > 0 {
			last.Outcome = Unknown
		}
		c.err = &last
		close(c.done)
	}
	s.pending = nil
}

// Close ends the session. What waits for its answer ends as unknown.
func (s *RefSession) Close() error {
	s.stop()
	<-s.done
	return nil
}

// RefTx is a transaction that is put together. It is for one goroutine.
type RefTx struct {
	s *RefSession
	// changes are in the order of the calls; message is of those that have none of their own.
	changes []*millracev1.RefChange
	message string
}

// Begin starts a transaction. Nothing is sent before its Commit.
func (s *RefSession) Begin() *RefTx { return &RefTx{s: s} }

// Update lets a ref point to another object, if it is at old, as MoveRef.
func (tx *RefTx) Update(name, old, new string) { tx.Add(MoveRef(name, old, new)) }

// Create makes a ref that must not exist.
func (tx *RefTx) Create(name, new string) { tx.Add(CreateRef(name, new)) }

// Delete deletes a ref that is at old; an empty old means any.
func (tx *RefTx) Delete(name, old string) { tx.Add(DeleteRef(name, old)) }

// Verify makes the transaction depend on a ref, as VerifyRef.
func (tx *RefTx) Verify(name, old string) { tx.Add(VerifyRef(name, old)) }

// Add adds changes.
func (tx *RefTx) Add(changes ...RefChange) {
	for _, c := range changes {
		tx.changes = append(tx.changes, c.c)
	}
}

// Message is what logs say of changes that have no message of their own.
func (tx *RefTx) Message(text string) { tx.message = text }

// Commit applies the transaction: all of its changes or none. Calls of several goroutines are under way together.
func (tx *RefTx) Commit(ctx context.Context) (RefsUpdated, error) {
	s := tx.s
	select {
	case s.flight <- struct{}{}:
	case <-ctx.Done():
		return RefsUpdated{}, errorOf(fault.Ended(ctx, false, "the session is busy"))
	}
	defer func() { <-s.flight }()
	c := &refCall{
		txn:  &millracev1.RefSessionTxn{Changes: tx.changes, Message: tx.message},
		done: make(chan struct{}),
	}
	s.mu.Lock()
	if s.failed != nil {
		e := *s.failed
		s.mu.Unlock()
		return RefsUpdated{}, &e
	}
	s.next++
	c.txn.Number = s.next
	s.pending = append(s.pending, c)
	if s.stream != nil {
		c.sent++
		_ = s.stream.Send(c.frame()) // the receiver learns why it failed
	}
	s.mu.Unlock()
	select {
	case <-c.done:
	case <-ctx.Done():
		return RefsUpdated{}, errorOf(fault.Ended(ctx, true, "no answer came"))
	}
	if c.err != nil {
		return RefsUpdated{}, c.err
	}
	return c.out, nil
}
