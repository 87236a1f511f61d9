package embed

import (
	"math"
	"unicode"
	"unicode/utf8"

	"github.com/cespare/xxhash/v2"
)

// LexicalModel is the id of the built-in model. What it gives for a text is stored by users and never changes; another
// way of computing it gets another id.
const LexicalModel = "lexical-v1"

// LexicalDim is the dimension of its vectors.
const LexicalDim = 384

// Grams of so many characters are features, with a space before and after each word.
const (
	shortestGram = 3
	longestGram  = 5
	wordWeight   = 2 // beside grams, each of which counts 1
)

// Lexical returns the vector of a text and how many words it has. A word is a run of letters, marks and digits in lower
// case; it and its grams are hashed (xxhash64) to a place, the remainder by 384, and a sign, the highest bit. Counts are
// summed as integers and divided by their length, so that every machine gives the same bits. A text without a word has
// the vector of the empty word.
func Lexical(text string) (v []float32, words int) {
	var counts [LexicalDim]int64
	word := make([]byte, 0, 64)
	starts := make([]int, 0, 64) // where the characters of word begin, and its end
	flush := func() {
		words++
		word = append(word, ' ')
		starts = append(starts, len(word)-1, len(word))
		addWord(&counts, word, starts)
		word, starts = append(word[:0], ' '), append(starts[:0], 0)
	}
	word, starts = append(word, ' '), append(starts, 0)
	for _, r := range text {
		if r == utf8.RuneError || !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.IsMark(r) {
			if len(word) > 1 {
				flush()
			}
			continue
		}
		starts = append(starts, len(word))
		word = utf8.AppendRune(word, unicode.ToLower(r))
	}
	if len(word) > 1 {
		flush()
	}
	if words == 0 {
		addWord(&counts, []byte("  "), []int{0, 1, 2})
	}
	return unit(&counts), words
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

func count(counts *[LexicalDim]int64, feature []byte, weight int64) {
	h := xxhash.Sum64(feature)
	if h>>63 == 1 {
		weight = -weight
	}
	counts[h%LexicalDim] += weight
}

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
