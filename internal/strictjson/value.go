package strictjson

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/core"
)

// Text reads a string into a field of text.
func (d *Reader) Text() string {
	// NUL has no place in a name, and ends texts in other languages.
	s := d.AnyText()
	if strings.IndexByte(s, 0) >= 0 {
		d.Refuse("must not hold a NUL character")
		return ""
	}
	return s
}

// AnyText reads a string that tells what went wrong: one that holds NUL, as the output of programs may, is better than none.
func (d *Reader) AnyText() string {
	if d.fact != nil {
		return ""
	}
	if d.Peek() != '"' {
		d.Mistyped("must be a string")
		return ""
	}
	return string(d.Str())
}

// Filled reads a text into a field in which the empty one would count as left out: that the sender meant something else is
// more likely.
func (d *Reader) Filled() string {
	s := d.Text()
	if d.fact == nil && s == "" {
		d.Refuse("must not be empty; leave the field out instead")
	}
	return s
}

// Choice reads a text of a closed set.
func (d *Reader) Choice(words []string) string {
	s := d.Text()
	if d.fact == nil && !slices.Contains(words, s) {
		d.Refuse(MustBe(words))
	}
	return s
}

// MustBe says which words a value may be.
func MustBe(words []string) string {
	// Of two words or more the last stands behind an or.
	last := len(words) - 1
	if last == 0 {
		return "must be " + words[0]
	}
	return "must be " + strings.Join(words[:last], ", ") + " or " + words[last]
}

// Base64 reads a string of base64 with padding.
func (d *Reader) Base64() []byte {
	if d.fact != nil {
		return nil
	}
	if d.Peek() != '"' {
		d.Mistyped("must be a string of base64")
		return nil
	}
	s := d.Str()
	if d.fact != nil {
		return nil
	}
	// The decoder is strict: bits of the padding that are not 0 are refused, so that one value has one
	// text.
	out := make([]byte, base64.StdEncoding.DecodedLen(len(s)))
	n, err := base64.StdEncoding.Strict().Decode(out, s)
	if err != nil {
		d.Refuse("must be base64 with padding")
		return nil
	}
	return out[:n:n]
}

// Raw reads a value as it stands, without the white space around it.
func (d *Reader) Raw() []byte {
	if d.fact != nil {
		return nil
	}
	// White space before the value is not a part of it.
	d.Peek()
	start := d.i
	d.Skip()
	if d.fact != nil {
		return nil
	}
	// Without room behind it, so that who appends to it does not write into the document.
	return d.b[start:d.i:d.i]
}

// Skip passes any value. It goes as deep as the document does, which Enter bounds.
func (d *Reader) Skip() {
	switch c := d.Peek(); {
	case c == '"':
		d.skipString()
	case c == '{':
		if d.Enter('{', "") {
			for first := true; d.Next('}', first); first = false {
				if d.Peek() != '"' {
					d.Malformed()
					return
				}
				if d.skipString(); d.fact != nil {
					return
				}
				if d.Peek() != ':' {
					d.Malformed()
					return
				}
				d.i++
				d.Skip()
			}
		}
	case c == '[':
		if d.Enter('[', "") {
			for first := true; d.Next(']', first); first = false {
				d.Skip()
			}
		}
	case c == '-' || c >= '0' && c <= '9':
		d.Number()
	default:
		d.word()
	}
}

// word passes true, false or null.
func (d *Reader) word() {
	for _, w := range []string{"true", "false", "null"} {
		if bytes.HasPrefix(d.b[d.i:], []byte(w)) {
			d.i += len(w)
			return
		}
	}
	d.Malformed()
}

// Number passes a number and returns it; whole says that it has neither fraction nor exponent.
func (d *Reader) Number() (text []byte, whole bool) {
	start := d.i
	if d.b[d.i] == '-' {
		d.i++
	}
	first := d.i
	// A number has no zeros in front: some readers take such a one for octal.
	if d.digits() == 0 || d.b[first] == '0' && d.i > first+1 {
		d.Malformed()
		return nil, false
	}
	whole = true
	if d.i < len(d.b) && d.b[d.i] == '.' {
		d.i++
		whole = false
		if d.digits() == 0 {
			d.Malformed()
			return nil, false
		}
	}
	if d.i < len(d.b) && (d.b[d.i] == 'e' || d.b[d.i] == 'E') {
		d.i++
		whole = false
		if d.i < len(d.b) && (d.b[d.i] == '+' || d.b[d.i] == '-') {
			d.i++
		}
		if d.digits() == 0 {
			d.Malformed()
			return nil, false
		}
	}
	return d.b[start:d.i], whole
}

// digits passes decimal digits, and tells how many there were.
func (d *Reader) digits() int {
	start := d.i
	for d.i < len(d.b) && d.b[d.i] >= '0' && d.b[d.i] <= '9' {
		d.i++
	}
	return d.i - start
}

// atNumber says whether a number comes; else what comes is refused.
func (d *Reader) atNumber(otherwise string) bool {
	if d.fact != nil {
		return false
	}
	if c := d.Peek(); c != '-' && (c < '0' || c > '9') {
		d.Mistyped(otherwise)
		return false
	}
	return true
}

// Integer reads a whole number from low to high.
func (d *Reader) Integer(low, high int64) int64 {
	if !d.atNumber("must be an integer") {
		return 0
	}
	text, whole := d.Number()
	if d.fact != nil {
		return 0
	}
	if !whole {
		d.Refuse("must be an integer")
		return 0
	}
	// Never by way of a float, which has 53 bits.
	n, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil || n < low || n > high {
		d.Refuse("is out of range")
		return 0
	}
	return n
}

// Int32 reads a whole number of 32 bits.
func (d *Reader) Int32() int32 { return int32(d.Integer(math.MinInt32, math.MaxInt32)) }

// Uint32 reads a whole number of 32 bits from 0 on.
func (d *Reader) Uint32() uint32 { return uint32(d.Integer(0, math.MaxUint32)) }

// Unsigned reads a token, an index or a revision: a string of digits, or an integer.
func (d *Reader) Unsigned() uint64 {
	if d.fact != nil {
		return 0
	}
	var text []byte
	whole := true
	if d.Peek() == '"' {
		// As a string, because other writers round large numbers.
		text = d.Str()
	} else if d.atNumber("must be an integer, or a string that holds one") {
		text, whole = d.Number()
	}
	if d.fact != nil {
		return 0
	}
	n, fact := ParseUnsigned(string(text))
	if !whole || fact != "" {
		d.Refuse("must be an integer from 0 to 18446744073709551615")
		return 0
	}
	return n
}

// ParseUnsigned reads decimal digits, no more than needed.
func ParseUnsigned(s string) (n uint64, wrong string) {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil || s[0] == '+' || s[0] == '0' && len(s) > 1 {
		return 0, "must be an integer from 0 to 18446744073709551615"
	}
	return n, ""
}

// Float reads a number.
func (d *Reader) Float() float64 {
	if !d.atNumber("must be a number") {
		return 0
	}
	text, _ := d.Number()
	if d.fact != nil {
		return 0
	}
	f, err := strconv.ParseFloat(string(text), 64)
	if err != nil {
		d.Refuse("is out of range")
	}
	return f
}

// Boolean reads true or false.
func (d *Reader) Boolean() bool {
	if d.fact != nil {
		return false
	}
	d.Peek()
	for _, v := range []bool{true, false} {
		if w := strconv.FormatBool(v); bytes.HasPrefix(d.b[d.i:], []byte(w)) {
			d.i += len(w)
			return v
		}
	}
	d.Mistyped("must be true or false")
	return false
}

// OneOf reads a word of a closed set. Its number is its place in names, of which the first may be empty: no word.
func (d *Reader) OneOf(names []string) int32 {
	s := d.Text()
	if d.fact != nil {
		return 0
	}
	for i, name := range names {
		// The empty name means none, and has no text.
		if name == s && s != "" {
			return int32(i)
		}
	}
	d.Refuse("must be one of " + listOf(names))
	return 0
}

// listOf lists names for a refusal, without the one that is empty: it means none.
func listOf(names []string) string {
	var out []byte
	for _, n := range names {
		switch {
		case n == "":
			continue
		case len(out) > 0:
			out = append(out, ", "...)
		}
		out = append(out, n...)
	}
	return string(out)
}

// Duration reads a duration such as 90s, 1.5s or 1h30m; false: it is refused.
func (d *Reader) Duration() (time.Duration, bool) {
	s := d.Text()
	if d.fact != nil {
		return 0, false
	}
	v, err := time.ParseDuration(s)
	if err != nil {
		d.Refuse(NotDuration)
		return 0, false
	}
	return v, true
}

// NotDuration refuses a text that must be a duration.
const NotDuration = "must be a duration, such as 90s, 1.5s or 1h30m"

// Time reads a time of RFC 3339; false: it is refused.
func (d *Reader) Time() (time.Time, bool) {
	s := d.Text()
	if d.fact != nil {
		return time.Time{}, false
	}
	v, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		d.Refuse("must be a time as in RFC 3339, such as 2030-01-02T03:04:05Z")
		return time.Time{}, false
	}
	return v, true
}

// Null passes a null, and says whether there was one.
func (d *Reader) Null() bool {
	if d.fact != nil || d.Peek() != 'n' || !bytes.HasPrefix(d.b[d.i:], []byte("null")) {
		return false
	}
	d.i += len("null")
	return true
}

// RawObject reads an object as it stands.
func (d *Reader) RawObject() []byte {
	if d.fact != nil {
		return nil
	}
	if d.Peek() != '{' {
		d.Mistyped("must be an object")
		return nil
	}
	return d.Raw()
}

// Texts reads a list of at most top strings, which limit bounds.
func (d *Reader) Texts(limit string, top int64) (out []string) {
	d.Array(limit, top, func() { out = append(out, d.Text()) })
	return out
}

// dimLimit bounds the numbers of a vector.
const dimLimit = "dim"

// Floats reads a vector of at most top numbers: a list of numbers, or base64 of numbers of 32 bits, little-endian.
func (d *Reader) Floats(top int64) []float32 {
	if d.fact != nil {
		return nil
	}
	if d.Peek() == '"' {
		return d.packedFloats(top)
	}
	return d.listedFloats(top)
}

// listedFloats reads a vector as a list of numbers, of at most top. It keeps no path but for what it
// refuses, since vectors are long.
func (d *Reader) listedFloats(top int64) []float32 {
	if !d.Enter('[', "must be a list of numbers, or base64") {
		return nil
	}
	var out []float32
	for first := true; d.Next(']', first); first = false {
		if int64(len(out)) >= top {
			d.fact = core.TooLarge{Field: d.At(), Limit: dimLimit, Max: top}
			return nil
		}
		c := d.Peek()
		if c != '-' && (c < '0' || c > '9') {
			d.path = append(d.path, step{index: len(out)})
			d.Mistyped("must be a number")
			return nil
		}
		text, _ := d.Number()
		if d.fact != nil {
			return nil
		}
		// Beyond 32 bits it is infinite, which is refused with the vector: of several points the others are stored.
		v, _ := strconv.ParseFloat(string(text), 32)
		if out == nil {
			// Room for a vector of a usual model; an empty list takes none.
			out = make([]float32, 0, 384)
		}
		out = append(out, float32(v))
	}
	if d.fact == nil && out == nil {
		d.Refuse("must not be empty; leave the field out instead")
	}
	return out
}

// packedFloats reads a vector as base64 of numbers of 32 bits, little-endian.
func (d *Reader) packedFloats(top int64) []float32 {
	s := d.Str()
	if d.fact != nil {
		return nil
	}
	// Before it is decoded: what is too long takes no memory.
	if int64(len(s)) > int64(base64.StdEncoding.EncodedLen(int(4*top))) {
		d.fact = core.TooLarge{Field: d.At(), Limit: dimLimit, Max: top}
		return nil
	}
	raw, err := base64.StdEncoding.Strict().AppendDecode(nil, s)
	if err != nil || len(raw)%4 != 0 || len(raw) == 0 {
		d.Refuse("must be base64 of 32-bit numbers")
		return nil
	}
	out := make([]float32, len(raw)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return out
}

// Any reads an object, list, text, number, boolean or null as map[string]any, []any, string, int64 or float64, bool or nil. A
// number that is whole and fits stays whole. An object in which a name is repeated is refused.
func (d *Reader) Any() any {
	if d.fact != nil {
		return nil
	}
	switch c := d.Peek(); {
	case c == '{':
		return d.anyObject()
	case c == '[':
		return d.anyList()
	case c == '"':
		return string(d.Str())
	case c == '-' || c >= '0' && c <= '9':
		return d.anyNumber()
	case c == 't' || c == 'f':
		return d.Boolean()
	}
	d.word()
	return nil
}

// anyObject reads an object into a map. Names that are there twice are refused, as everywhere.
func (d *Reader) anyObject() map[string]any {
	out := make(map[string]any, 4)
	// It does not fail but for the depth: Any has looked at the byte.
	d.Enter('{', "")
	for first := true; d.Next('}', first); first = false {
		name := string(d.Name())
		if _, twice := out[name]; twice {
			d.Refuse("must be given only once")
		}
		if d.fact != nil {
			return nil
		}
		out[name] = d.Any()
	}
	return out
}

// anyList reads a list of any values.
func (d *Reader) anyList() []any {
	out := make([]any, 0, 4)
	d.Enter('[', "")
	for first := true; d.Next(']', first); first = false {
		out = append(out, d.Any())
	}
	return out
}

// anyNumber reads an int64 where a number is whole and fits, and else the nearest float64.
func (d *Reader) anyNumber() any {
	text, whole := d.Number()
	if d.fact != nil {
		return nil
	}
	if whole {
		if n, err := strconv.ParseInt(string(text), 10, 64); err == nil {
			return n
		}
	}
	f, err := strconv.ParseFloat(string(text), 64)
	if err != nil {
		d.Refuse("is out of range")
		return nil
	}
	return f
}

// ParseObject reads a document that is one object, as Any does.
func ParseObject(b []byte, deepest int64) (map[string]any, core.Fact) {
	d := Reader{b: b, deepest: deepest}
	if d.Peek() != '{' {
		d.Mistyped("must be an object")
		return nil, d.fact
	}
	v := d.Any()
	if d.End(); d.fact != nil {
		return nil, d.fact
	}
	return v.(map[string]any), nil
}

// IsJSON says whether b is one JSON value with at most deepest objects and lists within one another.
func IsJSON(b []byte, deepest int64) bool {
	d := Reader{b: b, deepest: deepest}
	d.Skip()
	d.End()
	return d.fact == nil && len(b) > 0
}
