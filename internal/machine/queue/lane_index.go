package queue

// laneIndex finds the lanes of a queue by one of their names, which must not change while a lane is in it. It holds pointers alone, 8 to 21
// bytes a lane, so that many keys cost little. Nothing that replicas must agree on follows from its order.
type laneIndex[K comparable] struct {
	// name is what a lane is found by, and hash spreads names over the slots.
	name func(*lane) K
	hash func(K) uint64
	// slots are a power of two, at most three quarters of them taken. A lane lies in the first free slot from that of its hash on.
	slots []*lane
	n     int
}

// fewestSlots is how many slots an index has that is not empty.
const fewestSlots = 8

// lanesByKey returns an empty index by what laneKey says.
func lanesByKey(hash func(string) uint64) laneIndex[string] {
	return laneIndex[string]{name: func(ln *lane) string { return ln.key }, hash: hash}
}

// lanesByNumber returns an empty index by number.
func lanesByNumber() laneIndex[uint64] {
	return laneIndex[uint64]{
		name: func(ln *lane) uint64 { return ln.number },
		// Numbers rise by one, so the upper bits of a product spread them well enough.
		hash: func(number uint64) uint64 { return number * 0x9e3779b97f4a7c15 >> 32 },
	}
}

// find returns the lane of a name; nil: there is none.
func (x *laneIndex[K]) find(name K) *lane {
	if x.n == 0 {
		return nil
	}
	for i := x.home(name); x.slots[i] != nil; i = x.after(i) {
		if x.name(x.slots[i]) == name {
			return x.slots[i]
		}
	}
	return nil
}

// home is the slot in which the look for a name begins, and after the one that follows.
func (x *laneIndex[K]) home(name K) int { return int(x.hash(name) & uint64(len(x.slots)-1)) }
func (x *laneIndex[K]) after(i int) int { return (i + 1) & (len(x.slots) - 1) }

// add takes a lane in, in the place of one with the same name.
func (x *laneIndex[K]) add(ln *lane) {
	if 4*(x.n+1) > 3*len(x.slots) {
		x.resize(max(2*len(x.slots), fewestSlots))
	}
	i := x.home(x.name(ln))
	for ; x.slots[i] != nil; i = x.after(i) {
		if x.name(x.slots[i]) == x.name(ln) {
			x.slots[i] = ln
			return
		}
	}
	x.slots[i] = ln
	x.n++
}

// remove takes the lane of a name out, if there is one. Those behind it that it kept from their slots move up.
func (x *laneIndex[K]) remove(name K) {
	if x.find(name) == nil {
		return
	}
	hole := x.home(name)
	for x.name(x.slots[hole]) != name {
		hole = x.after(hole)
	}
	mask := len(x.slots) - 1
	for i := x.after(hole); x.slots[i] != nil; i = x.after(i) {
		// It may move where the hole is not before its home.
		if home := x.home(x.name(x.slots[i])); (i-home)&mask >= (i-hole)&mask {
			x.slots[hole], hole = x.slots[i], i
		}
	}
	x.slots[hole] = nil
	if x.n--; len(x.slots) > fewestSlots && 8*x.n < len(x.slots) {
		x.resize(len(x.slots) / 2)
	}
}

// resize gives the index another number of slots.
func (x *laneIndex[K]) resize(slots int) {
	old := x.slots
	x.slots, x.n = make([]*lane, slots), 0
	for _, ln := range old {
		if ln != nil {
			x.add(ln)
		}
	}
}

// each calls fn with each lane, in no order.
func (x *laneIndex[K]) each(fn func(*lane)) {
	for _, ln := range x.slots {
		if ln != nil {
			fn(ln)
		}
	}
}
