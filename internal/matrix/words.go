package matrix

import (
	"math"
	"slices"
	"strconv"
	"unicode"
	"unicode/utf8"

	"github.com/cespare/xxhash/v2"
	"golang.org/x/text/unicode/norm"

	"github.com/millrace/millrace/internal/core"
)

// A word longer than longWord bytes is known by its beginning and a hash of all of it, so that what one text costs is bounded.
const (
	longWord      = 64
	longWordStart = 47
)

// speller cuts texts into words: runs of letters and digits, in lower case and without accents. Runs of Chinese, Japanese and
// Korean, which put no spaces between words, become pairs of characters, a lone one itself.
type speller struct {
	word  []byte
	wide  []rune // the run of such characters that is open
	parts []byte
	out   func(word []byte)
}

// wideScripts are those whose runs become pairs.
var wideScripts = []*unicode.RangeTable{unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul}

// words calls out with each word of a text, in order; it is good until out returns.
func (s *speller) words(text string, out func(word []byte)) {
	s.out = out
	for _, r := range text {
		switch {
		case r < utf8.RuneSelf:
			s.plain(r)
		case unicode.Is(unicode.Hangul, r): // not taken apart: its parts are no accents
			s.add(r)
		default:
			s.parts = norm.NFKD.AppendString(s.parts[:0], string(r))
			for _, part := range string(s.parts) {
				s.add(part)
			}
		}
	}
	s.endWide()
	s.endWord()
}

func (s *speller) plain(r rune) {
	switch {
	case r >= 'A' && r <= 'Z':
		r += 'a' - 'A'
	case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
	default:
		s.endWide()
		s.endWord()
		return
	}
	s.endWide()
	s.word = append(s.word, byte(r))
}

func (s *speller) add(r rune) {
	switch {
	case r < utf8.RuneSelf:
		s.plain(r)
	case unicode.IsMark(r): // an accent
	case unicode.In(r, wideScripts...):
		s.endWord()
		s.wide = append(s.wide, r)
		if n := len(s.wide); n > 2 {
			s.wide = append(s.wide[:0], s.wide[n-2:]...)
		}
		if len(s.wide) == 2 {
			s.pair()
		}
	case unicode.IsLetter(r), unicode.IsDigit(r):
		s.endWide()
		s.word = utf8.AppendRune(s.word, unicode.ToLower(r))
	default:
		s.endWide()
		s.endWord()
	}
}

// pair tells the last two characters of a run. One that was told in a pair is not told alone.
func (s *speller) pair() {
	var b [2 * utf8.UTFMax]byte
	s.out(utf8.AppendRune(utf8.AppendRune(b[:0], s.wide[0]), s.wide[1]))
}

func (s *speller) endWide() {
	if len(s.wide) == 1 {
		var b [utf8.UTFMax]byte
		s.out(utf8.AppendRune(b[:0], s.wide[0]))
	}
	s.wide = s.wide[:0]
}

func (s *speller) endWord() {
	if len(s.word) == 0 {
		return
	}
	if len(s.word) > longWord {
		h := xxhash.Sum64(s.word)
		s.word = strconv.AppendUint(append(s.word[:longWordStart], ' '), h, 16)
	}
	s.out(s.word)
	s.word = s.word[:0]
}

// maxCount is where counts of words end: a longer text counts as one of so many words.
const maxCount = math.MaxUint16

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
	var sp speller
	at := make(map[string]int)
	for _, t := range s.texts {
		n := timesOf(t)
		sp.words(Text(payload, t.Name), func(word []byte) {
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

func timesOf(t core.TextField) int { return int(max(1, (t.Weight+50)/100)) }

// queryWords are the words of a query, each once, in their order.
func queryWords(text string) (list []string) {
	var sp speller
	sp.words(text, func(word []byte) {
		if !slices.Contains(list, string(word)) {
			list = append(list, string(word))
		}
	})
	return list
}
