package retrieval

import (
	"math"
	"slices"
	"strconv"

	"github.com/cespare/xxhash/v2"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/words"
)

// A word longer than longWord bytes is known by its beginning and a hash of all of it, so that what one text costs is bounded.
const (
	longWord      = 64
	longWordStart = 47
)

// shorten bounds a word. The word is the cutter's: it may be changed.
func shorten(word []byte) []byte {
	if len(word) <= longWord {
		return word
	}
	h := xxhash.Sum64(word)
	return strconv.AppendUint(append(word[:longWordStart], ' '), h, 16)
}

// maxCount is where counts of words end: a longer text counts as one of maxCount words.
const maxCount = math.MaxUint16

// addCount adds to a count of words, up to maxCount.
func addCount(n *uint16, more int) { *n = uint16(min(int(*n)+more, maxCount)) }

// spelled is a word of a text and how often it stands there.
type spelled struct {
	word string
	n    uint16
}

// text is the words of a point.
type text struct {
	words  []spelled
	length uint16 // of all of them, repetitions included
}

// spell counts the words of a payload's text fields, each as often as its weight says, and once at least, as texts are
// embedded too.
func (s *Schema) spell(payload []byte) (out text) {
	if len(s.texts) == 0 || len(payload) == 0 {
		return out
	}
	cutter := words.Cutter{Singles: true}
	at := make(map[string]int)
	for _, t := range s.texts {
		n := timesOf(t)
		cutter.Each(Text(payload, t.Name), func(word []byte) {
			word = shorten(word)
			addCount(&out.length, n)
			i, ok := at[string(word)]
			if !ok {
				i = len(out.words)
				out.words = append(out.words, spelled{word: string(word)})
				at[out.words[i].word] = i
			}
			addCount(&out.words[i].n, n)
		})
	}
	return out
}

// timesOf is how often each word of a field counts: the weight of the field, which is in
// hundredths, rounded to whole times, and once at least.
func timesOf(t core.TextField) int { return int(max(1, (t.Weight+50)/100)) }

// QueryWords are the words of a query, each once, in their order.
func QueryWords(text string) (list []string) {
	var cutter words.Cutter
	cutter.Each(text, func(word []byte) {
		word = shorten(word)
		if !slices.Contains(list, string(word)) {
			list = append(list, string(word))
		}
	})
	return list
}
