package wire

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestTextIsCutAtWholeCharacters(t *testing.T) {
	for _, s := range []string{"äöü", "a\xffb", strings.Repeat("€", 10), ""} {
		for n := range 12 {
			if got := Cut(s, n); len(got) > n || !utf8.ValidString(got) {
				t.Errorf("cut %q to %d: got %q", s, n, got)
			}
		}
	}
}
