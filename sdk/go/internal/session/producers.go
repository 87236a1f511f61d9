package session

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/sdk/go/internal/fault"
	"github.com/millrace/millrace/sdk/go/internal/place"
)

// A namespace has P partitions, each with a leader of its own. A client learns P from the first stream that it is let in
// on, and then has a stream for each partition that it uses: a stream with a session, which follows that partition's leader.
// Until then, and for ever where P is 1, the first stream is the only one.

// Producers carries out the creates and commits of a client, each on the stream of its partition. It may be used by many
// goroutines.
type Producers struct {
	hub *Hub
	// Of partition 0, which every namespace has: it also finds out how many there are.
	first  *producerStream
	others atomic.Pointer[[]*producerStream] // by partition, those in use but the first
	pool   sync.Pool                         // of *Call

	mu sync.Mutex // guards the field below, and growth of others
	// No further stream is made.
	closed bool
}

// NewProducers makes the producers of a client. Their streams are opened with the first call for each.
func NewProducers(hub *Hub) *Producers {
	return &Producers{hub: hub, first: newProducerStream(hub, 0)}
}

// New returns a call from the pool, to be filled in.
func (p *Producers) New() *Call {
	if c, ok := p.pool.Get().(*Call); ok {
		return c
	}
	return &Call{done: make(chan struct{}, 1)}
}

// Free returns a call that ended, or was never carried out, to the pool. Its answer must have been read: what it points to stays,
// the call itself does not.
func (p *Producers) Free(c *Call) {
	c.state.Store(callQueued)
	c.Spec.Reset()
	c.one[0], c.Specs, c.Commit, c.Bytes, c.Atomic = nil, nil, nil, 0, false
	c.asks, c.placed, c.place, c.single, c.given = false, false, 0, false, ""
	c.Unsure, c.first, c.solo, c.life, c.seq, c.tries = false, time.Time{}, false, 0, 0, 0
	c.err, c.At, c.Created, c.Committed = nil, nil, nil, nil
	p.pool.Put(c)
}

// Learn returns how many partitions there are, and waits for the first stream if it has to.
func (p *Producers) Learn(ctx context.Context) (int, *fault.Fault) {
	if n := p.hub.Partitions(); n > 0 {
		return n, nil
	}
	c := p.New()
	c.asks = true
	late := c.arm(ctx, p.hub.Timeout)
	ended, f := p.first.do(ctx, late, c)
	c.disarm(late)
	if ended {
		p.Free(c)
	}
	return p.hub.Partitions(), f
}

// Place names the tasks of c and finds its partition. While it is not known how many there are, c stays open.
func (p *Producers) Place(c *Call) (f *fault.Fault) {
	space := p.hub.Space()
	n := space.Partitions
	switch {
	case c.placed:
	case c.Commit != nil:
		home := -1
		if lease := c.Commit.Fence; lease != nil {
			home = place.Of(lease.Task, n)
			if home < 0 {
				space.Partitions = 1 // the server says that there is no such lease
			}
		}
		c.place, f = space.All(c.Commit.Conditions, c.Commit.Ops, home)
		c.placed = n > 0
	default:
		for _, s := range c.Specs {
			c.given = s.Id
			if c.place, f = space.Task(s, p.hub.Next(n)); f != nil {
				return f
			}
		}
		c.placed, c.single = n > 0, len(c.Specs) == 1
	}
	return f
}

// replace places the create of one task again that was refused because its queue has its tasks elsewhere than this client knew. It
// reports whether there is another place to try; there is one at most.
func (p *Producers) replace(c *Call, f *fault.Fault) bool {
	if !c.single || c.Unsure || !p.hub.Repin(f, c.Specs[0].Queue) {
		return false
	}
	c.single = false
	spec, was := c.Specs[0], c.Specs[0].Id
	spec.Id = c.given
	place, f := p.hub.Space().Task(spec, p.hub.Next(p.hub.Partitions()))
	if f != nil || place == c.place {
		spec.Id = was
		return false
	}
	c.place = place
	return true
}

// Do carries out a call that was placed, on the stream of its partition, and waits for its answer until ctx ends, or for the
// client's timeout if ctx has no deadline. c may be freed only if ended is true: else a frame may still hold it.
func (p *Producers) Do(ctx context.Context, c *Call) (ended bool, f *fault.Fault) {
	late := c.arm(ctx, p.hub.Timeout)
	defer c.disarm(late)
	for {
		s := p.stream(c.place)
		if s == nil {
			return true, fault.Closed()
		}
		ended, f = s.do(ctx, late, c)
		if f == nil || f.Reason != reasonUnplaced && !(ended && p.replace(c, f)) {
			return ended, f
		}
		c.state.Store(callQueued)
		c.err = nil
		if f = p.Place(c); f != nil {
			return true, f
		}
	}
}

// stream returns the stream of a partition; nil when the client is closed.
func (p *Producers) stream(partition int) *producerStream {
	if partition == 0 {
		return p.first
	}
	// The usual case takes no lock: the slice is replaced as a whole when it grows.
	if all := p.others.Load(); all != nil && partition < len(*all) && (*all)[partition] != nil {
		return (*all)[partition]
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	all := make([]*producerStream, max(p.hub.Partitions(), partition+1))
	if old := p.others.Load(); old != nil {
		copy(all, *old)
	}
	if all[partition] == nil {
		all[partition] = newProducerStream(p.hub, partition)
		p.others.Store(&all)
	}
	return all[partition]
}

// streams are those there are.
func (p *Producers) streams() []*producerStream {
	out := []*producerStream{p.first}
	if all := p.others.Load(); all != nil {
		for _, s := range *all {
			if s != nil {
				out = append(out, s)
			}
		}
	}
	return out
}

// Reauth tells the open streams of a new token, which the Hub has already.
func (p *Producers) Reauth(token string) {
	for _, s := range p.streams() {
		s.s.reauth(token)
	}
}

// ProducersState is what the stream of the first partition is at.
type ProducersState struct {
	Creates, Commits int  // that wait to be written; those whose callers have left count until they are swept
	Closing          bool // no more calls are taken
}

// State returns what the stream of the first partition is at. It is for tests.
func (p *Producers) State() ProducersState {
	s := p.first
	s.s.mu.Lock()
	defer s.s.mu.Unlock()
	return ProducersState{Creates: s.creates.len(), Commits: s.commits.len(), Closing: s.s.closing}
}

// Frames returns how many frames were sent on the streams that are open.
func (p *Producers) Frames() (n uint64) {
	for _, s := range p.streams() {
		n += s.s.sent()
	}
	return n
}

// Seal has no further stream opened: calls for partitions without one are refused.
func (p *Producers) Seal() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
}

// Close refuses further calls, waits at most d for those under way, and ends the streams.
func (p *Producers) Close(d time.Duration) {
	p.Seal()
	var drained sync.WaitGroup
	for _, s := range p.streams() {
		drained.Go(func() { s.close(d) })
	}
	drained.Wait()
}
