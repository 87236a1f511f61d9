package store

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math"
	"math/bits"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/millrace/millrace/internal/keys"
)

// rank is the start of a key as numbers: the first 28 bytes of the key without its suffix, padded with zeros. It is
// taken when the key is written, which is when its bytes are at hand. Padding keeps the order: where two keys differ
// within what one of them lacks, that one is a prefix of the other and comes first, and the other's byte is above zero or
// the next one decides.
type rank struct {
	class  [classLen]byte
	whole  bool // no byte of class is padding
	hi, lo uint64
}

func rankOf(key []byte) (r rank) {
	k := key[:keys.Split(key)]
	r.whole = len(k) >= classLen
	if len(k) < classLen+16 {
		var pad [classLen + 16]byte
		copy(pad[:], k)
		k = pad[:]
	}
	copy(r.class[:], k)
	r.hi, r.lo = binary.BigEndian.Uint64(k[classLen:]), binary.BigEndian.Uint64(k[classLen+8:])
	return r
}

// sorter puts the entries of a layer in order. It keeps its memory from one layer to the next. A
// layer has few classes, and within one the keys mostly differ in the first numbers behind it. So
// entries are put into groups by class, groups are ordered by name, and within a group 64 bits are
// compared in most cases, without a look at a key.
type sorter struct {
	// groups are those of the layer; behind the length lie those of earlier layers, with their
	// memory.
	groups []*group
	// byName finds a group once there are more than fewGroups.
	byName map[[classLen]byte]*group
	// out is the result, valid until the next call of sort or reset.
	out []*entry
}

// group is the entries whose keys have a class in common, or that are shorter and padded alike.
type group struct {
	class    [classLen]byte
	min, max uint64 // of the ranks' hi
	items    []sortItem
}

// sortItem is an entry and the 64 bits of its rank from the first one on that is not the same in all of its group. Few
// entries have those in common, so that most comparisons touch no key.
type sortItem struct {
	at uint64
	e  *entry
}

// sort returns all entries of a layer in key order, until it is called again.
func (s *sorter) sort(l *layer) []*entry {
	s.gather(l)
	slices.SortFunc(s.groups, func(a, b *group) int { return bytes.Compare(a.class[:], b.class[:]) })
	s.out = slices.Grow(s.out[:0], l.entries.len())
	for _, g := range s.groups {
		skip := bits.LeadingZeros64(g.min ^ g.max)
		for i := range g.items {
			r := &g.items[i].e.rank
			g.items[i].at = r.hi<<skip | r.lo>>(64-skip) // a shift by 64 gives 0, and lo if all his are the same
		}
		slices.SortFunc(g.items, compareItems)
		for _, it := range g.items {
			s.out = append(s.out, it.e)
		}
	}
	return s.out
}

// compareItems orders by the 64 bits, and by the keys where these are equal.
func compareItems(x, y sortItem) int {
	if x.at != y.at {
		return cmp.Compare(x.at, y.at)
	}
	return keys.Compare(x.e.key, y.e.key)
}

// gather puts the entries into groups.
func (s *sorter) gather(l *layer) {
	if s.byName == nil {
		s.byName = map[[classLen]byte]*group{}
	}
	var last *group
	l.each(func(e *entry) {
		if last == nil || last.class != e.rank.class {
			last = s.group(e.rank.class)
		}
		last.min, last.max = min(last.min, e.rank.hi), max(last.max, e.rank.hi)
		last.items = append(last.items, sortItem{e: e})
	})
}

// fewGroups is up to how many groups a search by eye is faster than a map.
const fewGroups = 16

// group returns the group of a class, and makes it if it is not there.
func (s *sorter) group(class [classLen]byte) *group {
	if len(s.groups) <= fewGroups {
		for _, g := range s.groups {
			if g.class == class {
				return g
			}
		}
	} else if g := s.byName[class]; g != nil {
		return g
	}
	var g *group
	if n := len(s.groups); n < cap(s.groups) && s.groups[:n+1][n] != nil {
		g = s.groups[:n+1][n] // of an earlier layer, with its memory
	} else {
		g = new(group)
	}
	*g = group{class: class, min: math.MaxUint64, items: g.items[:0]}
	s.groups = append(s.groups, g)
	s.byName[class] = g
	return g
}

// keptItems bounds the memory that is kept from one layer to the next.
const keptItems = 1 << 18

// reset forgets the entries.
func (s *sorter) reset() {
	for _, g := range s.groups {
		clear(g.items)
		if len(s.groups) > fewGroups || cap(g.items) > keptItems {
			g.items = nil
		}
	}
	clear(s.byName)
	clear(s.out)
	s.groups, s.out = s.groups[:0], s.out[:0]
	if cap(s.out) > keptItems {
		s.out = nil
	}
}

// sameClass reports whether two entries are of one class. Two keys that are shorter than one may be called different.
func sameClass(x, y *entry) bool {
	return x.rank.whole && y.rank.whole && x.rank.class == y.rank.class
}

// maxTops bounds the classes whose highest stored key is remembered; lookups in further ones go to the database.
const maxTops = 4096

// tops remembers, by class, a key that nothing in the database is above. Ids and sequences rise, so most keys that are
// looked up before they are written are above it, and the database need not be asked. It belongs to the applying
// goroutine, but for what a written layer brings, which waits in fresh until that goroutine may see the database with it.
type tops struct {
	known map[string][]byte // empty: the database has no key of the class
	fresh [][]byte          // the last keys of a layer's classes
}

// note takes in the highest key of a class of a layer. The layer is being written.
func (t *tops) note(key []byte) { t.fresh = append(t.fresh, bytes.Clone(key)) }

// merge takes over what note gathered.
func (t *tops) merge() {
	for _, key := range t.fresh {
		class := string(classOf(key))
		if old, ok := t.known[class]; ok && keys.Compare(old, key) < 0 {
			t.known[class] = key
		}
	}
	clear(t.fresh)
	t.fresh = t.fresh[:0]
}

// above reports whether key lies above everything the database holds of its class. point is an iterator to find out with.
func (t *Txn) above(point *pebble.Iterator, key []byte) (bool, error) {
	tops, class := &t.sh.tops, classOf(key)
	top, ok := tops.known[text(class)]
	if !ok {
		if len(tops.known) >= maxTops {
			return false, nil
		}
		var err error
		if top, err = t.lastOf(point, class); err != nil {
			return false, err
		}
		if tops.known == nil {
			tops.known = map[string][]byte{}
		}
		tops.known[string(class)] = top
	}
	return len(top) == 0 || keys.Compare(key, top) > 0, nil
}

// lastOf returns the highest stored key of a class, or nil.
func (t *Txn) lastOf(point *pebble.Iterator, class []byte) ([]byte, error) {
	_, end := keys.Range(class)
	if end == nil {
		end = t.sh.metaKey
	} else {
		end = append(appendShard(nil, uint16(t.sh.id)), end...)
	}
	if !point.SeekLT(end) {
		return nil, describe("read the last key of a class", point.Error())
	}
	found := point.Key()
	own := appendShard(nil, uint16(t.sh.id))
	if len(found) < len(own) || string(found[:len(own)]) != string(own) {
		return nil, nil
	}
	key := append([]byte{}, found[len(own):]...)
	if string(classOf(key)) != string(class) {
		return nil, nil
	}
	return key, nil
}
