package store

import (
	"bytes"
	"hash/maphash"
)

// table finds a layer's entries by their keys: open addressing with linear probing, so that a lookup touches one line of
// memory and the entry it finds, and a lookup and the insert after it hash the key once. The seed is random, because
// clients choose keys.
type table struct {
	// slots is how the table is stored; its length is a power of two, and at most five of eight are
	// in use.
	slots []slot
	// n is how many entries there are.
	n    int
	seed maphash.Seed
}

// slot is a place in the table. The hash is kept, so that most other keys are passed over without a
// look at them.
type slot struct {
	hash uint64
	e    *entry // nil: free
}

// tableMin is the least number of slots.
const tableMin = 64

// newTable draws a seed, so that clients cannot choose keys that fall on one place.
func newTable() table { return table{seed: maphash.MakeSeed()} }

// len is the number of entries.
func (t *table) len() int { return t.n }

// hash is only good for this table.
func (t *table) hash(key []byte) uint64 { return maphash.Bytes(t.seed, key) }

// get returns the entry of a key whose hash is h, or nil.
func (t *table) get(key []byte, h uint64) *entry {
	if t.n == 0 {
		return nil
	}
	mask := uint64(len(t.slots) - 1)
	for i := h & mask; ; i = (i + 1) & mask {
		s := &t.slots[i]
		if s.e == nil {
			return nil
		}
		if s.hash == h && bytes.Equal(s.e.key, key) {
			return s.e
		}
	}
}

// add takes in an entry whose key is not there.
func (t *table) add(e *entry, h uint64) {
	if 8*(t.n+1) > 5*len(t.slots) {
		t.grow()
	}
	t.n++
	t.place(slot{h, e})
}

// place puts a slot into the first free one from its home on.
func (t *table) place(s slot) {
	mask := uint64(len(t.slots) - 1)
	i := s.hash & mask
	for t.slots[i].e != nil {
		i = (i + 1) & mask
	}
	t.slots[i] = s
}

// grow doubles the table.
func (t *table) grow() {
	old := t.slots
	t.slots = make([]slot, max(tableMin, 2*len(old)))
	for _, s := range old {
		if s.e != nil {
			t.place(s)
		}
	}
}

// remove forgets an entry that is there. Those behind it that it had displaced move up, so that no
// mark is left. An entry whose home lies behind the gap stays: it would not be found in front of
// its home.
func (t *table) remove(e *entry) {
	mask := uint64(len(t.slots) - 1)
	i := t.hash(e.key) & mask
	for t.slots[i].e != e {
		i = (i + 1) & mask
	}
	t.n--
	for j := i; ; {
		j = (j + 1) & mask
		s := t.slots[j]
		if s.e == nil {
			break
		}
		if home := s.hash & mask; (j-home)&mask >= (j-i)&mask { // it may stand at i
			t.slots[i], i = s, j
		}
	}
	t.slots[i] = slot{}
}

// reset empties the table. One that was far too large for what it held is allocated again when it fills.
func (t *table) reset() {
	if len(t.slots) > 16*max(t.n, tableMin) {
		t.slots = nil
	}
	clear(t.slots)
	t.n = 0
}
