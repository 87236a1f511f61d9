package embed

import (
	"math"
	"unicode"
	"unicode/utf8"

	"github.com/cespare/xxhash/v2"

	"github.com/millrace/millrace/internal/words"
)

// LexicalModel is the id of the built-in model, and LexicalV1 of the one before it, which goes on for the collections that have it.
// What they give for a text is stored by users and never changes; another way of computing it gets another id. They differ in what
// a word is, and agree on texts in ASCII.
const (
	LexicalModel = "lexical-v2"
	LexicalV1    = "lexical-v1"
)

// LexicalDim is the dimension of its vectors.
const LexicalDim = 384

// Grams of shortestGram to longestGram characters are features, with a space before and after each word.
const (
	shortestGram = 3
	longestGram  = 5
	wordWeight   = 2 // each gram counts 1
)

// Lexical returns the vector of a text and how many words it has. Each word (package words) and its grams are hashed (xxhash64) to a
// place, the remainder by 384, and a sign, the highest bit. Counts are summed as integers and divided by their length, so that every
// machine gives the same bits. A text without a word has the vector of the empty word.
func Lexical(text string) (v []float32, count int) {
	c := newLexicalCount()
	cutter := words.Cutter{Singles: true}
	cutter.Each(text, func(word []byte) {
		for i := range word {
			if utf8.RuneStart(word[i]) {
				c.starts = append(c.starts, len(c.word)+i)
			}
		}
		c.word = append(c.word, word...)
		c.flush()
	})
	return c.vector()
}

// lexicalV1 is what Lexical was: a word is a run of letters, marks and digits in lower case.
func lexicalV1(text string) (v []float32, count int) {
	c := newLexicalCount()
	for _, r := range text {
		if r == utf8.RuneError || !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.IsMark(r) {
			c.flush()
			continue
		}
		c.starts = append(c.starts, len(c.word))
		c.word = utf8.AppendRune(c.word, unicode.ToLower(r))
	}
	c.flush()
	return c.vector()
}

// lexicalCount counts the features of a text, word by word.
type lexicalCount struct {
	counts [LexicalDim]int64
	words  int
	word   []byte // after a space
	starts []int  // where its characters begin
}

// newLexicalCount returns a count whose word has only the space before it.
func newLexicalCount() *lexicalCount {
	return &lexicalCount{word: append(make([]byte, 0, 64), ' '), starts: append(make([]int, 0, 64), 0)}
}

// flush counts the word that is there, if there is one.
func (c *lexicalCount) flush() {
	if len(c.word) == 1 {
		return
	}
	c.words++
	c.word = append(c.word, ' ')
	c.starts = append(c.starts, len(c.word)-1, len(c.word))
	addWord(&c.counts, c.word, c.starts)
	c.word, c.starts = append(c.word[:0], ' '), append(c.starts[:0], 0)
}

// vector returns the vector of what was counted, and the number of words.
func (c *lexicalCount) vector() ([]float32, int) {
	if c.words == 0 {
		addWord(&c.counts, []byte("  "), []int{0, 1, 2})
	}
	return unit(&c.counts), c.words
}

// addWord counts a word, with its spaces, and its grams.
func addWord(counts *[LexicalDim]int64, word []byte, starts []int) {
	count(counts, word, wordWeight)
	for n := shortestGram; n <= longestGram; n++ {
		for i := 0; i+n < len(starts); i++ {
			count(counts, word[starts[i]:starts[i+n]], 1)
		}
	}
}

// count adds a feature at its place, with its sign.
func count(counts *[LexicalDim]int64, feature []byte, weight int64) {
	h := xxhash.Sum64(feature)
	if h>>63 == 1 {
		weight = -weight
	}
	counts[h%LexicalDim] += weight
}

// unit divides the counts by their length. The sum of squares is an exact integer, so every machine
// rounds the same number. If all features cancel each other out, the vector is that of place 0.
func unit(counts *[LexicalDim]int64) []float32 {
	var sum int64
	for _, c := range counts {
		sum += c * c
	}
	if sum == 0 { // every feature met its opposite
		counts[0], sum = 1, 1
	}
	length := math.Sqrt(float64(sum))
	out := make([]float32, LexicalDim)
	for i, c := range counts {
		out[i] = float32(float64(c) / length)
	}
	return out
}
