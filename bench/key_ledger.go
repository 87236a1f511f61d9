package bench

import (
	"math/rand/v2"
	"sync"
)

// KeyLedger holds what the servers acknowledged of puts in one run, warm-up included. A put has a number, and the number
// alone says which key it writes and which bytes. So the audit knows what it must read back, and no copy is kept. Puts of
// one key must not be under way at once.
type KeyLedger struct {
	Keyspace string

	o    KeyOptions
	pool []byte // values are parts of it

	mu       sync.Mutex // guards the fields below
	last     []keyPut   // by key: the newest put that was acknowledged; grows with the keys in use
	unknown  map[uint64][]uint64
	acked    uint64
	unsure   uint64
	revs     []revSet    // the n-th has the revisions that were acknowledged n times before
	kept     []keySample // of a ledger that was kept: what is read back; nil: samples draws it
	repeated uint64      // acknowledged revisions that more puts have than there are partitions
}

// KeyOptions say how many keys there are, and what they look like. All fields are required.
type KeyOptions struct {
	Keyspace   string
	Keys       int // put n writes key n modulo this: more than are ever under way
	KeyBytes   int // 8 or 16
	ValueBytes int
	Partitions int // of the namespace: each counts revisions by itself
	Seed       uint64
	Full       bool // every key is read back
}

// keyPut is one acknowledged put; seq is its number and one.
type keyPut struct{ seq, rev uint64 }

const (
	poolBytes   = 1 << 20
	maxUnsure   = 100_000 // puts whose end is not known, beyond which the run proves nothing
	hexDigits   = "0123456789abcdef"
	mixMultiply = 0x9e3779b97f4a7c15
)

// NewKeyLedger makes an empty ledger.
func NewKeyLedger(o KeyOptions) *KeyLedger {
	l := &KeyLedger{
		Keyspace: o.Keyspace, o: o, pool: make([]byte, poolBytes+o.ValueBytes), unknown: map[uint64][]uint64{},
		revs: make([]revSet, max(o.Partitions, 1)),
	}
	rng := rand.NewChaCha8([32]byte{byte(o.Seed), byte(o.Seed >> 8), byte(o.Seed >> 16), byte(o.Seed >> 24)})
	_, _ = rng.Read(l.pool) // it never fails
	return l
}

// Bytes returns how many bytes a put carries: its key and its value.
func (l *KeyLedger) Bytes() int { return l.o.KeyBytes + l.o.ValueBytes }

// Key returns the key that put n writes: digits in no order, or in rising order where the keys have 8 bytes.
func (l *KeyLedger) Key(n uint64) string { return l.key(n % uint64(l.o.Keys)) }

func (l *KeyLedger) key(k uint64) string {
	var b [16]byte
	if l.o.KeyBytes > 8 {
		k = mix(k + l.o.Seed)
	}
	for i := l.o.KeyBytes - 1; i >= 0; i-- {
		b[i] = hexDigits[k&15]
		k >>= 4
	}
	return string(b[:l.o.KeyBytes])
}

// Value returns the bytes that put n writes, random and shared: they must not be changed.
func (l *KeyLedger) Value(n uint64) []byte {
	at := mix(n*mixMultiply+l.o.Seed) % poolBytes
	return l.pool[at : at+uint64(l.o.ValueBytes)]
}

// mix spreads a number over 64 bits, no two alike; the finalizer of SplitMix64 (Steele, Lea and Flood 2014).
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Acked notes that put n was acknowledged with a revision.
func (l *KeyLedger) Acked(n, rev uint64) {
	k := n % uint64(l.o.Keys)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.acked++
	for uint64(len(l.last)) <= k {
		l.last = append(l.last, keyPut{})
	}
	if p := &l.last[k]; n >= p.seq {
		*p = keyPut{n + 1, rev}
	}
	for i := range l.revs {
		if l.revs[i].add(rev) {
			return
		}
	}
	l.repeated++
}

// Unknown notes that the outcome of put n is not known.
func (l *KeyLedger) Unknown(n uint64) {
	k := n % uint64(l.o.Keys)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.unsure++; l.unsure <= maxUnsure {
		l.unknown[k] = append(l.unknown[k], n)
	}
}

// Acknowledged returns how many puts were.
func (l *KeyLedger) Acknowledged() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.acked
}

// keySample is one key that is read back.
type keySample struct {
	key  string
	last keyPut
	may  []uint64 // puts that may have come after the last one
}

// samples lists what is read back: one key in a hundred and the first thousand, or all.
func (l *KeyLedger) samples() []keySample {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.kept != nil {
		return l.kept
	}
	var out []keySample
	for k, p := range l.last {
		if n := uint64(k); p.seq > 0 && (l.o.Full || k < sampleFirst*ledgerShards || mix(n)%sampleOne == 0) {
			out = append(out, keySample{l.key(n), p, l.unknown[n]})
		}
	}
	return out
}

// revSet is a set of revisions, which lie close together.
type revSet map[uint64]*[revPage / 64]uint64

const (
	revPage  = 1 << 16
	revPages = 1 << 13 // 64 MiB of pages: half a billion revisions; those beyond are taken to be new
)

// add reports whether rev was not in the set.
func (s *revSet) add(rev uint64) bool {
	if *s == nil {
		*s = revSet{}
	}
	page := (*s)[rev/revPage]
	if page == nil {
		if len(*s) >= revPages {
			return true
		}
		page = new([revPage / 64]uint64)
		(*s)[rev/revPage] = page
	}
	word, bit := rev%revPage/64, uint64(1)<<(rev%64)
	old := page[word]
	page[word] |= bit
	return old&bit == 0
}
