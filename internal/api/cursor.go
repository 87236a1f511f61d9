package api

import (
	"encoding/base64"
	"encoding/binary"
	"strings"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// A cursor says where a page ended, as base64 for URLs without padding. Each kind of list has one form, which its page
// writes and its next call reads; a text that no page could have ended with is refused, in every form of base64 but that one.

// maxPlace is the highest partition that a cursor can name.
const maxPlace = 1<<16 - 1

// badCursor refuses a text that is not a cursor of the list. It says the same of every mistake: what is in
// a cursor is not for clients.
func badCursor() core.Fact {
	return edge.Invalid("cursor", "must be one returned with a previous page of this list")
}

// showCursor writes the bytes of a cursor; none are the empty text, which means that the list has
// ended.
func showCursor(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// readCursor returns the bytes of a cursor; none for the first page.
func readCursor(s string) ([]byte, core.Fact) { return readCursorUpTo(s, CursorBytes) }

// readCursorUpTo is readCursor with another bound of the text, in bytes.
func readCursorUpTo(s string, top int) ([]byte, core.Fact) {
	if s == "" {
		return nil, nil
	}
	if len(s) > top || strings.ContainsAny(s, "\r\n") { // which the decoder skips
		return nil, badCursor()
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil {
		return nil, badCursor()
	}
	return b, nil
}

// readNameCursor returns the name that a page ended with, of a queue, whose names may have colons, or of something else.
func readNameCursor(s string, colon bool) (name string, fact core.Fact) {
	b, fact := readCursor(s)
	if fact == nil && len(b) > 0 && !isName(string(b), colon) {
		fact = badCursor()
	}
	return string(b), fact
}

// A cursor over partitions is two bytes for the partition, and where its page ended: nothing, where it begins.

// showPlaceCursor writes a cursor of a list over partitions: the next page begins in the partition
// place, at rest.
func showPlaceCursor(place int, rest []byte) string {
	return showCursor(append(binary.BigEndian.AppendUint16(nil, uint16(place)), rest...))
}

// readPlaceCursor splits the bytes of a cursor of a list over that number of partitions.
func readPlaceCursor(b []byte, parts int) (place int, rest []byte, fact core.Fact) {
	if len(b) == 0 {
		return 0, nil, nil
	}
	if len(b) < 2 || int(binary.BigEndian.Uint16(b)) >= min(max(parts, 1), maxPlace+1) {
		return 0, nil, badCursor()
	}
	return int(binary.BigEndian.Uint16(b)), b[2:], nil
}

// readRepoCursor returns the partition and the name of the repository that a page ended with.
func readRepoCursor(b []byte, parts int) (place int, after string, fact core.Fact) {
	place, rest, fact := readPlaceCursor(b, parts)
	if fact == nil && len(b) > 0 && core.CheckRepoName(string(rest)) != "" {
		fact = badCursor()
	}
	return place, string(rest), fact
}

// A cursor of keys is the incarnation of the keyspace in the partition of the last key, and that key.

// keyCursorOf writes a cursor of keys. The incarnation has a page of a keyspace that was removed and
// made again be refused, which would else go on in other keys.
func keyCursorOf(incarnation uint32, key []byte) string {
	return showCursor(append(binary.BigEndian.AppendUint32(nil, incarnation), key...))
}

// readKeyCursor returns the key that the page before ended with; nil for the first page.
func (t *Translator) readKeyCursor(s string) (incarnation uint32, key []byte, fact core.Fact) {
	b, fact := readCursorUpTo(s, 2*int(t.l.KeyBytes)+64)
	if fact != nil || len(b) == 0 {
		return 0, nil, fact
	}
	if len(b) < 5 || binary.BigEndian.Uint32(b) == 0 {
		return 0, nil, badCursor()
	}
	return binary.BigEndian.Uint32(b), b[4:], nil
}

// A cursor of a ref's log is the number of the last entry that was shown, in eight bytes.

// showLogCursor writes a cursor of a ref's log: the number of the last entry that was shown.
func showLogCursor(seq uint64) string { return showCursor(binary.BigEndian.AppendUint64(nil, seq)) }

// readLogCursor returns the number of the entry before which the page begins; 0 for the first page.
func readLogCursor(s string) (before uint64, fact core.Fact) {
	b, fact := readCursor(s)
	if fact != nil || len(b) == 0 {
		return 0, fact
	}
	if len(b) != 8 || binary.BigEndian.Uint64(b) == 0 {
		return 0, badCursor()
	}
	return binary.BigEndian.Uint64(b), nil
}

// A cursor of the activity of a repository is the revision of the last record that was shown, in eight bytes, and the name of its ref.

// showActivityCursor writes a cursor behind a record.
func showActivityCursor(l *core.RefLog) string {
	return showCursor(append(binary.BigEndian.AppendUint64(nil, l.Rev), l.Name...))
}

// readActivityCursor returns the record behind which the page begins; 0 for the first page.
func readActivityCursor(s string) (rev uint64, name string, fact core.Fact) {
	b, fact := readCursorUpTo(s, 2*(8+core.MaxRefName))
	if fact != nil || len(b) == 0 {
		return 0, "", fact
	}
	if len(b) < 8 || binary.BigEndian.Uint64(b) == 0 || core.CheckRefName(string(b[8:])) != "" {
		return 0, "", badCursor()
	}
	return binary.BigEndian.Uint64(b), string(b[8:]), nil
}
