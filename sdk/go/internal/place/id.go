package place

import (
	"math"
	"math/rand/v2"
	"strings"
	"time"
)

// crockford is the alphabet of ids: digits and letters without I, L, O and U, in the order of their values.
const crockford = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

// ID is a task's id as numbers: 48 bits of milliseconds, 12 of partition and 4 random ones, then 64 random ones.
type ID struct{ hi, lo uint64 }

// Parse reads what String prints; lower case is accepted.
func Parse(s string) (id ID, ok bool) {
	if len(s) != 26 {
		return id, false
	}
	for i := range len(s) {
		// 26 digits hold 130 bits: the first may not use its two highest.
		d := crockfordDigit(s[i])
		if d > 31 || i == 0 && d > 7 {
			return ID{}, false
		}
		id.hi = id.hi<<5 | id.lo>>59
		id.lo = id.lo<<5 | uint64(d)
	}
	return id, true
}

// crockfordDigit is the value of a digit; above 31 for what is none.
func crockfordDigit(c byte) byte {
	if c >= 'a' && c <= 'z' {
		c -= 'a' - 'A'
	}
	return byte(strings.IndexByte(crockford, c)) // -1 is 255
}

// String returns the 26 characters of id.
func (id ID) String() string {
	// From the last digit on: each takes the lowest five bits.
	var out [26]byte
	hi, lo := id.hi, id.lo
	for i := len(out) - 1; i >= 0; i-- {
		out[i] = crockford[lo&31]
		lo = lo>>5 | hi<<59
		hi >>= 5
	}
	return string(out[:])
}

// Partition returns the partition bits.
func (id ID) Partition() int { return int(id.hi >> 4 & 0x0fff) }

// Home is the partition that the id puts a task in when nothing else does.
func (id ID) Home(partitions int) int {
	if partitions <= 1 {
		return 0
	}
	return int(id.lo % uint64(partitions))
}

// with returns id with other partition bits.
func (id ID) with(partition int) ID {
	id.hi = id.hi&^(0x0fff<<4) | uint64(partition&0x0fff)<<4
	return id
}

// Placed returns id with partition bits and random bits that both name a partition of P. Of the random ones all but the
// remainder of their division by P is kept.
func (id ID) Placed(partition, partitions int) ID {
	if p := uint64(max(partitions, 1)); p > 1 {
		// The largest multiple of P that is not above it, so that the partition is the remainder.
		id.lo -= id.lo % p
		if id.lo > math.MaxUint64-p { // the last stretch is shorter than P
			id.lo -= p
		}
		id.lo += uint64(partition)
	}
	return id.with(partition)
}

// Fresh makes an id whose partition bits are open. The random source is the runtime's, seeded by the system.
func Fresh() ID {
	return ID{hi: uint64(time.Now().UnixMilli())<<16 | rand.Uint64()&0x0f, lo: rand.Uint64()}
}

// NewID makes a task id: 48 bits of milliseconds, 12 bits of partition (0), 68 random bits, as 26 characters of base32 whose text
// order is their byte order.
func NewID() string { return Fresh().String() }

// IDIn makes an id that names a partition of P; below 0 one that is drawn.
func IDIn(partition, partitions int) string {
	if partition < 0 {
		partition = rand.IntN(max(partitions, 1))
	}
	return Fresh().Placed(partition, partitions).String()
}

// Of is the partition that an id names; below 0 for a text that is not an id of this namespace, which the
// server judges.
func Of(id string, partitions int) int {
	if partitions <= 1 {
		return 0
	}
	if n, ok := Parse(id); ok && n.Partition() < partitions {
		return n.Partition()
	}
	return -1
}
