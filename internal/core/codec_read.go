package core

import (
	"encoding/binary"
	"math"
)

// reader reads what writer wrote. After the first error it reads zeros.
type reader struct {
	// The input; what is read aliases it.
	b []byte
	// Offset in b of the next byte; len(b) after an error.
	off int
	// The first error. It wraps ErrMalformed and stays.
	err error
	// Names and partitions seen so far, each at its number. They grow only by bytes of the input, so their size is
	// bounded by it.
	names []string
	parts []Partition
	// Where ops of the frequent types are allocated.
	slab slab
}

// fail notes the first error and skips the rest of the input, so that loops over it end.
func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = malformed(r.off, format, args...)
	}
	r.off = len(r.b)
}

// nonZero fails if ok is false. A field that is present must not be zero, or one value would have two encodings.
func (r *reader) nonZero(ok bool) {
	if !ok {
		r.fail("a field is written that is zero")
	}
}

// end reports the first error, or bytes that are left over.
func (r *reader) end() error {
	if r.err == nil && r.off != len(r.b) {
		r.fail("%d bytes left over", len(r.b)-r.off)
	}
	return r.err
}

// byte reads one byte.
func (r *reader) byte() byte {
	if r.off >= len(r.b) {
		r.fail("input ends")
		return 0
	}
	r.off++
	return r.b[r.off-1]
}

// uint reads a minimal varint of at most 64 bits. Most values are below 128, and take the first branch.
func (r *reader) uint() uint64 {
	if r.off < len(r.b) && r.b[r.off] < 0x80 {
		r.off++
		return uint64(r.b[r.off-1])
	}
	v, n := binary.Uvarint(r.b[r.off:])
	if n <= 0 || r.b[r.off+n-1] == 0 {
		r.fail("a varint is cut, too long or not minimal")
		return 0
	}
	r.off += n
	return v
}

// int reads a signed number: zigzag, so that small negative ones are short.
func (r *reader) int() int64 {
	v := r.uint()
	return int64(v>>1) ^ -int64(v&1)
}

// max reads a number of at most limit; a larger one is an error.
func (r *reader) max(limit uint64) uint64 {
	v := r.uint()
	if v > limit {
		r.fail("%d is over %d", v, limit)
		return 0
	}
	return v
}

// int32 reads a signed number that fits 32 bits.
func (r *reader) int32() int32 {
	v := r.int()
	if v < math.MinInt32 || v > math.MaxInt32 {
		r.fail("%d does not fit 32 bits", v)
		return 0
	}
	return int32(v)
}

// bool reads one byte, 0 or 1.
func (r *reader) bool() bool {
	switch r.byte() {
	case 0:
		return false
	case 1:
		return true
	}
	r.fail("neither false nor true")
	return false
}

// take returns the next n bytes, aliasing the input, or nil when there are fewer.
func (r *reader) take(n int) []byte {
	if n < 0 || n > len(r.b)-r.off {
		r.fail("%d bytes wanted, %d left", n, len(r.b)-r.off)
		return nil
	}
	r.off += n
	return r.b[r.off-n : r.off : r.off]
}

// length reads the length of what follows, in bytes, which must be there: nothing is allocated for a length that
// lies.
func (r *reader) length() int {
	n := r.uint()
	if n > uint64(len(r.b)-r.off) {
		r.fail("length %d, %d bytes left", n, len(r.b)-r.off)
		return 0
	}
	return int(n)
}

// count reads the length of a list whose elements take at least least bytes.
func (r *reader) count(least int) int {
	n := r.uint()
	if n > uint64((len(r.b)-r.off)/least) {
		r.fail("%d elements, %d bytes left", n, len(r.b)-r.off)
		return 0
	}
	return int(n)
}

// bytes reads a slice with its length before it. It aliases the input, and is nil when it is empty.
func (r *reader) bytes() []byte {
	n := r.length()
	if n == 0 {
		return nil
	}
	return r.take(n)
}

// nilable reads what the writer's nilable wrote: 0 is nil, else one more than the length.
func (r *reader) nilable() []byte {
	n := r.uint()
	if n == 0 {
		return nil
	}
	if n-1 > uint64(len(r.b)-r.off) {
		r.fail("length %d, %d bytes left", n-1, len(r.b)-r.off)
		return nil
	}
	return r.take(int(n - 1))
}

// text reads a string with its length before it. The bytes are copied, and may be any: UTF-8 is judged at the edges.
func (r *reader) text() string { return string(r.take(r.length())) }

// id reads the 16 bytes of an id.
func (r *reader) id() (id TaskID) {
	copy(id[:], r.take(len(id)))
	return id
}

// hold reads a lease: its task and its token.
func (r *reader) hold() TaskHold {
	id := r.id()
	return TaskHold{Task: id, Token: Token(r.uint())}
}

// name reads a number of the table of names. The next free number is followed by a new name, which enters the table.
func (r *reader) name() string {
	n := r.max(uint64(len(r.names)) + 1)
	switch {
	case n == 0:
		return ""
	case n <= uint64(len(r.names)):
		return r.names[n-1]
	}
	s := r.text()
	r.nonZero(s != "")
	r.names = append(r.names, s)
	return s
}

// partition reads a number of the table of partitions. The next free number is followed by the partition, which
// enters the table.
func (r *reader) partition() Partition {
	n := r.max(uint64(len(r.parts)))
	if n < uint64(len(r.parts)) {
		return r.parts[n]
	}
	p := Partition{
		Tenant:    TenantID(r.max(math.MaxUint32)),
		Namespace: NamespaceID(r.max(math.MaxUint32)),
		Index:     uint16(r.max(math.MaxUint16)),
	}
	r.parts = append(r.parts, p)
	return p
}

// present reads a word of presence bits, then the fields it names.
type present struct {
	r *reader
	// Bits of the fields that are still to come; the next one is the lowest.
	bits uint16
}

// fields reads a word of presence bits: of two bytes if wide, else of one, the lower byte first.
func (r *reader) fields(wide bool) present {
	p := present{r: r, bits: uint16(r.byte())}
	if wide {
		p.bits |= uint16(r.byte()) << 8
	}
	return p
}

// has takes the next bit.
func (p *present) has() bool {
	on := p.bits&1 != 0
	p.bits >>= 1
	return on
}

// end refuses bits that no field took.
func (p *present) end() {
	if p.bits != 0 {
		p.r.fail("unknown fields %#x", p.bits)
	}
}

// uint reads the next field if it is present: a number of at most limit, and not 0.
func (p *present) uint(limit uint64) uint64 {
	if !p.has() {
		return 0
	}
	v := p.r.max(limit)
	p.r.nonZero(v != 0)
	return v
}

// int reads the next field if it is present: a signed number that is not 0.
func (p *present) int() int64 {
	if !p.has() {
		return 0
	}
	v := p.r.int()
	p.r.nonZero(v != 0)
	return v
}

// int32 reads the next field if it is present: a signed number that fits 32 bits and is not 0.
func (p *present) int32() int32 {
	if !p.has() {
		return 0
	}
	v := p.r.int32()
	p.r.nonZero(v != 0)
	return v
}

// name reads the next field if it is present: a name of the table, which is not empty.
func (p *present) name() string {
	if !p.has() {
		return ""
	}
	s := p.r.name()
	p.r.nonZero(s != "")
	return s
}

// text reads the next field if it is present: a string that is not empty.
func (p *present) text() string {
	if !p.has() {
		return ""
	}
	s := p.r.text()
	p.r.nonZero(s != "")
	return s
}

// bytes reads the next field if it is present: a slice that is not empty and aliases the input.
func (p *present) bytes() []byte {
	if !p.has() {
		return nil
	}
	v := p.r.bytes()
	p.r.nonZero(len(v) > 0)
	return v
}

// id reads the next field if it is present: an id of 16 bytes that is not all zeros.
func (p *present) id() (id [16]byte) {
	if p.has() {
		copy(id[:], p.r.take(len(id)))
		p.r.nonZero(id != [16]byte{})
	}
	return id
}
