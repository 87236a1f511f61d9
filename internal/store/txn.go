package store

import (
	"bytes"
	"errors"

	"github.com/cockroachdb/pebble/v2"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
)

// Txn changes a shard's state while one entry is applied. It is valid during the call that was given it, and for one
// goroutine. Its reads see its writes; other readers see them once the entry is published.
type Txn struct {
	reader
	// points look up single keys in the database, each those of some classes: a key that is a little above the one before
	// is found without a new seek, and the keys of one class rise. They outlive the entry, because making one costs more
	// than using it, and are closed when the frozen layer goes: until then the layers hide all that the database gained.
	points [4]*pebble.Iterator
	// hash is the apply hash up to the last change.
	hash uint64
	// journal is every change of the entry, so that a failed one leaves nothing behind.
	journal []change
	start   mark // of the entry
	// marked says that mark is where Undo goes back to.
	marked bool
	mark   mark
}

var _ core.Txn = (*Txn)(nil)

// change is how to take one change back: what a key was before, or the range deletes before one was
// added. The journal has them in the order in which they were made.
type change struct {
	key   []byte
	old   prior
	spans []span
	span  bool
}

// mark is where Undo goes back to.
type mark struct {
	// journal is the length of the journal, hash the apply hash and calls the layer's count at the
	// mark.
	journal int
	hash    uint64
	calls   uint64
}

// begin starts an entry on the shard's active layer.
func (t *Txn) begin(index, hash uint64) {
	t.hash = round(round(hash, hashEntry), index)
	t.marked = false
	t.start = mark{calls: t.active.calls}
}

// end forgets how to take the entry back.
func (t *Txn) end() {
	clear(t.journal)
	t.journal = t.journal[:0]
}

// abort takes the whole entry back.
func (t *Txn) abort() {
	t.rewind(t.start)
	t.end()
}

// Get returns the value of key, and whether it is there. The layers are asked first. Then tops says
// of most keys that the database cannot have them. Only for the rest the database is asked, by an
// iterator that stays open from entry to entry.
func (t *Txn) Get(key []byte) (value []byte, ok bool, err error) {
	if value, live, known := t.layered(key); known {
		return value, live, nil
	}
	point, err := t.pointOf(key)
	if err != nil {
		return nil, false, err
	}
	if above, err := t.above(point, key); above || err != nil {
		return nil, false, err
	}
	t.buf = append(appendShard(t.buf[:0], uint16(t.sh.id)), key...)
	if !point.SeekPrefixGE(t.buf) {
		return nil, false, describe("read a key", point.Error())
	}
	if !bytes.Equal(point.Key(), t.buf) {
		return nil, false, nil
	}
	found, err := point.ValueAndErr()
	if err != nil {
		return nil, false, describe("read a key", err)
	}
	return append([]byte{}, found...), true, nil
}

// pointOf returns the iterator for a key.
func (t *Txn) pointOf(key []byte) (_ *pebble.Iterator, err error) {
	p := &t.points[0]
	if len(key) >= classLen {
		p = &t.points[int(key[classLen-1])%len(t.points)] // the kind of record
	}
	if *p == nil {
		// Filters of the last level are not used by default. Here most lookups that come this far find nothing.
		if *p, err = t.sh.s.db.NewIter(&pebble.IterOptions{UseL6Filters: true}); err != nil {
			return nil, describe("read a key", err)
		}
	}
	return *p, nil
}

// closePoints gives up the iterators for single keys. The caller holds the shard's lock.
func (t *Txn) closePoints() (err error) {
	for i, it := range t.points {
		if it != nil {
			err = errors.Join(err, it.Close())
		}
		t.points[i] = nil
	}
	return describe("read a key", err)
}

// Set stores value under key.
func (t *Txn) Set(key, value []byte) { t.put(key, value, false) }

// Insert is Set for a key that is not stored, by the caller's promise. Builds with invariants check it.
func (t *Txn) Insert(key, value []byte) {
	t.checkAbsent(key)
	t.put(key, value, true)
}

// put is Set and Insert.
func (t *Txn) put(key, value []byte, fresh bool) {
	t.hash = hash2(t.hash, hashSet, key, value)
	t.active.calls++
	t.journal = append(t.journal, change{key: key, old: t.active.put(key, value, fresh)})
}

// Delete removes key, present or not.
func (t *Txn) Delete(key []byte) {
	t.hash = hash1(t.hash, hashDelete, key)
	t.active.calls++
	t.journal = append(t.journal, change{key: key, old: t.active.remove(key)})
}

// DeleteRange removes all keys in [from, to) as one mutation. An empty to has no end.
func (t *Txn) DeleteRange(from, to []byte) {
	t.hash = hash2(t.hash, hashRange, from, to)
	t.active.calls++
	to = bound(to)
	if !before(from, to) {
		return
	}
	old := t.active.removeRange(from, to, func(key []byte, old prior) {
		t.journal = append(t.journal, change{key: key, old: old})
	})
	t.journal = append(t.journal, change{spans: old, span: true})
}

// Fold adds bytes to the apply hash that do not change the state: the results of the entry.
func (t *Txn) Fold(b []byte) { t.hash = hash1(t.hash, hashFold, b) }

// Mark starts remembering changes. Marks do not nest.
func (t *Txn) Mark() {
	_ = errs.Assertf(!t.marked, "mark within a mark")
	t.marked = true
	t.mark = mark{len(t.journal), t.hash, t.active.calls}
}

// Undo takes back every change since Mark, and what they did to the apply hash.
func (t *Txn) Undo() {
	_ = errs.Assertf(t.marked, "undo without a mark")
	t.marked = false
	t.rewind(t.mark)
	t.hash = t.mark.hash
}

// Keep keeps every change since Mark.
func (t *Txn) Keep() {
	_ = errs.Assertf(t.marked, "keep without a mark")
	t.marked = false
}

// rewind takes changes back, the newest first, so that each key gets back what it was before the
// oldest of them.
func (t *Txn) rewind(to mark) {
	for i := len(t.journal) - 1; i >= to.journal; i-- {
		c := &t.journal[i]
		if c.span {
			t.active.version++
			t.active.setSpans(c.spans)
		} else {
			t.active.restore(c.key, c.old)
		}
		*c = change{}
	}
	t.journal = t.journal[:to.journal]
	t.active.calls = to.calls
}
