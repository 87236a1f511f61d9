package embed

import (
	"container/list"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"

	"github.com/millrace/millrace/internal/vector"
)

// Size of a cache if its options name none.
const (
	DefaultCacheEntries = 4096
	DefaultCacheBytes   = 32 << 20
)

// cacheShards is the number of parts, each with its own lock and its share of the entries and
// bytes. A key belongs to one part by its hash.
const cacheShards = 16

// entryOverhead is roughly the number of bytes that an entry takes besides its key and numbers.
const entryOverhead = 256

// Vector is a text's vector in the forms that callers want. Each form is made once, when it is
// first asked for. A Vector is shared and must not be changed.
type Vector struct {
	Floats []float32
	Tokens int

	query atomic.Pointer[vector.Query]
	json  atomic.Pointer[[]byte]
	words atomic.Pointer[textWords]
	// Its entry in the cache, which must learn when the vector takes more memory; nil if it is not
	// kept.
	entry atomic.Pointer[cacheEntry]
}

// Query returns the vector in the form that searches use.
func (v *Vector) Query() *vector.Query {
	if q := v.query.Load(); q != nil {
		return q
	}
	q := vector.NewQuery(v.Floats)
	if v.query.CompareAndSwap(nil, q) {
		v.grow(int64(len(v.Floats)))
	}
	return v.query.Load()
}

// textWords are the words of one text.
type textWords struct {
	text  string
	words []string
}

// Words returns the words of text, which cut makes of it. They are kept for the first text that is asked for: a text that is
// longer than its embedder takes is cut, so that one vector may be that of several texts.
func (v *Vector) Words(text string, cut func(text string) []string) []string {
	kept := v.words.Load()
	if kept == nil {
		kept = &textWords{text, cut(text)}
		if v.words.CompareAndSwap(nil, kept) {
			v.grow(kept.bytes())
		}
	}
	if kept.text != text {
		return cut(text)
	}
	return kept.words
}

// wordBytes is about what a word takes in addition to its own bytes.
const wordBytes = 16

// bytes is about what the text and its words take.
func (t *textWords) bytes() int64 {
	n := len(t.text)
	for _, w := range t.words {
		n += len(w) + wordBytes
	}
	return int64(n)
}

// JSON returns the vector as an array of numbers, in the fewest digits that read back as the same float32.
func (v *Vector) JSON() []byte {
	if b := v.json.Load(); b != nil {
		return *b
	}
	b := make([]byte, 0, 12*len(v.Floats)+2)
	b = append(b, '[')
	for i, x := range v.Floats {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendFloat(b, x)
	}
	b = append(b, ']')
	if v.json.CompareAndSwap(nil, &b) {
		v.grow(int64(len(b)))
	}
	return *v.json.Load()
}

// appendFloat writes a number as JSON does: no exponent where it is short without one.
func appendFloat(b []byte, x float32) []byte {
	format := byte('f')
	if a := max(x, -x); a != 0 && (a < 1e-6 || a >= 1e21) {
		format = 'e'
	}
	return strconv.AppendFloat(b, float64(x), format, -1, 32)
}

// grow tells the cache that the vector takes more bytes.
func (v *Vector) grow(by int64) {
	if e := v.entry.Load(); e != nil {
		e.shard.grow(e, by)
	}
}

// Cache keeps the vectors that were used last, by tenant, model and text. Tenants do not share
// entries: a tenant could tell by the speed of an answer what another one has asked. It also holds
// the calls that are under way, so that a text is asked for once. It is safe for concurrent use,
// and all embedders of a process share it.
type Cache struct {
	off    bool
	shards [cacheShards]cacheShard
	hits   atomic.Uint64
	misses atomic.Uint64
}

// cacheShard is one part of a cache: the entries that are kept and the calls under way, both by
// key.
type cacheShard struct {
	// mu guards the fields below.
	mu      sync.Mutex
	entries map[string]*list.Element
	recent  *list.List // of *cacheEntry, last used first
	bytes   int64
	// The most entries and bytes that it keeps.
	maxN    int
	maxByte int64
	calls   map[string]*call
}

// cacheEntry is one vector that is kept. The shard's mu guards bytes and gone.
type cacheEntry struct {
	shard  *cacheShard
	key    string
	vector *Vector
	bytes  int64
	// It was dropped; its vector may still be in use and must not be counted any more.
	gone bool
}

// NewCache returns a cache of at most the given entries and bytes in all. With 0 entries it keeps
// nothing, but still joins calls for one text.
func NewCache(entries int, bytes int64) *Cache {
	c := &Cache{off: entries <= 0}
	for i := range c.shards {
		c.shards[i] = cacheShard{
			entries: make(map[string]*list.Element), recent: list.New(), calls: make(map[string]*call),
			maxN: max(1, entries/cacheShards), maxByte: bytes / cacheShards,
		}
	}
	return c
}

// CacheStats counts what a cache did.
type CacheStats struct {
	Hits, Misses   uint64
	Entries, Bytes int64
}

// Stats returns the counts so far.
func (c *Cache) Stats() CacheStats {
	out := CacheStats{Hits: c.hits.Load(), Misses: c.misses.Load()}
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		out.Entries, out.Bytes = out.Entries+int64(s.recent.Len()), out.Bytes+s.bytes
		s.mu.Unlock()
	}
	return out
}

// call is one text that is being embedded. Any number of callers may wait for it; the one that made
// it must see that it ends.
type call struct {
	shard *cacheShard
	key   string
	text  string
	// The text is an array of tokens. Only the caller that made the call sets it, before the text
	// is queued.
	tokens bool
	// Closed when out or err is set; both must not be read before.
	done chan struct{}
	out  *Vector
	err  error
}

// cacheKey joins everything that a vector depends on. The length of the tenant and the byte before
// the text keep the parts apart.
func cacheKey(tenant, model, text string, protected, tokens bool) string {
	b := make([]byte, 0, len(tenant)+len(model)+len(text)+8)
	b = append(strconv.AppendInt(b, int64(len(tenant)), 10), ':')
	b = append(append(b, tenant...), model...)
	if protected {
		b = append(b, 1)
	}
	if tokens {
		b = append(b, 2)
	}
	b = append(b, 0)
	return string(append(b, text...))
}

// find returns the vector of a key, or the call that will bring it. own reports that the call is
// new: the caller must make sure that end is called.
func (c *Cache) find(key, text string) (v *Vector, under *call, own bool) {
	s := &c.shards[xxhash.Sum64String(key)%cacheShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	if e, ok := s.entries[key]; ok {
		s.recent.MoveToFront(e)
		c.hits.Add(1)
		return e.Value.(*cacheEntry).vector, nil, false
	}
	c.misses.Add(1)
	if under, ok := s.calls[key]; ok {
		return nil, under, false
	}
	under = &call{shard: s, key: key, text: text, done: make(chan struct{})}
	s.calls[key] = under
	return nil, under, true
}

// end finishes a call and wakes its callers. A vector is kept; an error is not, so the next caller
// asks again.
func (c *Cache) end(k *call, v *Vector, err error) {
	k.out, k.err = v, err
	s := k.shard
	s.mu.Lock()
	delete(s.calls, k.key)
	if err == nil && !c.off {
		s.put(k.key, v)
	}
	s.mu.Unlock()
	close(k.done)
}

// put keeps a vector. The caller holds mu.
func (s *cacheShard) put(key string, v *Vector) {
	e := &cacheEntry{shard: s, key: key, vector: v, bytes: int64(len(key) + 4*len(v.Floats) + entryOverhead)}
	v.entry.Store(e)
	s.entries[key] = s.recent.PushFront(e)
	s.bytes += e.bytes
	s.shrink()
}

// grow adds bytes to an entry and drops others if the shard is full.
func (s *cacheShard) grow(e *cacheEntry, by int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.gone {
		return
	}
	e.bytes += by
	s.bytes += by
	s.shrink()
}

// shrink drops the entries that were used longest ago until the shard fits. The caller holds mu.
func (s *cacheShard) shrink() {
	for s.recent.Len() > 0 && (s.recent.Len() > s.maxN || s.bytes > s.maxByte) {
		e := s.recent.Remove(s.recent.Back()).(*cacheEntry)
		e.gone = true
		delete(s.entries, e.key)
		s.bytes -= e.bytes
	}
}
