package queue

// arena hands out memory for keys and values that the transaction keeps. What is written together is dropped together,
// with its layer, so one allocation may serve many records.
type arena struct {
	free []byte
	next int
}

// A chunk starts small, because most partitions are idle, and doubles while it is used up.
const (
	arenaFirst = 1 << 10
	arenaLast  = 32 << 10
)

// take returns n bytes of memory, with no room to grow into its neighbour.
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

// own returns a copy of b.
func (a *arena) own(b []byte) []byte {
	out := a.take(len(b))
	copy(out, b)
	return out
}

// scratchMax is the length up to which a value is put together in scratch memory and copied. A longer one is built
// where it stays.
const scratchMax = 8 << 10

// room returns an empty slice with room for n bytes, to be used up before anything else is put together, and handed to
// keep.
func (m *Machine) room(n int) []byte {
	if n > scratchMax {
		return make([]byte, 0, n)
	}
	if cap(m.value) < n {
		m.value = make([]byte, 0, 2*n)
	}
	return m.value[:0]
}

// keep returns memory that the transaction may have, with the bytes that were put together in room.
func (m *Machine) keep(value []byte) []byte {
	if cap(value) > 0 && cap(m.value) > 0 && &value[:1][0] == &m.value[:1][0] {
		return m.mem.own(value)
	}
	return value
}
