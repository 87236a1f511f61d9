package vector

import "math"

// A key is a row and its score as one number, the larger the better: as worse has it. The lowest bit is not used, so that a pool
// can mark keys without changing their order.
const marked = 1

// keyOf makes a key of a row below 1<<31. The row is inverted, so that of equal scores the earlier
// row has the larger key.
func keyOf(row uint32, score float32) uint64 {
	b := math.Float32bits(score)
	b ^= uint32(int32(b)>>31) | 1<<31 // numbers below zero have all bits turned, others their sign
	return uint64(b)<<32 | uint64(^row<<1)
}

// rowOf and hitOf read a key back, marked or not.
func rowOf(key uint64) uint32 { return ^uint32(key) >> 1 }

func hitOf(key uint64) Hit {
	b := uint32(key >> 32)
	b ^= ^uint32(int32(b)>>31) | 1<<31
	return Hit{rowOf(key), math.Float32frombits(b)}
}

// pool holds the best keys that a walk met, best first, and marks those that it went on from. Compared with a heap of
// the best and one of the open ones, it costs one search and one move of what is worse for a key, and nothing to find
// the next.
type pool struct {
	// keys are in descending order, at most room of them.
	keys  []uint64
	room  int
	open  int    // keys before it are marked
	least uint64 // what a key must exceed to have a place
}

// begin empties the pool for a walk that wants the best room keys.
func (p *pool) begin(room int) {
	p.keys, p.room, p.open, p.least = p.keys[:0], max(room, 1), 0, 0
}

// add gives a key its place. It exceeds least.
func (p *pool) add(key uint64) {
	at, n := 0, len(p.keys)
	for n > 0 {
		half := (n + 1) / 2
		if p.keys[at+half-1] > key {
			at += half
		}
		n -= half
	}
	if len(p.keys) < p.room {
		p.keys = append(p.keys, 0)
	}
	copy(p.keys[at+1:], p.keys[at:])
	p.keys[at] = key
	p.open = min(p.open, at)
	if len(p.keys) == p.room {
		p.least = p.keys[p.room-1]
	}
}

// addLater is add of a key that is probably behind all others.
func (p *pool) addLater(key uint64) {
	n := len(p.keys)
	if n == p.room || n > 0 && key > p.keys[n-1] {
		p.add(key)
		return
	}
	if p.keys = append(p.keys, key); n+1 == p.room {
		p.least = key
	}
}

// best is the first key that is not marked, or zero.
func (p *pool) best() uint64 {
	for ; p.open < len(p.keys); p.open++ {
		if key := p.keys[p.open]; key&marked == 0 {
			return key
		}
	}
	return 0
}

// take marks what best says.
func (p *pool) take() {
	p.keys[p.open] |= marked
	p.open++
}

// hits appends what is in the pool to dst, best first.
func (p *pool) hits(dst []Hit) []Hit {
	for _, key := range p.keys {
		dst = append(dst, hitOf(key))
	}
	return dst
}
