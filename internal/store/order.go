package store

import (
	"slices"
	"strings"

	"github.com/tidwall/btree"

	"github.com/millrace/millrace/internal/keys"
)

// classLen is how many bytes of a key make its class: partition, service and kind of record. One scan seldom leaves a
// class, so only the classes that scans visit are ever put in order.
const classLen = 12

// class is the entries of a layer whose keys start alike.
type class struct {
	prefix  string // the first classLen bytes of the keys, or the whole body and its zero of shorter ones
	waiting list   // not in the tree yet
	tree    *btree.BTreeG[*entry]
}

// list is entries in no order, any of which can leave at once. Each entry says in at where it
// stands.
type list struct{ items []*entry }

// push adds an entry, which is in no list and no tree.
func (s *list) push(e *entry) {
	e.list, e.at = s, int32(len(s.items))
	s.items = append(s.items, e)
}

// remove takes an entry out, and puts the last one in its place.
func (s *list) remove(e *entry) {
	last := len(s.items) - 1
	s.items[e.at] = s.items[last]
	s.items[e.at].at = e.at
	s.items[last] = nil
	s.items = s.items[:last]
	e.list = nil
}

// reset returns the list's memory, emptied.
func (s *list) reset() []*entry {
	clear(s.items)
	return s.items[:0]
}

// classes are the classes of a layer that have come up so far, by prefix and in its order.
type classes struct {
	// byPrefix finds a class by its prefix.
	byPrefix map[string]*class
	// ordered has the same classes in ascending order of their prefixes.
	ordered []*class
}

// classOf returns what a key's class is found by.
func classOf(key []byte) []byte {
	return key[:min(classLen, keys.Split(key))]
}

// of returns the class of a key, and makes it if it is not there.
func (c *classes) of(key []byte) *class {
	prefix := classOf(key)
	if got := c.byPrefix[string(prefix)]; got != nil {
		return got
	}
	if c.byPrefix == nil {
		c.byPrefix = map[string]*class{}
	}
	got := &class{prefix: string(prefix)}
	c.byPrefix[got.prefix] = got
	i, _ := slices.BinarySearchFunc(c.ordered, got.prefix, func(c *class, p string) int { return strings.Compare(c.prefix, p) })
	c.ordered = slices.Insert(c.ordered, i, got)
	return got
}

// within returns the classes that can have keys in [from, to). Cutting keys at a length keeps their order, so comparing
// the cut bounds is enough; a class at the edge may turn out to have none.
func (c *classes) within(from, to []byte) []*class {
	search := func(bound []byte, past bool) int {
		i, found := slices.BinarySearchFunc(c.ordered, text(classOf(bound)), func(c *class, p string) int {
			return strings.Compare(c.prefix, p)
		})
		if found && past {
			i++
		}
		return i
	}
	i, j := search(from, false), len(c.ordered)
	if to != nil {
		j = search(to, true)
	}
	return c.ordered[i:max(i, j)]
}

// order puts every entry in [from, to) in its class's tree, and returns the classes that can have some. Readers that
// share the lock may call it at once: the first one moves the entries, and nothing is left to move until the next write.
//
// An entry goes this way at most once: from the unsorted ones to those that wait in its class,
// which costs a look at its prefix, and from there to the class's tree, which costs a search.
// Entries of classes that no scan visits never get to a tree.
func (l *layer) order(from, to []byte) []*class {
	l.orderMu.Lock()
	defer l.orderMu.Unlock()
	for _, e := range l.unsorted.items {
		c := l.classes.of(e.key)
		e.class = c
		c.waiting.push(e)
	}
	l.unsorted.items = l.unsorted.reset()
	found := l.classes.within(from, to)
	for _, c := range found {
		if c.tree == nil {
			c.tree = btree.NewBTreeGOptions(less, btree.Options{NoLocks: true})
		}
		for _, e := range c.waiting.items {
			e.list = nil
			c.tree.Set(e)
		}
		c.waiting.items = c.waiting.reset()
	}
	return slices.Clone(found)
}

// each calls fn for every entry: those that are in order first, and then the others, mostly as they came. That is also how they lie in
// memory, and many keys rise.
func (l *layer) each(fn func(e *entry)) {
	l.orderMu.Lock()
	defer l.orderMu.Unlock()
	for _, c := range l.classes.ordered {
		if c.tree != nil {
			c.tree.Scan(func(e *entry) bool { fn(e); return true })
		}
		for _, e := range c.waiting.items {
			fn(e)
		}
	}
	for _, e := range l.unsorted.items {
		fn(e)
	}
}

// less orders the entries of a tree by their keys.
func less(a, b *entry) bool { return keys.Compare(a.key, b.key) < 0 }

// cursor walks the entries of a layer in [from, to), in order. The zero cursor of a nil layer has
// none. While it is open, the layer may change only through the caller of the cursor, which seeks
// again then.
type cursor struct {
	l *layer
	// from and to are the bounds; a nil to has no end.
	to      []byte
	from    []byte
	classes []*class // still to be walked, after the one in it
	it      btree.IterG[*entry]
	open    bool // it is in use
	// entry is where it stands; nil before the first seek and after the end.
	entry *entry
	pivot entry // what it seeks
}

// seek goes to the first entry at or after from, and returns it, or nil.
func (c *cursor) seek(from, to []byte) *entry {
	c.close()
	c.from, c.to, c.entry = from, to, nil
	if c.l == nil || c.l.entries.len() == 0 {
		return nil
	}
	c.classes = c.l.order(from, to)
	return c.advance()
}

// advance opens the next class that has an entry in range.
func (c *cursor) advance() *entry {
	for len(c.classes) > 0 {
		tree := c.classes[0].tree
		c.classes = c.classes[1:]
		c.it.Init(tree, false)
		c.open = true
		c.pivot.key = c.from
		if c.it.Seek(&c.pivot) {
			return c.take()
		}
		c.close()
	}
	c.entry = nil
	return nil
}

// next goes to the next entry, and returns it, or nil.
func (c *cursor) next() *entry {
	if !c.open {
		return nil
	}
	if c.it.Next() {
		return c.take()
	}
	c.close()
	return c.advance()
}

// take makes the tree's entry the cursor's own, unless it lies beyond the range.
func (c *cursor) take() *entry {
	e := c.it.Item()
	if !before(e.key, c.to) {
		c.close()
		c.classes, c.entry = nil, nil
		return nil
	}
	c.entry = e
	return e
}

// close gives up the tree's iterator.
func (c *cursor) close() {
	if c.open {
		c.it.Release()
		c.open = false
	}
}
