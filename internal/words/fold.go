// Package words brings texts into the one form in which they are compared, and cuts them into words. It
// has two entries: Fold for a whole text, and Cutter for its words. Search by words of points and
// queries and the built-in embedder all use it, so what one of them takes for equal is equal to the
// others. Stored vectors of the built-in embedder depend on it, so a change here needs a new id of that
// model.
package words

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

// dropped are the marks that folding removes: accents of alphabets that can be read without them,
// and points of Hebrew and Arabic. Marks that are vowels or sounds of their own, as in India,
// Thailand or Japan, stay.
var dropped = &unicode.RangeTable{R16: []unicode.Range16{
	{Lo: 0x0300, Hi: 0x036f, Stride: 1},
	{Lo: 0x0483, Hi: 0x0489, Stride: 1},
	{Lo: 0x0591, Hi: 0x05bd, Stride: 1},
	{Lo: 0x05bf, Hi: 0x05c7, Stride: 1},
	{Lo: 0x0610, Hi: 0x061a, Stride: 1},
	{Lo: 0x064b, Hi: 0x065f, Stride: 1},
	{Lo: 0x0670, Hi: 0x0670, Stride: 1},
	{Lo: 0x06d6, Hi: 0x06dc, Stride: 1},
	{Lo: 0x06df, Hi: 0x06e8, Stride: 1},
	{Lo: 0x1ab0, Hi: 0x1aff, Stride: 1},
	{Lo: 0x1dc0, Hi: 0x1dff, Stride: 1},
	{Lo: 0x20d0, Hi: 0x20ff, Stride: 1},
	{Lo: 0xfe00, Hi: 0xfe0f, Stride: 1},
	{Lo: 0xfe20, Hi: 0xfe2f, Stride: 1},
}}

// Characters that are handled by themselves.
const (
	zeroWidthSpace = '\u200b' // ends a word where no space is written
	lightSkin      = '\U0001f3fb'
	darkSkin       = '\U0001f3ff'
	firstSelector  = '\U000e0100' // of variants of a character
	lastSelector   = '\U000e01ef'

	firstCherokee, smallCherokee = '\u13a0', '\uab70'
	lastCherokee                 = '\u13f8' // six small letters, whose capitals are eight before them
)

// Fold returns a text in the form in which texts are compared: compatible characters are one (NFKC), as are upper and lower case (full
// case folding), parts of a Hangul syllable are that syllable, and accents, colours of skin and characters without a width are gone.
// Bytes that are not UTF-8 become U+FFFD. Folding a folded text changes nothing.
func Fold(text string) string {
	if isASCII(text) {
		return strings.ToLower(text)
	}
	// Decomposed first, so that accents are characters that can be dropped; folding case may
	// compose some again.
	s := norm.NFKD.String(strings.ToValidUTF8(text, "\ufffd"))
	s = norm.NFKD.String(cases.Fold().String(s)) // whose results may be composed
	var b strings.Builder
	b.Grow(len(s))
	for _, r := range s {
		switch { // capitals of Cherokee, whose case folds upwards, are turned by the package cases
		case r >= smallCherokee && r <= smallCherokee+0x4f:
			r += firstCherokee - smallCherokee
		case r >= lastCherokee && r <= lastCherokee+5:
			r -= 8
		}
		switch {
		case unicode.Is(dropped, r), r >= lightSkin && r <= darkSkin, r >= firstSelector && r <= lastSelector:
		case unicode.Is(unicode.Cf, r) && r != zeroWidthSpace:
		default:
			b.WriteRune(r)
		}
	}
	return norm.NFC.String(b.String())
}

// isASCII reports whether a text needs no more than lower case, as most do.
func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}
