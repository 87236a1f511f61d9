package strictjson

import (
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/millrace/millrace/internal/core"
)

// Reader decodes one JSON document strictly: what a client sends is used as it stands, or refused by its path.
//
// Refused are unknown and repeated fields, null where a value belongs, numbers that do not fit, text that holds NUL or
// is not UTF-8, nesting beyond the limit, and anything after the document. Integers never pass through a float. Values
// that belong to the client (payloads, results) are checked to be JSON and kept byte for byte.
//
// The first thing wrong is kept, see Fact; every method does nothing afterwards, and returns a zero value.
type Reader struct {
	// b is the document, which the caller must not change: strings without escapes and raw values are
	// parts of it.
	b []byte
	// i is the place of the next byte.
	i int
	// deepest is how many objects and lists may be within one another, depth how many are open.
	deepest int64
	depth   int64
	// path leads from the document to what is being read. It is written out only where something is
	// refused.
	path []step
	// fact is the first thing wrong; nothing is read after it.
	fact core.Fact
}

// step is a part of a path: a field, or an element of a list when name is empty. A path is written as ops[2].kv_put.key.
type step struct {
	// name is that of a field; empty: it is an element.
	name  string
	index int
}

const (
	// Document is the path of the document itself.
	Document = "body"
	// depthLimit is the limit that a document breaks which is nested too deeply.
	depthLimit = "json_depth"
	// nameBytes bounds the name of an unknown field that is shown.
	nameBytes = 128
)

// NewReader returns a reader of b, in which objects and lists may be deepest levels within one another.
func NewReader(b []byte, deepest int64) Reader {
	return Reader{b: b, deepest: deepest, path: make([]step, 0, 8)}
}

// Fact is the first thing that was wrong with the document; nil while there is none.
func (d *Reader) Fact() core.Fact { return d.fact }

// Fail refuses the document for a reason of the caller's, unless it is refused already.
func (d *Reader) Fail(fact core.Fact) {
	if d.fact == nil {
		d.fact = fact
	}
}

// Object reads an object of at most 64 known fields. find returns the number of a field from 0 to 63 and its name, or -1 for
// one that is not known; read reads the value of a field.
func (d *Reader) Object(find func(name []byte) (i int, known string), read func(i int)) {
	if !d.Enter('{', "must be an object") {
		return
	}
	// One bit for each field: a repeated one is refused, for readers differ in which of two they take.
	var seen uint64
	for first := true; d.Next('}', first); first = false {
		// The name is compared before it is kept: a known one takes no memory.
		name := d.Name()
		if d.fact != nil {
			return
		}
		i, known := find(name)
		// The name is the client's, so it is cut before it is shown.
		if i < 0 {
			d.path = append(d.path, step{name: core.Cut(string(name), nameBytes)})
			d.fact = core.Invalid{Field: d.At(), Reason: "unknown_field", Message: "is not known"}
			return
		}
		// The caller's own text, not the client's.
		d.path = append(d.path, step{name: known})
		if seen&(1<<i) != 0 {
			d.Refuse("must be given only once")
			return
		}
		seen |= 1 << i
		if read(i); d.fact != nil {
			return
		}
		// The step is only taken off if nothing was wrong: the path stays at what was refused.
		d.path = d.path[:len(d.path)-1]
	}
}

// TextMap reads an object whose members are texts with names of the client's own: at most top of them, which limit bounds. It is
// never nil, so that an empty object differs from none.
func (d *Reader) TextMap(limit string, top int64) map[string]string {
	out := map[string]string{}
	if !d.Enter('{', "must be an object") {
		return out
	}
	for first := true; d.Next('}', first); first = false {
		// Before the member is read: what is beyond the limit takes no memory.
		if int64(len(out)) >= top {
			d.fact = core.TooLarge{Field: d.At(), Limit: limit, Max: top}
			return out
		}
		name := string(d.Name())
		if d.fact != nil {
			return out
		}
		d.path = append(d.path, step{name: core.Cut(name, nameBytes)})
		if _, twice := out[name]; twice {
			d.Refuse("must be given only once")
			return out
		}
		out[name] = d.Text()
		if d.fact != nil {
			return out
		}
		d.path = d.path[:len(d.path)-1]
	}
	return out
}

// Array reads a list of at most top elements, which limit bounds.
func (d *Reader) Array(limit string, top int64, element func()) {
	if !d.Enter('[', "must be a list") {
		return
	}
	n := 0
	for first := true; d.Next(']', first); first = false {
		// As in TextMap.
		if int64(n) >= top {
			d.fact = core.TooLarge{Field: d.At(), Limit: limit, Max: top}
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

// At is the path of what is being read.
func (d *Reader) At() string {
	if len(d.path) == 0 {
		return Document
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

// RefuseField refuses a field of the object that was read last.
func (d *Reader) RefuseField(name, message string) {
	if d.fact == nil {
		d.path = append(d.path, step{name: name})
		d.Refuse(message)
	}
}

// Refuse refuses what is being read.
func (d *Reader) Refuse(message string) {
	if d.fact == nil {
		d.fact = core.Invalid{Field: d.At(), Message: message}
	}
}

// Malformed refuses what is being read because it is not JSON.
func (d *Reader) Malformed() {
	if d.fact == nil {
		d.fact = core.Invalid{Field: d.At(), Reason: "malformed", Message: "is malformed JSON at byte " + strconv.Itoa(d.i)}
	}
}

// Peek skips white space and returns the byte after it, 0 at the end.
func (d *Reader) Peek() byte {
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

// Enter opens an object or list, and says whether it did.
func (d *Reader) Enter(open byte, otherwise string) bool {
	if d.fact != nil {
		return false
	}
	if d.Peek() != open {
		d.Mistyped(otherwise)
		return false
	}
	// Values are read by functions that call one another, so this bounds the stack too.
	if d.depth++; d.depth > d.deepest {
		d.fact = core.OutOfRange{
			Invalid: core.Invalid{Field: d.At(), Message: "is nested too deeply"}, Limit: depthLimit, Max: d.deepest,
		}
		return false
	}
	d.i++
	return true
}

// Mistyped refuses a value of another type, and text that is not a JSON value.
func (d *Reader) Mistyped(message string) {
	// A copy reads on, so that text which is not JSON at all is called malformed and not mistyped.
	probe := *d
	probe.Skip()
	if probe.fact != nil {
		d.fact = probe.fact
		return
	}
	d.Refuse(message)
}

// Next says whether another element follows before the end of an object or list.
func (d *Reader) Next(end byte, first bool) bool {
	if d.fact != nil {
		return false
	}
	c := d.Peek()
	switch {
	case c == end:
		d.i++
		d.depth--
		return false
	case first:
		return true
	// A comma before the end is refused by what must follow it.
	case c == ',':
		d.i++
		return true
	}
	d.Malformed()
	return false
}

// Name reads the name of a field and the colon after it. The bytes are good until the next call.
func (d *Reader) Name() []byte {
	if d.Peek() != '"' {
		d.Malformed()
		return nil
	}
	name := d.Str()
	if d.fact == nil && d.Peek() != ':' {
		d.Malformed()
	}
	d.i++
	return name
}

// End refuses anything after the document.
func (d *Reader) End() {
	if d.fact == nil && (d.Peek() != 0 || d.i < len(d.b)) {
		d.Refuse("has data after the end of the JSON value")
	}
}

// Str reads a string, at its quote, and returns its text; without escapes that is a part of the document.
func (d *Reader) Str() []byte {
	// Passed first, so that a string without escapes is not copied.
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
func (d *Reader) skipString() (start int, escaped bool) {
	d.i++
	start = d.i
	// Text in ASCII, which is most of it, needs no check of UTF-8.
	wide := false
	for d.i < len(d.b) {
		switch c := d.b[d.i]; {
		case c == '"':
			d.i++
			if wide && !utf8.Valid(d.b[start:d.i-1]) {
				d.Refuse("must be UTF-8")
			}
			return start, escaped
		case c == '\\':
			escaped = true
			if !d.skipEscape() {
				d.Malformed()
				return start, escaped
			}
		case c < ' ':
			d.Malformed()
			return start, escaped
		default:
			wide = wide || c >= utf8.RuneSelf
			d.i++
		}
	}
	d.Malformed()
	return start, escaped
}

// skipEscape passes an escape, at its backslash, and says whether it is one.
func (d *Reader) skipEscape() bool {
	if d.i+1 >= len(d.b) {
		return false
	}
	switch d.b[d.i+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		d.i += 2
		return true
	case 'u':
		// Backslash, u and four digits.
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

// hex4 reads four hexadecimal digits.
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
func (d *Reader) unescape(in []byte) []byte {
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
		// A rune beyond 16 bits is written as two escapes. Half of one is text to no other reader.
		if utf16.IsSurrogate(r) {
			low := rune(utf8.RuneError)
			if i+6 <= len(in) && in[i] == '\\' && in[i+1] == 'u' {
				low, _ = hex4(in[i+2 : i+6])
			}
			if r = utf16.DecodeRune(r, low); r == utf8.RuneError {
				d.Refuse("must not hold half of a surrogate pair")
				return nil
			}
			i += 6
		}
		out = utf8.AppendRune(out, r)
	}
	return out
}

// shortEscapes are the bytes that escapes of one letter stand for.
var shortEscapes = [...]byte{
	'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t',
}
