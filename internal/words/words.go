package words

import (
	"unicode"
	"unicode/utf8"
)

// unspaced are scripts that put no spaces between words. Their runs are cut into characters and pairs of them.
var unspaced = []*unicode.RangeTable{
	unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul, unicode.Bopomofo, unicode.Yi,
	unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar, unicode.Tibetan, unicode.Javanese, unicode.Balinese, unicode.Tai_Le,
	unicode.New_Tai_Lue, unicode.Tai_Tham, unicode.Tai_Viet,
}

// longVowel lengthens a sound of Katakana. It belongs to no script.
const longVowel = '\u30fc'

// Letters of flags, of which two are one.
const (
	flagA = '\U0001f1e6'
	flagZ = '\U0001f1ff'
)

// class is what a character is to words.
type class uint8

const (
	gap    class = iota // ends a word
	letter              // or digit
	lone                // of a script without spaces
	mark                // belongs to the character before it
	sign                // a word by itself, such as an emoji
	flag                // a letter of a flag
)

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

// Cutter cuts texts into words. One at a time; it may be used again.
type Cutter struct {
	// Singles has characters of scripts without spaces told alone as well as in pairs, as a text must that is looked for by one of them.
	// Without, one is told alone where it stands alone, as in a query.
	Singles bool

	out  func(word []byte)
	word []byte // the run of letters that is open
	open []byte // the character of a run without spaces that is open, with its marks
	last []byte // the one before it
	pair []byte
	run  int // characters of that run which are told
	flag []byte
}

// Each calls out with each word of a text, folded and in order; it is good until out returns. A word is a run of letters and digits, a
// character or a pair of them of a script without spaces, or an emoji.
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

func (c *Cutter) endWord() {
	if len(c.word) > 0 {
		c.out(c.word)
		c.word = c.word[:0]
	}
}

func (c *Cutter) endFlag() {
	if len(c.flag) > 0 {
		c.out(c.flag)
		c.flag = c.flag[:0]
	}
}

// next tells the character of a run that is open, now that another one comes.
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

func (c *Cutter) endRun() {
	c.next()
	if c.run == 1 && !c.Singles {
		c.out(c.last)
	}
	c.run = 0
}
