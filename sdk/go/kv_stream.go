package millrace

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
)

// KVStream writes keys of one keyspace as fast as the server takes them. Puts do not wait for each other: each returns as
// soon as it is queued, and what waits goes out together. The puts of one goroutine are applied in their order, key by
// key, and each exactly once, also when a leader dies while they are under way; but for a client that was cut off for ten
// minutes, whose puts then end as unknown.
//
// It may be used by many goroutines, and is to be closed. It needs gRPC.
type KVStream struct {
	k KV

	streams atomic.Pointer[[]*putStream] // by partition; nil where none is in use

	mu     sync.Mutex // guards the field below, and growth of streams
	closed bool
}

// Stream opens a stream of puts. It does not wait for the server: the first put does.
func (k KV) Stream() *KVStream {
	s := &KVStream{k: k}
	c := k.c
	c.mu.Lock()
	defer c.mu.Unlock()
	s.closed = c.closed
	if !s.closed {
		c.streams[s] = struct{}{}
	}
	return s
}

// Put queues a put. It waits only while more is under way than the server takes, and then until ctx ends. key and value are
// copied. Options are IfRev and IfAbsent. The error is of a put that was not queued; what became of one that was tells
// Written.
func (s *KVStream) Put(ctx context.Context, key string, value []byte, opts ...PutOption) (Written, error) {
	l, err := s.stream(ctx, key)
	if err != nil {
		return Written{}, err
	}
	if len(opts) == 0 {
		return l.put(ctx, key, value, nil)
	}
	op := new(millracev1.KVPut)
	for _, o := range opts {
		o.put(op)
	}
	if op.WantPrev {
		return Written{}, &Error{Code: CodeInvalidArgument, Reason: "not_supported", Field: "want_prev", Message: "is not allowed on a stream", Op: OpNone, Outcome: Refused}
	}
	return l.put(ctx, key, value, op)
}

// Flush waits until all puts that were queued before it have an answer, which Written tells.
func (s *KVStream) Flush(ctx context.Context) error {
	for _, l := range s.open() {
		if b := l.newest(); b != nil {
			if err := b.wait(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// Close refuses further puts, waits for the answers of those under way, at most 10 s, and closes the stream.
func (s *KVStream) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.mu.Unlock()
	s.k.c.mu.Lock()
	delete(s.k.c.streams, s)
	s.k.c.mu.Unlock()
	var drained sync.WaitGroup
	for _, l := range s.open() {
		drained.Go(func() { l.close(closeWithin) })
	}
	drained.Wait()
	return nil
}

// open lists the streams in use.
func (s *KVStream) open() []*putStream {
	all := s.streams.Load()
	if all == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(*all), func(l *putStream) bool { return l == nil })
}

// stream returns the stream of a key's partition.
func (s *KVStream) stream(ctx context.Context, key string) (*putStream, error) {
	n := s.k.c.partitions()
	if n == 0 {
		if !utf8.ValidString(s.k.keyspace) {
			return nil, badText("keyspace")
		}
		var e *Error
		if n, e = s.k.c.learn(ctx); e != nil {
			return nil, e
		}
	}
	place := placeKey(key, n)
	if all := s.streams.Load(); all != nil && place < len(*all) && (*all)[place] != nil {
		return (*all)[place], nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, closedError()
	}
	all := make([]*putStream, max(n, place+1))
	if old := s.streams.Load(); old != nil {
		copy(all, *old)
	}
	if all[place] == nil {
		all[place] = newPutStream(s.k.c, s.k.keyspace, place)
		s.streams.Store(&all)
	}
	return all[place], nil
}

// Written is a put that is under way.
type Written struct {
	b *putBatch
	i int
}

// Done is closed when the put has its answer.
func (w Written) Done() <-chan struct{} { return w.b.done }

// Wait returns the key's new revision. Errors are those of KV.Put; one of ctx leaves the put under way, its outcome
// unknown.
func (w Written) Wait(ctx context.Context) (rev uint64, err error) {
	if err := w.b.wait(ctx); err != nil {
		return 0, err
	}
	return w.b.answer(w.i)
}

// putBatch is puts that go out in one frame.
type putBatch struct {
	items []byte // as in the frame
	n     int
	lines []ledgerLine // one per item, for a ledger
	done  chan struct{}

	// Guarded by the session's mu.
	put   putState
	ended bool

	// The answer; written before done is closed.
	err      *Error
	firstRev uint64
	refused  []*millracev1.PutRefused // in rising order of item
	at       *millracev1.At
}

func (b *putBatch) wait(ctx context.Context) error {
	select {
	case <-b.done:
		return nil
	default:
	}
	select {
	case <-b.done:
		return nil
	case <-ctx.Done():
		return ended(ctx, true, "no answer came yet")
	}
}

// answer is what became of an item.
func (b *putBatch) answer(i int) (rev uint64, err error) {
	if b.err != nil {
		e := *b.err
		return 0, &e
	}
	before, refused := slices.BinarySearchFunc(b.refused, uint32(i), func(r *millracev1.PutRefused, i uint32) int {
		return int(r.GetItem()) - int(i)
	})
	if refused {
		return 0, fromWire(b.refused[before].GetError())
	}
	return b.firstRev + uint64(i-before), nil
}
