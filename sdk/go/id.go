package millrace

import (
	"encoding/binary"
	"math/rand/v2"
	"time"
)

const crockford = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

// newTaskID makes a task id: 48 bits of milliseconds, 12 bits of partition (0), 68 random bits, as 26 characters of
// base32 whose text order is their byte order. The random source is the runtime's, seeded by the system.
func newTaskID() string {
	hi := uint64(time.Now().UnixMilli())<<16 | rand.Uint64()&0x0f
	lo := rand.Uint64()
	var out [26]byte
	for i := len(out) - 1; i >= 0; i-- {
		out[i] = crockford[lo&31]
		lo = lo>>5 | hi<<59
		hi >>= 5
	}
	return string(out[:])
}

// NewID makes a task id for the ID option: an Add repeated under the same id is answered, not done again.
func NewID() string { return newTaskID() }

// random16 makes a session or request id.
func random16() []byte {
	b := make([]byte, 16)
	binary.LittleEndian.PutUint64(b, rand.Uint64())
	binary.LittleEndian.PutUint64(b[8:], rand.Uint64())
	return b
}
