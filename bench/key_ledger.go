package bench

import (
	"math/rand/v2"
	"sync"
)

// KeyLedger holds what the servers acknowledged of puts in one run, warm-up included. A put has a
// number, from 0, and the number alone says which key it writes and which bytes. So the audit knows
// what it must read back, and no copy is kept. Puts of one key must not be under way at once: the
// newest one would not be known.
type KeyLedger struct {
	Keyspace string

	// o and pool do not change after NewKeyLedger, so they are read without the lock.
	o KeyOptions
	// pool is random bytes; each value is a part of it.
	pool []byte

	mu sync.Mutex // guards the fields below
	// last is the newest acknowledged put of each key, by the key's number. It grows with the keys in use.
	last []keyPut
	// unknown lists the puts of unknown outcome by key, at most maxUnsure of them all together;
	// unsure counts all.
	unknown map[uint64][]uint64
	acked   uint64
	unsure  uint64
	// revs are sets of acknowledged revisions: the n-th has those that were acknowledged n times before. Each
	// partition counts revisions by itself, so that one revision may come once from each.
	revs []revSet
	// kept is the sample of a ledger that was read from evidence. nil: samples draws it.
	kept []keySample
	// repeated counts acknowledged revisions that more puts have than there are partitions.
	repeated uint64
}

// KeyOptions say how many keys there are, and what they look like. All fields are required.
type KeyOptions struct {
	Keyspace string
	// Keys is the number of keys: put n writes key n modulo this. It must exceed the puts that are
	// ever under way.
	Keys int
	// KeyBytes is 8 or 16.
	KeyBytes   int
	ValueBytes int
	// Partitions is that of the namespace: each partition counts revisions by itself.
	Partitions int
	Seed       uint64
	// Full says that every key is read back.
	Full bool
}

// keyPut is one acknowledged put. seq is its number plus one, so that the zero value means none.
type keyPut struct{ seq, rev uint64 }

const (
	// poolBytes is the number of places in the pool at which a value may begin.
	poolBytes = 1 << 20
	// maxUnsure is the largest number of puts of unknown outcome: beyond it the run proves nothing.
	maxUnsure = 100_000
	hexDigits = "0123456789abcdef"
	// mixMultiply is the odd number of SplitMix64 that spreads consecutive numbers.
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

// key makes the text of a key by its number: its lowest hexadecimal digits. Keys of 16 bytes are mixed first,
// so that their order is not the order of the puts; mix is one to one, so that no two keys are equal.
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

// Value returns the bytes that put n writes. They are a part of the pool and shared: they must not be changed.
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

// Acked notes that put n was acknowledged with a revision. An older put than the newest one changes
// only the counts.
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

// samples lists what is read back: one key in a hundred and the first thousand, or all keys.
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

// revSet is a set of revisions. They lie close together, so that a bit map by pages takes little
// more than a bit for each.
type revSet map[uint64]*[revPage / 64]uint64

// revPage is the number of revisions of one page.
const (
	revPage = 1 << 16
	// revPages bounds a set to 64 MiB of pages, which hold half a billion revisions. Those beyond
	// are taken to be new, so that a repeat among them goes unseen.
	revPages = 1 << 13
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
