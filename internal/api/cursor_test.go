package api

import (
	"bytes"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/core"
)

// readCursors reads a text as each kind of cursor, of a list over that number of partitions, and writes what each says again. A
// kind that refuses it has no entry.
func readCursors(t testing.TB, s string, parts int) map[string]string {
	t.Helper()
	out := map[string]string{}
	l := defaultLimits(t)
	raw, rawFact := readCursor(s)
	if rawFact == nil {
		out["raw"] = showCursor(raw)
	}
	for kind, colon := range map[string]bool{"queue": true, "name": false} {
		if name, fact := readNameCursor(s, colon); fact == nil {
			if name != "" && !isName(name, colon) {
				t.Errorf("%q: %q is the name of a %s", s, name, kind)
			}
			out[kind] = showCursor([]byte(name))
		}
	}
	if place, rest, fact := readPlaceCursor(raw, parts); rawFact == nil && fact == nil && len(raw) > 0 {
		if place < 0 || place >= max(parts, 1) {
			t.Errorf("%q: partition %d of %d", s, place, parts)
		}
		out["place"] = showPlaceCursor(place, rest)
	}
	if place, after, fact := readRepoCursor(raw, parts); rawFact == nil && fact == nil && len(raw) > 0 {
		if core.CheckRepoName(after) != "" {
			t.Errorf("%q: %q is the name of a repository", s, after)
		}
		out["repo"] = showPlaceCursor(place, []byte(after))
	}
	incarnation, key, fact := (&Translator{l: l}).readKeyCursor(s)
	switch {
	case fact == nil && s == "":
		out["key"] = ""
	case fact == nil:
		if incarnation == 0 || len(key) == 0 {
			t.Errorf("%q: key %q of incarnation %d", s, key, incarnation)
		}
		out["key"] = keyCursorOf(incarnation, key)
	}
	before, fact := readLogCursor(s)
	switch {
	case fact == nil && before == 0 && s == "":
		out["log"] = ""
	case fact == nil:
		out["log"] = showLogCursor(before)
	}
	return out
}

func TestACursorIsReadInTheFormThatItsPageWroteAlone(t *testing.T) {
	for s, want := range map[string]string{
		"":                                    "key log name queue raw",
		showCursor([]byte("a")):               "name queue raw",
		showCursor([]byte("q:")):              "queue raw",
		showCursor([]byte("-a")):              "raw",
		showPlaceCursor(0, nil):               "place raw",
		showPlaceCursor(3, nil):               "place raw",
		showPlaceCursor(4, nil):               "raw",
		showPlaceCursor(1, []byte("app")):     "key place raw repo", // three bytes and two are an incarnation and a key
		showPlaceCursor(1, []byte("app.git")): "key place raw",
		showPlaceCursor(1, []byte("../x")):    "key place raw",
		keyCursorOf(7, []byte("k\x00")):       "key place raw",
		keyCursorOf(0, []byte("k")):           "place raw",
		keyCursorOf(7, nil):                   "place raw",
		showLogCursor(9):                      "log place raw",
		showLogCursor(1 << 63):                "key log raw",
		showLogCursor(0):                      "place raw",
		showCursor([]byte{9}):                 "raw", // a number of fewer than eight bytes
		showCursor(make([]byte, 9)):           "place raw",
		"YQ==":                                "", // padded
		"YR":                                  "", // with bits that say nothing
		"Y\nQ":                                "",
		"YQ\r\n":                              "",
		"-_+/":                                "",
		strings.Repeat("A", 2*CursorBytes):    "",
		showCursor(bytes.Repeat([]byte("a"), 65536)): "",
	} {
		got := readCursors(t, s, 4)
		var kinds []string
		for _, kind := range []string{"key", "log", "name", "place", "queue", "raw", "repo"} {
			again, ok := got[kind]
			if ok {
				kinds = append(kinds, kind)
			}
			if ok && again != s {
				t.Errorf("%q as %s is written as %q", s, kind, again)
			}
		}
		if have := strings.Join(kinds, " "); have != want {
			t.Errorf("%.40q is read as %q, want %q", s, have, want)
		}
	}
}

// FuzzCursor reads what is given as each kind of cursor. What is taken is what its page writes, names what can exist, and lies
// within the partitions; and is within the limits of its kind.
func FuzzCursor(f *testing.F) {
	for _, seed := range []string{
		"", "YQ", "YQ==", "YR", "Y\nQ", "AAE", "AAEAAA", showCursor([]byte("a.b-c:d")), showPlaceCursor(1, []byte("app")), showPlaceCursor(65535, nil),
		keyCursorOf(1, []byte("key")), keyCursorOf(0, []byte("k")), showLogCursor(1), showLogCursor(0), strings.Repeat("A", CursorBytes+1),
	} {
		f.Add(seed, 4)
	}
	f.Fuzz(func(t *testing.T, s string, parts int) {
		parts %= 5000
		for kind, again := range readCursors(t, s, parts) {
			if again != s {
				t.Errorf("%q as %s is written as %q", s, kind, again)
			}
			if kind != "key" && len(s) > CursorBytes {
				t.Errorf("%d bytes are taken as %s", len(s), kind)
			}
		}
	})
}
