package core

import (
	"strings"
	"testing"
)

func TestNames(t *testing.T) {
	for name, want := range map[string]bool{
		"a": true, "0": true, "Z9": true, "a.b_c-d": true, strings.Repeat("a", MaxName): true,
		"": false, ".a": false, "-a": false, "_a": false, "a b": false, "a/b": false, "a:b": false, "ä": false, "a\x00": false, strings.Repeat("a", MaxName+1): false,
	} {
		if ValidName(name) != want {
			t.Errorf("%q: want %v", name, want)
		}
	}
}

func TestTextsAreCutAtACharacter(t *testing.T) {
	for _, c := range []struct {
		text string
		n    int
		want string
	}{{"abc", 3, "abc"}, {"abc", 2, "ab"}, {"aä", 2, "a"}, {"ä", 1, ""}, {"", 0, ""}, {"\x80\x80\x80", 2, ""}} {
		if got := Cut(c.text, c.n); got != c.want {
			t.Errorf("%q to %d: %q, want %q", c.text, c.n, got, c.want)
		}
	}
}
