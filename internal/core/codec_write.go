package core

import "encoding/binary"

// tableScan is how many names or partitions are found by looking at each; beyond it by a map.
const tableScan = 16

// table numbers values in the order in which they first occur.
type table[T comparable] struct {
	// The values by their numbers.
	seen []T
	// The numbers of all values of seen; nil while there are at most tableScan.
	index map[T]int
}

// find returns the number of v, from 0, and whether it is new; a new one is entered.
func (t *table[T]) find(v T) (n int, fresh bool) {
	if t.index == nil {
		for i := range t.seen {
			if t.seen[i] == v {
				return i, false
			}
		}
	} else if i, ok := t.index[v]; ok {
		return i, false
	}
	n = len(t.seen)
	t.seen = append(t.seen, v)
	switch {
	case t.index != nil:
		t.index[v] = n
	case n >= tableScan:
		t.index = make(map[T]int, 4*tableScan)
		for i := range t.seen {
			t.index[t.seen[i]] = i
		}
	}
	return n, true
}

// writer appends the encoding of values to b.
type writer struct {
	// What was written so far, after what the caller had.
	b []byte
	// Names and partitions written so far: from the second time on, a number stands for each.
	names table[string]
	parts table[Partition]
}

// These write one value each: numbers as minimal varints, ids as they are, texts and bytes after their length.
func (w *writer) byte(v byte)    { w.b = append(w.b, v) }
func (w *writer) uint(v uint64)  { w.b = binary.AppendUvarint(w.b, v) }
func (w *writer) int(v int64)    { w.b = binary.AppendVarint(w.b, v) }
func (w *writer) id(id TaskID)   { w.b = append(w.b, id[:]...) }
func (w *writer) text(s string)  { w.uint(uint64(len(s))); w.b = append(w.b, s...) }
func (w *writer) bytes(v []byte) { w.uint(uint64(len(v))); w.b = append(w.b, v...) }

// nilable tells nil from empty.
func (w *writer) nilable(v []byte) {
	if v == nil {
		w.uint(0)
		return
	}
	w.uint(uint64(len(v)) + 1)
	w.b = append(w.b, v...)
}

// bool writes one byte, 0 or 1.
func (w *writer) bool(v bool) {
	if v {
		w.byte(1)
	} else {
		w.byte(0)
	}
}

// hold writes a lease: its task and its token.
func (w *writer) hold(h TaskHold) {
	w.id(h.Task)
	w.uint(uint64(h.Token))
}

// name writes a string that is likely to recur: 0 is empty, n+1 the n-th distinct one, which stands where it is new.
func (w *writer) name(s string) {
	if s == "" {
		w.byte(0)
		return
	}
	n, fresh := w.names.find(s)
	w.uint(uint64(n) + 1)
	if fresh {
		w.text(s)
	}
}

// partition writes the number of p, which is followed by p itself where it is new.
func (w *writer) partition(p Partition) {
	n, fresh := w.parts.find(p)
	w.uint(uint64(n))
	if fresh {
		w.uint(uint64(p.Tenant))
		w.uint(uint64(p.Namespace))
		w.uint(uint64(p.Index))
	}
}

// presence writes a word of presence bits, and after it the fields that are not zero, each in its place.
type presence struct {
	w *writer
	// Offset in the writer's bytes of the word.
	at int
	// Number of the next bit, from 0.
	bit uint
}

// fields starts a word of presence bits: of two bytes if wide, else of one. The width is fixed for each type, since
// readers expect it.
func (w *writer) fields(wide bool) presence {
	p := presence{w: w, at: len(w.b)}
	w.byte(0)
	if wide {
		w.byte(0)
	}
	return p
}

// has takes the next bit, and sets it if on.
func (p *presence) has(on bool) bool {
	if on {
		p.w.b[p.at+int(p.bit>>3)] |= 1 << (p.bit & 7)
	}
	p.bit++
	return on
}

// uint writes the next field unless it is 0.
func (p *presence) uint(v uint64) {
	if p.has(v != 0) {
		p.w.uint(v)
	}
}

// int writes the next field unless it is 0.
func (p *presence) int(v int64) {
	if p.has(v != 0) {
		p.w.int(v)
	}
}

// name writes the next field, a string that is likely to recur, unless it is empty.
func (p *presence) name(s string) {
	if p.has(s != "") {
		p.w.name(s)
	}
}

// text writes the next field unless it is empty.
func (p *presence) text(s string) {
	if p.has(s != "") {
		p.w.text(s)
	}
}

// bytes writes the next field unless it is empty: nil and empty are the same.
func (p *presence) bytes(v []byte) {
	if p.has(len(v) > 0) {
		p.w.bytes(v)
	}
}

// id writes the next field unless it is all zeros.
func (p *presence) id(id [16]byte) {
	if p.has(id != [16]byte{}) {
		p.w.b = append(p.w.b, id[:]...)
	}
}
