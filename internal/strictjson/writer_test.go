package strictjson

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestTextIsWrittenSoThatEveryReaderGetsItBack(t *testing.T) {
	for _, s := range []string{"", "a", `"\`, "\n\t\x01\x7f", "é€𝄞", "<script>&", "\u2028", strings.Repeat("x\"", 500)} {
		w := new(Writer)
		w.Open('{')
		w.Str("s", s)
		w.Close('}')
		var got map[string]string
		if err := json.Unmarshal(w.B, &got); err != nil || got["s"] != s {
			t.Errorf("%q was written as %s (%v)", s, w.B, err)
		}
	}
	w := new(Writer)
	w.Str("s", "a\xffb\xc3")
	if !utf8.Valid(w.B) {
		t.Errorf("text that is not UTF-8 was written as it is: %q", w.B)
	}
}
