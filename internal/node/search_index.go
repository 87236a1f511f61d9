package node

import (
	"bytes"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/machine/commit"
	"github.com/millrace/millrace/internal/machine/search"
	"github.com/millrace/millrace/internal/retrieval"
	"github.com/millrace/millrace/internal/vector"
)

// points are the indexes of one shard's collections, for searching. They are derived from the store: built after the shard has
// opened and after a snapshot was installed (search_load.go), and kept current by the applier, which changes them before it
// lets any reader look at the entry. So a read that waits for the applier, and for the index, sees all that was acknowledged.
type points struct {
	// What computes with vectors; nil: this node searches nothing.
	kernel atomic.Pointer[vector.Kernel]

	// Guards the maps; an index guards itself.
	mu sync.RWMutex
	// The collections of each partition that has one, also those whose indexes are not loaded yet.
	parts map[core.Partition]*partPoints
}

// partPoints are the collections of one partition: each is in both maps.
type partPoints struct {
	// The one that has the name now.
	byName map[string]*indexed
	// By the number that changes in entries name it by.
	byIncarnation map[uint32]*indexed
}

// searches reports whether this node has indexes: NoSearch is not set, and loadPoints has run.
func (s *shard) searches() bool { return s.points.kernel.Load() != nil }

// loadPoints finds the collections of a shard, unless this node searches nothing. Their indexes are built afterwards, by
// loadIndexes; with Options.Manual they are built here.
func (s *shard) loadPoints(m *commit.Machine) error {
	if s.n.o.NoSearch {
		return nil
	}
	kernel, err := vector.Select(s.n.o.VectorKernel)
	if err != nil {
		return fmt.Errorf("vector kernel: %w", err)
	}
	s.points.kernel.Store(kernel)
	var loads []*indexLoad
	parts := make(map[core.Partition]*partPoints)
	err = s.store.View(func(v core.View) error {
		for _, p := range m.Partitions() {
			infos, err := search.Collections(v, p)
			if err != nil {
				return err
			}
			for i := range infos {
				c, err := s.points.make(&infos[i].Collection)
				if err != nil {
					return fmt.Errorf("index collection %q of %s: %w", infos[i].Collection.Name, p, err)
				}
				c.unload(int64(infos[i].Points))
				c.used.Store(s.n.uses.rank(p, c.def.UID))
				if was := s.points.byName(p, c.def.Name); was != nil && was.def.UID == c.def.UID {
					c.used.Store(was.used.Load())
				}
				enter(parts, p, infos[i].Incarnation, c)
				loads = append(loads, &indexLoad{indexed: c, s: s, p: p, incarnation: infos[i].Incarnation})
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	s.points.mu.Lock()
	old := s.points.parts
	s.points.parts = parts
	s.points.mu.Unlock()
	for _, part := range old {
		for _, c := range part.byIncarnation {
			c.leave()
		}
	}
	if s.n.o.Manual {
		for _, l := range loads {
			for more := true; more; {
				if more, err = l.step(); err != nil {
					return err
				}
			}
		}
		return nil
	}
	s.n.loads.add(loads)
	return nil
}

// enter adds a collection to the maps of its partition. The caller guards them.
func enter(parts map[core.Partition]*partPoints, p core.Partition, incarnation uint32, c *indexed) {
	part := parts[p]
	if part == nil {
		part = &partPoints{byName: make(map[string]*indexed), byIncarnation: make(map[uint32]*indexed)}
		parts[p] = part
	}
	part.byName[c.def.Name] = c
	part.byIncarnation[incarnation] = c
}

// make returns a collection with an empty index, which counts as loaded: one that was made just now has no point.
func (pt *points) make(def *core.Collection) (*indexed, error) {
	index, err := retrieval.NewIndex(def, pt.kernel.Load())
	if err != nil {
		return nil, err
	}
	c := &indexed{def: *def, index: index}
	c.loaded.Store(true)
	return c, nil
}

// observer takes what entries do to points into the indexes.
func (pt *points) observer(s *shard) observer {
	var changes []*core.PointChange // of an entry; its memory is kept for the next
	return observer{name: "search", held: func(a *appliedEntry) {
		if !s.searches() {
			return
		}
		for _, e := range a.Events {
			if c, ok := e.(*core.PointChange); ok {
				changes = append(changes, c)
			}
		}
		if err := pt.apply(changes); err != nil {
			s.n.o.Logger.Error("a stored point is found by no search", "shard", s.id, "index", a.index, "error", err)
		}
		clear(changes)
		changes = changes[:0]
	}}
}

// apply takes what an entry did into the indexes. Changes of one collection that follow each other are seen together. A point
// that makes no sense is reported, and no search finds it: it is stored, and a build that understands it will find it.
func (pt *points) apply(changes []*core.PointChange) (fault error) {
	for len(changes) > 0 {
		first := changes[0]
		if first.Made != nil || first.Gone {
			if err := pt.change(first); err != nil {
				fault = err
			}
			changes = changes[1:]
			continue
		}
		n := 1
		for n < len(changes) && sameCollection(changes[n], first) {
			n++
		}
		if c := pt.byIncarnation(first.Partition, first.Incarnation); c != nil {
			if err := c.take(changes[:n]); err != nil {
				fault = err
			}
		}
		changes = changes[n:]
	}
	return fault
}

// sameCollection reports whether a changes a point of the collection that b is of, and is not the end or the
// beginning of one.
func sameCollection(a, b *core.PointChange) bool {
	return a.Partition == b.Partition && a.Incarnation == b.Incarnation && a.Made == nil && !a.Gone
}

// changesOf copies what the index keeps: the slices of an entry are those of all of it.
func changesOf(in []*core.PointChange) []retrieval.Change {
	out := make([]retrieval.Change, len(in))
	for i, c := range in {
		out[i] = retrieval.Change{ID: c.ID, Gone: c.Deleted, Version: c.Version, Vector: c.Vector, Payload: bytes.Clone(c.Payload)}
	}
	return out
}

// change enters a collection that was made, or takes one out that is gone.
func (pt *points) change(c *core.PointChange) error {
	if c.Made == nil {
		pt.mu.Lock()
		defer pt.mu.Unlock()
		if part := pt.parts[c.Partition]; part != nil {
			if old := part.byIncarnation[c.Incarnation]; old != nil {
				old.leave()
				delete(part.byIncarnation, c.Incarnation)
				if part.byName[old.def.Name] == old {
					delete(part.byName, old.def.Name)
				}
			}
		}
		return nil
	}
	made, err := pt.make(c.Made)
	if err != nil {
		return fmt.Errorf("index collection %q: %w", c.Made.Name, err)
	}
	pt.mu.Lock()
	defer pt.mu.Unlock()
	enter(pt.parts, c.Partition, c.Incarnation, made)
	return nil
}

// byIncarnation returns the collection of a number, or nil.
func (pt *points) byIncarnation(p core.Partition, incarnation uint32) *indexed {
	pt.mu.RLock()
	defer pt.mu.RUnlock()
	if part := pt.parts[p]; part != nil {
		return part.byIncarnation[incarnation]
	}
	return nil
}

// byName returns the collection that has a name now, or nil.
func (pt *points) byName(p core.Partition, name string) *indexed {
	pt.mu.RLock()
	defer pt.mu.RUnlock()
	if part := pt.parts[p]; part != nil {
		return part.byName[name]
	}
	return nil
}

// all lists the collections that there are.
func (pt *points) all() (out []*indexed) {
	pt.each(func(_ core.Partition, c *indexed) { out = append(out, c) })
	return out
}

// each calls fn for the collections that there are, in any order.
func (pt *points) each(fn func(core.Partition, *indexed)) {
	pt.mu.RLock()
	defer pt.mu.RUnlock()
	for p, part := range pt.parts {
		for _, c := range part.byIncarnation {
			fn(p, c)
		}
	}
}

// bytes is about what the indexes of a shard take.
func (pt *points) bytes() (sum int64) {
	for _, c := range pt.all() {
		sum += c.bytes()
	}
	return sum
}

// keepPoints drops from indexes what is gone and builds their graphs, and writes down which of them are used, until the node
// stops. It has a goroutine of its own, because the graph of a hundred thousand points takes seconds.
func (n *Node) keepPoints() {
	timer := n.o.Clock.NewTimer(n.o.DiskEvery)
	defer timer.Stop()
	defer n.keepUses()
	saved := n.o.Clock.Boot()
	for {
		select {
		case <-timer.C():
		case <-n.stopping:
			return
		}
		for _, s := range n.shards {
			if !s.searches() {
				continue
			}
			for _, c := range s.points.all() {
				if c.loaded.Load() {
					c.index.Tend(n.stops)
				}
			}
		}
		if now := n.o.Clock.Boot(); now-saved >= usesEvery {
			saved = now
			n.keepUses()
		}
		timer.Reset(n.o.DiskEvery)
	}
}

// stops reports whether the node is being closed.
func (n *Node) stops() bool {
	select {
	case <-n.stopping:
		return true
	default:
		return false
	}
}
