package store

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/millrace/millrace/internal/keys"
)

// ranked is an entry with the start of its key as numbers, so that most comparisons touch neither key.
type ranked struct {
	a, b, c uint64 // the first 24 bytes of the key without its suffix, padded with zeros
	whole   bool   // the key without its suffix is at least as long as a class
	e       *entry
}

// rank pads with zeros, which keeps the order: where two keys differ within what one of them lacks, that one is a prefix
// of the other and comes first, and the other's byte is above zero or the next one decides.
func rank(e *entry) ranked {
	k := e.key[:keys.Split(e.key)]
	n := len(k)
	if n < 24 {
		var pad [24]byte
		copy(pad[:], k)
		k = pad[:]
	}
	return ranked{
		binary.BigEndian.Uint64(k), binary.BigEndian.Uint64(k[8:]), binary.BigEndian.Uint64(k[16:]), n >= classLen, e,
	}
}

func compareRanked(x, y ranked) int {
	switch {
	case x.a != y.a:
		return cmp.Compare(x.a, y.a)
	case x.b != y.b:
		return cmp.Compare(x.b, y.b)
	case x.c != y.c:
		return cmp.Compare(x.c, y.c)
	}
	return keys.Compare(x.e.key, y.e.key)
}

// sameClass reports whether two entries are of one class. Two keys that are shorter than one may be called different.
func sameClass(x, y ranked) bool {
	return x.whole && y.whole && x.a == y.a && x.b>>32 == y.b>>32
}

// sorted returns all entries in key order, in room.
func (l *layer) sorted(room []ranked) []ranked {
	out := slices.Grow(room[:0], l.entries.len())
	for _, s := range l.entries.slots {
		if s.e != nil {
			out = append(out, rank(s.e))
		}
	}
	slices.SortFunc(out, compareRanked)
	return out
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

// above reports whether key lies above everything the database holds of its class. The transaction's point iterator is
// open.
func (t *Txn) above(key []byte) (bool, error) {
	tops := &t.sh.tops
	top, ok := tops.known[text(classOf(key))]
	if !ok {
		if len(tops.known) >= maxTops {
			return false, nil
		}
		var err error
		if top, err = t.lastOf(classOf(key)); err != nil {
			return false, err
		}
		if tops.known == nil {
			tops.known = map[string][]byte{}
		}
		tops.known[string(classOf(key))] = top
	}
	return len(top) == 0 || keys.Compare(key, top) > 0, nil
}

// lastOf returns the highest stored key of a class, or nil.
func (t *Txn) lastOf(class []byte) ([]byte, error) {
	_, end := keys.Range(class)
	if end == nil {
		end = t.sh.metaKey
	} else {
		end = append(appendShard(nil, uint16(t.sh.id)), end...)
	}
	if !t.point.SeekLT(end) {
		return nil, describe("read the last key of a class", t.point.Error())
	}
	found := t.point.Key()
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
