package words

import (
	"unicode"
	"unicode/utf8"
)

// unspaced are scripts that put no spaces between words. Their runs are cut into characters and
// pairs of neighbours, because their words cannot be found without a dictionary.
var unspaced = []*unicode.RangeTable{
	unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul, unicode.Bopomofo, unicode.Yi,
	unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar, unicode.Tibetan, unicode.Javanese, unicode.Balinese, unicode.Tai_Le,
	unicode.New_Tai_Lue, unicode.Tai_Tham, unicode.Tai_Viet,
}

// longVowel lengthens a sound in Katakana. Unicode gives it to no script, so it is named here.
const longVowel = '\u30fc'

// Letters of flags, of which two are one.
const (
	flagA = '\U0001f1e6'
	flagZ = '\U0001f1ff'
)

// class is the part that a character plays in words.
type class uint8

const (
	gap    class = iota // ends a word
	letter              // or digit
	lone                // of a script without spaces
	mark                // belongs to the character before it
	sign                // a word by itself, such as an emoji
	flag                // a letter of a flag
)

// classOf returns the class of a folded character.
func classOf(r rune) class {
	switch {
	case r < utf8.RuneSelf:
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return letter
		}
		return gap
	case r >= flagA && r <= flagZ:
		return flag
	case r == utf8.RuneError:
		return gap
	case unicode.IsMark(r):
		return mark
	case r == longVowel:
		return lone
	case unicode.IsLetter(r), unicode.IsDigit(r), unicode.Is(unicode.Nl, r):
		if unicode.In(r, unspaced...) {
			return lone
		}
		return letter
	case unicode.Is(unicode.So, r):
		return sign
	}
	return gap
}

// Cutter cuts texts into words. It cuts one text at a time and may be used again, which saves its
// buffers. It is not safe for concurrent use.
type Cutter struct {
	// Singles makes it report each character of a script without spaces alone as well as in pairs,
	// as a text needs that may be searched for a single character. Without it, a character is
	// reported alone only if it stands alone, as in a query.
	Singles bool

	out func(word []byte)
	// The run of letters that is not ended yet.
	word []byte
	// The last character of a run without spaces, with its marks; it is not reported yet, as more
	// marks may follow.
	open []byte
	// The character before it.
	last []byte
	// Buffer for the two of them.
	pair []byte
	// How many characters of the run were reported.
	run int
	// The letter of a flag that waits for a second one.
	flag []byte
}

// Each calls out with each word of a text, folded and in order. The word is valid until out
// returns. A word is a run of letters and digits, a character or a pair of characters of a script
// without spaces, or an emoji.
func (c *Cutter) Each(text string, out func(word []byte)) {
	c.out = out
	for _, r := range Fold(text) {
		kind := classOf(r)
		if kind != letter && kind != mark {
			c.endWord()
		}
		if kind != lone && kind != mark {
			c.endRun()
		}
		if kind != flag {
			c.endFlag()
		}
		switch kind {
		case letter:
			c.word = utf8.AppendRune(c.word, r)
		case lone:
			c.next()
			c.open = utf8.AppendRune(c.open, r)
		case mark:
			if len(c.open) > 0 {
				c.open = utf8.AppendRune(c.open, r)
			} else if len(c.word) > 0 {
				c.word = utf8.AppendRune(c.word, r)
			}
		case sign:
			var b [utf8.UTFMax]byte
			c.out(utf8.AppendRune(b[:0], r))
		case flag:
			if c.flag = utf8.AppendRune(c.flag, r); len(c.flag) == 2*utf8.UTFMax {
				c.endFlag()
			}
		}
	}
	c.endWord()
	c.endRun()
	c.endFlag()
}

// endWord reports the run of letters, if there is one.
func (c *Cutter) endWord() {
	if len(c.word) > 0 {
		c.out(c.word)
		c.word = c.word[:0]
	}
}

// endFlag reports a flag, or a single letter of one.
func (c *Cutter) endFlag() {
	if len(c.flag) > 0 {
		c.out(c.flag)
		c.flag = c.flag[:0]
	}
}

// next reports the open character of a run, alone and with the one before it, when another one
// follows or the run ends.
func (c *Cutter) next() {
	if len(c.open) == 0 {
		return
	}
	if c.Singles {
		c.out(c.open)
	}
	if c.run > 0 {
		c.pair = append(append(c.pair[:0], c.last...), c.open...)
		c.out(c.pair)
	}
	c.last = append(c.last[:0], c.open...)
	c.open = c.open[:0]
	c.run++
}

// endRun ends a run without spaces. A run of a single character is reported in every case.
func (c *Cutter) endRun() {
	c.next()
	if c.run == 1 && !c.Singles {
		c.out(c.last)
	}
	c.run = 0
}
