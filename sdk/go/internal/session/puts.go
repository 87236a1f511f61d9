package session

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/sdk/go/internal/fault"
	"github.com/millrace/millrace/sdk/go/internal/ledger"
	"github.com/millrace/millrace/sdk/go/internal/place"
)

// Puts writes keys of one keyspace over a put stream for each partition. The puts of one goroutine are applied in their order, key
// by key, and each once. It may be used by many goroutines.
type Puts struct {
	prod     *Producers // who find out how many partitions there are
	keyspace string

	streams atomic.Pointer[[]*putStream] // by partition; nil where none is in use

	mu sync.Mutex // guards the field below, and growth of streams
	// No further stream is made.
	closed bool
}

// NewPuts makes the puts of a keyspace. Streams are opened with the first put for each partition.
func NewPuts(prod *Producers, keyspace string) *Puts { return &Puts{prod: prod, keyspace: keyspace} }

// Put queues a put and returns at once, unless more is under way than the server takes: then it waits until ctx ends. op holds the
// conditions of the put, nil for none. A fault is of a put that was not queued.
func (p *Puts) Put(ctx context.Context, key string, value []byte, op *millracev1.KVPut) (Put, *fault.Fault) {
	l, f := p.stream(ctx, key)
	if f != nil {
		return Put{}, f
	}
	return l.put(ctx, key, value, op)
}

// Flush waits until all puts that were queued before it have an answer.
func (p *Puts) Flush(ctx context.Context) *fault.Fault {
	for _, l := range p.open() {
		if b := l.newest(); b != nil {
			if f := b.wait(ctx); f != nil {
				return f
			}
		}
	}
	return nil
}

// Seal refuses further streams. It reports false if that was done before.
func (p *Puts) Seal() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	was := p.closed
	p.closed = true
	return !was
}

// Close ends the streams: it waits for the answers of the puts under way, at most d.
func (p *Puts) Close(d time.Duration) {
	var drained sync.WaitGroup
	for _, l := range p.open() {
		drained.Go(func() { l.close(d) })
	}
	drained.Wait()
}

// Reauth tells the open streams of a new token, which the Hub has already.
func (p *Puts) Reauth(token string) {
	for _, l := range p.open() {
		l.s.reauth(token)
	}
}

// open lists the streams in use.
func (p *Puts) open() []*putStream {
	all := p.streams.Load()
	if all == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(*all), func(l *putStream) bool { return l == nil })
}

// stream returns the stream of a key's partition.
func (p *Puts) stream(ctx context.Context, key string) (*putStream, *fault.Fault) {
	n := p.prod.hub.Partitions()
	if n == 0 {
		if !utf8.ValidString(p.keyspace) {
			return nil, fault.BadText("keyspace")
		}
		var f *fault.Fault
		if n, f = p.prod.Learn(ctx); f != nil {
			return nil, f
		}
	}
	home := place.Key(key, n)
	if all := p.streams.Load(); all != nil && home < len(*all) && (*all)[home] != nil {
		return (*all)[home], nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, fault.Closed()
	}
	all := make([]*putStream, max(n, home+1))
	if old := p.streams.Load(); old != nil {
		copy(all, *old)
	}
	if all[home] == nil {
		all[home] = newPutStream(p.prod.hub, p.keyspace, home)
		p.streams.Store(&all)
	}
	return all[home], nil
}

// Put is one put that is under way: an item of a batch.
type Put struct {
	// The batch, and the place of the put in it.
	b *putBatch
	i int
}

// Done is closed when the put has its answer.
func (p Put) Done() <-chan struct{} { return p.b.done }

// Wait returns the key's new revision. A fault of ctx leaves the put under way.
func (p Put) Wait(ctx context.Context) (rev uint64, f *fault.Fault) {
	if f := p.b.wait(ctx); f != nil {
		return 0, f
	}
	return p.b.answer(p.i)
}

// putBatch is puts that go out in one frame.
type putBatch struct {
	// items are as they stand in the frame; n is how many there are.
	items []byte
	n     int
	// lines has a line of the ledger per item; nil without a ledger.
	lines []ledger.Line
	// done is closed with the answer.
	done chan struct{}

	// put is how far the batch got, and ended that the answer is final. The session's mu guards both.
	put   putState
	ended bool

	// The answer, written before done is closed.

	err *fault.Fault
	// firstRev is the revision of the first item that was not refused; those behind it count up.
	firstRev uint64
	// refused are in rising order of item.
	refused []*millracev1.PutRefused
	// at is where the batch stands in the log of its partition.
	at *millracev1.At
}

// wait waits for the answer until ctx ends.
func (b *putBatch) wait(ctx context.Context) *fault.Fault {
	select {
	case <-b.done:
		return nil
	default:
	}
	select {
	case <-b.done:
		return nil
	case <-ctx.Done():
		return fault.Ended(ctx, true, "no answer came yet")
	}
}

// answer is what became of an item.
func (b *putBatch) answer(i int) (rev uint64, f *fault.Fault) {
	if b.err != nil {
		return 0, b.err.Copy()
	}
	before, refused := slices.BinarySearchFunc(b.refused, uint32(i), func(r *millracev1.PutRefused, i uint32) int {
		return int(r.GetItem()) - int(i)
	})
	if refused {
		return 0, fault.FromWire(b.refused[before].GetError())
	}
	return b.firstRev + uint64(i-before), nil
}
