package api

import (
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/millrace/millrace/internal/core"
)

// jsonReader decodes one JSON document strictly: what a client sends is used as it stands, or refused by its path.
//
// Refused are unknown and repeated fields, null where a value belongs, numbers that do not fit, text that holds NUL or
// is not UTF-8, nesting beyond the limit, and anything after the document. Integers never pass through a float. Values
// that belong to the client (payloads, results) are checked to be JSON and kept byte for byte.
//
// The first thing wrong is kept in fact; every method does nothing afterwards, and returns a zero value.
type jsonReader struct {
	b     []byte
	i     int
	l     *Limits
	depth int64
	path  []step
	fact  core.Fact
}

// step is a part of a path: a field, or an element of a list when name is empty.
type step struct {
	name  string
	index int
}

// bodyField is the path of the document itself.
const bodyField = "body"

func newJSONReader(b []byte, l *Limits) *jsonReader {
	return &jsonReader{b: b, l: l, path: make([]step, 0, 8)}
}

// jsonField is one field of an object: its name, and how it is read into what the object becomes. One without is reserved:
// refused until it is built.
type jsonField[T any] struct {
	name string
	read func(d *jsonReader, m *T)
}

// decodeJSON reads a document that is one object.
func decodeJSON[T any](b []byte, l *Limits, m *T, fields []jsonField[T]) core.Fact {
	d := newJSONReader(b, l)
	readObject(d, m, fields)
	d.end()
	return d.fact
}

// readObject reads an object of at most 64 known fields.
func readObject[T any](d *jsonReader, m *T, fields []jsonField[T]) {
	if !d.enter('{', "must be an object") {
		return
	}
	var seen uint64
	for first := true; d.next('}', first); first = false {
		name := d.name()
		if d.fact != nil {
			return
		}
		i := indexField(fields, name)
		if i < 0 {
			d.path = append(d.path, step{name: core.Cut(string(name), nameBytes)})
			d.fact = core.Invalid{Field: d.at(), Reason: "unknown_field", Message: "is not known"}
			return
		}
		d.path = append(d.path, step{name: fields[i].name})
		if seen&(1<<i) != 0 {
			d.refuse("must be given only once")
			return
		}
		seen |= 1 << i
		if fields[i].read == nil {
			d.fact = notSupported(d.at())
			return
		}
		if fields[i].read(d, m); d.fact != nil {
			return
		}
		d.path = d.path[:len(d.path)-1]
	}
}

func indexField[T any](fields []jsonField[T], name []byte) int {
	for i := range fields {
		if string(name) == fields[i].name {
			return i
		}
	}
	return -1
}

// array reads a list of at most top elements.
func (d *jsonReader) array(limit string, top int64, element func()) {
	if !d.enter('[', "must be a list") {
		return
	}
	n := 0
	for first := true; d.next(']', first); first = false {
		if int64(n) >= top {
			d.fact = tooLarge(d.at(), limit, top)
			return
		}
		d.path = append(d.path, step{index: n})
		element()
		if d.fact != nil {
			return
		}
		d.path = d.path[:len(d.path)-1]
		n++
	}
}

// at is the path of what is being read.
func (d *jsonReader) at() string {
	if len(d.path) == 0 {
		return bodyField
	}
	var b []byte
	for _, s := range d.path {
		switch {
		case s.name == "":
			b = append(strconv.AppendInt(append(b, '['), int64(s.index), 10), ']')
		case len(b) > 0:
			b = append(append(b, '.'), s.name...)
		default:
			b = append(b, s.name...)
		}
	}
	return string(b)
}

// refuse refuses what is being read.
func (d *jsonReader) refuse(message string) {
	if d.fact == nil {
		d.fact = invalid(d.at(), message)
	}
}

func (d *jsonReader) malformed() {
	if d.fact == nil {
		d.fact = core.Invalid{Field: d.at(), Reason: "malformed", Message: "is malformed JSON at byte " + strconv.Itoa(d.i)}
	}
}

// space skips white space and returns the byte after it, 0 at the end.
func (d *jsonReader) space() byte {
	for d.i < len(d.b) {
		switch c := d.b[d.i]; c {
		case ' ', '\t', '\n', '\r':
			d.i++
		default:
			return c
		}
	}
	return 0
}

// enter opens an object or list, and says whether it did.
func (d *jsonReader) enter(open byte, otherwise string) bool {
	if d.fact != nil {
		return false
	}
	if d.space() != open {
		d.mistyped(otherwise)
		return false
	}
	if d.depth++; d.depth > d.l.JSONDepth {
		d.fact = beyond(d.at(), "json_depth", d.l.JSONDepth, "is nested too deeply")
		return false
	}
	d.i++
	return true
}

// mistyped refuses a value of another type, and text that is not a JSON value.
func (d *jsonReader) mistyped(message string) {
	probe := *d
	probe.value()
	if probe.fact != nil {
		d.fact = probe.fact
		return
	}
	d.refuse(message)
}

// next says whether another element follows before the end of an object or list.
func (d *jsonReader) next(end byte, first bool) bool {
	if d.fact != nil {
		return false
	}
	c := d.space()
	switch {
	case c == end:
		d.i++
		d.depth--
		return false
	case first:
		return true
	case c == ',':
		d.i++
		return true
	}
	d.malformed()
	return false
}

// name reads the name of a field and the colon after it. The bytes are good until the next call.
func (d *jsonReader) name() []byte {
	if d.space() != '"' {
		d.malformed()
		return nil
	}
	name := d.str()
	if d.fact == nil && d.space() != ':' {
		d.malformed()
	}
	d.i++
	return name
}

// end refuses anything after the document.
func (d *jsonReader) end() {
	if d.fact == nil && (d.space() != 0 || d.i < len(d.b)) {
		d.refuse("has data after the end of the JSON value")
	}
}

// str reads a string, at its quote, and returns its text; without escapes that is a part of the document.
func (d *jsonReader) str() []byte {
	start, escaped := d.skipString()
	if d.fact != nil {
		return nil
	}
	text := d.b[start : d.i-1]
	if escaped {
		text = d.unescape(text)
	}
	return text
}

// skipString passes a string, at its quote; start is that of its text.
func (d *jsonReader) skipString() (start int, escaped bool) {
	d.i++
	start = d.i
	wide := false
	for d.i < len(d.b) {
		switch c := d.b[d.i]; {
		case c == '"':
			d.i++
			if wide && !utf8.Valid(d.b[start:d.i-1]) {
				d.refuse("must be UTF-8")
			}
			return start, escaped
		case c == '\\':
			escaped = true
			if !d.skipEscape() {
				d.malformed()
				return start, escaped
			}
		case c < ' ':
			d.malformed()
			return start, escaped
		default:
			wide = wide || c >= utf8.RuneSelf
			d.i++
		}
	}
	d.malformed()
	return start, escaped
}

// skipEscape passes an escape, at its backslash, and says whether it is one.
func (d *jsonReader) skipEscape() bool {
	if d.i+1 >= len(d.b) {
		return false
	}
	switch d.b[d.i+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		d.i += 2
		return true
	case 'u':
		if d.i+6 > len(d.b) {
			return false
		}
		if _, ok := hex4(d.b[d.i+2 : d.i+6]); !ok {
			return false
		}
		d.i += 6
		return true
	}
	return false
}

func hex4(b []byte) (r rune, ok bool) {
	for _, c := range b {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

// unescape resolves the escapes of a text that skipString has passed.
func (d *jsonReader) unescape(in []byte) []byte {
	out := make([]byte, 0, len(in))
	for i := 0; i < len(in); {
		if in[i] != '\\' {
			out = append(out, in[i])
			i++
			continue
		}
		if in[i+1] != 'u' {
			out = append(out, shortEscapes[in[i+1]])
			i += 2
			continue
		}
		r, _ := hex4(in[i+2 : i+6])
		i += 6
		if utf16.IsSurrogate(r) {
			low := rune(utf8.RuneError)
			if i+6 <= len(in) && in[i] == '\\' && in[i+1] == 'u' {
				low, _ = hex4(in[i+2 : i+6])
			}
			if r = utf16.DecodeRune(r, low); r == utf8.RuneError {
				d.refuse("must not hold half of a surrogate pair")
				return nil
			}
			i += 6
		}
		out = utf8.AppendRune(out, r)
	}
	return out
}

var shortEscapes = [...]byte{
	'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t',
}
