package queue

// arena hands out memory for keys and values that the transaction keeps. What is written together
// is dropped together, with its layer, so one allocation may serve many records. Memory that was
// handed out is never used again by the arena.
type arena struct {
	// free is the rest of the current chunk, and next the size of the last one.
	free []byte
	next int
}

// A chunk starts small, because most partitions are idle, and doubles while it is used up.
const (
	// Bytes of the first chunk, and of the largest.
	arenaFirst = 1 << 10
	arenaLast  = 32 << 10
)

// take returns n bytes of memory, whose capacity ends there: an append cannot grow into the next
// piece. What is large gets an allocation of its own, so that it does not use up a chunk.
func (a *arena) take(n int) []byte {
	if n > arenaLast/4 {
		return make([]byte, n)
	}
	if n > len(a.free) {
		a.next = min(max(2*a.next, arenaFirst), arenaLast)
		a.free = make([]byte, max(a.next, n))
	}
	b := a.free[:n:n]
	a.free = a.free[n:]
	return b
}

// own returns a copy of b. Keys and values that are put together in scratch memory must be copied
// before a transaction gets them.
func (a *arena) own(b []byte) []byte {
	out := a.take(len(b))
	copy(out, b)
	return out
}

// scratchMax is the length up to which a value is put together in scratch memory and then copied. A
// longer one is built where it stays, since the copy would cost more.
const scratchMax = 8 << 10

// room returns an empty slice with room for n bytes. It must be used up, and handed to keep, before
// anything else is put together: up to scratchMax it is m.value.
func (m *Machine) room(n int) []byte {
	if n > scratchMax {
		return make([]byte, 0, n)
	}
	if cap(m.value) < n {
		m.value = make([]byte, 0, 2*n)
	}
	return m.value[:0]
}

// keep returns memory that the transaction may have, with the bytes that were put together in room:
// a copy when they lie in scratch memory, else the bytes themselves.
func (m *Machine) keep(value []byte) []byte {
	if cap(value) > 0 && cap(m.value) > 0 && &value[:1][0] == &m.value[:1][0] {
		return m.mem.own(value)
	}
	return value
}
