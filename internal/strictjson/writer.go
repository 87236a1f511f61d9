package strictjson

import (
	"encoding/base64"
	"maps"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"
)

// Writer appends one JSON document. It puts the commas; order is the caller's.
//
// Fields that have no value are left out, by those methods that say so. A zero Writer is ready for use.
type Writer struct {
	// B is what was written. A caller may append a value of its own: after Key or Sep, and followed by Done.
	B []byte
	// comma says that the next element needs one before it.
	comma bool
}

// Reset forgets what was written, and keeps the buffer.
func (w *Writer) Reset() { w.B, w.comma = w.B[:0], false }

// Line ends a document with a line break, so that the next one can follow it.
func (w *Writer) Line() {
	w.B = append(w.B, '\n')
	w.comma = false
}

// Done ends an element that the caller has appended.
func (w *Writer) Done() { w.comma = true }

// Sep begins an element of a list: it puts the comma before it.
func (w *Writer) Sep() {
	if w.comma {
		w.B = append(w.B, ',')
	}
	w.comma = false
}

// Open begins an object or a list.
func (w *Writer) Open(c byte) {
	w.Sep()
	w.B = append(w.B, c)
}

// Close ends it.
func (w *Writer) Close(c byte) {
	w.B = append(w.B, c)
	w.comma = true
}

// Key begins a field. Names are the product's own and need no escapes.
func (w *Writer) Key(name string) {
	w.Sep()
	w.B = append(w.B, '"')
	w.B = append(w.B, name...)
	w.B = append(w.B, '"', ':')
}

// Object is a field that is an object.
func (w *Writer) Object(name string, fields func()) {
	w.Key(name)
	w.Open('{')
	fields()
	w.Close('}')
}

// List is a field that is a list of n elements.
func (w *Writer) List(name string, n int, element func(i int)) {
	w.Key(name)
	w.Open('[')
	for i := range n {
		element(i)
	}
	w.Close(']')
}

// Str is a field of text.
func (w *Writer) Str(name, s string) {
	w.Key(name)
	w.Quote(s)
}

// OptStr is str, left out when empty.
func (w *Writer) OptStr(name, s string) {
	if s != "" {
		w.Str(name, s)
	}
}

// Bool is a field that is true or false.
func (w *Writer) Bool(name string, v bool) {
	w.Key(name)
	w.B = strconv.AppendBool(w.B, v)
	w.comma = true
}

// OptBool is bool, left out when false.
func (w *Writer) OptBool(name string, v bool) {
	if v {
		w.Bool(name, v)
	}
}

// Int is a field that is a whole number.
func (w *Writer) Int(name string, n int64) {
	w.Key(name)
	w.B = strconv.AppendInt(w.B, n, 10)
	w.comma = true
}

// Float is a number that need not be whole.
func (w *Writer) Float(name string, v float64) {
	w.Key(name)
	w.B = strconv.AppendFloat(w.B, v, 'f', -1, 64)
	w.comma = true
}

// Count is a number of things.
func (w *Writer) Count(name string, n uint64) {
	w.Key(name)
	w.B = strconv.AppendUint(w.B, n, 10)
	w.comma = true
}

// OptInt is int, left out when 0.
func (w *Writer) OptInt(name string, n int64) {
	if n != 0 {
		w.Int(name, n)
	}
}

// Exact is a number that is handed back or compared: a string, because many readers round large numbers.
func (w *Writer) Exact(name string, n uint64) {
	w.Key(name)
	w.B = append(w.B, '"')
	w.B = strconv.AppendUint(w.B, n, 10)
	w.B = append(w.B, '"')
	w.comma = true
}

// Time is a time in RFC 3339, in milliseconds.
func (w *Writer) Time(name string, t time.Time) {
	w.Key(name)
	w.B = append(w.B, '"')
	// Zeros at the end are left out, and with them the point. t is in UTC.
	w.B = t.AppendFormat(w.B, "2006-01-02T15:04:05.999Z")
	w.B = append(w.B, '"')
	w.comma = true
}

// Seconds is a duration in seconds, such as 90s or 1.5s, after a key.
func (w *Writer) Seconds(ms int64) {
	w.B = append(w.B, '"')
	w.B = strconv.AppendFloat(w.B, float64(ms)/1000, 'f', -1, 64)
	w.B = append(w.B, 's', '"')
	w.comma = true
}

// AnyBytes is a key or a value: as text when it is, else as base64.
func (w *Writer) AnyBytes(name string, b []byte) {
	// NUL is valid UTF-8, but the reader refuses it in text.
	if utf8.Valid(b) && !slices.Contains(b, 0) {
		w.Str(name, string(b))
		return
	}
	w.Base64(name, b)
}

// Base64 is any bytes, under the name with _base64.
func (w *Writer) Base64(name string, b []byte) {
	w.Sep()
	w.B = append(w.B, '"')
	w.B = append(w.B, name...)
	// The alphabet of base64 has nothing that a string of JSON escapes.
	w.B = append(w.B, `_base64":"`...)
	w.B = base64.StdEncoding.AppendEncode(w.B, b)
	w.B = append(w.B, '"')
	w.comma = true
}

// Texts is a map of texts, in the order of its keys.
func (w *Writer) Texts(name string, m map[string]string) {
	w.Object(name, func() {
		// In order, so that equal answers are equal byte for byte. Names are of an alphabet that needs
		// no escapes.
		for _, k := range slices.Sorted(maps.Keys(m)) {
			w.Str(k, m[k])
		}
	})
}

// JSON is a field that is JSON already; left out when empty.
func (w *Writer) JSON(name string, b []byte) {
	if len(b) > 0 {
		w.Key(name)
		w.B = append(w.B, b...)
		w.comma = true
	}
}

// Raw is a value that is JSON already, within a list.
func (w *Writer) Raw(b []byte) {
	w.Sep()
	w.B = append(w.B, b...)
	w.comma = true
}

// Null is a field that is null.
func (w *Writer) Null(name string) {
	w.Key(name)
	w.B = append(w.B, "null"...)
	w.comma = true
}

// Number is a whole number within a list.
func (w *Writer) Number(n uint64) {
	w.Sep()
	w.B = strconv.AppendUint(w.B, n, 10)
	w.comma = true
}

// Strings is a list of texts, left out when it is empty.
func (w *Writer) Strings(name string, list []string) {
	if len(list) > 0 {
		w.List(name, len(list), func(i int) { w.Quote(list[i]) })
	}
}

// Floats is a vector, within a list or after a key.
func (w *Writer) Floats(v []float32) {
	w.Open('[')
	for i, x := range v {
		if i > 0 {
			w.B = append(w.B, ',')
		}
		w.B = appendFloat(w.B, float64(x), 32)
	}
	w.Close(']')
}

// OptFloats is a field that is a vector, left out when it is empty.
func (w *Writer) OptFloats(name string, v []float32) {
	if len(v) > 0 {
		w.Key(name)
		w.Floats(v)
	}
}

// appendFloat writes a number in as few digits as tell it from all others of its size.
func appendFloat(b []byte, x float64, bits int) []byte {
	// The same borders as in JavaScript, so that numbers look the same wherever they are written.
	format := byte('f')
	if x != 0 && (x < 1e-6 && x > -1e-6 || x >= 1e21 || x <= -1e21) {
		format = 'e'
	}
	return strconv.AppendFloat(b, x, format, -1, bits)
}

// Real is a field that is a number, in as few digits as tell it from all others.
func (w *Writer) Real(name string, x float64) {
	w.Key(name)
	w.B = appendFloat(w.B, x, 64)
	w.comma = true
}

// hexDigits are the digits of an escape.
const hexDigits = "0123456789abcdef"

// Quote appends a string. A byte that is not UTF-8 becomes U+FFFD. Only the escapes that JSON must have are written, so that text in
// any language stays readable.
// It has the comma of a list before it, and none after a key.
func (w *Writer) Quote(s string) {
	w.Sep()
	w.B = append(w.B, '"')
	// From start on the text is copied in one piece, up to the next byte that needs an escape.
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' && c < utf8.RuneSelf {
			i++
			continue
		}
		// Whole runes are copied; what is not UTF-8 becomes the mark for that, so that the document
		// stays JSON.
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(s[i:])
			// The mark itself is three bytes long and valid; a broken byte is one long.
			if r != utf8.RuneError || size > 1 {
				i += size
				continue
			}
		}
		w.B = append(w.B, s[start:i]...)
		switch c {
		case '"', '\\':
			w.B = append(w.B, '\\', c)
		case '\n':
			w.B = append(w.B, '\\', 'n')
		case '\t':
			w.B = append(w.B, '\\', 't')
		default:
			if c < ' ' {
				w.B = append(w.B, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
			} else {
				w.B = append(w.B, "\ufffd"...) // a byte that is not part of a rune
			}
		}
		i++
		start = i
	}
	w.B = append(append(w.B, s[start:]...), '"')
	w.comma = true
}
