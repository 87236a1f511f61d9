package machinetest

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tidwall/btree"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/keys"
)

// Txn is a core.Txn over an ordered map in memory: state and transaction in one, for tests. It holds a machine to the
// contract of core.Txn: an Insert of a key that is present panics, nested marks panic, and the slices that a Scan
// shows are overwritten as soon as the callback returns.
//
// It also counts what a machine asks of it, and what would reach the store if all changes since StartLayer were
// written out at once.
type Txn struct {
	// rows are the state, in order of key.
	rows   *btree.BTreeG[row]
	marked bool
	// undo are the changes since the mark, for Undo to go through backwards.
	undo []change
	// layer has what became of each key since StartLayer; nil: that is not tracked.
	layer  map[string]layered
	counts Counts
}

// Counts are the calls of a Txn since it was made or ResetCounts was called. Undone calls count too.
type Counts struct {
	// Scanned is the number of rows that were shown to callbacks.
	Gets, Scans, Scanned          int
	Sets, Inserts, Deletes, Range int
}

// Add adds the calls of d.
func (c *Counts) Add(d Counts) {
	c.Gets, c.Scans, c.Scanned = c.Gets+d.Gets, c.Scans+d.Scans, c.Scanned+d.Scanned
	c.Sets, c.Inserts, c.Deletes, c.Range = c.Sets+d.Sets, c.Inserts+d.Inserts, c.Deletes+d.Deletes, c.Range+d.Range
}

// row is one key with its value.
type row struct{ key, value []byte }

// change is one journal step: the row that was at key before, if there was one.
type change struct {
	key   []byte
	value []byte
	had   bool
	// layered and hadLayer are the key's entry in the layer before.
	layered  layered
	hadLayer bool
}

// layered is what became of one key since StartLayer: whether it was new, and whether it is deleted now.
type layered struct{ fresh, deleted bool }

var _ core.Txn = (*Txn)(nil)

// NewTxn returns an empty state.
func NewTxn() *Txn {
	less := func(a, b row) bool { return keys.Compare(a.key, b.key) < 0 }
	return &Txn{
		rows:  btree.NewBTreeGOptions(less, btree.Options{NoLocks: true}),
		layer: map[string]layered{},
	}
}

// Get returns the value of key.
func (t *Txn) Get(key []byte) (value []byte, ok bool, err error) {
	t.counts.Gets++
	r, ok := t.rows.Get(row{key: key})
	return r.value, ok, nil
}

// Scan calls fn for each row in [from, to), in order. A nil to has no end.
func (t *Txn) Scan(from, to []byte, fn func(key, value []byte) bool) error {
	t.counts.Scans++
	t.ascend(from, to, func(r row) bool {
		t.counts.Scanned++
		k, v := bytes.Clone(r.key), bytes.Clone(r.value)
		more := fn(k, v)
		poison(k)
		poison(v)
		return more
	})
	return nil
}

// ScanBack is Scan in descending order.
func (t *Txn) ScanBack(from, to []byte, fn func(key, value []byte) bool) error {
	t.counts.Scans++
	var found []row
	t.ascend(from, to, func(r row) bool {
		found = append(found, r)
		return true
	})
	for _, r := range slices.Backward(found) {
		t.counts.Scanned++
		k, v := bytes.Clone(r.key), bytes.Clone(r.value)
		more := fn(k, v)
		poison(k)
		poison(v)
		if !more {
			return nil
		}
	}
	return nil
}

// poison overwrites what a callback was shown, so that a machine which keeps it fails at once.
func poison(b []byte) {
	for i := range b {
		b[i] = 0xdb
	}
}

// ascend goes through the rows from from to below to.
func (t *Txn) ascend(from, to []byte, fn func(row) bool) {
	t.rows.Ascend(row{key: from}, func(r row) bool {
		if to != nil && keys.Compare(r.key, to) >= 0 {
			return false
		}
		return fn(r)
	})
}

// Set stores value under key.
func (t *Txn) Set(key, value []byte) {
	t.counts.Sets++
	t.put(key, value, false)
}

// Insert stores a key that is not there; it panics when the key is.
func (t *Txn) Insert(key, value []byte) {
	t.counts.Inserts++
	if _, ok := t.rows.Get(row{key: key}); ok {
		panic(fmt.Sprintf("insert of a key that is present: %x", key))
	}
	t.put(key, value, true)
}

// put stores a row, and notes it for Undo and in the layer. fresh says that the key was not there
// before the layer.
func (t *Txn) put(key, value []byte, fresh bool) {
	old, had := t.rows.Set(row{key, value})
	l, hadLayer := t.layer[string(key)]
	t.journal(change{key, old.value, had, l, hadLayer})
	if hadLayer {
		fresh = l.fresh
	}
	if t.layer != nil {
		t.layer[string(key)] = layered{fresh: fresh}
	}
}

// Delete removes key, present or not.
func (t *Txn) Delete(key []byte) {
	t.counts.Deletes++
	t.drop(key)
}

// drop removes a row, present or not, and notes that likewise.
func (t *Txn) drop(key []byte) {
	old, had := t.rows.Delete(row{key: key})
	l, hadLayer := t.layer[string(key)]
	t.journal(change{key, old.value, had, l, hadLayer})
	if t.layer != nil {
		t.layer[string(key)] = layered{fresh: l.fresh, deleted: true}
	}
}

// DeleteRange removes all keys in [from, to); a nil to has no end.
func (t *Txn) DeleteRange(from, to []byte) {
	t.counts.Range++
	var found [][]byte
	t.ascend(from, to, func(r row) bool {
		found = append(found, r.key)
		return true
	})
	for _, k := range found {
		t.drop(k)
	}
}

func (t *Txn) journal(c change) {
	if t.marked {
		t.undo = append(t.undo, c)
	}
}

// Mark starts remembering changes. It panics when a mark is set.
func (t *Txn) Mark() {
	if t.marked {
		panic("marks do not nest")
	}
	t.marked = true
}

// Undo takes back every change since Mark.
func (t *Txn) Undo() {
	if !t.marked {
		panic("undo without a mark")
	}
	for _, c := range slices.Backward(t.undo) {
		if c.had {
			t.rows.Set(row{c.key, c.value})
		} else {
			t.rows.Delete(row{key: c.key})
		}
		if c.hadLayer && t.layer != nil {
			t.layer[string(c.key)] = c.layered
		} else {
			delete(t.layer, string(c.key))
		}
	}
	t.Keep()
}

// Keep keeps every change since Mark.
func (t *Txn) Keep() {
	if !t.marked {
		panic("keep without a mark")
	}
	t.marked = false
	clear(t.undo)
	t.undo = t.undo[:0]
}

// Len returns the number of keys.
func (t *Txn) Len() int { return t.rows.Len() }

// Counts returns the calls so far.
func (t *Txn) Counts() Counts { return t.counts }

// ResetCounts forgets the calls so far.
func (t *Txn) ResetCounts() { t.counts = Counts{} }

// StartLayer forgets which keys were touched: everything there is counts as stored from here on.
func (t *Txn) StartLayer() { t.layer = map[string]layered{} }

// Untracked stops keeping which keys were touched, for benchmarks.
func (t *Txn) Untracked() { t.layer = nil }

// Mutations returns how many keys a store would have to write, and how many to delete, if all changes since
// StartLayer reached it as one batch: a key inserted and deleted within it costs nothing.
func (t *Txn) Mutations() (writes, deletes int) {
	for _, l := range t.layer {
		switch {
		case !l.deleted:
			writes++
		case !l.fresh:
			deletes++
		}
	}
	return writes, deletes
}

// Touched lists the keys changed since StartLayer, in order.
func (t *Txn) Touched() [][]byte {
	out := make([][]byte, 0, len(t.layer))
	for _, k := range slices.Sorted(maps.Keys(t.layer)) {
		out = append(out, []byte(k))
	}
	return out
}

// Clone returns a state of its own with the same rows, no mark and no counts.
func (t *Txn) Clone() *Txn {
	c := NewTxn()
	t.rows.Scan(func(r row) bool {
		c.rows.Set(row{bytes.Clone(r.key), bytes.Clone(r.value)})
		return true
	})
	return c
}

// Dump prints all rows in order, one "key value" line each in hexadecimal: equal dumps are equal states.
func (t *Txn) Dump() string {
	var b strings.Builder
	t.rows.Scan(func(r row) bool {
		b.WriteString(hex.EncodeToString(r.key))
		b.WriteByte(' ')
		b.WriteString(hex.EncodeToString(r.value))
		b.WriteByte('\n')
		return true
	})
	return b.String()
}
