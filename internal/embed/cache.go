package embed

import (
	"container/list"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"

	"github.com/millrace/millrace/internal/vector"
)

// Size of a cache whose options name none.
const (
	DefaultCacheEntries = 4096
	DefaultCacheBytes   = 32 << 20
)

// cacheShards spread the lock over callers; each holds its part of the entries and bytes.
const cacheShards = 16

// entryOverhead is about how many bytes an entry takes in addition to its key and numbers.
const entryOverhead = 256

// Vector is a text's vector in the forms that callers want, each made once. It is shared and must not be changed.
type Vector struct {
	Floats []float32
	Tokens int

	query atomic.Pointer[vector.Query]
	json  atomic.Pointer[[]byte]
	entry atomic.Pointer[cacheEntry]
}

// Query returns the vector as a search wants it.
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

// grow tells the cache that the vector takes more.
func (v *Vector) grow(by int64) {
	if e := v.entry.Load(); e != nil {
		e.shard.grow(e, by)
	}
}

// Cache keeps vectors by tenant, model and text, those used last. By tenant, because one that others fill tells by its
// speed what they asked. It also holds the calls that are under way, so that one text is asked for once. It is safe for
// concurrent use, and shared by all embedders of a process.
type Cache struct {
	off    bool
	shards [cacheShards]cacheShard
	hits   atomic.Uint64
	misses atomic.Uint64
}

type cacheShard struct {
	mu      sync.Mutex // guards the fields below
	entries map[string]*list.Element
	recent  *list.List // of *cacheEntry, last used first
	bytes   int64
	maxN    int
	maxByte int64
	calls   map[string]*call
}

type cacheEntry struct {
	shard  *cacheShard
	key    string
	vector *Vector
	bytes  int64
	gone   bool
}

// NewCache returns a cache of at most the given entries and bytes, in all; with 0 entries nothing is kept.
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

// call is a text that is being embedded.
type call struct {
	shard *cacheShard
	key   string
	text  string
	// tokens says that the text is an array of tokens. Only who made the call sets it, before others see the text.
	tokens bool
	done   chan struct{} // closed when vector or err is set
	out    *Vector
	err    error
}

// cacheKey joins what a vector depends on; lengths keep parts apart.
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

// find returns the vector of a key, or the call that will bring it. Own is set if that call is new: the caller must see
// that it ends.
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

// end finishes a call. A vector is kept, an error is not.
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

// put keeps a vector; the mutex is held.
func (s *cacheShard) put(key string, v *Vector) {
	e := &cacheEntry{shard: s, key: key, vector: v, bytes: int64(len(key) + 4*len(v.Floats) + entryOverhead)}
	v.entry.Store(e)
	s.entries[key] = s.recent.PushFront(e)
	s.bytes += e.bytes
	s.shrink()
}

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

// shrink drops what was used longest ago until the shard fits; the mutex is held.
func (s *cacheShard) shrink() {
	for s.recent.Len() > 0 && (s.recent.Len() > s.maxN || s.bytes > s.maxByte) {
		e := s.recent.Remove(s.recent.Back()).(*cacheEntry)
		e.gone = true
		delete(s.entries, e.key)
		s.bytes -= e.bytes
	}
}
