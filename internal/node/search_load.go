package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/machine/search"
	"github.com/millrace/millrace/internal/retrieval"
)

// Indexes are built from the store while the node serves, part by part, that of the collection that was searched last first. A
// search waits for its index within its deadline; so do others, one by one, and meanwhile tasks and keys are served. Such
// a search makes its collection the one that was searched last, so that it is the next.
//
// The applier goes on meanwhile. What it changes in a collection of which nothing was read yet, it leaves to the reader. From
// then on it changes the index as well, between two parts. A part is as new as the store, and the store is never behind the
// index: so whatever a part brings is at least as new as what the index has, and what was deleted is in no later part.

// indexed is a collection and its index.
type indexed struct {
	// Its definition, which does not change.
	def core.Collection
	// The applier changes it under mu, and so does the reader of its parts while it is loaded.
	index *retrieval.Index
	// The rulesets that its searches named lately, compiled for its schema.
	rules compiledRules

	// A number that grows with each search of another collection; 0: no search is known.
	used atomic.Uint64
	// The index holds all that is stored.
	loaded atomic.Bool
	// How many points were stored when this node found it; 0 for one that was made in this run.
	stored int64

	// Guards the fields below, and the index from other changes while a part is read.
	mu sync.Mutex
	// Closed when it is loaded, or gone; nil afterwards.
	wait chan struct{}
	// The reader has begun: from here on the applier's changes are taken in.
	begun bool
	// It was deleted: its reader stops.
	gone bool
}

// unload marks the index as one to be read from the store, which holds stored points. No other goroutine uses it yet.
func (c *indexed) unload(stored int64) {
	c.wait, c.stored = make(chan struct{}), stored
	c.loaded.Store(false)
}

// leave says that the index is not to be read any more: the collection was deleted, or all of the state exchanged.
func (c *indexed) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gone = true
	c.tell()
}

// tell wakes who waits.
func (c *indexed) tell() {
	if c.wait != nil {
		close(c.wait)
		c.wait = nil
	}
}

// take takes changes in.
func (c *indexed) take(changes []*core.PointChange) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.wait != nil && !c.begun {
		return nil // it will be read with the rest
	}
	return c.index.Apply(changesOf(changes))
}

// bytes is about what the index takes, or will at least.
func (c *indexed) bytes() int64 {
	n := c.index.Stats().Bytes
	if !c.loaded.Load() {
		n = max(n, c.stored*c.index.PointBytes(0))
	}
	return n
}

// indexLoad is an index that is being read from the store.
type indexLoad struct {
	*indexed
	// The shard and the partition whose points it reads.
	s *shard
	p core.Partition
	// Number of this collection in its partition: one that is made later under the same name has another.
	incarnation uint32
	// The id of the last point read; empty: none yet.
	after string
}

// loadPart is how many points are read together: the applier waits meanwhile.
const loadPart = 256

// step reads a part. It reports whether there is more.
func (l *indexLoad) step() (more bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gone {
		return false, nil
	}
	l.begun = true
	part := make([]retrieval.Change, 0, loadPart)
	if err = l.s.store.View(func(v core.View) error {
		return search.EachPoint(v, l.p, l.incarnation, l.after, func(one core.StoredPoint) bool {
			part = append(part, retrieval.Change{
				ID: one.ID, Version: one.Version, Vector: bytes.Clone(one.Vector), Payload: bytes.Clone(one.Payload),
			})
			return len(part) < loadPart
		})
	}); err != nil {
		return false, fmt.Errorf("index collection %q of %s: %w", l.def.Name, l.p, err)
	}
	if err := l.index.Apply(part); err != nil {
		l.s.n.o.Logger.Error("a stored point is found by no search", "shard", l.s.id, "collection", l.def.Name, "error", err)
	}
	if len(part) == loadPart {
		l.after = part[len(part)-1].ID
		return true, nil
	}
	l.loaded.Store(true)
	l.tell()
	return false, nil
}

// loads are the indexes of a node that are to be read, from all shards.
type loads struct {
	// Guards open.
	mu sync.Mutex
	// In the order in which they were added.
	open []*indexLoad
	// Holds one when something was added: it wakes the reader from a pause.
	more chan struct{}
}

// add appends indexes that are to be read, and wakes the reader.
func (q *loads) add(list []*indexLoad) {
	q.mu.Lock()
	q.open = append(q.open, list...)
	q.mu.Unlock()
	select {
	case q.more <- struct{}{}:
	default:
	}
}

// next returns the index that was used last, nil when there is none to be read. Of those that are equal in that it is the
// first.
func (q *loads) next() (best *indexLoad) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, l := range q.open {
		if best == nil || l.used.Load() > best.used.Load() {
			best = l
		}
	}
	return best
}

// done takes an index off the list: it is read, or gone.
func (q *loads) done(l *indexLoad) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.open = slices.DeleteFunc(q.open, func(o *indexLoad) bool { return o == l })
}

// loadIndexes reads indexes until the node stops.
func (n *Node) loadIndexes() {
	for !n.stops() {
		l := n.loads.next()
		if l == nil {
			select {
			case <-n.loads.more:
			case <-n.stopping:
			}
			continue
		}
		if n.o.beforeLoad != nil {
			n.o.beforeLoad(l.def.Name)
		}
		more, err := l.step()
		if err != nil {
			n.fail(err)
			return
		}
		if !more {
			n.loads.done(l)
		}
	}
}

// index finds a collection and waits until its index is loaded.
func (n *Node) index(ctx context.Context, s *shard, p core.Partition, name string) (*indexed, error) {
	for {
		c := s.points.byName(p, name)
		if c == nil {
			return nil, noSuchCollection(name)
		}
		n.uses.note(c)
		if c.loaded.Load() {
			return c, nil
		}
		c.mu.Lock()
		wait := c.wait
		c.mu.Unlock()
		if wait == nil {
			continue // it was loaded, or another has taken its place
		}
		if err := n.awaitLoad(ctx, wait); err != nil {
			return nil, err
		}
	}
}

// awaitLoad waits until an index is read: until the deadline of the call, or for Options.ReadWait when it has none.
func (n *Node) awaitLoad(ctx context.Context, wait <-chan struct{}) error {
	var late <-chan time.Time
	if _, has := ctx.Deadline(); !has {
		timer := n.o.Clock.NewTimer(n.o.ReadWait)
		defer timer.Stop()
		late = timer.C()
	}
	select {
	case <-wait:
		return nil
	case <-late:
	case <-ctx.Done():
	case <-n.stopping:
		return core.Unavailable{Reason: "stopping"}
	}
	return core.Unavailable{Reason: "loading"}
}

// Loading reports whether this node has yet to read the index of a collection.
func (n *Node) Loading(p core.Partition, name string) bool {
	s, err := n.shardOf(p)
	if err != nil {
		return false
	}
	c := s.points.byName(p, name)
	return c != nil && !c.loaded.Load()
}

// Loaded waits until the index of a collection is read, if there is such a collection here.
func (n *Node) Loaded(ctx context.Context, p core.Partition, name string) error {
	if !n.Loading(p, name) {
		return nil
	}
	s, err := n.shardOf(p)
	if err == nil {
		_, err = n.index(ctx, s, p, name)
	}
	if _, gone := errors.AsType[core.NotFound](err); gone {
		return nil // a search that waits finds that out as of the index that it reads
	}
	return err
}
