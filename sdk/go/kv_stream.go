package millrace

import (
	"context"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/sdk/go/internal/session"
)

// KVStream writes keys of one keyspace as fast as the server takes them. Puts do not wait for each other: each returns as
// soon as it is queued, and what waits goes out together. The puts of one goroutine are applied in their order, key by
// key, and each exactly once, also when a leader dies while they are under way; but for a client that was cut off for ten
// minutes, whose puts then end as unknown.
//
// It may be used by many goroutines, and is to be closed. It needs gRPC.
type KVStream struct {
	c *Client
	// puts holds a stream for each partition that a key was put to.
	puts *session.Puts
}

// Stream opens a stream of puts. It does not wait for the server: the first put does.
func (k KV) Stream() *KVStream {
	c := k.c
	s := &KVStream{c: c, puts: session.NewPuts(c.calls, k.keyspace)}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		s.puts.Seal()
	} else {
		c.streams[s] = struct{}{}
	}
	return s
}

// Put queues a put. It waits only while more is under way than the server takes, and then until ctx ends. key and value are
// copied. Options are IfRev and IfAbsent. The error is of a put that was not queued; what became of one that was tells
// Written.
func (s *KVStream) Put(ctx context.Context, key string, value []byte, opts ...PutOption) (Written, error) {
	var op *millracev1.KVPut // nil without options
	if len(opts) > 0 {
		op = new(millracev1.KVPut)
		for _, o := range opts {
			o.put(op)
		}
		if op.WantPrev {
			return Written{}, &Error{Code: CodeInvalidArgument, Reason: "not_supported", Field: "want_prev", Message: "is not allowed on a stream", Op: OpNone, Outcome: Refused}
		}
	}
	p, f := s.puts.Put(ctx, key, value, op)
	if f != nil {
		return Written{}, errorOf(f)
	}
	return Written{p}, nil
}

// Flush waits until all puts that were queued before it have an answer, which Written tells.
func (s *KVStream) Flush(ctx context.Context) error {
	if f := s.puts.Flush(ctx); f != nil {
		return errorOf(f)
	}
	return nil
}

// Close refuses further puts, waits for the answers of those under way, at most 10 s, and closes the stream.
func (s *KVStream) Close() error {
	if !s.puts.Seal() {
		return nil
	}
	s.c.mu.Lock()
	delete(s.c.streams, s)
	s.c.mu.Unlock()
	s.puts.Close(closeWithin)
	return nil
}

// Written is a put that is under way.
type Written struct{ p session.Put }

// Done is closed when the put has its answer.
func (w Written) Done() <-chan struct{} { return w.p.Done() }

// Wait returns the key's new revision. Errors are those of KV.Put; one of ctx leaves the put under way, its outcome
// unknown.
func (w Written) Wait(ctx context.Context) (rev uint64, err error) {
	rev, f := w.p.Wait(ctx)
	if f != nil {
		return 0, errorOf(f)
	}
	return rev, nil
}
