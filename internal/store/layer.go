package store

import (
	"slices"
	"sort"
	"sync"
	"time"
	"unsafe"

	"github.com/millrace/millrace/internal/keys"
)

// entryCost is the bytes that an entry takes in addition to its key and value: itself, its slot in the table and its
// place in a list. A layer's size is counted with it, so that many small keys fill a layer before they fill the memory.
const entryCost = 128

// spanCost is what a range delete counts for in a layer's size. It is high because each one is copied when another is
// added, so that a layer of many is written out before that shows.
const spanCost = 4 << 10

// slabLen is how many entries are allocated at once.
const slabLen = 128

// entry is what a layer knows about one key: its value, or that it is deleted beneath.
type entry struct {
	key []byte
	// value counts only where live is set.
	value []byte
	live  bool  // false: a tombstone
	fresh bool  // nothing is stored beneath: deleting it leaves nothing to write
	at    int32 // its place in list
	list  *list // where it waits to be ordered; nil when it stands in its class's tree
	class *class
	// rank is the start of the key as numbers; see sorted.go.
	rank rank
}

// layer holds the changes of a run of entries over whatever lies beneath it. Its newest state of a key counts: an
// entry is always newer than a span that covers it.
//
// Lookup goes through a hash table, because Apply mostly gets and sets single keys; order is made only where a scan asks for
// it (order.go). The writer has the shard's lock exclusively; readers share it.
type layer struct {
	entries table
	// spans are the range deletes: disjoint, ascending, never changed in place, so that a reader
	// may keep the slice.
	spans []span
	// free are removed entries, to be used again.
	free []*entry
	// slab is the rest of the entries that were allocated last.
	slab []entry

	unsorted list // entries in no class yet
	classes  classes
	orderMu  sync.Mutex // guards unsorted, classes and trees while readers make order; writers need no other lock

	// size is the sum of the bytes of keys and values, entryCost for each entry, and spanCost for
	// each span.
	size int64
	// version rises with every change, so that a scan notices changes made by its own callback.
	version uint64
	// calls is how many changes were asked for, those that were undone left out. What is more than
	// the entries was elided.
	calls uint64

	// used says that the layer holds at least one entry of the log, perhaps one that changed
	// nothing.
	used bool
	born time.Duration // boot time of the first
	meta shardMeta     // as of its last
}

// span is a range delete of [from, to); a nil to has no end.
type span struct{ from, to []byte }

// newLayer returns a layer without changes.
func newLayer() *layer { return &layer{entries: newTable()} }

// reset empties the layer for use again. Nothing else may hold it.
func (l *layer) reset() {
	l.entries.reset()
	clear(l.free)
	*l = layer{entries: l.entries, free: l.free[:0], unsorted: list{l.unsorted.reset()}}
}

// text views b as a string without copying. b is never changed while the string lives.
func text(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// get looks key up. known reports whether this layer decides: a value, or a deletion of what lies
// beneath. The value must not be changed.
func (l *layer) get(key []byte) (value []byte, live, known bool) {
	if e := l.entries.get(key, l.entries.hash(key)); e != nil {
		return e.value, e.live, true
	}
	return nil, false, l.covered(key)
}

// covered reports whether a range delete of this layer hides what lies beneath key.
func (l *layer) covered(key []byte) bool {
	if len(l.spans) == 0 {
		return false
	}
	_, ok := l.spanOf(key)
	return ok
}

// spanOf returns the range delete that holds key.
func (l *layer) spanOf(key []byte) (span, bool) {
	// The first span that ends after key is the only one that can hold it.
	i := sort.Search(len(l.spans), func(i int) bool { return before(key, l.spans[i].to) })
	if i < len(l.spans) && keys.Compare(l.spans[i].from, key) <= 0 {
		return l.spans[i], true
	}
	return span{}, false
}

// before reports whether key lies below a bound, of which nil is the highest.
func before(key, bound []byte) bool { return bound == nil || keys.Compare(key, bound) < 0 }

// put makes key live with value. fresh is the caller's promise that nothing is stored beneath; it counts only when the
// layer knows nothing else of the key.
func (l *layer) put(key, value []byte, fresh bool) (old prior) {
	l.version++
	h := l.entries.hash(key)
	if e := l.entries.get(key, h); e != nil {
		old = priorOf(e)
		l.size += int64(len(value) - len(e.value))
		e.value, e.live = value, true
		return old
	}
	l.add(key, h, value, true, fresh || l.covered(key))
	return prior{}
}

// remove makes key absent. It leaves a tombstone only if something may be stored beneath.
func (l *layer) remove(key []byte) (old prior) {
	l.version++
	h := l.entries.hash(key)
	e := l.entries.get(key, h)
	switch {
	case e == nil && l.covered(key):
		return prior{}
	case e == nil:
		l.add(key, h, nil, false, false)
		return prior{}
	}
	old = priorOf(e)
	if e.fresh {
		l.drop(e)
		return old
	}
	l.size -= int64(len(e.value))
	e.value, e.live = nil, false
	return old
}

// restore makes key what it was before a change.
func (l *layer) restore(key []byte, old prior) {
	l.version++
	h := l.entries.hash(key)
	e := l.entries.get(key, h)
	switch {
	case e == nil && old.known:
		l.add(key, h, old.value, old.live, old.fresh)
	case e == nil:
	case !old.known:
		l.drop(e)
	default:
		l.size += int64(len(old.value) - len(e.value))
		e.value, e.live, e.fresh = old.value, old.live, old.fresh
	}
}

// prior is what a layer knew of a key before a change. known is false if it knew nothing; the other
// fields say nothing then.
type prior struct {
	value              []byte
	known, live, fresh bool
}

// priorOf returns what the layer knows of a key that has an entry.
func priorOf(e *entry) prior { return prior{e.value, true, e.live, e.fresh} }

// add takes in a key that is not there, whose hash is h.
func (l *layer) add(key []byte, h uint64, value []byte, live, fresh bool) {
	var e *entry
	if n := len(l.free); n > 0 {
		e, l.free = l.free[n-1], l.free[:n-1]
	} else {
		if len(l.slab) == 0 {
			l.slab = make([]entry, slabLen)
		}
		e, l.slab = &l.slab[0], l.slab[1:]
	}
	*e = entry{key: key, value: value, live: live, fresh: fresh, rank: rankOf(key)}
	l.unsorted.push(e)
	l.entries.add(e, h)
	l.size += int64(len(key) + len(value) + entryCost)
}

// drop forgets an entry altogether.
func (l *layer) drop(e *entry) {
	l.entries.remove(e)
	if e.list != nil {
		e.list.remove(e)
	} else {
		e.class.tree.Delete(e)
	}
	l.size -= int64(len(e.key) + len(e.value) + entryCost)
	*e = entry{}
	l.free = append(l.free, e)
}

// removeRange hides [from, to) beneath, and calls gone with each entry of the layer it removes in it. It returns the
// range deletes before.
func (l *layer) removeRange(from, to []byte, gone func(key []byte, old prior)) (old []span) {
	l.version++
	var found []*entry
	c := cursor{l: l}
	for e := c.seek(from, to); e != nil; e = c.next() {
		found = append(found, e)
	}
	c.close()
	for _, e := range found {
		gone(e.key, priorOf(e))
		l.drop(e)
	}
	old = l.spans
	l.setSpans(joined(old, span{from, to}))
	return old
}

// setSpans replaces the range deletes and counts the difference.
func (l *layer) setSpans(s []span) {
	l.size += int64(len(s)-len(l.spans)) * spanCost
	l.spans = s
}

// joined returns spans with s among them; those that touch become one. It makes a new slice: the
// journal and readers hold the old one.
func joined(spans []span, s span) []span {
	// Those from i to j overlap or touch s.
	i := sort.Search(len(spans), func(i int) bool {
		return spans[i].to == nil || keys.Compare(spans[i].to, s.from) >= 0
	})
	j := i
	for j < len(spans) && (s.to == nil || keys.Compare(spans[j].from, s.to) <= 0) {
		j++
	}
	if i < j {
		if keys.Compare(spans[i].from, s.from) < 0 {
			s.from = spans[i].from
		}
		if last := spans[j-1].to; last == nil || s.to != nil && keys.Compare(last, s.to) > 0 {
			s.to = last
		}
	}
	return slices.Concat(spans[:i], []span{s}, spans[j:])
}

// bound returns the upper bound of a range: an empty one is none.
func bound(to []byte) []byte {
	if len(to) == 0 {
		return nil
	}
	return to
}
