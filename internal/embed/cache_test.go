package embed

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
)

func lexicalEmbedder(t *testing.T, c *Cache) *Embedder {
	t.Helper()
	e, err := New(Options{Kind: KindLexical, Cache: c})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

func ask(t *testing.T, e *Embedder, text string) Result {
	t.Helper()
	out, err := e.Embed(t.Context(), Request{Tenant: "t", Texts: []string{text}})
	if err != nil {
		t.Fatal(err)
	}
	return out[0]
}

func TestTheCacheStaysWithinItsBoundsAndDropsWhatWasUsedLongestAgo(t *testing.T) {
	c := NewCache(64, 1<<20)
	e := lexicalEmbedder(t, c)
	for i := range 1000 {
		ask(t, e, fmt.Sprint("text ", i))
		ask(t, e, "always used")
	}
	if !ask(t, e, "always used").Cached {
		t.Error("what is used all the time was dropped")
	}
	if s := c.Stats(); s.Entries > 64 || s.Entries < 32 || s.Bytes > 1<<20 || s.Hits < 999 || s.Misses < 1000 {
		t.Errorf("%+v", s)
	}
	small := NewCache(4096, 16*10_000) // each shard has room for five vectors
	e = lexicalEmbedder(t, small)
	for i := range 500 {
		r := ask(t, e, fmt.Sprint("text ", i))
		r.JSON()
		r.Query()
	}
	if s := small.Stats(); s.Bytes > 160_000 || s.Bytes <= 0 {
		t.Errorf("%+v", s)
	}
	var sum int64
	for i := range small.shards {
		for l := small.shards[i].recent.Front(); l != nil; l = l.Next() {
			sum += l.Value.(*cacheEntry).bytes
		}
	}
	if s := small.Stats(); s.Bytes != sum {
		t.Errorf("%d bytes are counted, entries have %d", s.Bytes, sum)
	}
}

func TestACacheOfNoEntriesKeepsNothing(t *testing.T) {
	e := lexicalEmbedder(t, NewCache(0, 0))
	for range 2 {
		if ask(t, e, "x").Cached {
			t.Error("something was kept")
		}
	}
}

func TestAVectorsJSONReadsBackTheSame(t *testing.T) {
	v := &Vector{Floats: []float32{1, -0.1, 1e-7, 3.4e38, 0, 1.1754944e-38, 0.333333343}}
	var back []float32
	if err := json.Unmarshal(v.JSON(), &back); err != nil || !slices.Equal(back, v.Floats) {
		t.Errorf("%s: %v, %v", v.JSON(), back, err)
	}
	text, query := v.JSON(), v.Query()
	if &v.JSON()[0] != &text[0] || v.Query() != query {
		t.Error("a form was made twice")
	}
	if math.Abs(float64(v.Query().Vector()[0])-1) > 0 {
		t.Error("the query has another vector")
	}
}

func TestAVectorKeepsTheWordsOfItsFirstText(t *testing.T) {
	c := NewCache(100, 1<<20)
	v := ask(t, lexicalEmbedder(t, c), "first second").Vector
	before, calls := c.Stats().Bytes, 0
	cut := func(text string) []string {
		calls++
		return strings.Fields(text)
	}
	for range 2 {
		if got := v.Words("first second", cut); !slices.Equal(got, []string{"first", "second"}) {
			t.Errorf("%q", got)
		}
	}
	if grown := c.Stats().Bytes - before; calls != 1 || grown != 12+11+2*wordBytes {
		t.Errorf("the text was cut %d times, and %d bytes are counted", calls, grown)
	}
	// A text that its embedder cuts to the same one has words of its own.
	if got := v.Words("first second third", cut); !slices.Equal(got, []string{"first", "second", "third"}) {
		t.Errorf("%q", got)
	}
	if got := v.Words("first second", cut); len(got) != 2 {
		t.Errorf("%q", got)
	}
}

func TestPartsOfACacheKeyCannotBeMistaken(t *testing.T) {
	keys := map[string]bool{}
	for _, k := range [][3]string{{"a", "b", "c"}, {"ab", "", "c"}, {"", "ab", "c"}, {"a", "bc", ""}, {"a", "b\x00", "c"}, {"1:a", "b", "c"}} {
		for _, protected := range []bool{false, true} {
			keys[cacheKey(k[0], k[1], k[2], protected, false)], keys[cacheKey(k[0], k[1], k[2], protected, true)] = true, true
		}
	}
	if len(keys) != 24 {
		t.Errorf("%d different keys of 24", len(keys))
	}
}
